//! Both ends of the control socket, with the real machine and without processes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cancellable_sleep::SleepGate;
use loop_state::{
    Effect, Head, Machine, MachineInput, PauseAfter, PhaseRules, Request, Rules, RunUpdate,
    SteerState, TimedInput, Timestamp,
};
use loop_state::{ProcessTreeOutcome, RuleChange, StopTiming, TurnOutcome};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;

use super::client::send;
use super::protocol::{self, ControlMessage, ControlQuery};
use super::{ControlSocket, EndReport, QueuedRequest, Response, Responses, RunPosition};
use super::{ask, socket_path};
use crate::recent_events::RecentEvents;
use crate::{AgentView, RunControl, RunEvent, RunnerOptions, View};

mod attach;

const LONG: Duration = Duration::from_secs(20);

/// A run that consists only of its machine and its socket.
struct Run {
    dir: tempfile::TempDir,
    machine: Machine,
    view: watch::Sender<Arc<View>>,
    requests: mpsc::Receiver<QueuedRequest>,
    socket: ControlSocket,
    recent: Arc<RecentEvents>,
    steerable: bool,
}

impl Run {
    fn new(steerable: bool) -> Self {
        let phase = PhaseRules {
            name: "main".into(),
            has_check: true,
            ..PhaseRules::default()
        };
        let rules = Rules {
            phases: vec![phase],
            ..Rules::default()
        };
        let machine = Machine::from(Head::new(rules).unwrap());
        let dir = tempfile::tempdir().unwrap();
        let look = |head: &Head| {
            let head = head.clone();
            Arc::new(View {
                head,
                pause_reason: None,
                agent: AgentView::default(),
                shutdown: None,
            })
        };
        let (view, watched) = watch::channel(look(machine.head()));
        let run = "r1".parse().unwrap();
        let options = RunnerOptions::new(SleepGate::new());
        let recent = Arc::new(RecentEvents::default());
        let (mut socket, requests) = ControlSocket::new(
            run,
            dir.path().into(),
            &options,
            watched,
            crate::heartbeat::LastTick::default(),
            Arc::clone(&recent),
        );
        socket.ensure().unwrap();
        let mut run = Self {
            dir,
            machine,
            view,
            requests,
            socket,
            recent,
            steerable,
        };
        run.happens(MachineInput::Started);
        run
    }

    /// Steps the machine; returns whether the input changed anything.
    fn happens(&mut self, what: MachineInput) -> bool {
        let at = Timestamp::from_millis(7);
        let effects = self.machine.step(TimedInput { at, what });
        let changed = !effects.is_empty()
            && !effects
                .iter()
                .any(|it| matches!(it, Effect::RejectRequest(_)));
        self.view.send_replace(Arc::new(View {
            head: self.machine.head().clone(),
            pause_reason: None,
            agent: AgentView {
                alive: true,
                steerable: self.steerable,
                ..AgentView::default()
            },
            shutdown: None,
        }));
        changed
    }

    /// Takes the next request as the runner does.
    async fn take_request(&mut self) {
        let QueuedRequest {
            control: what,
            reply,
        } = self.requests.recv().await.unwrap();
        let what = match what {
            RunControl::Request(request) => MachineInput::Requested(request),
            other => panic!("unexpected message: {other:?}"),
        };
        let changed = self.happens(what);
        let mark = RunPosition::from(&self.machine);
        reply.send(changed.then_some(mark).ok_or("not possible".into()));
    }

    fn complete_iteration(&mut self) {
        self.happens(MachineInput::TurnEnded(TurnOutcome::Completed));
        let failed = loop_state::CheckResult::Failed("no".into());
        self.happens(MachineInput::CheckEnded(failed));
        self.happens(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
    }

    async fn connects(&self, message: impl Into<ControlMessage>) -> Responses {
        let (dir, message): (_, ControlMessage) = (self.dir.path().to_owned(), message.into());
        let peer = spawn_blocking(move || send(&dir, message).unwrap());
        peer.await.unwrap()
    }

    fn asks(&self, request: Request) -> tokio::task::JoinHandle<Vec<Response>> {
        let dir = self.dir.path().to_owned();
        spawn_blocking(move || all(&dir, request))
    }
}

/// Waits for one response.
async fn next(mut peer: Responses) -> (Option<Response>, Responses) {
    let next = spawn_blocking(move || (peer.next(LONG).unwrap(), peer));
    next.await.unwrap()
}

/// Sends a request, and returns all responses.
fn all(dir: &Path, request: Request) -> Vec<Response> {
    let mut answers = ask(dir, request).unwrap();
    std::iter::from_fn(|| answers.next(LONG).unwrap()).collect()
}

fn recorded(steer: Option<u32>, budget_ms: Option<u64>) -> Response {
    Response::Recorded { steer, budget_ms }
}

fn over() -> EndReport {
    EndReport {
        reason: "stopped by a person".into(),
        ended_processes: 2,
        survivors: Vec::new(),
        proven: true,
    }
}

fn pause() -> Request {
    Request::Pause {
        reason: None,
        after: PauseAfter::Iteration,
    }
}

#[tokio::test]
async fn c75a_c75c_c75e_pause_is_reported_until_the_boundary_and_cancelled() {
    let mut run = Run::new(false);
    let (first, second) = (run.connects(pause()).await, run.connects(pause()).await);
    run.take_request().await;
    // The machine rejects the second request, because it changes nothing.
    run.take_request().await;
    let mut told = Vec::new();
    for peer in [first, second] {
        told.push(next(peer).await);
    }
    run.complete_iteration();
    for (first, peer) in told {
        assert_eq!(first, Some(recorded(None, None)));
        assert_eq!(next(peer).await.0, Some(Response::Applied));
    }
    let again = run.asks(pause());
    run.take_request().await;
    assert_eq!(
        again.await.unwrap(),
        [Response::Applied],
        "the run is paused"
    );
    let woken = run.asks(Request::Continue);
    run.take_request().await;
    assert_eq!(woken.await.unwrap(), [Response::Applied]);

    let peer = run.connects(pause()).await;
    run.take_request().await;
    let (first, peer) = next(peer).await;
    assert_eq!(first, Some(recorded(None, None)));
    run.happens(MachineInput::Requested(Request::Continue));
    let last = next(peer).await.0;
    assert!(matches!(last, Some(Response::Rejected { reason: why }) if why.contains("cancelled")));
}

#[tokio::test]
async fn set_rule_is_recorded_and_then_in_effect() {
    let mut run = Run::new(false);
    let set = |max| Request::Set(RuleChange::MaxIterations(max));
    let told = run.asks(set(Some(9)));
    run.take_request().await;
    assert_eq!(
        told.await.unwrap(),
        [recorded(None, None), Response::Applied]
    );
    assert_eq!(
        run.machine.head().rules.phases[0].limits.max_iterations,
        Some(9)
    );
    let told = run.asks(set(Some(0)));
    run.take_request().await;
    assert!(matches!(
        told.await.unwrap()[..],
        [Response::Rejected { .. }]
    ));
}

#[tokio::test]
async fn j49c_turn_that_ended_normally_is_not_reported_as_interrupted() {
    let mut run = Run::new(true);
    let peer = run.connects(Request::Interrupt).await;
    run.take_request().await;
    let (first, peer) = next(peer).await;
    assert_eq!(first, Some(Response::Delivered));
    run.happens(MachineInput::TurnEnded(TurnOutcome::Completed));
    let last = next(peer).await.0;
    assert!(matches!(last, Some(Response::Rejected { reason: why }) if why.contains("turn ended")));
}

#[tokio::test]
async fn j49c_interrupt_applies_to_the_running_turn() {
    let mut run = Run::new(true);
    let peer = run.connects(Request::Interrupt).await;
    while run.requests.is_empty() {
        tokio::task::yield_now().await;
    }
    // The request waits while the run begins the next iteration.
    run.complete_iteration();
    run.happens(MachineInput::Requested(Request::Skip));
    run.take_request().await;
    let (first, peer) = next(peer).await;
    assert_eq!(first, Some(Response::Delivered));
    run.happens(MachineInput::TurnEnded(TurnOutcome::Interrupted));
    let (last, peer) = next(peer).await;
    assert_eq!(last, Some(Response::Applied));
    assert_eq!(next(peer).await.0, None);
    assert_eq!(run.machine.head().iteration, 2);
}

#[tokio::test]
async fn x109a_steer_is_reported_until_it_is_seen() {
    let steer = || Request::Steer {
        text: "use tabs".into(),
        now: false,
    };
    let mut run = Run::new(true);
    let told = run.asks(steer());
    run.take_request().await;
    for state in [SteerState::Delivered, SteerState::Seen] {
        // Even in a fast sequence of steps, no response reports less progress than an earlier one.
        run.happens(MachineInput::SteerAdvanced { id: 1, state });
        tokio::task::yield_now().await;
    }
    let told = told.await.unwrap();
    assert_eq!(told.first(), Some(&recorded(Some(1), None)));
    assert_eq!(told.last(), Some(&Response::Applied));

    let mut plain = Run::new(false);
    let told = plain.asks(steer());
    plain.take_request().await;
    assert_eq!(
        told.await.unwrap(),
        [recorded(Some(1), None), Response::NextPrompt]
    );
}

#[tokio::test]
async fn stop_reports_its_budget_and_end() {
    let mut run = Run::new(false);
    let stop = Request::Stop {
        when: StopTiming::Now,
    };
    let told = run.asks(stop.clone());
    run.take_request().await;
    // One more request that the run never takes, and a client that never sends one.
    let late = run.asks(stop);
    let path = socket_path::socket(run.dir.path());
    let _silent = UnixStream::connect(&path).await.unwrap();
    while run.requests.is_empty() {
        tokio::task::yield_now().await;
    }
    drop(run.requests);
    run.socket.close(over()).await;
    assert_eq!(
        told.await.unwrap(),
        [recorded(None, Some(8000)), Response::RunEnded(over())]
    );
    assert_eq!(late.await.unwrap(), [Response::RunEnded(over())]);
    assert!(!path.exists());
    let nobody = spawn_blocking(move || send(run.dir.path(), ControlQuery::Status).unwrap_err());
    assert!(nobody.await.unwrap().is_not_running());
}

#[tokio::test]
async fn stop_after_iteration_reports_its_budget_for_an_interrupted_turn() {
    for interrupted in [false, true] {
        let mut run = Run::new(true);
        if interrupted {
            run.happens(MachineInput::TurnEnded(TurnOutcome::Interrupted));
        }
        let after = StopTiming::AfterIteration;
        let peer = run.connects(Request::Stop { when: after }).await;
        run.take_request().await;
        let budget = interrupted.then_some(8000);
        assert_eq!(next(peer).await.0, Some(recorded(None, budget)));
    }
}

#[tokio::test]
async fn dead_run_sends_nothing_and_stuck_run_is_unresponsive() {
    let mut run = Run::new(false);
    let told = run.asks(pause());
    run.take_request().await;
    let dir = run.dir.path().to_owned();
    drop((run.socket, run.view, run.requests));
    assert_eq!(told.await.unwrap(), [recorded(None, None)]);
    spawn_blocking(move || {
        let (listener, _) = socket_path::bind_socket(&dir).unwrap();
        let mut waiting = send(&dir, ControlQuery::Status).unwrap();
        let wait = Duration::from_millis(20);
        assert!(waiting.next(wait).unwrap_err().is_unresponsive());
        assert!(waiting.next(wait).unwrap_err().is_unresponsive());
        drop(listener);
        assert!(
            send(&dir, ControlQuery::Status)
                .unwrap_err()
                .is_not_running(),
            "the socket is stale"
        );
    })
    .await
    .unwrap();
}

/// Sends a request to a process that answers with this text, and returns the client's results.
fn answered(text: &str) -> [Result<Option<Response>, crate::Error>; 2] {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = dir.path().join("r1");
    std::fs::create_dir(&run_dir).unwrap();
    let (listener, _) = socket_path::bind_socket(&run_dir).unwrap();
    listener.set_nonblocking(false).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            let mut from = std::io::BufReader::new(&stream);
            std::io::BufRead::read_line(&mut from, &mut line).unwrap();
            assert!(line.contains(r#""program":"rlm "#), "{line}");
            std::io::Write::write_all(&mut stream, text.as_bytes()).unwrap();
        });
        let status = send(&run_dir, ControlQuery::Status).unwrap().next(LONG);
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            std::io::Write::write_all(&mut stream, text.as_bytes()).unwrap();
        });
        let attached = super::attached::attach(&run_dir, false, Timestamp::default());
        [status, attached.map(|_| None)]
    })
}

#[test]
fn response_of_another_version_names_both_versions_and_the_process() {
    let pid = std::process::id();
    let at = if cfg!(target_os = "linux") {
        format!(" (pid {pid})")
    } else {
        String::new()
    };
    let own = rlm_store::program_title();
    for (line, program) in [
        (
            r#"{"v":1,"program":"rlm 9.0.0","response":"unsupported","what":"`forward`"}"#,
            "rlm 9.0.0",
        ),
        (
            r#"{"v":1,"program":"rlm 9.0.0","response":"malformed","reason":"no `when`"}"#,
            "rlm 9.0.0",
        ),
        (
            r#"{"v":1,"program":"rlm 9.0.0","response":"forwarded"}"#,
            "rlm 9.0.0",
        ),
        (
            r#"{"v":1,"program":"rlm 9.0.0","response":"status","run":5}"#,
            "rlm 9.0.0",
        ),
        (
            r#"{"v":2,"program":"rlm 9.0.0","answer":"forwarded"}"#,
            "rlm 9.0.0",
        ),
        (r#"{"v":2,"answer":"forwarded"}"#, "another version"),
    ] {
        let results = answered(&format!("{line}\n"));
        for (way, result) in ["status", "attach"].iter().zip(results) {
            let result = match result {
                // The client skips a response of a newer version, and the run can send another one.
                Ok(Some(Response::Unknown)) => continue,
                result => result,
            };
            let error = result.unwrap_err();
            assert!(error.is_other_version(), "{way}: {error}");
            let text = error.to_string();
            let expected =
                format!("run `r1` is driven by {program}{at}, and this command is {own}: use ");
            assert!(text.starts_with(&expected), "{way}: {text}");
        }
    }
}

#[test]
fn unknown_response_before_the_end_is_another_version() {
    let dir = tempfile::tempdir().unwrap();
    let (listener, _) = socket_path::bind_socket(dir.path()).unwrap();
    listener.set_nonblocking(false).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for ends in [true, false] {
                let (mut stream, _) = listener.accept().unwrap();
                let unknown = "{\"v\":1,\"program\":\"rlm 9.0.0\",\"response\":\"forwarded\"}\n";
                let mut text = unknown.as_bytes().to_vec();
                if !ends {
                    text.extend(protocol::line(&Response::Applied));
                }
                std::io::Write::write_all(&mut stream, &text).unwrap();
            }
        });
        let mut responses = ask(dir.path(), Request::Interrupt).unwrap();
        assert_eq!(responses.next(LONG).unwrap(), Some(Response::Unknown));
        assert!(responses.next(LONG).unwrap_err().is_other_version());
        let mut responses = ask(dir.path(), Request::Interrupt).unwrap();
        assert_eq!(responses.next(LONG).unwrap(), Some(Response::Unknown));
        assert_eq!(responses.next(LONG).unwrap(), Some(Response::Applied));
        assert_eq!(responses.next(LONG).unwrap(), None);
    });
}

#[tokio::test(start_paused = true)]
async fn peer_without_complete_request_is_dropped() {
    let run = Run::new(false);
    let path = socket_path::socket(run.dir.path());
    for half in [&b""[..], b"{\"v\":1,\"request\"", &[b'x'; 100_000]] {
        let mut peer = UnixStream::connect(&path).await.unwrap();
        peer.write_all(half).await.unwrap();
        let mut text = String::new();
        // The paused clock advances by itself when nothing else happens.
        let end = peer.read_to_string(&mut text).await;
        assert!(end.is_err() || text.is_empty(), "{text}");
    }
    // A peer that reads late still gets the response.
    let mut peer = UnixStream::connect(&path).await.unwrap();
    peer.write_all(&protocol::line(&ControlQuery::Status))
        .await
        .unwrap();
    let mut text = String::new();
    peer.read_to_string(&mut text).await.unwrap();
    let told = protocol::parse_response(text.as_bytes()).unwrap();
    assert!(matches!(told, Response::Status(it) if it.run.as_str() == "r1" && it.phase == "main"));
}

#[tokio::test]
async fn half_closed_peer_gets_all_responses() {
    let mut run = Run::new(true);
    let path = socket_path::socket(run.dir.path());
    let mut peer = UnixStream::connect(&path).await.unwrap();
    let asked = protocol::line(&Request::Interrupt);
    peer.write_all(&asked).await.unwrap();
    peer.shutdown().await.unwrap();
    run.take_request().await;
    let mut first = vec![0; protocol::line(&Response::Delivered).len()];
    peer.read_exact(&mut first).await.unwrap();
    run.happens(MachineInput::TurnEnded(TurnOutcome::Interrupted));
    let mut rest = Vec::new();
    peer.read_to_end(&mut rest).await.unwrap();
    assert_eq!(protocol::parse_response(&rest), Ok(Response::Applied));
}

#[tokio::test(start_paused = true)]
async fn half_closed_peer_frees_its_slot() {
    let mut run = Run::new(true);
    let path = socket_path::socket(run.dir.path());
    for _ in 0..40 {
        let mut peer = UnixStream::connect(&path).await.unwrap();
        peer.write_all(&protocol::line(&pause())).await.unwrap();
        peer.shutdown().await.unwrap();
        let heard = tokio::time::timeout(LONG, run.take_request()).await;
        heard.expect("a slot is free");
        let mut first = vec![0; protocol::line(&recorded(None, None)).len()];
        peer.read_exact(&mut first).await.unwrap();
        drop(peer);
        tokio::time::advance(Duration::from_secs(2)).await;
    }
}

#[tokio::test]
async fn peer_disconnect_cancels_nothing() {
    let mut run = Run::new(false);
    let dir = run.dir.path().to_owned();
    spawn_blocking(move || drop(ask(&dir, pause()).unwrap()))
        .await
        .unwrap();
    run.take_request().await;
    assert!(run.machine.head().pausing);
}

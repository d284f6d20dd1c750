//! `rlm attach` for a run of the fleet: shows what the process of the run sends, and records a person's requests on the server.

use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc as threads;
use std::time::{Duration, Instant};

use agent_duplex::ProcessName;
use loop_runner::RunControl;
use loop_runner::control::{self, AttachedRun, EndReport, Response};
use loop_state::{Request, Timestamp};
use rlm_fleet::nats::{OwnerState, Responses};
use rlm_terminal::{ForegroundRun, PressActions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::mpsc;

use super::control::{FIRST, FleetRun, named_pause};
use super::show::code_of;
use crate::args::AttachArgs;
use crate::exit::{Code, Failure};
use crate::render::{EndWords, Level, Screen};
use crate::session::{self, Session};
use crate::{hint, output, render};

/// The time for which the process of a run shows itself. It is asked again earlier, so that it always knows of an attached person.
const SHOWS: Duration = Duration::from_secs(15);
/// The interval in which the process of a run is asked again. A dead worker is noticed so late.
const AGAIN: Duration = Duration::from_secs(10);
/// The interval in which the next owner of a run is looked for.
const NEXT_OWNER: Duration = Duration::from_secs(1);
/// The time in which the last requests of a person who detaches are recorded.
const LAST_REQUESTS: Duration = Duration::from_secs(2);
/// The number of requests that can wait.
const REQUEST_QUEUE: usize = 64;

/// The process that works on a run.
struct Owner {
    /// Its first line.
    first: Vec<u8>,
    more: Responses,
}

impl FleetRun {
    /// Shows the screen of the run until it ends in the fleet, also after a change of its worker.
    pub(crate) fn attach(self, args: &AttachArgs) -> Result<ExitCode, Failure> {
        self.refuse_ended()?;
        let session = Session::begin(args.no_input, false)?;
        let screen = Screen::new(args.json).with_level(Level::from_flags(args.quiet, args.verbose));
        let attended = session.options().interactive;
        let target = Arc::new(self);
        let from = Arc::clone(&target);
        let found = session.prepare(move || {
            from.runtime
                .block_on(from.next_owner(attended, print_waiting))
        })?;
        let Some(owner) = found else {
            return target.finish_attached(None, args.json);
        };
        let failed = |e: std::io::Error| Failure::failed(format!("can't attach: {e}"));
        let (here, there) = StdUnixStream::pair().map_err(failed)?;
        there.set_nonblocking(true).map_err(failed)?;
        let (control, requests) = mpsc::channel(REQUEST_QUEUE);
        let (to_person, messages) = mpsc::channel(REQUEST_QUEUE);
        // A program that reads events gets only events.
        let to_person = match args.json {
            true => ToPerson::StandardError,
            false => ToPerson::Screen(to_person),
        };
        let (to_end, ended) = threads::channel();
        let from = Arc::clone(&target);
        std::thread::spawn(move || {
            let result = from.runtime.block_on(async {
                let pass = from.pass(owner, there, attended, &to_person);
                tokio::join!(pass, from.record(requests, &to_person)).0
            });
            let _gone = to_end.send(result);
        });
        let name = target.run().to_string();
        let mut attached = AttachedRun::remote(&name, here)?;
        screen.attached(target.run(), None, session.can_ask());
        let events = attached.events().expect("the events were not taken yet");
        let shown = ForegroundRun {
            run: name,
            view: attached.view(),
            control,
            interrupts: session.interrupts(),
            // The prompts are on the worker.
            prompts: Vec::new(),
            log: screen.printed_log(),
            signals: session::signals,
            detached_exit_code: Code::Done as u8,
            // The process of the run handles its stop.
            on_stop: Box::new(|| ()),
            presses: PressActions::default(),
            bell: false,
            attached: true,
            earlier_events: Vec::new(),
            messages: Some(messages),
        };
        let cause = session.show_attached(shown, events, || attached.detach());
        if let Some(cause) = cause {
            // If the server does not answer in this time, the last request of the person may not be recorded.
            let _late = ended.recv_timeout(LAST_REQUESTS);
            let (rlm, run) = (hint::program_command(), target.run());
            anstream::eprintln!(
                "detached; run {run} continues; to attach again: {rlm} attach {run}"
            );
            return session.exit_attached(cause);
        }
        let report = attached.wait_for_end();
        if let Ok(Err(failure)) = ended.recv_timeout(LAST_REQUESTS) {
            return Err(failure);
        }
        target.finish_attached(report.as_ref(), args.json)
    }

    /// Prints how the run ended, and returns its exit code. A run that a person stopped while no worker had it, or that is parked, has no report.
    fn finish_attached(&self, report: Option<&EndReport>, json: bool) -> Result<ExitCode, Failure> {
        let last = self.runtime.block_on(self.fleet.last(self.run()))?;
        let code = code_of(&last);
        let survivors = report.map_or(&[][..], |report| &report.survivors);
        let survivors: Vec<ProcessName> = { survivors.iter() }
            .map(|it| ProcessName {
                pid: it.pid,
                name: it.name.clone(),
            })
            .collect();
        let summary = last.summary.as_ref();
        let words = EndWords {
            run: self.run(),
            reason: summary.and_then(|it| it.reason.as_ref()),
            ended: report.map_or(0, |report| report.ended_processes),
            left: survivors.len(),
            proven: report.is_some_and(|report| report.proven),
            usage: summary.map(|it| it.usage).unwrap_or_default(),
            uncommitted: None,
        };
        match json {
            true => output::line(&render::ended_elsewhere(&words, &survivors)),
            false if report.is_some() => output::line(&format!("{}: {words}", self.run())),
            false => output::line(&self.row(last).to_string()),
        };
        Ok(code.into())
    }

    /// Waits for a process that works on the run; `None` if the run has ended. `waits` is called before the first wait.
    async fn next_owner(
        &self,
        attended: bool,
        waits: impl FnOnce(&Self),
    ) -> Result<Option<Owner>, Failure> {
        let mut waits = Some(waits);
        loop {
            match self.ask_owner(attended).await {
                Err(e) if !e.is_unavailable() => return Err(e.into()),
                Ok(Some(owner)) => return Ok(Some(owner)),
                _ => {}
            }
            match self.fleet.last(self.run()).await {
                Ok(last) if last.is_over() => return Ok(None),
                Err(e) if !e.is_unavailable() => return Err(e.into()),
                _ => {}
            }
            if let Some(waits) = waits.take() {
                waits(self);
            }
            let _elapsed = self.gate.sleep(NEXT_OWNER).await;
        }
    }

    /// Asks the process of the run to show itself; `None` if no process works on the run.
    async fn ask_owner(&self, attended: bool) -> Result<Option<Owner>, rlm_fleet::nats::Error> {
        let query = self
            .fleet
            .query(self.run(), control::attach_line(attended), SHOWS);
        let answer = self.fleet.permitted(query).await?;
        let is_end =
            |line: &[u8]| matches!(control::parse_response(line), Ok(Response::RunEnded(_)));
        let answer = answer.filter(|(first, _)| !is_end(first));
        Ok(answer.map(|(first, more)| Owner { first, more }))
    }

    /// Passes the lines of each process that works on the run, until the run has ended or the person is gone.
    async fn pass(
        &self,
        mut owner: Owner,
        to: StdUnixStream,
        attended: bool,
        to_person: &ToPerson,
    ) -> Result<(), Failure> {
        let to = UnixStream::from_std(to);
        let to = to.map_err(|e| Failure::failed(format!("can't attach: {e}")))?;
        let (mut from, mut to) = to.into_split();
        let mut lines = PassedLines::default();
        let passed = async {
            loop {
                let ended = self
                    .pass_owner(owner, &mut to, attended, &mut lines)
                    .await?;
                let waits = |_: &Self| {
                    to_person.say("no worker of the run answers; waiting for the next one");
                };
                let Some(next) = self.next_owner(attended, waits).await.map_err(Some)? else {
                    // The end of the process is that of the run.
                    if let Some(ended) = ended {
                        to.write_all(&ended).await.map_err(|_| None)?;
                    }
                    return Ok(());
                };
                owner = next;
            }
        };
        let mut none = [0];
        let passed = tokio::select! {
            passed = passed => passed,
            // A person who detaches closes the connection.
            _ = from.read(&mut none) => Ok(()),
        };
        match passed {
            Err(Some(failure)) => Err(failure),
            Ok(()) | Err(None) => Ok(()),
        }
    }

    /// Passes the lines of one process until it is gone. Returns the line with its end, if it sent one; the error `None` if the person is gone.
    async fn pass_owner(
        &self,
        mut owner: Owner,
        to: &mut OwnedWriteHalf,
        attended: bool,
        lines: &mut PassedLines,
    ) -> Result<Option<Vec<u8>>, Option<Failure>> {
        let mut again_at = Instant::now() + AGAIN;
        lines.begin();
        let mut line = Some(std::mem::take(&mut owner.first));
        loop {
            let Some(next) = line else { return Ok(None) };
            if let Ok(Response::RunEnded(_)) = control::parse_response(&next) {
                return Ok(Some(next));
            }
            if lines.is_new(&next) {
                to.write_all(&next).await.map_err(|_| None)?;
            }
            let left = again_at.saturating_duration_since(Instant::now());
            line = owner.more.next(left).await;
            if line.is_some() {
                continue;
            }
            if Instant::now() < again_at {
                // The process ended its answer early; without this wait, one that always does would be asked without a pause.
                let _elapsed = self.gate.sleep(NEXT_OWNER).await;
            }
            line = match self.ask_owner(attended).await {
                Ok(Some(again)) => {
                    again_at = Instant::now() + AGAIN;
                    lines.begin();
                    owner.more = again.more;
                    Some(again.first)
                }
                Ok(None) => None,
                Err(e) if e.is_unavailable() => None,
                Err(e) => return Err(Some(e.into())),
            };
        }
    }

    /// Records a person's requests, one after another. The events of the run show the progress; a missing response is reported here.
    async fn record(&self, mut requests: mpsc::Receiver<RunControl>, to_person: &ToPerson) {
        while let Some(control) = requests.recv().await {
            let RunControl::Request(request) = control else {
                continue;
            };
            if let Err(problem) = self.record_one(&request).await {
                to_person.say(&problem);
            }
        }
    }

    async fn record_one(&self, request: &Request) -> Result<(), String> {
        let line = control::request_line(&named_pause(request))?;
        let recorded = self.fleet.record_request(self.run(), line, FIRST);
        let recorded = self.fleet.permitted(recorded).await;
        let mut recorded = recorded.map_err(|e| e.to_string())?;
        if recorded.owner == OwnerState::None {
            return Err(
                "recorded; no worker owns the run: the next one applies the request".into(),
            );
        }
        match recorded
            .next(FIRST)
            .await
            .map(|line| control::parse_response(&line))
        {
            None => Err("recorded; the worker of the run does not answer yet".into()),
            Some(Ok(Response::Refused { reason } | Response::Malformed { reason })) => Err(reason),
            _ => Ok(()),
        }
    }
}

/// Where the messages of this command go while the run is shown.
enum ToPerson {
    Screen(mpsc::Sender<String>),
    StandardError,
}

impl ToPerson {
    fn say(&self, message: &str) {
        match self {
            Self::Screen(to) => {
                // If the channel is full, the same message is already in it.
                let _full = to.try_send(format!("rlm: {message}\n"));
            }
            Self::StandardError => anstream::eprintln!("rlm: {message}"),
        }
    }
}

fn print_waiting(run: &FleetRun) {
    anstream::eprintln!("waiting for a worker of run {}", run.run());
}

/// The events that were passed. A process that is asked again sends its last events again.
#[derive(Debug, Default)]
struct PassedLines {
    /// The time of the newest event.
    newest: Timestamp,
    /// Events up to this time were passed before the process was asked again.
    before: Timestamp,
}

impl PassedLines {
    /// A process begins to send, perhaps events that were passed already.
    fn begin(&mut self) {
        self.before = self.newest;
    }

    /// Returns whether a line was not passed yet.
    fn is_new(&mut self, line: &[u8]) -> bool {
        let Some(at) = control::event_at(line) else {
            return true;
        };
        self.newest = self.newest.max(at);
        at > self.before
    }
}

//! The commands for a live run, for a run of the fleet: they record a request on the server, and print the responses of the worker that owns the run.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use cancellable_sleep::SleepGate;
use loop_runner::control::{self, EndReport, Response, Status};
use loop_state::{Request, RuleChange, StopTiming, Timestamp, times};
use rlm_fleet::nats::{
    Fleet, FleetAddress, OwnerState, QueuedStop, RunRow, StoredPart, StoredRecord,
};
use rlm_store::{Project, RunId, RunState, Timeline, TranscriptCopy};
use rlm_text::duration;
use rlm_text::escape::plain;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::server::on_fleet;
use super::show::RowView;
use super::staged::StagedProject;
use super::worker::{check_out, replicated};
use crate::args::{FleetDrainArgs, FleetResumeArgs, LogsArgs, StopArgs};
use crate::command::live::{self, DEFAULT_WAIT};
use crate::command::logs::{ArrivingLogs, ReaderGone};
use crate::command::{limit_change, select};
use crate::exit::{Code, Failure};
use crate::session::Session;
use crate::{hint, output, render};

/// The address of the fleet, for the commands of local runs. Without it, these commands never use a server.
const SERVERS: &str = "RLM_FLEET_NATS";
/// The namespace of the fleet.
const NAMESPACE: &str = "RLM_FLEET_NAMESPACE";
/// The certificates of the authorities of its servers.
const TLS_CA: &str = "RLM_FLEET_TLS_CA";
/// The shortest time for the first response.
pub(super) const FIRST: Duration = Duration::from_secs(5);
/// The time for which the owner of a run reports a stop.
const STOP_REPORT: Duration = Duration::from_secs(60);
/// The interval in which a follower looks for more.
const NEXT_LOOK: Duration = Duration::from_millis(500);
/// The longest wait for the rest of the transcripts after the end of the run.
const REST: Duration = Duration::from_secs(3);
/// A run that has ended for so long gets no more.
const LONGEST_REST: Duration = Duration::from_secs(15);

/// A run of the fleet, and the connection to it. It uses no session: a signal ends the command at once, and a recorded request stays.
pub(crate) struct FleetRun {
    pub(super) runtime: tokio::runtime::Runtime,
    pub(super) gate: SleepGate,
    pub(super) fleet: Fleet,
    run: RunId,
    last: StoredRecord,
}

impl fmt::Debug for FleetRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetRun")
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}

/// The responses to a request.
enum Asked {
    /// No process works on the run. The next owner applies the request.
    NoOwner(u64),
    /// The last response.
    Final(Response),
    /// The time is over; the last response, if there was one.
    TimedOut(u64, Option<Response>),
}

impl FleetRun {
    /// Finds a run of the fleet: its name is given, `RLM_FLEET_NATS` is set, and no run of this machine has this name.
    pub(crate) fn named(directory: &Path, name: Option<&str>) -> Result<Option<Self>, Failure> {
        let servers = std::env::var(SERVERS).unwrap_or_default();
        let (Some(name), false) = (name, servers.is_empty()) else {
            return Ok(None);
        };
        let found = Project::find(directory)
            .map_err(Failure::from)
            .and_then(|here| select::of_any_project(here, name));
        let missing = match found {
            Err(missing) if missing.code == Code::NotFound => missing,
            _ => return Ok(None),
        };
        let Ok(run) = name.parse::<RunId>() else {
            return Ok(None);
        };
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let namespace = variable(NAMESPACE).unwrap_or_else(|| "rlm".into());
        let address = FleetAddress {
            tls_ca: variable(TLS_CA).map(PathBuf::from),
            ..FleetAddress::new(servers, namespace)
        };
        match Self::open(&address, run) {
            Ok(found) => Ok(Some(found)),
            Err(mut failure) => {
                // Both are places in which the person may have expected the run.
                failure.message = format!("{}; {}", missing.message, failure.message);
                Err(failure)
            }
        }
    }

    fn open(address: &FleetAddress, run: RunId) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| Failure::failed(format!("can't start the async runtime: {e}")))?;
        // A signal ends the command at once, so nothing shuts this gate.
        let gate = SleepGate::from_token(CancellationToken::new());
        let (fleet, last) = runtime.block_on(async {
            let fleet = Fleet::connect(address, gate.clone()).await?;
            let last = fleet.permitted(fleet.last(&run)).await?;
            Ok::<_, rlm_fleet::nats::Error>((fleet, last))
        })?;
        Ok(Self {
            runtime,
            gate,
            fleet,
            run,
            last,
        })
    }

    pub(crate) fn run(&self) -> &RunId {
        &self.run
    }

    /// Sends a request, and prints its progress.
    pub(crate) fn request(
        &self,
        request: &Request,
        json: bool,
        wait: Duration,
    ) -> Result<ExitCode, Failure> {
        self.refuse_ended()?;
        let named = named_pause(request);
        match self.ask(&named, json, wait, wait, |_| None)? {
            Asked::Final(answer @ (Response::Applied | Response::NextPrompt)) => {
                live::print_response(&self.run, request, &answer, json);
            }
            Asked::Final(answer) => return Err(live::request_error(&self.run, &answer)),
            Asked::TimedOut(_, Some(_)) if !json => anstream::eprintln!(
                "the request has no effect yet after {}; it may still be applied; to check: {} status {}",
                duration::show(wait),
                hint::program_command(),
                self.run
            ),
            Asked::TimedOut(_, Some(_)) => {}
            Asked::TimedOut(number, None) => self.print_recorded(number, "silent", json),
            Asked::NoOwner(number) => self.print_recorded(number, "none", json),
        }
        Ok(Code::Done.into())
    }

    /// Prints that the server has a request, and that no process has reported it yet.
    fn print_recorded(&self, number: u64, owner: &'static str, json: bool) {
        let run = &self.run;
        let text = match (json, owner) {
            (true, _) => json!({
                "run": run, "response": "recorded", "request": number, "owner": owner,
            })
            .to_string(),
            (false, "none") => {
                format!("{run}: recorded; no worker owns it: the next one applies the request")
            }
            _ => format!("{run}: recorded; its worker does not answer yet"),
        };
        output::line(&text);
    }

    /// Records a request, and prints each response except the last. `longer` extends the time after a response.
    fn ask(
        &self,
        request: &Request,
        json: bool,
        wait: Duration,
        report: Duration,
        longer: impl Fn(&Response) -> Option<Duration>,
    ) -> Result<Asked, Failure> {
        let line = control::request_line(request).map_err(Failure::usage)?;
        self.runtime.block_on(async {
            let begun = Instant::now();
            let sent = self
                .fleet
                .record_request(&self.run, line, report.max(FIRST));
            let mut sent = self.fleet.permitted(sent).await?;
            if sent.owner == OwnerState::None {
                return Ok(Asked::NoOwner(sent.number));
            }
            let (mut by, mut last) = (begun + wait.max(FIRST), None);
            loop {
                let left = by.saturating_duration_since(Instant::now());
                let Some(line) = sent.next(left).await else {
                    return Ok(Asked::TimedOut(sent.number, last));
                };
                // Another version may send a line that this one does not know.
                let Ok(answer) = control::parse_response(&line) else {
                    continue;
                };
                match answer {
                    Response::Unknown => continue,
                    answer if answer.is_last() => return Ok(Asked::Final(answer)),
                    answer => {
                        live::print_response(&self.run, request, &answer, json);
                        by = match longer(&answer) {
                            Some(more) => Instant::now() + more,
                            None => begun + wait,
                        };
                        last = Some(answer);
                    }
                }
            }
        })
    }

    /// Refuses a request to a run that has ended.
    pub(super) fn refuse_ended(&self) -> Result<(), Failure> {
        if !self.last.is_over() {
            return Ok(());
        }
        let (run, rlm) = (&self.run, hint::program_command());
        let row = self.row(self.last.clone());
        Err(Failure::not_found(format!(
            "run `{run}` of the fleet is not live: {row}; to continue it: {rlm} fleet resume {run}"
        )))
    }

    pub(super) fn row(&self, last: StoredRecord) -> RowView {
        let run = self.run.clone();
        let row = RunRow { run, last };
        RowView::of(&row.run, &row.last, row.state())
    }

    /// Requests the stop of the run, and waits for its end. A run that no worker has ends at once.
    pub(crate) fn stop(&self, args: &StopArgs) -> Result<ExitCode, Failure> {
        self.refuse_ended()?;
        let when = args.after.unwrap_or_default();
        if args.now || when == StopTiming::Now {
            let stop = self.fleet.stop_queued(&self.run);
            let stopped = self.runtime.block_on(self.fleet.permitted(stop))?;
            if let QueuedStop::Ended(last) = stopped {
                render::print(args.json, &self.row(*last));
                return Ok(Code::Done.into());
            }
        }
        let request = match args.now {
            true => Request::Abort,
            false => Request::Stop { when },
        };
        let wait = args.wait.unwrap_or(DEFAULT_WAIT);
        let longer = |answer: &Response| match answer {
            Response::Recorded { budget_ms, .. } if args.wait.is_none() => {
                Some(Duration::from_millis((*budget_ms)?) + times::STOP_MARGIN)
            }
            _ => None,
        };
        match self.ask(&request, args.json, wait, wait.max(STOP_REPORT), longer)? {
            Asked::Final(Response::RunEnded(ended)) => Ok(self.print_end(&ended, args.json)),
            Asked::Final(answer) => Err(live::request_error(&self.run, &answer)),
            Asked::NoOwner(number) => {
                self.print_recorded(number, "none", args.json);
                Ok(Code::Done.into())
            }
            Asked::TimedOut(number, None) => {
                self.print_recorded(number, "silent", args.json);
                Ok(Code::Done.into())
            }
            Asked::TimedOut(_, Some(_)) if when == StopTiming::AfterIteration => {
                Ok(Code::Done.into())
            }
            Asked::TimedOut(..) => {
                let (run, rlm) = (&self.run, hint::program_command());
                Err(Failure::failed(format!(
                    "run `{run}` received the request but has not ended yet; to wait for it: {rlm} fleet wait {run}"
                )))
            }
        }
    }

    /// Prints the end of the run. The worker keeps the run until each process is gone.
    fn print_end(&self, ended: &EndReport, json: bool) -> ExitCode {
        let (run, left) = (&self.run, ended.survivors.len());
        let of = left + ended.ended_processes;
        output::line(&match json {
            true => json!({
                "run": run, "response": "process_gone", "reason": ended.reason,
                "left": left, "of": of, "proven": ended.proven,
            })
            .to_string(),
            false => format!(
                "{run}: {}; {}",
                plain(&ended.reason),
                render::left(left, of, ended.proven)
            ),
        });
        match left {
            0 => Code::Done.into(),
            _ => Code::Survivors.into(),
        }
    }

    /// Lets a worker continue the run: ends its pause, or queues an ended or parked run again, with changes of its limits.
    pub(crate) fn resume(&self, changes: &[RuleChange], json: bool) -> Result<ExitCode, Failure> {
        if self.last.is_over() || self.last.is_queued() {
            let resume = self.fleet.resume(&self.run, changes);
            self.runtime.block_on(self.fleet.permitted(resume))?;
            let last = self.runtime.block_on(self.fleet.last(&self.run))?;
            render::print(json, &self.row(last));
            return Ok(Code::Done.into());
        }
        if !changes.is_empty() {
            let (run, rlm) = (&self.run, hint::program_command());
            return Err(Failure::usage(format!(
                "run `{run}` is live; to change its limits: {rlm} set {run} KEY=VALUE"
            )));
        }
        self.request(&Request::Continue, json, DEFAULT_WAIT)
    }

    /// Prints the last saved state of the run, and what its process reports.
    pub(crate) fn status(&self, json: bool, alive: bool) -> Result<ExitCode, Failure> {
        let asked = self.runtime.block_on(async {
            let line = control::status_line();
            let query = self.fleet.query(&self.run, line, FIRST);
            self.fleet.permitted(query).await
        });
        let silent = asked.as_ref().err().map(ToString::to_string);
        let answer = asked.ok().flatten();
        let answer = answer.and_then(|(line, _)| control::parse_response(&line).ok());
        let live = match answer {
            Some(Response::Status(status)) => Some(status),
            _ => None,
        };
        if alive && live.is_none() {
            let why = silent.unwrap_or_else(|| "no worker owns it".into());
            return Err(Failure::failed(format!(
                "run `{}` is not alive: {why}",
                self.run
            )));
        }
        let row = self.row(self.last.clone());
        let shown = StatusView { row, live };
        render::print(json, &shown);
        Ok(Code::Done.into())
    }

    /// Passes the timeline of the run, and a project with a copy of its saved state and its stored transcripts.
    pub(crate) fn with_timeline<T>(
        &self,
        use_it: impl FnOnce(&Project, Timeline) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let parts = self.fleet.parts(&self.run);
        let parts = self.runtime.block_on(self.fleet.permitted(parts))?;
        let place = StagedProject::new()?;
        let tree = place.0.join(self.run.as_str());
        let project = check_out(&tree, &self.run, parts.code.as_ref())?;
        project.unpack_claimed(&self.run, self.last.facts.epoch, replicated(parts))?;
        let copied = copy_transcripts(&self.fleet, &self.run, project.run_dir(&self.run));
        self.runtime.block_on(copied)?;
        let mut timeline = project.timeline(&self.run)?;
        let is_live = !self.last.is_over() && !self.last.is_queued();
        timeline.state = RunState::of(&timeline.head, is_live);
        use_it(&project, timeline)
    }

    /// Prints the stored transcripts of the run; with `--follow` also what its workers still store, until the run ends.
    pub(crate) fn logs(&self, args: &LogsArgs) -> Result<ExitCode, Failure> {
        self.runtime.block_on(async {
            let mut logs = ArrivingLogs::new(args);
            match self.print_transcripts(&mut logs, args).await {
                // The reader closed the output.
                Ok(Err(ReaderGone)) => return Ok(Code::Done.into()),
                Ok(Ok(())) => {}
                Err(failure) => {
                    logs.end();
                    return Err(failure);
                }
            }
            if logs.end() {
                return Ok(Code::Done.into());
            }
            let (run, rlm) = (&self.run, hint::program_command());
            Err(Failure::not_found(match args.iteration {
                Some(iteration) => format!(
                    "the fleet has no transcript of iteration {iteration} of run `{run}`; `{rlm} logs {run}` prints all"
                ),
                None => format!("the fleet has no transcript of run `{run}`"),
            }))
        })
    }

    async fn print_transcripts(
        &self,
        logs: &mut ArrivingLogs<'_>,
        args: &LogsArgs,
    ) -> Result<Result<(), ReaderGone>, Failure> {
        let mut stored = self.fleet.transcripts(&self.run)?;
        let (mut last, mut complete, mut is_noted) = (self.last.clone(), 0, false);
        let (mut over_since, mut has_stream): (Option<Instant>, _) = (None, false);
        loop {
            // The state of the run was read before its transcripts. So if it has ended, these have all that was stored before its end.
            match stored.next().await {
                Ok(Some(StoredPart::Part { epoch, part })) => {
                    if logs.add(epoch, &part).is_err() {
                        return Ok(Err(ReaderGone));
                    }
                    continue;
                }
                Ok(Some(StoredPart::Complete { epoch })) => {
                    complete = epoch;
                    continue;
                }
                Ok(Some(_)) => continue,
                // The server is away, or elects a leader: it is asked until it is back.
                Err(e) if args.follow && (has_stream || e.is_unavailable()) => {}
                Err(e) => return Err(e.into()),
                Ok(None) => has_stream = true,
            }
            if args.follow && logs.release().is_err() {
                return Ok(Err(ReaderGone));
            }
            if last.is_over() {
                let since = *over_since.get_or_insert_with(Instant::now);
                // The worker stores the rest after the end of the run. It can be gone, or the run had none.
                let is_late = since.elapsed() >= REST || age(&last) >= LONGEST_REST;
                if complete >= last.facts.epoch || is_late {
                    if args.follow {
                        anstream::eprintln!("{}", self.row(last));
                    }
                    return Ok(Ok(()));
                }
            } else if !args.follow {
                return Ok(Ok(()));
            } else if last.is_queued() && !std::mem::replace(&mut is_noted, true) && !args.json {
                anstream::eprintln!("waiting for the worker of run {}", self.run);
            }
            is_noted &= last.is_queued();
            let _elapsed = self.gate.sleep(NEXT_LOOK).await;
            match self.fleet.last(&self.run).await {
                Ok(now) => last = now,
                Err(e) if e.is_not_found() => return Err(e.into()),
                Err(_) => {}
            }
        }
    }
}

/// Returns how long ago the server stored a record. If the clock of the server differs, this is wrong.
fn age(last: &StoredRecord) -> Duration {
    let stored_at = u64::try_from(last.stored_at).unwrap_or_default();
    Timestamp::from(SystemTime::now()).since(Timestamp::from_millis(stored_at))
}

/// Copies the stored transcripts of a run into its directory. A fleet without the stream for them has none.
pub(super) async fn copy_transcripts(
    fleet: &Fleet,
    run: &RunId,
    run_dir: PathBuf,
) -> Result<(), Failure> {
    let mut stored = fleet.transcripts(run)?;
    let mut copy = TranscriptCopy::new(run_dir);
    loop {
        let part = match stored.next().await {
            Err(e) if e.is_usage() => return Ok(()),
            part => part?,
        };
        match part {
            None => return Ok(()),
            Some(StoredPart::Part { epoch, part }) => {
                let added = copy.add(epoch, &part);
                added.map_err(|e| Failure::failed(format!("can't write a transcript: {e}")))?;
            }
            Some(_) => {}
        }
    }
}

/// Gives the pause of a person a reason, which shows the worker that it is not the pause of the budget.
pub(super) fn named_pause(request: &Request) -> Request {
    match request.clone() {
        Request::Pause {
            reason: None,
            after,
        } => Request::Pause {
            reason: Some("by a person".into()),
            after,
        },
        request => request,
    }
}

/// A run of the fleet, with the status of its process.
#[derive(Debug, serde::Serialize)]
struct StatusView {
    #[serde(flatten)]
    row: RowView,
    /// `None` if no process answers.
    live: Option<Box<Status>>,
}

impl fmt::Display for StatusView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.row)?;
        let Some(live) = &self.live else {
            return Ok(());
        };
        let waits = match (live.state, live.pausing, live.stopping) {
            (RunState::Paused, ..) => "paused",
            (_, _, true) => "stopping",
            (_, true, _) => "will pause when the iteration is complete",
            _ if live.agent_alive => "its agent works",
            _ => "running",
        };
        write!(f, "\n  attempt {}: {waits}", live.attempt)?;
        match live.steers_waiting {
            0 => Ok(()),
            count => write!(f, "\n  messages that the agent has not seen: {count}"),
        }
    }
}

/// `rlm fleet resume`.
pub(super) fn resume(args: &FleetResumeArgs) -> Result<ExitCode, Failure> {
    let changes = args.changes.iter().map(|word| limit_change::change(word));
    let changes = changes.collect::<Result<Vec<_>, _>>()?;
    live::refuse_own_agent(&args.run)?;
    let session = Session::begin(true, false)?;
    let last = on_fleet(&args.server, &session, async |fleet| {
        fleet.resume(&args.run, &changes).await?;
        fleet.last(&args.run).await
    });
    let (run, rlm) = (args.run.clone(), hint::program_command());
    let row = RunRow {
        last: last.map_err(|e| with_hint(e.into(), &run, rlm))?,
        run,
    };
    let shown = RowView::of(&row.run, &row.last, row.state());
    render::print(args.json, &shown);
    Ok(Code::Done.into())
}

/// Adds how to continue a live run.
fn with_hint(mut failure: Failure, run: &RunId, rlm: &str) -> Failure {
    if failure.code == Code::Usage {
        failure.message += &format!("; details: {rlm} status {run}");
    }
    failure
}

/// `rlm fleet drain`.
pub(super) fn drain(args: &FleetDrainArgs) -> Result<ExitCode, Failure> {
    let session = Session::begin(true, false)?;
    on_fleet(&args.server, &session, async |fleet| {
        fleet.drain(&args.worker).await
    })?;
    output::line(&format!(
        "worker {} has handed over its runs, and has ended",
        args.worker
    ));
    Ok(Code::Done.into())
}

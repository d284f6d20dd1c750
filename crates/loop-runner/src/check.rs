//! Required checks and the check: the loop's own commands, which run by `sh -c` under a guard.

use std::fmt;
use std::time::Duration;

use agent_duplex::{BoxFuture, ProcessName};
use agent_subprocess::{Containment, Exit, Output, ProcessContext, ProcessTree, TreeCommand};
use loop_state::{CheckResult, LoopCommand, times};
use rlm_store::deadline::{Deadline, DeadlineReceiver, remaining, sleep_until};
use rlm_store::processes::{names, without_survivors};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The number of bytes that are stored from the end of the output.
const TAIL: usize = 8 * 1024;

/// A running required check or check.
#[derive(Debug)]
pub(crate) struct RunningCheck {
    pub(crate) command: LoopCommand,
    started: Instant,
    /// The shared deadline of the command. Dropping it ends the command.
    deadline: Deadline,
    freezer: Freezer,
    /// Sends the limit of the command, if the command exceeded it.
    overdue: mpsc::Sender<Duration>,
    task: JoinHandle<CheckOutcome>,
}

/// The outcome of a required check or the check.
#[derive(Debug)]
pub(crate) struct CheckOutcome {
    pub(crate) result: CheckResult,
    pub(crate) took: Duration,
    /// The end of the output, if the command passed.
    pub(crate) output: String,
    /// The processes that were alive when the command ended.
    pub(crate) leftovers: Vec<ProcessName>,
    /// The processes that the runner ended, including the command itself.
    pub(crate) ended: Vec<ProcessName>,
    pub(crate) survivors: Vec<ProcessName>,
    /// Whether containment proved that no other process is left; false if only a search found none.
    pub(crate) proven: bool,
}

impl RunningCheck {
    pub(crate) fn start(command: LoopCommand, text: String, context: ProcessContext) -> Self {
        let deadline = Deadline::default();
        let (freezer, freezes) = Freezer::new();
        let (overdue, is_overdue) = mpsc::channel(1);
        let shell = TreeCommand::new("sh").arg("-c").arg(text);
        let limit = Limit::OnMessage(is_overdue);
        let task = tokio::spawn(run(shell, context, limit, deadline.subscribe(), freezes));
        Self {
            command,
            started: Instant::now(),
            deadline,
            freezer,
            overdue,
            task,
        }
    }

    /// Simulates a command instead of running it; see [`play`].
    pub(crate) fn play(command: LoopCommand, played: BoxFuture<'static, CheckResult>) -> Self {
        let deadline = Deadline::default();
        let (freezer, freezes) = Freezer::new();
        let (overdue, is_overdue) = mpsc::channel(1);
        let limit = Limit::OnMessage(is_overdue);
        let task = tokio::spawn(play(played, limit, deadline.subscribe(), freezes));
        Self {
            command,
            started: Instant::now(),
            deadline,
            freezer,
            overdue,
            task,
        }
    }

    /// Returns the shared deadline of the command.
    pub(crate) fn deadline(&self) -> &Deadline {
        &self.deadline
    }

    /// Ends the command because it exceeded `limit`.
    pub(crate) fn time_out(&self, limit: Duration) {
        // Sending fails if the command has ended or already has this message; both are fine.
        let _over = self.overdue.try_send(limit);
    }

    /// Suspends or resumes the command.
    pub(crate) async fn freeze(&self, frozen: bool) {
        self.freezer.freeze(frozen).await;
    }

    /// Waits for the end. Cancel safe.
    pub(crate) async fn ended(&mut self) -> CheckOutcome {
        let mut end = (&mut self.task).await.unwrap_or_else(CheckOutcome::not_run);
        end.took = self.started.elapsed();
        end
    }
}

/// A stand-in for the loop's commands, for tests.
pub(crate) struct FakeCommands(pub(crate) FakeCommand);

pub(crate) type FakeCommand =
    Box<dyn Fn(LoopCommand, ProcessContext) -> BoxFuture<'static, CheckResult> + Send + Sync>;

impl fmt::Debug for FakeCommands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Commands")
    }
}

/// Suspends and resumes one of the loop's own commands.
#[derive(Debug)]
pub(crate) struct Freezer(mpsc::Sender<Freeze>);

/// Whether to suspend or resume, and the sender that reports when it is done.
pub(crate) type Freeze = (bool, oneshot::Sender<()>);

impl Freezer {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Freeze>) {
        // A person presses one key after the other, so few requests wait.
        let (freezes, frozen) = mpsc::channel(4);
        (Self(freezes), frozen)
    }

    /// Suspends or resumes the command, and waits until that is done, because the caller can be suspended directly afterwards. If the command does
    /// not run yet, this function returns after a short time limit, and the command is suspended when it runs.
    pub(crate) async fn freeze(&self, frozen: bool) {
        let (done, is_done) = oneshot::channel();
        if self.0.try_send((frozen, done)).is_ok() {
            let _later = tokio::time::timeout(times::FREEZE_TIMEOUT, is_done).await;
        }
    }
}

impl CheckOutcome {
    pub(crate) fn not_run(why: impl fmt::Display) -> Self {
        Self::alone(CheckResult::NotRun(format!(
            "the command could not be run: {why}"
        )))
    }

    fn not_spawned(error: agent_subprocess::Error) -> Self {
        let outcome = Self::not_run(&error);
        match error.lost_processes().cloned() {
            None => outcome,
            // The command possibly ran for a moment.
            Some(lost) => Self {
                ended: names(lost.ended),
                survivors: names(lost.survivors),
                proven: false,
                ..outcome
            },
        }
    }

    /// Returns an outcome without leftovers.
    fn alone(result: CheckResult) -> Self {
        Self {
            result,
            took: Duration::ZERO,
            output: String::new(),
            leftovers: Vec::new(),
            ended: Vec::new(),
            survivors: Vec::new(),
            proven: true,
        }
    }
}

/// Waits for the simulated result of a command; like a command, it can be stopped, and it makes no progress while it is frozen.
async fn play(
    mut played: BoxFuture<'static, CheckResult>,
    mut limit: Limit,
    mut halted: DeadlineReceiver,
    mut freezes: mpsc::Receiver<Freeze>,
) -> CheckOutcome {
    let mut frozen = false;
    CheckOutcome::alone(loop {
        tokio::select! {
            biased;
            _ = halted.wait_for_deadline() => break CheckResult::Stopped,
            Some((freeze, done)) = freezes.recv() => {
                frozen = freeze;
                // The receiver has possibly stopped waiting.
                let _gone = done.send(());
            }
            time = limit.reached(Instant::now()) => break CheckResult::Failed(too_long(time)),
            result = &mut played, if !frozen => break result,
        }
    })
}

/// A report of a running command: its lines, the end of its output, then its exit.
enum CommandOutput {
    Line(Option<Output>),
    Ended(Exit),
}

/// The limit for the duration of a command.
pub(crate) enum Limit {
    /// A fixed duration. Time in which the command is suspended does not count.
    Time(Duration),
    /// No fixed duration: the run sends a message when the command exceeded its limit.
    OnMessage(mpsc::Receiver<Duration>),
}

impl Limit {
    fn time(&self) -> Duration {
        match self {
            Self::Time(time) => *time,
            Self::OnMessage(_) => Duration::ZERO,
        }
    }

    /// Waits until the command takes too long, and returns its limit. Cancel safe.
    async fn reached(&mut self, due: Instant) -> Duration {
        match self {
            Self::Time(time) => {
                sleep_until(due).await;
                *time
            }
            Self::OnMessage(messages) => match messages.recv().await {
                Some(time) => time,
                None => std::future::pending().await,
            },
        }
    }
}

fn too_long(time: Duration) -> String {
    format!("it took longer than {time:?}")
}

/// Runs one of the loop's own commands to its end, with everything that it starts.
pub(crate) async fn run(
    command: TreeCommand,
    context: ProcessContext,
    mut limit: Limit,
    mut halted: DeadlineReceiver,
    mut freezes: mpsc::Receiver<Freeze>,
) -> CheckOutcome {
    let mut process = match spawn(command, &context).await {
        Ok(process) => process,
        Err(outcome) => return outcome,
    };
    let mut tail = Vec::new();
    let mut due = Instant::now() + limit.time();
    let mut frozen_at = None;
    let mut not_run = false;
    let mut is_output_closed = false;
    let how = loop {
        // A command that closed its output can continue to run; the limit also applies to it.
        let output = async {
            match is_output_closed {
                false => CommandOutput::Line(process.next_output().await),
                true => CommandOutput::Ended(process.wait().await),
            }
        };
        tokio::select! {
            biased;
            _ = halted.wait_for_deadline() => break None,
            Some((frozen, done)) = freezes.recv() => {
                // Suspending fails if the command is gone, which is fine.
                let _gone = if frozen { process.suspend() } else { process.resume() };
                match (frozen, frozen_at) {
                    (true, None) => frozen_at = Some(Instant::now()),
                    (false, Some(since)) => {
                        // Time in which the command is suspended does not count.
                        due += since.elapsed();
                        frozen_at = None;
                    }
                    _ => {}
                }
                // The receiver has possibly stopped waiting.
                let _gone = done.send(());
            }
            time = limit.reached(due), if frozen_at.is_none() => break Some(too_long(time)),
            output = output => match output {
                CommandOutput::Line(Some(line)) => push_line(&mut tail, &line.line.bytes),
                CommandOutput::Line(None) => is_output_closed = true,
                CommandOutput::Ended(exit) => {
                    not_run = is_not_run(exit.code, &tail);
                    break Some(if exit.success() { String::new() } else { exit.to_string() });
                }
            },
        }
    };
    let over = how.as_deref() == Some("");
    let leftovers = match over {
        true => tokio::select! {
            biased;
            // An abort has no time to look for leftovers: the report names the ended processes.
            _ = halted.wait_for_deadline() => Vec::new(),
            leftovers = process.leftovers() => leftovers,
        },
        false => Vec::new(),
    };
    let mut by = Instant::now() + context.stop.budget;
    let report = loop {
        let stop = context.stop.clone().within(remaining(by));
        tokio::select! {
            biased;
            sooner = halted.earlier_than(by) => by = sooner,
            report = process.stop(&stop) => break report,
        }
    };
    let mut output = String::new();
    let result = match how {
        None => CheckResult::Stopped,
        Some(_) if over => {
            output = String::from_utf8_lossy(&tail).into_owned();
            CheckResult::Passed
        }
        Some(how) => {
            let text = format!("{}({how})", String::from_utf8_lossy(&tail));
            match not_run {
                true => CheckResult::NotRun(text),
                false => CheckResult::Failed(text),
            }
        }
    };
    let survivors = names(report.survivors);
    let leftovers = without_survivors(names(leftovers), &survivors);
    CheckOutcome {
        result,
        took: Duration::ZERO,
        output,
        leftovers,
        proven: report.containment == Containment::Guard && !report.guard_lost,
        ended: names(report.ended),
        survivors,
    }
}

async fn spawn(
    command: TreeCommand,
    context: &ProcessContext,
) -> Result<ProcessTree, CheckOutcome> {
    let command = command.context(context).map_err(CheckOutcome::not_run)?;
    command.spawn().await.map_err(CheckOutcome::not_spawned)
}

/// Returns whether the shell reports that this command itself does not exist or can't be executed. If a script reports that about one of its
/// commands, the message begins with the script's name, and the script did run.
fn is_not_run(code: Option<i32>, tail: &[u8]) -> bool {
    let text = String::from_utf8_lossy(tail);
    let last = text.lines().rfind(|line| !line.trim().is_empty());
    matches!(code, Some(126 | 127)) && last.is_none_or(|line| line.starts_with("sh: "))
}

/// Appends a line, and removes bytes from the front if the tail is too long.
fn push_line(tail: &mut Vec<u8>, line: &[u8]) {
    tail.extend_from_slice(&line[line.len().saturating_sub(TAIL)..]);
    tail.push(b'\n');
    if tail.len() > 2 * TAIL {
        tail.drain(..tail.len() - TAIL);
    }
}

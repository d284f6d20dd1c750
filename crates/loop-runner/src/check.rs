//! Gates and the check: commands of the loop's own, run by `sh -c` under a guard.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use agent_duplex::{BoxFuture, ProcessName};
use agent_subprocess::{Agent, AgentCommand, Containment, Context, Exit, Output};
use loop_state::{CheckResult, Command, times};
use rlm_store::deadline::{Hurried, Hurry, left, until};
use rlm_store::processes::{gone, names};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How much of the output is kept: its end.
const TAIL: usize = 8 * 1024;

/// A gate or the check while it runs.
#[derive(Debug)]
pub(crate) struct RunningCheck {
    pub(crate) command: Command,
    started: Instant,
    /// Has the command end. Dropping it ends the command too.
    halt: Hurry,
    freezer: Freezer,
    /// Has the command end because it took this long.
    overdue: mpsc::Sender<Duration>,
    task: JoinHandle<CheckEnd>,
}

/// How a gate or the check ended.
#[derive(Debug)]
pub(crate) struct CheckEnd {
    pub(crate) result: CheckResult,
    pub(crate) took: Duration,
    /// What it had left running when it was over.
    pub(crate) leftovers: Vec<ProcessName>,
    /// What had to be ended, itself included.
    pub(crate) ended: Vec<ProcessName>,
    pub(crate) survivors: Vec<ProcessName>,
    /// Whether that nothing else is left is known, rather than nothing being found.
    pub(crate) proven: bool,
}

impl RunningCheck {
    pub(crate) fn start(command: Command, text: String, context: Context) -> Self {
        let halt = Hurry::default();
        let (freezer, freezes) = Freezer::new();
        let (overdue, is_overdue) = mpsc::channel(1);
        let shell = AgentCommand::new("sh").arg("-c").arg(text);
        let limit = Limit::Told(is_overdue);
        let task = tokio::spawn(run(shell, context, limit, halt.hurried(), freezes));
        Self {
            command,
            started: Instant::now(),
            halt,
            freezer,
            overdue,
            task,
        }
    }

    /// Plays a command instead of running it; see [`play`].
    pub(crate) fn play(command: Command, played: BoxFuture<'static, CheckResult>) -> Self {
        let halt = Hurry::default();
        let (freezer, freezes) = Freezer::new();
        let (overdue, is_overdue) = mpsc::channel(1);
        let limit = Limit::Told(is_overdue);
        let task = tokio::spawn(play(played, limit, halt.hurried(), freezes));
        Self {
            command,
            started: Instant::now(),
            halt,
            freezer,
            overdue,
            task,
        }
    }

    /// Returns what has it end.
    pub(crate) fn halt(&self) -> &Hurry {
        &self.halt
    }

    /// Ends the command because it took this long.
    pub(crate) fn time_out(&self, limit: Duration) {
        // A command that has ended needs no end, and one that is told already ends.
        let _over = self.overdue.try_send(limit);
    }

    /// Stops the command where it stands, or lets it go on.
    pub(crate) async fn freeze(&self, frozen: bool) {
        self.freezer.freeze(frozen).await;
    }

    /// Waits for the end. Cancel safe.
    pub(crate) async fn ended(&mut self) -> CheckEnd {
        let mut end = (&mut self.task).await.unwrap_or_else(CheckEnd::not_run);
        end.took = self.started.elapsed();
        end
    }
}

/// A test's stand-in for the commands of the loop.
pub(crate) struct Commands(pub(crate) Play);

pub(crate) type Play =
    Box<dyn Fn(Command, Context) -> BoxFuture<'static, CheckResult> + Send + Sync>;

impl fmt::Debug for Commands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Commands")
    }
}

/// Stops a command of the loop's own where it stands, and lets it go on.
#[derive(Debug)]
pub(crate) struct Freezer(mpsc::Sender<Freeze>);

/// What is to be done, and who waits for it.
pub(crate) type Freeze = (bool, oneshot::Sender<()>);

impl Freezer {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Freeze>) {
        // A person presses one key after the other.
        let (freezes, frozen) = mpsc::channel(4);
        (Self(freezes), frozen)
    }

    /// Returns when it is done: the process that asks for it may be stopped itself the moment after. Where nothing runs yet, it is done later.
    pub(crate) async fn freeze(&self, frozen: bool) {
        let (done, is_done) = oneshot::channel();
        if self.0.try_send((frozen, done)).is_ok() {
            let _later = tokio::time::timeout(times::FREEZE, is_done).await;
        }
    }
}

impl CheckEnd {
    pub(crate) fn not_run(why: impl fmt::Display) -> Self {
        Self::alone(CheckResult::NotRun(format!(
            "the command could not be run: {why}"
        )))
    }

    /// The end of what left nothing behind.
    fn alone(result: CheckResult) -> Self {
        Self {
            result,
            took: Duration::ZERO,
            leftovers: Vec::new(),
            ended: Vec::new(),
            survivors: Vec::new(),
            proven: true,
        }
    }
}

/// Waits for what a command is said to come to; like a command, it can be halted and stands still while it is frozen.
async fn play(
    mut played: BoxFuture<'static, CheckResult>,
    mut limit: Limit,
    mut halted: Hurried,
    mut freezes: mpsc::Receiver<Freeze>,
) -> CheckEnd {
    let mut frozen = false;
    CheckEnd::alone(loop {
        tokio::select! {
            biased;
            _ = halted.told() => break CheckResult::Stopped,
            Some((freeze, done)) = freezes.recv() => {
                frozen = freeze;
                // Whoever asked may have given up waiting.
                let _gone = done.send(());
            }
            time = limit.reached(Instant::now()) => break CheckResult::Failed(too_long(time)),
            result = &mut played, if !frozen => break result,
        }
    })
}

/// What is heard of a command that runs: its lines, then that there are no more, then its end.
enum Heard {
    Said(Option<Output>),
    Ended(Exit),
}

/// How long a command may take.
pub(crate) enum Limit {
    /// This long. Time in which it is suspended does not count.
    Time(Duration),
    /// Until the run says that it took too long, and how long it might have taken.
    Told(mpsc::Receiver<Duration>),
}

impl Limit {
    fn time(&self) -> Duration {
        match self {
            Self::Time(time) => *time,
            Self::Told(_) => Duration::ZERO,
        }
    }

    /// Waits until the command took too long, and returns how long it might have taken. Cancel safe.
    async fn reached(&mut self, due: Instant) -> Duration {
        match self {
            Self::Time(time) => {
                until(due).await;
                *time
            }
            Self::Told(told) => match told.recv().await {
                Some(time) => time,
                None => std::future::pending().await,
            },
        }
    }
}

fn too_long(time: Duration) -> String {
    format!("it took longer than {time:?}")
}

/// Runs a command of the loop's own to its end, with all that it starts.
pub(crate) async fn run(
    command: AgentCommand,
    context: Context,
    mut limit: Limit,
    mut halted: Hurried,
    mut freezes: mpsc::Receiver<Freeze>,
) -> CheckEnd {
    let mut process = match spawn(command, &context).await {
        Ok(process) => process,
        Err(e) => return CheckEnd::not_run(e),
    };
    let mut tail = Vec::new();
    let mut due = Instant::now() + limit.time();
    let mut frozen_at = None;
    let mut not_run = false;
    let mut is_silent = false;
    let how = loop {
        // One that has let go of its output may run on, and is as bound as any other.
        let heard = async {
            match is_silent {
                false => Heard::Said(process.next_output().await),
                true => Heard::Ended(process.wait().await),
            }
        };
        tokio::select! {
            biased;
            _ = halted.told() => break None,
            Some((frozen, done)) = freezes.recv() => {
                // An agent that is gone needs neither.
                let _gone = if frozen { process.suspend() } else { process.resume() };
                match (frozen, frozen_at) {
                    (true, None) => frozen_at = Some(Instant::now()),
                    (false, Some(since)) => {
                        // What stands still is not slow.
                        due += since.elapsed();
                        frozen_at = None;
                    }
                    _ => {}
                }
                // Whoever asked may have given up waiting.
                let _gone = done.send(());
            }
            time = limit.reached(due), if frozen_at.is_none() => break Some(too_long(time)),
            heard = heard => match heard {
                Heard::Said(Some(output)) => push_line(&mut tail, &output.line.bytes),
                Heard::Said(None) => is_silent = true,
                Heard::Ended(exit) => {
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
            // In a hurry nobody asks what was left: the report names what was ended.
            _ = halted.told() => Vec::new(),
            leftovers = process.leftovers() => leftovers,
        },
        false => Vec::new(),
    };
    let mut by = Instant::now() + context.stop.budget;
    let report = loop {
        let stop = context.stop.clone().within(left(by));
        tokio::select! {
            biased;
            sooner = halted.sooner(by) => by = sooner,
            report = process.stop(&stop) => break report,
        }
    };
    let result = match how {
        None => CheckResult::Stopped,
        Some(_) if over => CheckResult::Passed,
        Some(how) => {
            let text = format!("{}({how})", String::from_utf8_lossy(&tail));
            match not_run {
                true => CheckResult::NotRun(text),
                false => CheckResult::Failed(text),
            }
        }
    };
    let survivors = names(report.survivors);
    let leftovers = gone(names(leftovers), &survivors);
    CheckEnd {
        result,
        took: Duration::ZERO,
        leftovers,
        proven: report.containment == Containment::Guard && !report.guard_lost,
        ended: names(report.ended),
        survivors,
    }
}

async fn spawn(
    command: AgentCommand,
    context: &Context,
) -> Result<Agent, Box<dyn Error + Send + Sync>> {
    Ok(command.context(context)?.spawn().await?)
}

/// Returns whether the shell says of the very command that it is not there, or no program. What a script says of a command in it begins with the
/// script's name, and that one was run.
fn is_not_run(code: Option<i32>, tail: &[u8]) -> bool {
    let said = String::from_utf8_lossy(tail);
    let last = said.lines().rfind(|line| !line.trim().is_empty());
    matches!(code, Some(126 | 127)) && last.is_none_or(|line| line.starts_with("sh: "))
}

/// Appends a line and drops whole bytes from the front, now and then.
fn push_line(tail: &mut Vec<u8>, line: &[u8]) {
    tail.extend_from_slice(&line[line.len().saturating_sub(TAIL)..]);
    tail.push(b'\n');
    if tail.len() > 2 * TAIL {
        tail.drain(..tail.len() - TAIL);
    }
}

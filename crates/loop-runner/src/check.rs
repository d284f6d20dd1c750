//! Gates and the check: commands of the loop's own, run by `sh -c` under a guard.

use std::error::Error;
use std::fmt;
use std::time::{Duration, Instant};

use agent_duplex::ProcessName;
use agent_subprocess::{Agent, AgentCommand, Containment, Context};
use cancellable_sleep::SleepGate;
use loop_state::CheckResult;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::news::Command;
use crate::survivors::names;

/// How much of the output is kept: its end.
const TAIL: usize = 8 * 1024;

/// A gate or the check while it runs.
#[derive(Debug)]
pub(crate) struct RunningCheck {
    pub(crate) command: Command,
    started: Instant,
    /// Told how long the command may take to end. Dropping it ends the command too.
    halt: Option<oneshot::Sender<Duration>>,
    frozen: watch::Sender<bool>,
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
    pub(crate) fn start(
        command: Command,
        text: String,
        context: Context,
        timeout: Duration,
    ) -> Self {
        let (halt, halted) = oneshot::channel();
        let (frozen, freezes) = watch::channel(false);
        let shell = AgentCommand::new("sh").arg("-c").arg(text);
        let task = tokio::spawn(run(shell, context, timeout, halted, freezes));
        Self {
            command,
            started: Instant::now(),
            halt: Some(halt),
            frozen,
            task,
        }
    }

    pub(crate) fn halt(&mut self, budget: Duration) {
        if let Some(halt) = self.halt.take() {
            // One that has ended meanwhile needs no telling.
            let _ended = halt.send(budget);
        }
    }

    /// Stops the command where it stands, or lets it go on.
    pub(crate) fn freeze(&self, frozen: bool) {
        self.frozen.send_replace(frozen);
    }

    /// Waits for the end. Cancel safe.
    pub(crate) async fn ended(&mut self) -> CheckEnd {
        let mut end = (&mut self.task).await.unwrap_or_else(CheckEnd::not_run);
        end.took = self.started.elapsed();
        end
    }
}

impl CheckEnd {
    fn not_run(why: impl fmt::Display) -> Self {
        Self {
            result: CheckResult::Failed(format!("the command could not be run: {why}")),
            took: Duration::ZERO,
            leftovers: Vec::new(),
            ended: Vec::new(),
            survivors: Vec::new(),
            proven: true,
        }
    }
}

/// Runs a command of the loop's own to its end, with all that it starts.
pub(crate) async fn run(
    command: AgentCommand,
    context: Context,
    timeout: Duration,
    mut halted: oneshot::Receiver<Duration>,
    mut freezes: watch::Receiver<bool>,
) -> CheckEnd {
    let mut process = match spawn(command, &context).await {
        Ok(process) => process,
        Err(e) => return CheckEnd::not_run(e),
    };
    let mut tail = Vec::new();
    let gate = SleepGate::new();
    let clock = gate.sleep(timeout);
    tokio::pin!(clock);
    let mut stop = context.stop;
    let how = loop {
        tokio::select! {
            biased;
            budget = &mut halted => {
                stop = stop.clone().within(budget.unwrap_or(stop.budget));
                break None;
            }
            Ok(()) = freezes.changed() => {
                let frozen = *freezes.borrow_and_update();
                // One that is gone needs neither.
                let _gone = if frozen { process.suspend() } else { process.resume() };
            }
            _ = &mut clock => break Some(format!("it took longer than {timeout:?}")),
            output = process.next_output() => match output {
                Some(output) => push_line(&mut tail, &output.line.bytes),
                None => {
                    let exit = process.wait().await;
                    break Some(if exit.success() { String::new() } else { exit.to_string() });
                }
            },
        }
    };
    let over = how.as_deref() == Some("");
    let leftovers = if over {
        process.leftovers().await
    } else {
        Vec::new()
    };
    let report = process.stop(&stop).await;
    let result = match how {
        None => CheckResult::Stopped,
        Some(_) if over => CheckResult::Passed,
        Some(how) => CheckResult::Failed(format!("{}({how})", String::from_utf8_lossy(&tail))),
    };
    CheckEnd {
        result,
        took: Duration::ZERO,
        leftovers: names(leftovers),
        proven: report.containment == Containment::Guard && !report.guard_lost,
        ended: names(report.ended),
        survivors: names(report.survivors),
    }
}

async fn spawn(
    command: AgentCommand,
    context: &Context,
) -> Result<Agent, Box<dyn Error + Send + Sync>> {
    Ok(command.context(context)?.spawn().await?)
}

/// Appends a line and drops whole bytes from the front, now and then.
fn push_line(tail: &mut Vec<u8>, line: &[u8]) {
    tail.extend_from_slice(&line[line.len().saturating_sub(TAIL)..]);
    tail.push(b'\n');
    if tail.len() > 2 * TAIL {
        tail.drain(..tail.len() - TAIL);
    }
}

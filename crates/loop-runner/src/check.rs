//! Gates and the check: commands of the loop's own, run by `sh -c` under a guard.

use std::error::Error;
use std::time::{Duration, Instant};

use agent_duplex::ProcessName;
use agent_subprocess::{Agent, AgentCommand, Containment, Context};
use cancellable_sleep::{SleepGate, Wake};
use loop_state::CheckResult;
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
    /// Shut down to end the command early.
    halt: SleepGate,
    task: JoinHandle<CheckEnd>,
}

/// How a gate or the check ended.
#[derive(Debug)]
pub(crate) struct CheckEnd {
    pub(crate) result: CheckResult,
    pub(crate) tail: String,
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
        let halt = SleepGate::new();
        let task = tokio::spawn(run(text, context, timeout, halt.clone()));
        Self {
            command,
            started: Instant::now(),
            halt,
            task,
        }
    }

    pub(crate) fn halt(&self) {
        self.halt.shutdown();
    }

    /// Waits for the end. Cancel safe.
    pub(crate) async fn ended(&mut self) -> CheckEnd {
        let mut end = (&mut self.task)
            .await
            .unwrap_or_else(|e| CheckEnd::not_run(e.to_string()));
        end.took = self.started.elapsed();
        end
    }
}

impl CheckEnd {
    fn not_run(why: String) -> Self {
        Self {
            result: CheckResult::NotRun(why),
            tail: String::new(),
            took: Duration::ZERO,
            leftovers: Vec::new(),
            ended: Vec::new(),
            survivors: Vec::new(),
            proven: true,
        }
    }
}

async fn run(text: String, context: Context, timeout: Duration, halt: SleepGate) -> CheckEnd {
    let mut process = match spawn(text, &context).await {
        Ok(process) => process,
        Err(e) => return CheckEnd::not_run(format!("the command could not be run: {e}")),
    };
    let mut tail = Vec::new();
    let clock = halt.sleep(timeout);
    tokio::pin!(clock);
    let cut = loop {
        tokio::select! {
            biased;
            wake = &mut clock => break Some(wake),
            output = process.next_output() => match output {
                Some(output) => push_line(&mut tail, &output.line.bytes),
                None => break None,
            },
        }
    };
    let (result, leftovers) = match cut {
        None => {
            let exit = process.wait().await;
            let result = if exit.success() {
                CheckResult::Passed
            } else {
                CheckResult::Failed(exit.to_string())
            };
            (result, process.leftovers().await)
        }
        Some(Wake::Elapsed) => (
            CheckResult::Failed(format!("it took longer than {timeout:?}")),
            Vec::new(),
        ),
        Some(_) => (CheckResult::Stopped, Vec::new()),
    };
    let report = process.stop(&context.stop).await;
    let tail = String::from_utf8_lossy(&tail).into_owned();
    let result = match result {
        CheckResult::Failed(how) => CheckResult::Failed(format!("{tail}({how})")),
        other => other,
    };
    CheckEnd {
        result,
        tail,
        took: Duration::ZERO,
        leftovers: names(leftovers),
        proven: report.containment == Containment::Guard && !report.guard_lost,
        ended: names(report.ended),
        survivors: names(report.survivors),
    }
}

async fn spawn(text: String, context: &Context) -> Result<Agent, Box<dyn Error + Send + Sync>> {
    let command = AgentCommand::new("sh").arg("-c").arg(text);
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

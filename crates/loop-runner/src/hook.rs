//! Runs the user's notify command with events of the run.

use std::collections::VecDeque;
use std::fmt;

use agent_subprocess::{AgentCommand, Context, StdinMode};
use loop_state::{CheckResult, Head, Timestamp, times};
use rlm_store::RunId;
use rlm_store::deadline::Hurry;
use tokio::task::JoinHandle;

use crate::check::{self, CheckEnd, Freezer, Limit};
use crate::{Error, News, Outcome};

/// The most calls that wait for the running one.
const WAITING: usize = 8;

/// An event of a run that the hook may report.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Moment<'a> {
    /// The run.
    pub run: &'a RunId,
    /// The state of the run.
    pub head: &'a Head,
    /// The time of the event.
    pub at: Timestamp,
    /// The event.
    pub what: Happened<'a>,
    /// The number of events before this one that were dropped because a command was too slow.
    pub missed: u64,
}

/// The kind of a [`Moment`]. Everything that a save contains is on disk by then.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Happened<'a> {
    /// This process began to work on the run.
    Began {
        /// Whether an earlier process worked on the run.
        again: bool,
    },
    /// The run reported an event.
    News(&'a News),
    /// This process stopped working on the run, and everything that the run started is ended.
    Ended(Result<&'a Outcome, &'a Error>),
}

/// The input of one call of the command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Telling {
    /// Environment variables, besides those that identify the run.
    pub variables: Vec<(String, String)>,
    /// The standard input.
    pub input: String,
}

/// A command that `sh -c` runs in the directory of the run, and the function that returns its input.
///
/// One call runs at a time, each under a guard and for 10 s at most; the hook ends everything that a call leaves running. At most eight calls wait
/// for the running one; the oldest ones above that are dropped and counted. A call never delays the run.
pub struct Hook {
    command: String,
    telling: Tells,
}

type Tells = Box<dyn Fn(&Moment<'_>) -> Option<Telling> + Send + Sync>;

impl Hook {
    /// Creates a hook; `telling` returns the input for an event, or `None` to skip the event.
    pub fn new(
        command: String,
        telling: impl Fn(&Moment<'_>) -> Option<Telling> + Send + Sync + 'static,
    ) -> Self {
        Self {
            command,
            telling: Box::new(telling),
        }
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The command may contain a secret, such as the address of a web hook.
        f.write_str("Hook")
    }
}

/// The calls of a hook. Dropping it ends the running one.
#[derive(Debug)]
pub(crate) struct Hooks {
    hook: Hook,
    waiting: VecDeque<Waiting>,
    /// The number of events dropped since a call reported that number.
    missed: u64,
    running: Option<Running>,
    /// Whether the last call failed; a failure is reported once.
    is_failing: bool,
}

#[derive(Debug)]
struct Waiting {
    context: Context,
    telling: Telling,
    missed: u64,
}

#[derive(Debug)]
struct Running {
    /// The shared deadline of the command. Dropping it ends the command.
    halt: Hurry,
    task: JoinHandle<CheckEnd>,
}

impl Hooks {
    pub(crate) fn new(hook: Hook) -> Self {
        Self {
            hook,
            waiting: VecDeque::new(),
            missed: 0,
            running: None,
            is_failing: false,
        }
    }

    /// Returns the input for an event, if the hook reports it.
    pub(crate) fn telling(&self, moment: Moment<'_>) -> Option<Telling> {
        // The event that this one displaces counts as missed.
        let out = self.waiting.front().filter(|_| self.is_full());
        let missed = self.missed + out.map_or(0, |out| out.missed + 1);
        (self.hook.telling)(&Moment { missed, ..moment })
    }

    /// Queues a call.
    pub(crate) fn push(&mut self, context: Context, telling: Telling) {
        if self.is_full() {
            self.leave_out(1);
        }
        let missed = std::mem::take(&mut self.missed);
        self.waiting.push_back(Waiting {
            context,
            telling,
            missed,
        });
        self.go_on();
    }

    fn is_full(&self) -> bool {
        self.waiting.len() == WAITING
    }

    /// Drops the oldest waiting calls.
    fn leave_out(&mut self, count: usize) {
        let out = self.waiting.drain(..count);
        self.missed += out.map(|one| one.missed + 1).sum::<u64>();
    }

    /// Drops all waiting calls.
    pub(crate) fn clear(&mut self) {
        self.leave_out(self.waiting.len());
    }

    /// Starts the next call, unless one runs.
    fn go_on(&mut self) {
        if self.running.is_some() {
            return;
        }
        let Some(Waiting {
            mut context,
            telling,
            ..
        }) = self.waiting.pop_front()
        else {
            return;
        };
        let variables = telling.variables.into_iter();
        let variables = variables.map(|(name, value)| (name.into(), value.into()));
        context.env.extend(variables);
        context.stop = context.stop.within(times::NOTIFY_ENDING);
        let command = AgentCommand::new("sh")
            .args(["-c", &self.hook.command])
            .stdin(StdinMode::Bytes(telling.input.into_bytes()));
        let halt = Hurry::default();
        // A call is short, so a suspended run does not suspend it.
        let (_, freezes) = Freezer::new();
        let call = check::run(
            command,
            context,
            Limit::Time(times::NOTIFY_CALL),
            halt.hurried(),
            freezes,
        );
        let task = tokio::spawn(call);
        self.running = Some(Running { halt, task });
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Waits for the end of the running call, and starts the next. Cancel safe.
    pub(crate) async fn ended(&mut self) -> CheckEnd {
        let Some(running) = &mut self.running else {
            return std::future::pending().await;
        };
        let end = (&mut running.task).await;
        self.running = None;
        self.go_on();
        end.unwrap_or_else(CheckEnd::not_run)
    }

    /// Ends the running call.
    pub(crate) fn halt(&self) {
        if let Some(running) = &self.running {
            running.halt.within(times::NOTIFY_ENDING);
        }
    }

    /// Returns a failure of the command, once. Leaves out the command's output, which may be private.
    pub(crate) fn complaint(&mut self, end: &CheckEnd) -> Option<String> {
        let how = match &end.result {
            CheckResult::Passed => None,
            CheckResult::Failed(text) | CheckResult::NotRun(text) => {
                let how = text.rsplit('\n').next().unwrap_or_default();
                Some(how.trim_matches(['(', ')']).to_owned())
            }
            _ => Some("it took too long".to_owned()),
        };
        let was_failing = std::mem::replace(&mut self.is_failing, how.is_some());
        let how = how.filter(|_| !was_failing)?;
        Some(format!("the notify command failed: {how}"))
    }
}

//! Runs the user's notify command with events of the run.

use std::collections::VecDeque;
use std::fmt;

use agent_subprocess::{ProcessContext, StdinMode, TreeCommand};
use loop_state::{CheckResult, Head, Timestamp, times};
use rlm_store::RunId;
use rlm_store::deadline::Deadline;
use tokio::task::JoinHandle;

use crate::check::{self, CheckOutcome, Freezer, Limit};
use crate::{Error, RunEvent, RunOutcome};

/// The most calls that wait for the running one.
const WAITING: usize = 8;

/// An event of a run that the hook can report.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HookEvent<'a> {
    /// The run.
    pub run: &'a RunId,
    /// The state of the run.
    pub head: &'a Head,
    /// The time of the event.
    pub at: Timestamp,
    /// The event.
    pub kind: HookEventKind<'a>,
    /// The number of events before this one that were dropped because a command was too slow.
    pub missed: u64,
}

/// The kind of a [`HookEvent`]. If a save contains the event, the hook gets the event after that save.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum HookEventKind<'a> {
    /// This process began to work on the run.
    Started {
        /// Whether an earlier process worked on the run.
        resumed: bool,
    },
    /// The run reported an event.
    Event(&'a RunEvent),
    /// This process stopped working on the run, and everything that the run started is ended.
    Ended(Result<&'a RunOutcome, &'a Error>),
}

/// The input of one call of the command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookInput {
    /// Environment variables, besides those that identify the run.
    pub variables: Vec<(String, String)>,
    /// The standard input.
    pub input: String,
}

/// A command that `sh -c` runs in the directory of the run, and the function that returns its input.
///
/// One call runs at a time, each under a guard and for 10 s at most; the hook ends everything that a call leaves running. At most eight calls wait
/// for the running one; if there are more, the hook drops the oldest calls and counts them. A call never delays the run.
pub struct Hook {
    command: String,
    input: HookFilter,
}

type HookFilter = Box<dyn Fn(&HookEvent<'_>) -> Option<HookInput> + Send + Sync>;

impl Hook {
    /// Creates a hook; `input` returns the input for an event, or `None` to skip the event.
    pub fn new(
        command: String,
        input: impl Fn(&HookEvent<'_>) -> Option<HookInput> + Send + Sync + 'static,
    ) -> Self {
        Self {
            command,
            input: Box::new(input),
        }
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The command can contain a secret, such as the address of a web hook.
        f.write_str("Hook")
    }
}

/// The calls of a hook. Dropping it ends the running one.
#[derive(Debug)]
pub(crate) struct HookQueue {
    hook: Hook,
    waiting: VecDeque<QueuedCall>,
    /// The number of events dropped since a call reported that number.
    missed: u64,
    running: Option<RunningCall>,
    /// Whether the last call failed; a failure is reported once.
    is_failing: bool,
}

#[derive(Debug)]
struct QueuedCall {
    context: ProcessContext,
    input: HookInput,
    missed: u64,
}

#[derive(Debug)]
struct RunningCall {
    /// The shared deadline of the command. Dropping it ends the command.
    halt: Deadline,
    task: JoinHandle<CheckOutcome>,
}

impl HookQueue {
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
    pub(crate) fn input_for(&self, event: HookEvent<'_>) -> Option<HookInput> {
        // If the queue is full, this event displaces the oldest call, which counts as missed.
        let out = self.waiting.front().filter(|_| self.is_full());
        let missed = self.missed + out.map_or(0, |out| out.missed + 1);
        (self.hook.input)(&HookEvent { missed, ..event })
    }

    /// Queues a call.
    pub(crate) fn push(&mut self, context: ProcessContext, input: HookInput) {
        if self.is_full() {
            self.drop_oldest(1);
        }
        let missed = std::mem::take(&mut self.missed);
        self.waiting.push_back(QueuedCall {
            context,
            input,
            missed,
        });
        self.start_next();
    }

    fn is_full(&self) -> bool {
        self.waiting.len() == WAITING
    }

    /// Drops the oldest waiting calls.
    fn drop_oldest(&mut self, count: usize) {
        let out = self.waiting.drain(..count);
        self.missed += out.map(|one| one.missed + 1).sum::<u64>();
    }

    /// Drops all waiting calls.
    pub(crate) fn clear(&mut self) {
        self.drop_oldest(self.waiting.len());
    }

    /// Starts the next call, unless one runs.
    fn start_next(&mut self) {
        if self.running.is_some() {
            return;
        }
        let Some(QueuedCall {
            mut context, input, ..
        }) = self.waiting.pop_front()
        else {
            return;
        };
        let variables = input.variables.into_iter();
        let variables = variables.map(|(name, value)| (name.into(), value.into()));
        context.env.extend(variables);
        context.stop = context.stop.within(times::NOTIFY_ENDING);
        let command = TreeCommand::new("sh")
            .args(["-c", &self.hook.command])
            .stdin(StdinMode::Bytes(input.input.into_bytes()));
        let halt = Deadline::default();
        // A call is short, so a suspended run does not suspend it.
        let (_, freezes) = Freezer::new();
        let call = check::run(
            command,
            context,
            Limit::Time(times::NOTIFY_CALL),
            halt.subscribe(),
            freezes,
        );
        let task = tokio::spawn(call);
        self.running = Some(RunningCall { halt, task });
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Waits for the end of the running call, and starts the next. Cancel safe.
    pub(crate) async fn ended(&mut self) -> CheckOutcome {
        let Some(running) = &mut self.running else {
            return std::future::pending().await;
        };
        let end = (&mut running.task).await;
        self.running = None;
        self.start_next();
        end.unwrap_or_else(CheckOutcome::not_run)
    }

    /// Ends the running call.
    pub(crate) fn halt(&self) {
        if let Some(running) = &self.running {
            running.halt.tighten_to(times::NOTIFY_ENDING);
        }
    }

    /// Returns a failure of the command, once. Leaves out the command's output, which can be private.
    pub(crate) fn failure_warning(&mut self, end: &CheckOutcome) -> Option<String> {
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

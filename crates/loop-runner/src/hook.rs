//! A command of the user's that is told what becomes of a run.

use std::collections::VecDeque;
use std::fmt;

use agent_subprocess::{AgentCommand, Context, StdinMode};
use loop_state::{CheckResult, Head, Timestamp, times};
use rlm_store::RunId;
use rlm_store::deadline::Hurry;
use tokio::task::JoinHandle;

use crate::check::{self, CheckEnd, Freezer, Limit};
use crate::{Error, News, Outcome};

/// How many calls wait for the one that runs.
const WAITING: usize = 8;

/// A moment of a run that somebody may want to hear of.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Moment<'a> {
    /// The run.
    pub run: &'a RunId,
    /// Where it stands.
    pub head: &'a Head,
    /// When it was.
    pub at: Timestamp,
    /// What happened.
    pub what: Happened<'a>,
    /// How many moments before it were told to nobody, because a command was too slow.
    pub missed: u64,
}

/// What happened in a [`Moment`]. What it says is on disk, where that is its place.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Happened<'a> {
    /// This process has taken the run.
    Began {
        /// Whether the run had begun before.
        again: bool,
    },
    /// The run told something.
    News(&'a News),
    /// The run is over for this process, and what it had started is ended.
    Ended(Result<&'a Outcome, &'a Error>),
}

/// What a command is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Telling {
    /// Variables of its environment, besides those that say which run it is.
    pub variables: Vec<(String, String)>,
    /// Its standard input.
    pub input: String,
}

/// A command, run by `sh -c` in the directory of the run, and what it is told.
///
/// One call at a time, each under a guard and for 10 s at most; what it leaves running is ended. While one runs, eight wait, and of more the oldest are
/// left out and counted: no call holds the run up.
pub struct Hook {
    command: String,
    telling: Tells,
}

type Tells = Box<dyn Fn(&Moment<'_>) -> Option<Telling> + Send + Sync>;

impl Hook {
    /// Makes one; `telling` says what the command is told of a moment, and `None` where it is not called.
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
        // It may hold a secret, such as the address that is told.
        f.write_str("Hook")
    }
}

/// A hook at work. Dropping it ends what runs.
#[derive(Debug)]
pub(crate) struct Hooks {
    hook: Hook,
    waiting: VecDeque<Waiting>,
    /// How many were left out since one was told of that.
    missed: u64,
    running: Option<Running>,
    /// Whether the last call failed, so that it is told once.
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
    /// Dropping it ends the command too.
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

    /// Says what is to be told of a moment, if anything.
    pub(crate) fn telling(&self, moment: Moment<'_>) -> Option<Telling> {
        // What makes room for it is missed by then.
        let out = self.waiting.front().filter(|_| self.is_full());
        let missed = self.missed + out.map_or(0, |out| out.missed + 1);
        (self.hook.telling)(&Moment { missed, ..moment })
    }

    /// Has it told as soon as nothing else is.
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

    /// Leaves out the oldest that wait.
    fn leave_out(&mut self, count: usize) {
        let out = self.waiting.drain(..count);
        self.missed += out.map(|one| one.missed + 1).sum::<u64>();
    }

    /// Leaves out all that wait but what comes next.
    pub(crate) fn clear(&mut self) {
        self.leave_out(self.waiting.len());
    }

    /// Begins the next call, if none runs.
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
        // It does not stand still with the run: it is short.
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

    /// Waits for the end of the call that runs, and begins the next. Cancel safe.
    pub(crate) async fn ended(&mut self) -> CheckEnd {
        let Some(running) = &mut self.running else {
            return std::future::pending().await;
        };
        let end = (&mut running.task).await;
        self.running = None;
        self.go_on();
        end.unwrap_or_else(CheckEnd::not_run)
    }

    /// Ends the call that runs.
    pub(crate) fn halt(&self) {
        if let Some(running) = &self.running {
            running.halt.within(times::NOTIFY_ENDING);
        }
    }

    /// Says, once, that the command fails. What it printed is its own: it may hold what is private.
    pub(crate) fn complaint(&mut self, end: &CheckEnd) -> Option<String> {
        let how = match &end.result {
            CheckResult::Passed => None,
            CheckResult::Failed(text) | CheckResult::NotRun(text) => {
                let how = text.rsplit('\n').next().unwrap_or_default();
                Some(how.trim_matches(['(', ')']).to_owned())
            }
            _ => Some("there was no more time for it".to_owned()),
        };
        let was_failing = std::mem::replace(&mut self.is_failing, how.is_some());
        let how = how.filter(|_| !was_failing)?;
        Some(format!("the notify command failed: {how}"))
    }
}

//! The events that a run reports to its watchers.

use std::borrow::Cow;
use std::time::Duration;

use agent_duplex::{Event, Line, ProcessName, Stream};
use loop_state::{CheckResult, Command, Notice, Timestamp};
use serde::{Deserialize, Serialize};

use crate::shutdown::Awaited;

/// Something that a watcher of the run may want to show.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum News {
    /// The run went on; what this says is on disk.
    Run(Notice),
    /// What follows belongs to this phase; told of a run that has several.
    Phase {
        /// Its name.
        name: String,
        /// Its number, from 1.
        number: u32,
        /// How many phases there are.
        of: u32,
    },
    /// The agent's process runs.
    AgentStarted {
        /// Its process id.
        pid: u32,
    },
    /// The agent wrote a line.
    Output {
        /// Which of its two outputs it wrote to.
        stream: Stream,
        /// What it wrote.
        line: Line,
    },
    /// What the agent did, in words that are the same for every agent. A driver that has them says nothing by [`News::Output`].
    Agent(agent_duplex::Event),
    /// The turn was interrupted, and the agent goes on with what was said before it could be seen.
    GoesOn,
    /// The agent can't take a steer now: it gets it in a turn behind the present one if it can be talked to then, else with the next prompt.
    NextPrompt(u32),
    /// The prompt of the attempt that begins has the steer with this number in it.
    InPrompt(u32),
    /// A person said this to the agent, wherever they said it; what becomes of it is told by its number.
    Said {
        /// The number of the steer.
        id: u32,
        /// What they said.
        text: String,
    },
    /// A message to the run makes no sense now; the text says why.
    Rejected(Cow<'static, str>),
    /// Why a person wants the run to wait; the newest reason counts.
    PauseReason(String),
    /// A gate or the check was started.
    CommandStarted {
        /// Which.
        command: Command,
        /// Its text.
        text: String,
    },
    /// A gate or the check ended.
    CommandEnded {
        /// Which.
        command: Command,
        /// How it ended.
        result: CheckResult,
        /// How long it ran.
        took: Duration,
    },
    /// The work of an iteration was committed to git.
    Committed {
        /// Its number.
        iteration: u32,
        /// The commit.
        commit: String,
        /// What was left out of it, and why.
        left_out: Vec<String>,
    },
    /// The run goes on, but its present turn is being ended.
    EndingTurn {
        /// Why.
        why: String,
        /// How long that may take.
        budget: Duration,
    },
    /// The agent has said nothing for most of the time that it may; when that is over, its turn is ended.
    Silent {
        /// How long.
        silent: Duration,
        /// How long it may.
        of: Duration,
    },
    /// The turn is over and the agent has something running in the background: that is waited for, until nothing comes of it for this long.
    Holding {
        /// How many tasks.
        tasks: u32,
        /// How long none may end and no turn begin.
        patience: Duration,
    },
    /// The run still waits for its agent to be able to work; told each 10 min.
    StillWaiting {
        /// Until when.
        until: Timestamp,
        /// How long that is from now.
        left: Duration,
    },
    /// The run is being stopped, which is on disk: what runs is ended, within this time.
    Stopping {
        /// The time that is left for it.
        budget: Duration,
        /// What the run waits for; `None` where nothing runs.
        awaited: Option<Awaited>,
    },
    /// The stop of the run has not ended yet; told from its first second on.
    StopWaiting {
        /// What the run waits for.
        awaited: Awaited,
        /// The time until that is killed, in whole seconds.
        left: Duration,
    },
    /// These processes were alive when they should not have been, and were ended.
    Ended {
        /// Why they were found.
        why: Cow<'static, str>,
        /// Which.
        processes: Vec<ProcessName>,
    },
    /// These processes could not be ended.
    Survivors(Vec<ProcessName>),
    /// Something is not as it should be, and what was done about it.
    Warning(String),
    /// The watcher was too slow for this many lines; the transcript has them.
    Missed(u64),
}

/// How much memory it takes, beside its place.
pub(crate) fn size(news: &News) -> usize {
    match news {
        News::Output { line, .. } => line.bytes.len(),
        News::Said { text, .. } => text.len(),
        News::Agent(
            Event::TextDelta(text)
            | Event::ThinkingDelta(text)
            | Event::Message { text, .. }
            | Event::ToolStarted { summary: text, .. }
            | Event::ToolFinished { text, .. },
        ) => text.len(),
        _ => 0,
    }
}

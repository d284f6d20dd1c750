//! The run events.

mod display;

use std::borrow::Cow;
use std::time::Duration;

use agent_duplex::{Event, Line, ProcessName, Stream};
use loop_state::{CheckResult, LoopCommand, RunUpdate, Timestamp};
use rlm_store::RunId;
use serde::{Deserialize, Serialize};

use crate::stop_progress::Awaited;

/// One fact that a run reports to its viewers and scripts.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunEvent {
    /// The run made this step, and the step is on disk.
    Update(RunUpdate),
    /// The events that follow belong to this phase; reported only if the run has several.
    Phase {
        /// The name of the phase.
        name: String,
        /// The number of the phase, from 1.
        number: u32,
        /// The number of phases.
        count: u32,
    },
    /// The process of the agent started.
    AgentStarted {
        /// The process id of the agent.
        pid: u32,
    },
    /// The agent wrote a line.
    Output {
        /// The stream that the agent wrote to.
        stream: Stream,
        /// The line.
        line: Line,
    },
    /// An event of the agent, in the same form for every agent. If a driver reports such events, [`RunEvent::Output`] has only standard error.
    Agent(agent_duplex::Event),
    /// The turn was interrupted; the agent continues with the inputs that it had not seen yet.
    TurnContinued,
    /// The agent can't take the steer with this number now. It gets the steer in the next turn if its conversation continues, else with the next
    /// prompt.
    SteerNextTurn(u32),
    /// The prompt of the attempt that begins contains the steer with this number.
    InPrompt(u32),
    /// A person sent this message to the agent, from any terminal. Later events report its progress by its number.
    SteerRecorded {
        /// The number of the steer.
        id: u32,
        /// The text of the message.
        text: String,
    },
    /// The run rejected a request; the text gives the reason.
    RequestRejected(Cow<'static, str>),
    /// The reason for a pause; a newer one replaces it.
    PauseReason(String),
    /// The run waits until a person continues it.
    Paused {
        /// The last reason that a person gave.
        reason: Option<String>,
    },
    /// A required check or the check started.
    CommandStarted {
        /// The command.
        command: LoopCommand,
        /// The command line.
        text: String,
    },
    /// A required check or the check ended.
    CommandEnded {
        /// The command.
        command: LoopCommand,
        /// The result of the command.
        result: CheckResult,
        /// The time that the command took.
        took: Duration,
    },
    /// The files that an iteration changed, in a git working tree.
    IterationChanges {
        /// The number of the iteration.
        iteration: u32,
        /// The number of changed files.
        files: u32,
        /// The number of added lines.
        added: u64,
        /// The number of removed lines.
        removed: u64,
        /// The first sentence of the agent's last message.
        summary: Option<String>,
    },
    /// The run committed the work of an iteration to git.
    IterationCommitted {
        /// The number of the iteration.
        iteration: u32,
        /// The id of the commit.
        commit: String,
        /// The files that the commit leaves out, with reasons.
        left_out: Vec<String>,
    },
    /// The run continues, but ends the current turn.
    EndingTurn {
        /// The reason.
        why: String,
        /// The time that the end of the turn may take.
        budget: Duration,
    },
    /// The agent has been silent for most of the idle timeout. After the whole idle timeout, the run ends the turn.
    AgentSilent {
        /// The time without output so far.
        silent: Duration,
        /// The idle timeout.
        of: Duration,
    },
    /// The turn ended, and the agent has background tasks. The run waits for them until they report nothing for `timeout`.
    AwaitingTasks {
        /// The number of tasks.
        tasks: u32,
        /// The longest time without an ended task or a new turn.
        timeout: Duration,
    },
    /// The run still waits until its agent can work; reported every 10 minutes.
    StillWaiting {
        /// The time at which the wait ends.
        until: Timestamp,
        /// The time that is left.
        left: Duration,
    },
    /// The stop is on disk; the run ends all its processes within this time.
    Stopping {
        /// The time that is left for the stop.
        budget: Duration,
        /// The part that the stop waits for; `None` if nothing runs.
        awaited: Option<Awaited>,
    },
    /// The stop has not ended yet; first reported one second after the stop began.
    StopAwaits {
        /// The part that the stop waits for.
        awaited: Awaited,
        /// The time until the run kills that part, in whole seconds.
        left: Duration,
    },
    /// Processes that should have ended were still alive, and the run ended them.
    ProcessesEnded {
        /// Why they were alive, or which program ended them.
        why: Cow<'static, str>,
        /// The run that started them, if it is another run.
        run: Option<RunId>,
        /// The processes.
        processes: Vec<ProcessName>,
    },
    /// These processes could not be ended.
    Survivors(Vec<ProcessName>),
    /// A problem, and how the run handled it.
    Warning(String),
    /// The watcher was too slow and missed this many events; the transcript has them.
    EventsMissed(u64),
}

/// Returns the memory that an event uses, without the size of its type.
pub(crate) fn size(event: &RunEvent) -> usize {
    match event {
        RunEvent::Output { line, .. } => line.bytes.len(),
        RunEvent::SteerRecorded { text, .. } => text.len(),
        RunEvent::Agent(
            Event::TextDelta(text)
            | Event::ThinkingDelta(text)
            | Event::Message { text, .. }
            | Event::ToolStarted { summary: text, .. }
            | Event::ToolFinished { text, .. },
        ) => text.len(),
        _ => 0,
    }
}

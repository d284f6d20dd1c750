//! The data and functions that the terminal needs to show a run of this process or of another process.

use std::io::Write;
use std::sync::Arc;

use interrupt_stack::Interrupts;
use loop_runner::{RunControl, RunEvent, View};
use loop_state::Timestamp;
use signal_hook_tokio::Signals;
use tokio::sync::{mpsc, watch};

use crate::editor::EditTarget;
use crate::scope::PressActions;

/// A function that formats an event with its time as lines of the log.
pub type FormatEvent = Box<dyn Fn(Timestamp, &RunEvent) -> Option<String> + Send>;
/// A function that formats the response to a request, from its event.
pub type FormatResponse = Box<dyn Fn(&RunEvent) -> Option<String> + Send>;

/// The destination and the format of the log of a run.
#[expect(missing_debug_implementations, reason = "it holds functions")]
pub struct LogOutput {
    /// The writer. A separate thread writes to it, so it may block.
    pub to: Box<dyn Write + Send>,
    /// Whether the log contains colours.
    pub has_colour: bool,
    /// Whether the log is JSON for programs.
    pub is_json: bool,
    /// Whether the log shows everything, without collapsing or truncating.
    pub shows_everything: bool,
    /// Formats an event as whole lines; an empty text if there is nothing to show. `None` for the agent's own text, which is streamed.
    pub format_event: FormatEvent,
    /// Formats the response to a request of the person, for a terminal without the log.
    pub format_response: FormatResponse,
}

/// The signals that concern the terminal. A signal that can't be caught is `None`.
#[expect(missing_debug_implementations, reason = "the streams have none")]
pub struct TerminalSignals {
    /// SIGTSTP.
    pub suspend: Option<Signals>,
    /// SIGCONT.
    pub continued: Option<Signals>,
    /// SIGWINCH.
    pub resized: Option<Signals>,
}

/// A run in the foreground, for [`Terminal::show`](crate::Terminal::show).
#[expect(missing_debug_implementations, reason = "it holds functions")]
pub struct ForegroundRun {
    /// The id of the run.
    pub run: String,
    /// The state of the run now.
    pub view: watch::Receiver<Arc<View>>,
    /// The channel for the person's requests to the run.
    pub control: mpsc::Sender<RunControl>,
    /// The interrupt stack. It also receives presses for which the terminal makes no signal, and the request to detach.
    pub interrupts: Interrupts,
    /// The prompt of each phase.
    pub prompts: Vec<EditTarget>,
    /// The log.
    pub log: LogOutput,
    /// Creates the signal streams, within the runtime of the terminal thread.
    pub signals: fn() -> TerminalSignals,
    /// The exit code of this process if the person detaches it from the run.
    pub detached_exit_code: u8,
    /// Called when the person requests a stop or an abort now. It must not block.
    pub on_stop: Box<dyn Fn() + Send>,
    /// The actions of presses while nothing prompts.
    pub presses: PressActions,
    /// Whether the bell rings when the run waits for the person.
    pub bell: bool,
    /// Whether another process works on the run, and this one is attached to it.
    pub attached: bool,
    /// Earlier events of the run, which the terminal shows first.
    pub earlier_events: Vec<(Timestamp, RunEvent)>,
    /// Messages for the person that are not run events.
    pub messages: Option<mpsc::Receiver<String>>,
}

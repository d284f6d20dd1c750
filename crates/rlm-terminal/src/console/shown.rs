//! What a run in the foreground gives the screen, whichever process carries it out.

use std::io::Write;
use std::sync::Arc;

use interrupt_stack::Interrupts;
use loop_runner::{Control, News, View};
use loop_state::Timestamp;
use tokio::signal::unix::Signal;
use tokio::sync::{mpsc, watch};

use crate::editor::Subject;
use crate::scope::PressActions;

/// Returns the lines of an event that happened at some time.
pub type ToLines = Box<dyn Fn(Timestamp, &News) -> Option<String> + Send>;
/// Returns the answer to a request, from its event.
pub type ToAnswer = Box<dyn Fn(&News) -> Option<String> + Send>;

/// Where the log of a run goes, and how it reads.
#[expect(missing_debug_implementations, reason = "it holds functions")]
pub struct Log {
    /// The writer; a thread of its own waits for it.
    pub to: Box<dyn Write + Send>,
    /// Whether colours are wanted there.
    pub has_colour: bool,
    /// Whether programs read it, as JSON.
    pub is_json: bool,
    /// Whether the user wants to see all of it.
    pub is_full: bool,
    /// Returns an event as whole lines, none when there is nothing to show; `None` for the agent's own words, which flow.
    pub text: ToLines,
    /// Returns the answer to a request of the user, for where the log goes elsewhere.
    pub answer: ToAnswer,
}

/// The signals that concern the terminal; one that can't be taken is absent.
#[derive(Debug)]
pub struct Signals {
    /// SIGTSTP.
    pub suspend: Option<Signal>,
    /// SIGCONT.
    pub continued: Option<Signal>,
    /// SIGWINCH.
    pub resized: Option<Signal>,
}

/// A run in the foreground, for [`Terminal::show`](crate::Terminal::show).
#[expect(missing_debug_implementations, reason = "it holds functions")]
pub struct Shown {
    /// The id of the run.
    pub run: String,
    /// The run at this moment.
    pub view: watch::Receiver<Arc<View>>,
    /// Takes what the user wants of the run.
    pub control: mpsc::Sender<Control>,
    /// Takes the presses that the terminal makes no signal of, and what ends the process.
    pub interrupts: Interrupts,
    /// The prompt of each phase.
    pub prompts: Vec<Subject>,
    /// The log.
    pub log: Log,
    /// Makes the signals that concern the terminal, within the runtime of its thread.
    pub signals: fn() -> Signals,
    /// The exit code of a process that the user detaches from the run.
    pub left_code: u8,
    /// Called when the user has the run stopped now. It must not block.
    pub on_stop: Box<dyn Fn() + Send>,
    /// What a press does where nothing prompts.
    pub presses: PressActions,
    /// Whether the bell rings when the person is needed.
    pub bell: bool,
    /// Whether another process has the run.
    pub attached: bool,
    /// What was told before.
    pub before: Vec<(Timestamp, News)>,
    /// What the person is to be told that is no news of the run.
    pub told: Option<mpsc::Receiver<String>>,
}

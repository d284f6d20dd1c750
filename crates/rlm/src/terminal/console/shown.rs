//! What a run in the foreground gives the screen, whichever process carries it out.

use std::sync::Arc;

use interrupt_stack::Interrupts;
use loop_runner::{Control, News, View};
use loop_state::Timestamp;
use tokio::sync::{mpsc, watch};

use crate::presses::PressActions;
use crate::render::Screen;
use crate::terminal::editor::Subject;

/// What a run in the foreground gives the one who shows it.
pub(crate) struct Shown {
    pub(crate) run: String,
    pub(crate) view: watch::Receiver<Arc<View>>,
    pub(crate) control: mpsc::Sender<Control>,
    pub(crate) interrupts: Interrupts,
    /// The prompt of each phase.
    pub(crate) prompts: Vec<Subject>,
    pub(crate) screen: Screen,
    pub(crate) presses: PressActions,
    /// Whether the bell rings when the person is needed.
    pub(crate) bell: bool,
    /// Whether another process has the run.
    pub(crate) attached: bool,
    /// What was told before.
    pub(crate) before: Vec<(Timestamp, News)>,
    /// What the person is to be told that is no news of the run.
    pub(crate) told: Option<mpsc::Receiver<String>>,
}

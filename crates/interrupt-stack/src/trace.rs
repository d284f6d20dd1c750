//! Events for whoever subscribes. They come from the telling threads, which may hang in a subscriber as in any waker; never from the
//! signal handler, nor from the thread that ends the process.

use crate::{Cause, ladder::Ladder, state::News};

/// What was said already, and what is to be said.
#[derive(Clone, Default)]
pub(crate) struct Trace {
    presses: u64,
    /// Presses that were accepted since.
    more: u64,
    pub(crate) exit: Option<Cause>,
}

impl Trace {
    /// Takes what is to be said, if there is anything.
    pub(crate) fn next(&mut self, ladder: &Ladder) -> Option<Self> {
        self.more = ladder.presses() - self.presses;
        self.presses += self.more;
        let next = self.clone();
        self.exit = None;
        (next.more > 0 || next.exit.is_some()).then_some(next)
    }
}

pub(crate) fn say(news: &News) {
    let trace = news.trace.clone().unwrap_or_default();
    for number in trace.presses - trace.more + 1..=trace.presses {
        tracing::debug!(target: "interrupt_stack", number, "press");
    }
    if let Some((handler, _)) = &news.ring {
        tracing::debug!(target: "interrupt_stack", %handler, "notice");
    }
    if let Some(cause) = news.shutdown {
        tracing::info!(target: "interrupt_stack", ?cause, "shutdown begins");
    }
    if let Some(cause) = trace.exit {
        tracing::warn!(target: "interrupt_stack", ?cause, "hard exit");
    }
}

//! How long the agent is given to do what it owes, and what happens then.

use super::ClaudeConnection;
use crate::converse::{Impatience, signal};
use rustix::process::Signal;
use std::time::Duration;

/// How long a turn may take to end after an interrupt (a real one takes 150 ms at worst), and after SIGINT.
const INTERRUPT: &[Duration] = &[Duration::from_secs(3), Duration::from_secs(3)];

impl ClaudeConnection {
    /// Begins to wait for the end of a turn that was interrupted, or stops to.
    pub(super) fn watch(&mut self) {
        let interrupting = self.session.is_interrupting();
        self.waits.watch(interrupting, INTERRUPT);
    }

    /// Asks for the end of the turn; `false` if that is no use, because the agent does not read.
    pub(super) fn ask_interrupt(&mut self, drop_queued: bool) -> bool {
        let line = self.session.interrupt(drop_queued);
        let line = line.filter(|_| !self.over);
        let asked = line.is_none_or(|line| self.push(line));
        self.watch();
        asked
    }

    /// Goes on to the next means, because waiting did not help. An interrupt that is not obeyed costs the process; the session
    /// can be resumed.
    pub(super) fn lose_patience(&mut self) {
        let interrupted = "the agent did not end its turn within 3 s of an interrupt";
        let (means, why) = match self.waits.lose() {
            Some(Impatience::Interrupted(0)) => (Signal::INT, interrupted),
            // It obeyed as far as it can, and is asking a service that does not know it.
            Some(Impatience::Interrupted(_)) if self.session.is_refused() => {
                let events = self.session.give_up();
                events.into_iter().for_each(|event| self.keep(event.into()));
                return self.watch();
            }
            Some(Impatience::Interrupted(_)) => (Signal::KILL, interrupted),
            Some(Impatience::Silent(n)) => {
                let means = if n == 0 { Signal::TERM } else { Signal::KILL };
                (means, "the agent closed its output and did not end")
            }
            None => return,
        };
        let told = signal(&mut self.agent, means, why);
        self.keep(told.into());
    }
}

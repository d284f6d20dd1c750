//! How long the agent is given to do what it owes, and what happens then.

use super::CodexConnection;
use crate::converse::{Impatience, signal};
use rustix::process::Signal;
use std::time::Duration;

/// How long a turn may take to end after an interrupt (a real one takes 20 ms), and after SIGINT.
const INTERRUPT: &[Duration] = &[Duration::from_secs(3), Duration::from_secs(3)];

impl CodexConnection {
    /// Begins to wait for the end of a turn that was interrupted, or stops to.
    pub(super) fn watch(&mut self) {
        let interrupting = self.session.is_interrupting();
        self.waits.watch(interrupting, INTERRUPT);
    }

    /// Asks for the end of the turn; `false` if that is no use, because the agent does not read.
    pub(super) fn ask_interrupt(&mut self, drop_queued: bool) -> bool {
        if self.over {
            return true;
        }
        let heard = self.session.interrupt(drop_queued);
        let asked = self.follow(heard);
        self.watch();
        asked
    }

    /// Goes on to the next means, because waiting did not help. An interrupt that is not obeyed costs the process; the
    /// conversation can be resumed.
    pub(super) fn lose_patience(&mut self) {
        let (gentle, n, why) = match self.waits.lose() {
            Some(Impatience::Interrupted(n)) => {
                let why = "the agent did not end its turn within 3 s of an interrupt";
                (Signal::INT, n, why)
            }
            Some(Impatience::Silent(n)) => {
                let why = "the agent had nothing more to do and did not end";
                (Signal::TERM, n, why)
            }
            None => return,
        };
        let means = if n == 0 { gentle } else { Signal::KILL };
        let told = signal(&mut self.agent, means, why);
        self.keep(told.into());
    }
}

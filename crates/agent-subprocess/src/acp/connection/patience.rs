//! How long the agent is given to do what it owes, and what happens then.

use super::AcpConnection;
use crate::converse::{Impatience, signal};
use rustix::process::Signal;
use std::time::Duration;

/// How long a turn may take to end after an interrupt (real ones take 150 ms at worst) before it is asked again, because one
/// that comes before the agent has looked at the turn is lost on some; before it is signalled; and after SIGINT.
const INTERRUPT: &[Duration] = &[
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(3),
];

impl AcpConnection {
    /// Begins to wait for the end of a turn that was interrupted, or stops to.
    pub(super) fn watch(&mut self) {
        let interrupting = self.session.is_interrupting();
        self.waits.watch(interrupting, INTERRUPT);
    }

    /// Asks for the end of the turn; `false` if that is no use, because the agent does not read.
    pub(super) fn ask_interrupt(&mut self) -> bool {
        let heard = self.session.interrupt();
        self.over || self.heard(heard)
    }

    /// Goes on to the next means, because waiting did not help. An interrupt that is not obeyed costs the process.
    pub(super) fn lose_patience(&mut self) {
        let interrupted = "the agent did not end its turn within 3 s of an interrupt";
        let (means, why) = match self.waits.lose() {
            Some(Impatience::Interrupted(0)) => {
                let line = self.session.cancel();
                self.push(line);
                return;
            }
            Some(Impatience::Interrupted(1)) => (Signal::INT, interrupted),
            Some(Impatience::Interrupted(_)) => (Signal::KILL, interrupted),
            Some(Impatience::Silent(n)) => {
                let means = if n == 0 { Signal::TERM } else { Signal::KILL };
                (means, "the agent had nothing more to do and did not end")
            }
            None => return,
        };
        let told = signal(&mut self.agent, means, why);
        self.keep(told.into());
    }
}

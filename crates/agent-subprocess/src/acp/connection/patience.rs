//! How long the agent is given to do what it owes, and what happens then.

use super::AcpConnection;
use agent_duplex::Event;
use rustix::process::Signal;
use std::time::Duration;
use tokio::time::Instant;

/// How long a turn may take to end after an interrupt (real ones take 150 ms at worst) before it is asked again, because one
/// that comes before the agent has looked at the turn is lost on some, and before it is signalled.
const INTERRUPT: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];
/// How long a process may go on that closed its outputs, or that was told to end, and then after SIGTERM.
const SILENCE: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(2)];
/// How much may be read past the time, because it was written before: more than is read ahead.
const SLACK: usize = 16 << 20;

/// A wait that is about to run out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    times: [Duration; 2],
    /// How many means were used.
    used: usize,
    /// `None` when the last means was used.
    until: Option<Instant>,
    slack: usize,
}

impl Patience {
    fn new(times: [Duration; 2]) -> Self {
        Patience {
            times,
            used: 0,
            until: Some(Instant::now() + times[0]),
            slack: SLACK,
        }
    }

    pub(super) fn with_silence() -> Self {
        Self::new(SILENCE)
    }

    pub(super) fn until(self) -> Option<Instant> {
        self.until
    }

    /// Counts a line that was read, if the time was up.
    pub(super) fn read(&mut self, size: usize) {
        if self.until.is_some_and(|until| until <= Instant::now()) {
            self.slack = self.slack.saturating_sub(size + 1);
        }
    }

    pub(super) fn is_exhausted(self) -> bool {
        self.slack == 0
    }

    /// Begins the time of the present means again.
    pub(super) fn renew(&mut self) {
        if self.until.is_some() {
            self.until = self.times.get(self.used).map(|time| Instant::now() + *time);
        }
        self.slack = SLACK;
    }

    /// Goes on to the next means and returns the number of the one that is used now.
    fn next(&mut self) -> usize {
        self.used += 1;
        self.renew();
        self.used - 1
    }
}

impl AcpConnection {
    /// Begins to wait for the end of a turn that was interrupted, or stops to.
    pub(super) fn watch(&mut self) {
        if !self.session.is_interrupting() {
            self.interrupted = None;
        } else if self.interrupted.is_none() {
            self.interrupted = Some(Patience::new(INTERRUPT));
        }
    }

    /// Returns the wait that runs out first; who is stopped where it stands is waited for.
    pub(super) fn due(&self) -> Option<Patience> {
        let waits = [self.interrupted, self.silent].into_iter().flatten();
        waits
            .filter(|patience| patience.until.is_some() && !self.frozen)
            .min_by_key(|patience| patience.until)
    }

    /// Asks for the end of the turn; `false` if that is no use, because the agent does not read.
    pub(super) fn ask_interrupt(&mut self) -> bool {
        let heard = self.session.interrupt();
        self.over || self.heard(heard)
    }

    /// Goes on to the next means, because waiting did not help.
    pub(super) fn lose_patience(&mut self) {
        if let Some(silent) = &mut self.silent {
            let (signal, name) = match silent.next() {
                0 => (Signal::TERM, "SIGTERM"),
                _ => (Signal::KILL, "SIGKILL"),
            };
            let why = "the agent had nothing more to do and did not end";
            self.signal(signal, name, why);
        } else if let Some(interrupted) = &mut self.interrupted {
            if interrupted.next() == 0 {
                let line = self.session.cancel();
                self.push(line);
            } else {
                let seconds = INTERRUPT.iter().sum::<Duration>().as_secs();
                let why =
                    format!("the agent did not end its turn within {seconds} s of an interrupt");
                self.signal(Signal::INT, "SIGINT", &why);
            }
        }
    }

    fn signal(&mut self, signal: Signal, name: &str, why: &str) {
        let warning = match self.agent.signal_main(signal) {
            Ok(()) => format!("{why}: it got {name}"),
            Err(error) => format!("{why}, and gets no {name}: {error}"),
        };
        self.keep(Event::Warning(warning).into());
    }
}

//! How long the agent is given to do what it owes, and what happens then.

use super::ClaudeConnection;
use agent_duplex::Event;
use rustix::process::Signal;
use std::time::Duration;
use tokio::time::Instant;

/// How long a turn may take to end after an interrupt (a real one takes 150 ms at worst).
const INTERRUPT: Duration = Duration::from_secs(3);
/// How long a process may go on after it closed its outputs.
const SILENCE: Duration = Duration::from_secs(2);
/// How much may be read past the time, because it was written before: more than is read ahead.
const SLACK: usize = 16 << 20;

/// A wait that is about to run out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    time: Duration,
    /// `None` when the last means was used.
    until: Option<Instant>,
    slack: usize,
    /// Whether the first means was used.
    tried: bool,
}

impl Patience {
    fn new(time: Duration) -> Self {
        let until = Some(Instant::now() + time);
        Patience {
            time,
            until,
            slack: SLACK,
            tried: false,
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

    /// Begins the time again.
    pub(super) fn renew(&mut self) {
        let until = self.until.map(|_| Instant::now() + self.time);
        *self = Patience {
            until,
            slack: SLACK,
            ..*self
        };
    }
}

impl ClaudeConnection {
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
    pub(super) fn ask_interrupt(&mut self, drop_queued: bool) -> bool {
        let line = self.session.interrupt(drop_queued);
        let line = line.filter(|_| !self.over);
        let asked = line.is_none_or(|line| self.push(line));
        self.watch();
        asked
    }

    /// Goes on to the next means, because waiting did not help.
    pub(super) fn lose_patience(&mut self) {
        if let Some(silent) = &mut self.silent {
            let (signal, name) = match silent.tried {
                false => (Signal::TERM, "SIGTERM"),
                true => (Signal::KILL, "SIGKILL"),
            };
            silent.tried = true;
            silent.renew();
            let why = "the agent closed its output and did not end";
            self.signal(signal, name, why);
        } else if let Some(interrupted) = &mut self.interrupted {
            if !interrupted.tried {
                interrupted.tried = true;
                interrupted.renew();
                let seconds = INTERRUPT.as_secs();
                let why =
                    format!("the agent did not end its turn within {seconds} s of an interrupt");
                self.signal(Signal::INT, "SIGINT", &why);
            } else {
                interrupted.until = None;
                if self.session.is_refused() {
                    let events = self.session.give_up();
                    events.into_iter().for_each(|event| self.keep(event.into()));
                    self.watch();
                }
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

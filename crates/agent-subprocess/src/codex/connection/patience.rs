//! How long the agent is given to do what it owes, and what happens then.

use super::CodexConnection;
use agent_duplex::Event;
use rustix::process::Signal;
use std::time::Duration;
use tokio::time::Instant;

/// How long a turn may take to end after an interrupt (a real one takes 20 ms).
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
        Patience {
            time,
            until: Some(Instant::now() + time),
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
        self.until = self.until.map(|_| Instant::now() + self.time);
        self.slack = SLACK;
    }

    /// Goes on to the next means: `None` when there is no other.
    fn lose(&mut self) -> Option<bool> {
        self.until?;
        let again = std::mem::replace(&mut self.tried, true);
        self.renew();
        if again {
            self.until = None;
        }
        Some(again)
    }
}

impl CodexConnection {
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
        let (patience, signals, why) = if let Some(silent) = &mut self.silent {
            let why = "the agent closed its output and did not end";
            (silent, [Signal::TERM, Signal::KILL], why)
        } else if let Some(interrupted) = &mut self.interrupted {
            let why = "the agent did not end its turn within 3 s of an interrupt";
            (interrupted, [Signal::INT, Signal::KILL], why)
        } else {
            return;
        };
        let Some(again) = patience.lose() else {
            return;
        };
        let signal = signals[usize::from(again)];
        let name = match signal {
            Signal::INT => "SIGINT",
            Signal::TERM => "SIGTERM",
            _ => "SIGKILL",
        };
        let warning = match self.agent.signal_main(signal) {
            Ok(()) => format!("{why}: it got {name}"),
            Err(error) => format!("{why}, and gets no {name}: {error}"),
        };
        self.keep(Event::Warning(warning).into());
    }
}

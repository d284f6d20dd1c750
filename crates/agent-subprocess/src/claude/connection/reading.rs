//! What the agent's process does, one thing at a time.

use super::ClaudeConnection;
use crate::converse::{Patience, Seen, look};
use crate::duplex::{exit_status, observation};
use crate::{Exit, Output, Stream};
use agent_duplex::{Event, ExitStatus, Observation};
use tokio::time::{Instant, timeout_at};

impl ClaudeConnection {
    /// Waits for one thing to happen and keeps what it means; `false` when nothing can happen any more.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn step(&mut self) -> bool {
        if self.over {
            return false;
        }
        // Who is stopped where it stands is waited for.
        let due = self.waits.due().filter(|_| !self.frozen);
        let mut late = None;
        // Mostly nothing is waited for, and then nobody needs to look at the clock for each line.
        if self.session.awaits_answers() && !self.frozen {
            let now = Instant::now();
            late = self.session.answers_due(now);
            if late.is_some_and(|late| late <= now) {
                let events = self.session.expire(now);
                events.into_iter().for_each(|event| self.keep(event.into()));
                return true;
            }
        }
        if due.is_some_and(Patience::is_exhausted) {
            self.lose_patience();
            return true;
        }
        let patient = due.and_then(Patience::until);
        let until = patient.into_iter().chain(late).min();
        match look(&mut self.agent, self.waits.expects_end(), until).await {
            Seen::Output(output) => self.take(output),
            Seen::Silence => self.waits.expect_end(),
            Seen::Exit(exit) => self.exited(exit),
            // The next step looks what is late.
            Seen::Late if patient.is_none_or(|until| until > Instant::now()) => {}
            Seen::Late => self.lose_patience(),
        }
        true
    }

    /// Keeps what happens until `enough` holds, the process ended or time is up.
    pub(super) async fn pump(&mut self, until: Instant, enough: impl Fn(&Self) -> bool) {
        // Who never stops writing would never let a timeout look at the clock.
        while !self.over && !enough(self) && Instant::now() < until {
            if timeout_at(until, self.step()).await.is_err() {
                return;
            }
        }
    }

    /// Tells what came of a change that was asked for, once that is known; what nobody waits for any more is forgotten.
    pub(super) fn tell_change(&mut self) {
        let is_due = !self.session.is_asking() || self.change.is_late();
        if self.change.is_begun() && is_due {
            match self.session.model_answer() {
                Some(answer) => self.change.answer(answer),
                None => self.change.forget(),
            }
        }
    }

    pub(super) fn take(&mut self, output: Output) {
        self.waits.read(output.line.bytes.len());
        let is_whole = output.line.truncated.is_none();
        let is_stdout = output.stream == Stream::Stdout;
        let mut seen = observation(output);
        if let (Some((_, line)), true) = (&seen.raw, is_stdout) {
            if is_whole {
                let heard = self.session.hear(&line.bytes);
                self.tell_change();
                if heard.means_nothing {
                    return self.watch();
                }
                seen.events = heard.events;
                for line in heard.lines {
                    self.push(line);
                }
            } else {
                let warning = "a line of the agent's was too long to be understood";
                seen.events.push(Event::Warning(warning.to_owned()));
            }
        }
        self.keep(seen);
        self.watch();
    }

    pub(super) fn exited(&mut self, exit: Exit) {
        self.over = true;
        self.change.forget();
        self.release();
        // Nobody can tell how only when the guard was killed, and then the agent was killed with it.
        let exit = exit_status(exit).unwrap_or(ExitStatus::Signal(libc::SIGKILL));
        let events = self.session.exited(exit, self.agent.stderr_tail());
        self.keep(Observation { raw: None, events });
        self.watch();
    }

    pub(super) fn keep(&mut self, seen: Observation) {
        self.kept.keep(seen);
    }
}

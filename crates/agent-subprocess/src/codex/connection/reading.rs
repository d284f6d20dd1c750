//! What the agent's process does, one thing at a time.

use super::CodexConnection;
use super::patience::Patience;
use crate::duplex::{exit_status, observation};
use crate::{Exit, Output, Stream};
use agent_duplex::{Event, ExitStatus, Observation};
use tokio::time::{Instant, timeout_at};

/// How many bytes of lines are kept that nobody took while an agent was being ended.
const KEPT: usize = 32 << 20;

enum Seen {
    Output(Output),
    Silence,
    Exit(Exit),
}

impl CodexConnection {
    /// Waits for one thing to happen and keeps what it means; `false` when nothing can happen any more.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn step(&mut self) -> bool {
        if self.over {
            return false;
        } else if self.clean().await {
            return true;
        }
        let due = self.due();
        let now = Instant::now();
        let late = self.session.answers_due(now).filter(|_| !self.frozen);
        if late.is_some_and(|late| late <= now) {
            let heard = self.session.expire(now);
            self.follow(heard);
            return true;
        }
        if due.is_some_and(Patience::is_exhausted) {
            self.lose_patience();
            return true;
        }
        let (agent, silent) = (&mut self.agent, self.silent.is_some());
        let something = async {
            if silent {
                return Seen::Exit(agent.wait().await);
            }
            let output = agent.next_output().await;
            output.map_or(Seen::Silence, Seen::Output)
        };
        let patient = due.and_then(Patience::until);
        let seen = match patient.into_iter().chain(late).min() {
            Some(until) => timeout_at(until, something).await.ok(),
            None => Some(something.await),
        };
        match seen {
            // The next step looks what is late.
            None if patient.is_none_or(|until| until > Instant::now()) => {}
            Some(Seen::Output(output)) => self.take(output),
            Some(Seen::Silence) => self.silent = Some(Patience::with_silence()),
            Some(Seen::Exit(exit)) => self.exited(exit),
            None => self.lose_patience(),
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

    fn take(&mut self, output: Output) {
        let size = output.line.bytes.len();
        for patience in [&mut self.interrupted, &mut self.silent]
            .into_iter()
            .flatten()
        {
            patience.read(size);
        }
        let is_whole = output.line.truncated.is_none();
        let is_stdout = output.stream == Stream::Stdout;
        let mut seen = observation(output);
        match (&seen.raw, is_stdout && is_whole) {
            (Some((_, line)), true) => {
                let heard = self.session.hear(&line.bytes);
                self.settle(seen, heard);
            }
            _ => {
                if is_stdout {
                    let warning = "a line of the agent's was too long to be understood";
                    seen.events.push(Event::Warning(warning.to_owned()));
                }
                self.keep(seen);
            }
        }
        self.watch();
    }

    fn exited(&mut self, exit: Exit) {
        self.over = true;
        // Nobody can tell how only when the guard was killed, and then the agent was killed with it.
        let exit = exit_status(exit).unwrap_or(ExitStatus::Signal(libc::SIGKILL));
        let events = self.session.exited(exit, self.agent.stderr_tail());
        self.keep(Observation { raw: None, events });
        self.watch();
    }

    pub(super) fn keep(&mut self, mut seen: Observation) {
        let is_end = |event: &Event| matches!(event, Event::TurnCompleted(_));
        if self.session.has_failed() && seen.events.iter().any(is_end) {
            self.dismiss();
        }
        let size = |seen: &Observation| seen.raw.as_ref().map_or(0, |(_, line)| line.bytes.len());
        if self.kept + size(&seen) > KEPT {
            seen.raw = None;
            let is_piece = |e: &Event| matches!(e, Event::TextDelta(_) | Event::ThinkingDelta(_));
            seen.events.retain(|event| !is_piece(event));
        }
        if seen != Observation::default() {
            self.kept += size(&seen);
            self.ready.push_back(seen);
        }
    }

    pub(super) fn taken(&mut self) -> Option<Observation> {
        let seen = self.ready.pop_front()?;
        self.kept -= seen.raw.as_ref().map_or(0, |(_, line)| line.bytes.len());
        Some(seen)
    }
}

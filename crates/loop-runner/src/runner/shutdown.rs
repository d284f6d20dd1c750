//! Noting what the run waits for while it is being stopped.

use std::sync::Arc;
use std::time::Duration;

use loop_state::{AgentState, Event, Timestamp};
use tokio::sync::watch;

use crate::runner::Runner;
use crate::{Awaited, Error, Shutdown, View};

impl Runner {
    /// Returns what a stop of the run has to wait for.
    pub(super) fn awaited(&self) -> Option<Awaited> {
        let check = self
            .agent_io
            .check
            .as_ref()
            .map(|check| check.command.into());
        let settling = || {
            self.agent_io
                .settling
                .as_ref()
                .map(|settling| settling.awaited())
        };
        let attempt = self
            .agent_io
            .attempt
            .as_ref()
            .filter(|it| it.machine.agent() != AgentState::Gone);
        let agent = || {
            attempt.map(|attempt| Awaited::Agent {
                pid: attempt.heard.pid,
            })
        };
        check.or_else(settling).or_else(agent)
    }

    /// Notes what is waited for, if the run is being stopped.
    pub(super) fn show_awaited(&mut self, awaited: Option<Awaited>) {
        if let Some(by) = self.machine.deadline().by() {
            let now = self.clock.now();
            note(&self.control.shutdown, &self.control.view, by, awaited, now);
        }
    }

    /// Notes what the end of the run waits for, also where nobody has stopped it.
    pub(super) fn show_end(&mut self, budget: Duration, awaited: Option<Awaited>) {
        let now = self.clock.now();
        let by = self.machine.deadline().by().unwrap_or(now + budget);
        note(&self.control.shutdown, &self.control.view, by, awaited, now);
    }

    /// Saves the run. A stop that is requested meanwhile begins at once, so that its countdown does not wait for the save.
    pub(super) async fn save_now(&mut self) -> Result<(), Error> {
        self.show_awaited(Some(Awaited::Save));
        let saved = {
            let save = self.journal.save(&self.saved);
            tokio::pin!(save);
            tokio::select! {
                biased;
                saved = &mut save => saved,
                () = self.requests.end_wanted() => {
                    let at = self.clock.now();
                    let what = self.requests.foreseen();
                    // It is carried out when the request is heard.
                    let _later = self.machine.step(Event { at, what });
                    let by = self.machine.deadline().by().unwrap_or(at);
                    note(&self.control.shutdown, &self.control.view, by, Some(Awaited::Save), at);
                    save.await
                }
            }
        };
        self.show_awaited(self.awaited());
        Ok(saved?)
    }
}

/// Lets the countdown and those who watch the run see it. What is saved of the run stays as they saw it last.
fn note(
    shutdown: &watch::Sender<Option<Shutdown>>,
    view: &watch::Sender<Arc<View>>,
    by: Timestamp,
    awaited: Option<Awaited>,
    now: Timestamp,
) {
    let before = *shutdown.borrow();
    let stop = Some(Shutdown::now(before, by, awaited, now));
    if stop != before {
        shutdown.send_replace(stop);
        view.send_modify(|view| Arc::make_mut(view).shutdown = stop);
    }
}

//! Telling a command of the user's what becomes of the run.

use loop_state::{Event, Timestamp, times};
use tokio::time::Instant;

use crate::check::CheckEnd;
use crate::hook::{Happened, Hook, Hooks, Moment};
use crate::news::News;
use crate::runner::Runner;
use crate::{Awaited, Error, Outcome};
use rlm_store::deadline::until;

impl Runner {
    /// Has a command told what becomes of the run, each thing once it is saved.
    ///
    /// At the end of the run it has 10 s for the last of it; when the run was told to stop, 3 s within the budget of the stop; and none when it was
    /// aborted.
    #[must_use]
    pub fn with_hook(mut self, hook: Hook) -> Self {
        self.hooks = Some(Hooks::new(hook));
        self
    }

    /// Has the command told of this, if it wants to be.
    pub(super) fn notify(&mut self, at: Timestamp, what: Happened<'_>) {
        let Some(hooks) = &self.hooks else {
            return;
        };
        let moment = Moment {
            run: &self.saved.run,
            head: self.machine.head(),
            at,
            what,
            missed: 0,
        };
        let Some(telling) = hooks.telling(moment) else {
            return;
        };
        let context = self.context("-notify");
        if let Some(hooks) = &mut self.hooks {
            hooks.push(context, telling);
        }
    }

    /// Has it told that the run begins, or goes on, once that is saved.
    pub(super) fn notify_begun(&mut self) {
        if self.machine.has_begun() && !std::mem::replace(&mut self.told.begun, true) {
            let again = matches!(self.first, loop_state::Happening::Resumed(_));
            let at = self.clock.now();
            self.notify(at, Happened::Began { again });
        }
    }

    /// Takes notice of the end of a call.
    pub(super) fn notified(&mut self, end: CheckEnd) {
        let complaint = self.hooks.as_mut().and_then(|it| it.complaint(&end));
        if let Some(complaint) = complaint {
            self.tell(News::Warning(complaint));
        }
        if !end.leftovers.is_empty() {
            self.tell(News::Ended {
                why: "left running by the notify command".into(),
                processes: end.leftovers,
            });
        }
        self.ends.proven &= end.proven;
        self.note_survivors(end.survivors);
    }

    /// Has it told that the run is over, and waits for that within bounds. A wish to stop ends the waiting.
    pub(super) async fn notify_end(&mut self, result: Result<&Outcome, &Error>) {
        let now = self.clock.now();
        let left = self.machine.deadline().last_call(now, times::NOTIFY_CALL);
        let Some(hooks) = &mut self.hooks else {
            return;
        };
        if self.machine.is_stopping() {
            hooks.clear();
        }
        if !left.is_zero() {
            let at = self.clock.now();
            self.notify(at, Happened::Ended(result));
        }
        self.show_awaited(Some(Awaited::Notify));
        let by = Instant::now() + left;
        let mut is_late = false;
        while let Some(hooks) = self.hooks.as_mut().filter(|it| it.is_running()) {
            tokio::select! {
                biased;
                // That the reply is dropped says that the run is over.
                wish = self.requests.next(), if !is_late => {
                    let effects = wish.what.while_ending().map(|what| {
                        let at = self.clock.now();
                        self.machine.step(Event { at, what })
                    });
                    is_late = effects.is_some_and(|it| !it.is_empty());
                }
                () = until(by), if !is_late => is_late = true,
                end = hooks.ended() => {
                    self.notified(end);
                    continue;
                }
            }
            if is_late && let Some(hooks) = &mut self.hooks {
                hooks.clear();
                hooks.halt();
            }
        }
    }
}

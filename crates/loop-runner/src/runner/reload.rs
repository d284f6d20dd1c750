//! Configuration that changes while the run goes on.

use loop_state::Happening;

use crate::news::News;
use crate::runner::Runner;
use crate::runner::parts::reload::{Reload, Reloaded};

impl Runner {
    /// Has the configuration looked at whenever a turn is over, before it is judged, and whenever a wait is. Its changes are set as by
    /// [`Request::Set`](loop_state::Request::Set), also those of phases that are still to come, but none that raises a bound of the run: agents write files.
    /// It is called by the run itself, so it must not take long.
    #[must_use]
    pub fn with_reload(mut self, look: impl FnMut() -> Reloaded + Send + 'static) -> Self {
        self.reload = Reload(Some(Box::new(look)));
        self
    }

    /// Returns what the machine must know of a configuration that has changed.
    pub(super) fn reloaded(&mut self) -> Vec<Happening> {
        let Some(look) = &mut self.reload.0 else {
            return Vec::new();
        };
        let Reloaded { changes, warnings } = look();
        let changes = changes.into_iter();
        let changes = changes.map(|(phase, rule)| (u32::try_from(phase).unwrap_or(u32::MAX), rule));
        let (taken, refusals) = self.machine.reloaded(changes.collect());
        for warning in refusals.into_iter().chain(warnings) {
            self.tell(News::Warning(warning));
        }
        taken
    }
}

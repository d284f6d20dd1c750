//! The changes that a reload of the configuration finds, and the source of reloads.

use std::fmt;

use loop_state::RuleChange;

/// The changes in the configuration of a run since the last reload, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// The rules that are others now; those of a phase with the index of the phase, which is 0 for those of the run.
    pub changes: Vec<(usize, RuleChange)>,
    /// Warnings for people: settings that can't change during a run, or the reason why the configuration can't be read.
    pub warnings: Vec<String>,
}

/// Looks at the configuration.
pub(crate) type Look = Box<dyn FnMut() -> Reloaded + Send>;

/// Where changes of the configuration come from; nowhere by default.
#[derive(Default)]
pub(crate) struct Reload(pub(crate) Option<Look>);

impl fmt::Debug for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reload").field(&self.0.is_some()).finish()
    }
}

//! Configuration that changes while the run goes on.

use std::fmt;

use loop_state::{Happening, RuleChange, Rules};

use super::Runner;
use crate::control::Change;
use crate::news::News;

/// What has changed in the configuration of a run since it was last looked at; each thing once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// The rules that are others now, those of a phase for the present one.
    pub changes: Vec<Change>,
    /// What people have to know: what can't change while a run goes on, or why the configuration can't be read.
    pub warnings: Vec<String>,
}

/// Looks at the configuration for the phase of this name.
type Look = Box<dyn FnMut(&str) -> Reloaded + Send>;

/// Where changes of the configuration come from; nowhere by default.
#[derive(Default)]
pub(super) struct Reload(Option<Look>);

impl fmt::Debug for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reload").field(&self.0.is_some()).finish()
    }
}

impl Runner {
    /// Has the configuration looked at whenever a turn is over, before it is judged, and whenever a wait is: for the phase of the name that `look` is
    /// given. Its changes are set as by [`Control::Set`](crate::Control::Set), but none that raises what the run may spend or how long it may take: agents
    /// write files. It is called by the run itself, so it must not take long.
    #[must_use]
    pub fn with_reload(mut self, look: impl FnMut(&str) -> Reloaded + Send + 'static) -> Self {
        self.reload = Reload(Some(Box::new(look)));
        self
    }

    /// Returns what the machine must know of a configuration that has changed.
    pub(super) fn reloaded(&mut self) -> Vec<Happening> {
        let phase = self.phase().name.clone();
        let Some(look) = &mut self.reload.0 else {
            return Vec::new();
        };
        let Reloaded { changes, warnings } = look(&phase);
        let mut set = Vec::new();
        for change in changes {
            let (head, rule) = (self.machine.head(), RuleChange::from(change));
            let refused = match head.rules.with(head.phase, &rule) {
                Ok(rules) if rules == head.rules => continue,
                Ok(_) if raises_a_budget(&head.rules, &rule) => {
                    "what may be used up is only lowered by what an agent can write; set it on the run itself".to_owned()
                }
                Ok(_) => {
                    set.push(Happening::RuleSet(rule));
                    continue;
                }
                Err(e) => e.to_string(),
            };
            self.tell(News::Warning(format!(
                "the settings have changed, but not `{rule}`: {refused}"
            )));
        }
        for warning in warnings {
            self.tell(News::Warning(warning));
        }
        set
    }
}

/// Returns whether a rule allows the run to use up more than now.
fn raises_a_budget(now: &Rules, rule: &RuleChange) -> bool {
    fn raises<T: Ord>(now: Option<T>, new: Option<T>) -> bool {
        now.is_some_and(|now| new.is_none_or(|new| new > now))
    }
    match *rule {
        RuleChange::MaxDuration(new) => raises(now.max_duration, new),
        RuleChange::MaxCost(new) => raises(now.max_cost_microusd, new),
        RuleChange::MaxTokens(new) => raises(now.max_tokens, new),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_can_be_lowered_and_not_raised() {
        let rules = Rules {
            max_tokens: Some(5),
            ..Rules::default()
        };
        let raises = |rule| raises_a_budget(&rules, &rule);
        assert!(raises(RuleChange::MaxTokens(Some(6))) && raises(RuleChange::MaxTokens(None)));
        assert!(!raises(RuleChange::MaxTokens(Some(4))) && !raises(RuleChange::MaxCost(Some(4))));
        assert!(!raises(RuleChange::MaxIterations(None)));
    }
}

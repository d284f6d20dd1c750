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
        let (mut set, mut refusals) = (Vec::new(), Vec::new());
        let head = self.machine.head();
        for (phase, rule) in changes {
            let phase = match rule.is_of_phase() {
                true => u32::try_from(phase).unwrap_or(u32::MAX),
                false => head.phase,
            };
            if phase < head.phase {
                continue;
            }
            let refused = match head.rules.with(phase, &rule) {
                Ok(rules) if rules == head.rules => continue,
                Ok(_) if head.rules.are_raised_by(phase, &rule) => {
                    "what bounds a run is only lowered by what an agent can write; set it on the run itself, with rlm set".to_owned()
                }
                Ok(_) => {
                    set.push(Happening::PhaseRuleSet {
                        phase,
                        change: rule,
                    });
                    continue;
                }
                Err(e) => e.to_string(),
            };
            refusals.push(format!(
                "the settings have changed, but not `{rule}`: {refused}"
            ));
        }
        for refusal in refusals {
            self.tell(News::Warning(refusal));
        }
        for warning in warnings {
            self.tell(News::Warning(warning));
        }
        set
    }
}

//! The changes of a run's configuration that the live run accepts. They come from files that an agent can write.

use super::Machine;
use crate::{MachineInput, RuleChange};

impl Machine {
    /// Returns the accepted configuration changes, as inputs for [`step`](Self::step), and the reason for each refused change.
    ///
    /// Each change comes with the index of its phase. Changes of a finished phase and changes without an effect are in neither list.
    #[doc(hidden)] // only `loop-runner` reloads a configuration
    #[must_use]
    pub fn reloaded(&self, changes: Vec<(u32, RuleChange)>) -> (Vec<MachineInput>, Vec<String>) {
        let (mut taken, mut refused) = (Vec::new(), Vec::new());
        let (rules, present) = (&self.head.rules, self.head.phase);
        for (phase, change) in changes {
            let phase = match change.is_phase_rule() {
                true => phase,
                false => present,
            };
            if phase < present {
                continue;
            }
            let why = match rules.with(phase, &change) {
                Ok(with) if with == *rules => continue,
                Ok(_) if rules.is_raised_by(phase, &change) => {
                    "a file that the agent can write can only lower a limit; to raise it, use rlm set".to_owned()
                }
                Ok(_) => {
                    taken.push(MachineInput::PhaseRuleChanged { phase, change });
                    continue;
                }
                Err(e) => e.to_string(),
            };
            refused.push(format!("ignored the changed setting `{change}`: {why}"));
        }
        (taken, refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Head, PhaseRules, Rules};

    #[test]
    fn change_is_accepted_unless_it_raises_a_limit_or_its_phase_is_finished() {
        let phase = |name: &str| {
            let mut phase = PhaseRules::default();
            (phase.name, phase.has_check) = (name.into(), true);
            phase.limits.max_iterations = Some(5);
            phase
        };
        let phases = ["plan", "build", "review"].map(phase).into();
        let mut rules = Rules {
            phases,
            ..Rules::default()
        };
        rules.limits.max_failures = 3;
        let mut head = Head::new(rules).unwrap();
        head.phase = 1;
        let machine = Machine::from(head);
        let lower = RuleChange::MaxIterations(Some(2));
        let fewer = RuleChange::MaxFailures(2);
        let (taken, refused) = machine.reloaded(vec![
            (0, lower),
            (1, lower),
            (2, lower),
            (1, RuleChange::MaxIterations(Some(5))),
            (1, RuleChange::MaxIterations(None)),
            (0, fewer),
            (9, lower),
        ]);
        let set = |phase, change| MachineInput::PhaseRuleChanged { phase, change };
        assert_eq!(taken, [set(1, lower), set(2, lower), set(1, fewer)]);
        assert_eq!(refused.len(), 2, "{refused:?}");
        assert!(refused[0].contains("only lower"), "{refused:?}");
    }
}

//! The facts that a checkpoint of a phase has for people. They are separate because the store saves them as texts without a meaning of its own.

use std::collections::BTreeMap;

use checkpoint_store::PhaseMeta;

use crate::RunHead;

const ERRORS: &str = "errors";
const COMMIT: &str = "git_commit";
const DIRTY: &str = "git_dirty";

/// The facts about a finished phase, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PhaseFacts {
    /// The failed iterations, one line for each.
    pub errors: Vec<String>,
    /// The commit of the working tree.
    pub git_commit: Option<String>,
    /// Whether the working tree had changes on top of that commit.
    pub git_dirty: Option<bool>,
}

impl PhaseFacts {
    /// Collects the facts at the end of a phase. `changed` are the changed files of the working tree.
    pub(crate) fn of(head: &RunHead, changed: Option<Vec<String>>) -> Self {
        let phase = head.machine.finished_phases.last();
        let errors = phase.map(|phase| phase.errors.iter());
        Self {
            errors: { errors.into_iter().flatten() }
                .map(|error| format!("iteration {}: {}", error.iteration, error.what))
                .collect(),
            git_commit: head.git_commit.clone(),
            git_dirty: changed.map(|paths| !paths.is_empty()),
        }
    }

    /// Returns the facts in the form of [`PhaseMeta::extra`]. A fact that is unknown is left out.
    pub(crate) fn to_extra(&self) -> BTreeMap<String, String> {
        let errors = (!self.errors.is_empty()).then(|| {
            let errors = serde_json::to_string(&self.errors);
            errors.expect("texts can be written as JSON")
        });
        let facts = [
            (ERRORS, errors),
            (COMMIT, self.git_commit.clone()),
            (DIRTY, self.git_dirty.map(|dirty| dirty.to_string())),
        ];
        { facts.into_iter() }
            .filter_map(|(name, fact)| Some((name.to_owned(), fact?)))
            .collect()
    }

    /// Reads the facts of a checkpoint. A fact that is missing or can't be read counts as unknown.
    #[must_use]
    pub fn read(meta: &PhaseMeta) -> Self {
        let fact = |name| meta.extra.get(name);
        let errors = fact(ERRORS).and_then(|text| serde_json::from_str(text).ok());
        Self {
            errors: errors.unwrap_or_default(),
            git_commit: fact(COMMIT).cloned(),
            git_dirty: fact(DIRTY).and_then(|text| text.parse().ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(extra: BTreeMap<String, String>) -> PhaseMeta {
        PhaseMeta {
            extra,
            ..PhaseMeta::default()
        }
    }

    #[test]
    fn facts_are_the_same_after_a_save() {
        let facts = PhaseFacts {
            errors: vec!["iteration 1: no\nway".into(), "iteration 2: \u{e4}".into()],
            git_commit: Some("0".repeat(40)),
            git_dirty: Some(false),
        };
        for facts in [facts, PhaseFacts::default()] {
            assert_eq!(PhaseFacts::read(&meta(facts.to_extra())), facts);
        }
        assert!(PhaseFacts::default().to_extra().is_empty());
    }

    #[test]
    fn unreadable_facts_count_as_unknown() {
        let extra = [(ERRORS, "[1]"), (DIRTY, "perhaps"), ("more", "x")];
        let extra = extra.map(|(name, fact)| (name.to_owned(), fact.to_owned()));
        assert_eq!(PhaseFacts::read(&meta(extra.into())), PhaseFacts::default());
    }
}

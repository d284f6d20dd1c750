//! Chooses the clauses to check: a random share of the clauses of each package, by a seed.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::acceptance::{Clause, TestFunction};

/// The clauses to check, and others whose tests only show which functions nearly every test reaches.
#[derive(Debug, Default)]
pub(super) struct Choice {
    pub(super) clauses: Vec<Clause>,
    pub(super) background: Vec<Clause>,
}

/// The package whose tests reach no switch, because they test this program. Only `--clause` chooses its clauses.
const WITHOUT_SWITCHES: &str = "xtask";

/// The smallest number of clauses whose reached functions are compared.
const COMPARED: usize = 16;

/// Chooses the clauses with these ids, or `share` percent of the clauses of each package, rounded, but at least one.
pub(super) fn choose(
    clauses: Vec<Clause>,
    ids: &[String],
    share: u8,
    seed: u64,
) -> Result<Choice, String> {
    let unknown = |id: &&String| {
        !clauses
            .iter()
            .any(|clause| clause.id.eq_ignore_ascii_case(id))
    };
    if let Some(id) = ids.iter().find(unknown) {
        return Err(format!("no test shows a clause {id}"));
    }
    let mut packages: BTreeMap<String, Vec<Clause>> = BTreeMap::new();
    for clause in clauses {
        let package = clause.tests.first().map(|test| test.package.clone());
        packages
            .entry(package.unwrap_or_default())
            .or_default()
            .push(clause);
    }
    let mut choice = Choice::default();
    let mut others = Vec::new();
    if ids.is_empty() {
        packages.remove(WITHOUT_SWITCHES);
    }
    for (_, mut clauses) in packages {
        clauses.sort_by_key(|clause| rank(seed, &clause.id));
        let count = match ids.is_empty() {
            true => (clauses.len() * usize::from(share) + 50) / 100,
            false => 0,
        };
        for (place, clause) in clauses.into_iter().enumerate() {
            let is_named = ids.iter().any(|id| clause.id.eq_ignore_ascii_case(id));
            let is_chosen = match ids.is_empty() {
                true => place < count.max(1),
                false => is_named,
            };
            match is_chosen {
                true => choice.clauses.push(clause),
                false => others.push(clause),
            }
        }
    }
    others.sort_by_key(|clause| rank(seed, &clause.id));
    others.truncate(COMPARED.saturating_sub(choice.clauses.len()));
    choice.background = others;
    Ok(choice)
}

/// Returns a random number that depends only on the seed and the name, so that a seed chooses the same clauses on every machine.
pub(super) fn rank(seed: u64, name: &str) -> u64 {
    let hash = Sha256::digest(format!("{seed} {name}"));
    hash.iter()
        .take(8)
        .fold(0, |rank, byte| rank << 8 | u64::from(*byte))
}

/// Whether a test is a control: it plays the clause's attack against a program without the mechanism, and expects the damage. The word follows the
/// items in its name: `x102f_control_without_a_guard_…`.
pub(super) fn is_control(test: &TestFunction) -> bool {
    let items = crate::sources::items_of(&test.name).count();
    test.name.split('_').nth(items) == Some("control")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clause(id: &str, package: &str) -> Clause {
        Clause {
            id: id.into(),
            tests: vec![TestFunction {
                package: package.into(),
                name: format!("{}_a", id.to_lowercase()),
                ..TestFunction::default()
            }],
            ..Clause::default()
        }
    }

    fn clauses() -> Vec<Clause> {
        let many = (1..=40).map(|number| clause(&format!("S{number}"), "many"));
        let others = [
            clause("V1a", "one"),
            clause("V2", "two"),
            clause("P52b", "xtask"),
        ];
        many.chain(others).collect()
    }

    fn ids(clauses: &[Clause]) -> Vec<&str> {
        clauses.iter().map(|clause| clause.id.as_str()).collect()
    }

    #[test]
    fn each_package_has_a_tenth_of_its_clauses_and_at_least_one() {
        let first = choose(clauses(), &[], 10, 1).unwrap();
        let of_many = ids(&first.clauses)
            .iter()
            .filter(|id| id.starts_with('S'))
            .count();
        assert_eq!((of_many, first.clauses.len()), (4, 6));
        assert_eq!(first.clauses.len() + first.background.len(), COMPARED);
        let again = choose(clauses(), &[], 10, 1).unwrap();
        assert_eq!(ids(&first.clauses), ids(&again.clauses));
        let other = choose(clauses(), &[], 10, 2).unwrap();
        assert_ne!(ids(&first.clauses), ids(&other.clauses));
        let all = choose(clauses(), &[], 100, 1).unwrap();
        assert_eq!((all.clauses.len(), all.background.len()), (42, 0));
    }

    #[test]
    fn only_the_named_clauses_are_checked() {
        let named = ["v1a".to_owned(), "S3".to_owned()];
        let choice = choose(clauses(), &named, 10, 1).unwrap();
        assert_eq!(ids(&choice.clauses), ["S3", "V1a"]);
        assert_eq!(choice.background.len(), COMPARED - 2);
        let of_xtask = choose(clauses(), &["P52b".to_owned()], 10, 1).unwrap();
        assert_eq!(ids(&of_xtask.clauses), ["P52b"]);
        let unknown = choose(clauses(), &["S99".to_owned()], 10, 1);
        assert_eq!(unknown.unwrap_err(), "no test shows a clause S99");
    }

    #[test]
    fn controls_are_found_by_the_word_after_their_items() {
        let control = |name: &str| {
            is_control(&TestFunction {
                name: name.into(),
                ..TestFunction::default()
            })
        };
        assert!(control("x102f_control_without_a_guard_the_tree_outlives"));
        assert!(control("l89b_l89c_control_agent_that_ignores"));
        assert!(!control("x128b_next_save_recreates_the_control_socket"));
        assert!(!control("h13g_run_can_be_controlled"));
    }
}

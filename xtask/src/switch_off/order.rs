//! Decides which switches to try for a clause, and in which order: the most specific first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::switch_off::choice::rank;
use crate::switch_off::switches::Switch;

/// The number of letters by which two words are compared, so that `claims` is like `claim`.
const LETTERS: usize = 5;

/// The clauses that reach each switch.
#[derive(Debug, Default)]
pub(super) struct Counts(BTreeMap<u32, usize>);

impl Counts {
    /// Counts one clause that reaches these switches.
    pub(super) fn add(&mut self, reached: &BTreeSet<u32>) {
        for id in reached {
            *self.0.entry(*id).or_default() += 1;
        }
    }

    fn of(&self, id: u32) -> usize {
        self.0.get(&id).copied().unwrap_or_default()
    }
}

/// The number of words that a common module counts for: the tests of `agents.rs` have a module `agents`.
const SAME_MODULE: usize = 3;

/// Returns the reached switches: alternately the next of those that the fewest clauses reach, and the next of those whose names have the most words of
/// the clause. A rarely reached function is probably the mechanism of the clause, but a mechanism can also be a function that all clauses need.
pub(super) fn most_specific_first<'a>(
    clause: &str,
    reached: &BTreeSet<u32>,
    counts: &Counts,
    switches: &'a [Switch],
) -> Vec<&'a Switch> {
    let of_clause = words(clause);
    let of_tests = modules(clause);
    let reached = switches
        .iter()
        .filter(|switch| reached.contains(&switch.id));
    let mut ranked: Vec<_> = one_value(reached.collect())
        .into_iter()
        .map(|switch| {
            let place = format!("{} {}", switch.file.display(), switch.function);
            let mut common = words(&place).intersection(&of_clause).count();
            if modules(&place).intersection(&of_tests).next().is_some() {
                common += SAME_MODULE;
            }
            let common = Reverse(common);
            (counts.of(switch.id), common, rank(0, &place), switch)
        })
        .collect();
    ranked.sort_by_key(|(count, common, rank, switch)| (*count, *common, *rank, switch.id));
    let rare: Vec<&Switch> = ranked.iter().map(|(.., switch)| *switch).collect();
    ranked.sort_by_key(|(count, common, rank, switch)| (*common, *count, *rank, switch.id));
    let named = ranked.iter().map(|(.., switch)| *switch);
    let mut seen = BTreeSet::new();
    let alternately = rare
        .into_iter()
        .zip(named)
        .flat_map(|(one, other)| [one, other]);
    alternately
        .filter(|switch| seen.insert(switch.id))
        .collect()
}

/// Keeps the first switch of each function, and both if the function decides something: the other value can be the right one.
fn one_value(switches: Vec<&Switch>) -> Vec<&Switch> {
    let mut functions = BTreeSet::new();
    let kept = switches.into_iter().filter(|switch| {
        let is_first = functions.insert(switch.place());
        is_first || matches!(switch.value.as_str(), "true" | "false")
    });
    kept.collect()
}

/// Returns the modules of tests and files in a text: `agents` of `agents::s24d_…` and of `src/agents.rs`.
fn modules(text: &str) -> BTreeSet<&str> {
    let of_tests = text.split_whitespace().flat_map(|name| {
        let mut parts = name.trim_end_matches(',').split("::").collect::<Vec<_>>();
        parts.pop();
        parts
    });
    let of_files = text
        .split(['/', ' '])
        .filter_map(|part| part.strip_suffix(".rs"));
    of_tests
        .chain(of_files)
        .filter(|module| *module != "tests" && *module != "lib")
        .collect()
}

/// Returns the beginnings of the words of a text or a path.
fn words(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_alphanumeric());
    let long = words.filter(|word| word.len() > 3);
    long.map(|word| word.to_lowercase().chars().take(LETTERS).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::switch_off::switches;

    #[test]
    fn modules_are_found_in_tests_and_in_files() {
        let modules = |text| modules(text).into_iter().collect::<Vec<_>>();
        let tests = "A text. agents::s24d_a, menu::tests::s9_b";
        assert_eq!(modules(tests), ["agents", "menu"]);
        assert_eq!(modules("crates/rlm/src/agents.rs name"), ["agents"]);
    }

    #[test]
    fn rarely_reached_switches_and_switches_with_words_of_the_clause_come_first() {
        let mutant = |name: &str, line: usize, value: &str| {
            let at = [(line, 1), (line, 10), (line, 12)];
            switches::tests::mutant("crates/k/src/lib.rs", [name, value], at)
        };
        let list = json!([
            mutant("main_loop", 1, "()"),
            mutant("rare_text", 2, "String::new()"),
            mutant("rare_text", 2, "\"xyzzy\".into()"),
            mutant("claims_all", 3, "true"),
            mutant("claims_all", 3, "false"),
            mutant("other", 4, "0"),
            mutant("unreached_claim", 5, "0"),
        ]);
        let switches = switches::read(&list);
        let reached: BTreeSet<u32> = (1..=6).collect();
        let mut counts = Counts::default();
        counts.add(&reached);
        counts.add(&BTreeSet::from([1, 4, 5, 6]));
        counts.add(&BTreeSet::from([1]));
        let clause = "A worker claims a lease.";
        let order = most_specific_first(clause, &reached, &counts, &switches);
        let names = order
            .iter()
            .map(|switch| format!("{} {}", switch.function, switch.value));
        assert_eq!(
            names.collect::<Vec<_>>(),
            [
                "rare_text String::new()",
                "claims_all true",
                "claims_all false",
                "other 0",
                "main_loop ()",
            ]
        );
    }
}

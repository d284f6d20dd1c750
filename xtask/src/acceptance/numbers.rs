//! Compares the numbers of `tests/acceptance.md` with the constants of the tests: `N (nightly: M)` in the list, `Effort` in the sources.

use std::collections::{BTreeMap, BTreeSet};

use crate::acceptance::list::List;
use crate::sources::{self, Source};

/// The numbers for `ci` and for `nightly`.
type Pair = (u64, u64);
/// The pairs of each item, including those of its clauses.
type Pairs = BTreeMap<String, BTreeSet<Pair>>;

/// Names the items whose pairs differ between the list and the sources.
fn differences(list: &List, sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    let (mut listed, mut texts) = (Pairs::new(), BTreeMap::<&str, Vec<u64>>::new());
    for item in &list.items {
        for part in std::iter::once(item).chain(&item.clauses) {
            match pairs_of_text(&part.text) {
                Ok(pairs) => listed.entry(item.id.clone()).or_default().extend(pairs),
                Err(why) => wrong.push(format!("{}: {why}", part.id)),
            }
            let numbers = part.text.split_whitespace().filter_map(number);
            texts.entry(&item.id).or_default().extend(numbers);
        }
    }
    let mut constants = Pairs::new();
    for source in sources {
        match constants_of(&source.text) {
            Ok(found) => {
                for (item, pair) in found {
                    constants.entry(item).or_default().insert(pair);
                }
            }
            Err(why) => wrong.push(format!("{}: {why}", source.path.display())),
        }
    }
    listed.retain(|_, pairs| !pairs.is_empty());
    // The list has one plain number if both are equal.
    for (item, pairs) in &mut constants {
        let numbers = texts.get(item.as_str());
        pairs.retain(|(ci, nightly)| {
            let is_one = ci == nightly;
            if is_one && !numbers.is_some_and(|numbers| numbers.contains(ci)) {
                wrong.push(format!("{item}: {ci} is not in the list"));
            }
            !is_one
        });
    }
    constants.retain(|_, pairs| !pairs.is_empty());
    let items: BTreeSet<&String> = listed.keys().chain(constants.keys()).collect();
    for item in items {
        let (listed, constants) = (listed.get(item), constants.get(item));
        if listed != constants {
            wrong.push(format!(
                "{item}: the list has {listed:?}, the tests have {constants:?}"
            ));
        }
    }
    wrong
}

/// Parses each `N … (nightly: M …)`: the number in the parentheses, and the last one before them.
fn pairs_of_text(text: &str) -> Result<Vec<Pair>, String> {
    let mut parts = text.split("(nightly: ");
    let mut before = parts.next().unwrap_or_default();
    let mut pairs = Vec::new();
    for part in parts {
        let ci = before.split_whitespace().filter_map(number).next_back();
        let (inside, rest) = part.split_once(')').unwrap_or((part, ""));
        let nightly = inside.split_whitespace().next().and_then(number);
        let pair = ci.zip(nightly);
        pairs.push(pair.ok_or(format!("expected two numbers for `(nightly: {inside})`"))?);
        before = rest;
    }
    Ok(pairs)
}

/// Parses `10,000` and `5`, also with an opening parenthesis in front or punctuation at the end.
fn number(word: &str) -> Option<u64> {
    let digits = word.trim_matches(|mark| "(),.;:".contains(mark));
    let digits = digits.replace(',', "");
    digits.parse().ok()
}

/// Parses each constant of the type `Effort`, whose name begins with its item.
fn constants_of(text: &str) -> Result<Vec<(String, Pair)>, String> {
    // The source becomes one line. The code below builds the search text from two parts, so that it doesn't match itself.
    let text: Vec<&str> = text.split_whitespace().collect();
    let (text, mark) = (text.join(" "), [": Effort ", "= Effort {"].concat());
    let mut parts = text.split(&mark);
    let mut before = parts.next().unwrap_or_default();
    let mut constants = Vec::new();
    for part in parts {
        let name = before.rsplit(' ').next().unwrap_or_default();
        let item = sources::items_of(&name.to_lowercase()).next();
        let item = item.ok_or(format!("{name} does not begin with an item"))?;
        let (fields, rest) = part.split_once('}').unwrap_or((part, ""));
        let field = |name: &str| -> Option<u64> {
            let mut fields = fields.split(',');
            let value = fields.find_map(|field| field.trim().strip_prefix(name))?;
            value.trim().replace('_', "").parse().ok()
        };
        let pair = field("ci:").zip(field("nightly:"));
        constants.push((
            item,
            pair.ok_or(format!("expected two numbers for {name}"))?,
        ));
        before = rest;
    }
    Ok(constants)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::nightly;

    fn root() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
    }

    #[test]
    fn the_numbers_of_the_list_are_the_numbers_of_the_tests() {
        let (list, sources) = (List::read(root()), sources::read(root()));
        let wrong = differences(&list, &sources);
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn each_two_part_item_is_a_nightly_stage() {
        let found = sources::read(root()).into_iter();
        let items = found.flat_map(|source| constants_of(&source.text).unwrap());
        let items: BTreeSet<String> = items.map(|(item, _)| item.to_lowercase()).collect();
        let stages = nightly::NUMBERS.map(|(name, _)| name.to_owned());
        assert_eq!(items, BTreeSet::from(stages));
    }

    fn found(list: &str, constants: &str) -> Vec<String> {
        let source = Source {
            path: "a.rs".into(),
            text: constants.replace(" EFFORT", ": Effort = Effort"),
        };
        differences(&List::parse(list), &[source])
    }

    #[test]
    fn number_that_is_missing_on_one_side_is_named() {
        let list = "- **X1** Ends 5 of each (nightly: 100).\n- **C2** Kills\n  - **C2a** 10,000 (nightly: 1,000,000) times, within 1 s (nightly: 5 s).\n";
        let x1 = "const X1_ENDS EFFORT {\n    ci: 5,\n    nightly: 100,\n};\n";
        let c2 = "pub const C2_KILLS EFFORT { ci: 10_000, nightly: 1_000_000 };\nconst C2_SECONDS EFFORT { ci: 1, nightly: 5 };";
        let both = format!("{x1}{c2}");
        assert!(found(list, &both).is_empty(), "{:?}", found(list, &both));

        assert!(found(list, x1)[0].starts_with("C2: the list has Some"));
        assert!(found("- **X1** Ends 5.\n", x1)[0].starts_with("X1: the list has None"));
        let other = both.replace("nightly: 100,", "nightly: 99,");
        assert!(found(list, &other)[0].starts_with("X1: "));
        assert!(found(&list.replace("Ends 5", "Ends 6"), &both)[0].starts_with("X1: "));
        assert!(found("", &x1.replace("X1_", ""))[0].contains("does not begin with an item"));
        assert!(found("- **X1** Many (nightly: all).\n", "")[0].contains("expected two numbers"));
    }

    #[test]
    fn equal_numbers_are_one_number_in_the_list() {
        let constant = "const L84_SENDS EFFORT { ci: 50, nightly: 50 };";
        assert!(found("- **L84** None of 50 random sends is lost.\n", constant).is_empty());
        let wrong = found("- **L84** None of 30 random sends is lost.\n", constant);
        assert_eq!(wrong, ["L84: 50 is not in the list"]);
    }
}

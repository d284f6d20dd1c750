//! Checks each published crate with the feature sets that a user can select. Only these builds find a dependency behind the wrong feature, or code
//! that is dead without another feature.

use std::collections::BTreeSet;

use crate::command::{self, Show};
use crate::tally::Tally;
use crate::workspace::{Package, Workspace};

/// The feature sets to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// No features, and the default features, of the crates that have features. `lint` checks all features.
    Usual,
    /// Also each feature alone, each pair, and all.
    Pairs,
}

pub(crate) fn run(workspace: &Workspace, choice: Choice) -> Tally {
    let mut tally = Tally::default();
    let has_choice = |package: &&Package| choice == Choice::Pairs || !package.features.is_empty();
    for package in workspace.published().filter(has_choice) {
        for features in sets(package, choice) {
            let features: Vec<&str> = features.into_iter().collect();
            let features = features.join(",");
            // Clippy reports the warnings of this crate alone. Its dependencies are built the same way for all.
            let crate_only = ["clippy", "--quiet", "-p", &package.name];
            let with = ["--no-default-features", "--features", &features];
            let arguments = [&crate_only[..], &with, &["--", "-D", "warnings"]].concat();
            let success = command::run("cargo", &arguments, Show::OnFailure).success;
            let name = format!("{} with [{features}]", package.name);
            println!(
                "features: {name}: {}",
                if success { "ok" } else { "FAILED" }
            );
            match success {
                true => tally.passed += 1,
                false => tally += Tally::failed(format!("features: {name}")),
            }
        }
    }
    tally
}

/// Returns the sets to check, each once: if the default features are all features, both give the same set.
fn sets(package: &Package, choice: Choice) -> BTreeSet<BTreeSet<&str>> {
    let all: BTreeSet<&str> = package.features.iter().map(String::as_str).collect();
    let default = package
        .default_features
        .iter()
        .map(String::as_str)
        .collect();
    let mut sets = BTreeSet::from([BTreeSet::new(), default]);
    if choice == Choice::Pairs {
        sets.insert(all.clone());
        for one in &all {
            // A pair of a feature with itself is that feature alone.
            sets.extend(all.iter().map(|other| BTreeSet::from([*one, *other])));
        }
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(choice: Choice) -> Vec<String> {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let package = Package {
            name: "a".into(),
            folder: "".into(),
            is_library: true,
            is_published: true,
            features: names(&["x", "y", "z"]),
            default_features: names(&["y"]),
            roots: Vec::new(),
            dependencies: Vec::new(),
        };
        let sets = sets(&package, choice);
        sets.into_iter()
            .map(|set| set.into_iter().collect())
            .collect()
    }

    #[test]
    fn no_set_of_features_is_tried_twice() {
        assert_eq!(listed(Choice::Usual), ["", "y"]);
        assert_eq!(
            listed(Choice::Pairs),
            ["", "x", "xy", "xyz", "xz", "y", "yz", "z"]
        );
    }
}

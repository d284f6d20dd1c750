//! Checks the published crates with the feature sets that a user can select. Only these builds find a dependency behind the wrong feature, or code
//! that is dead without another feature.

use std::collections::BTreeSet;

use crate::command::{self, Show};
use crate::tally::Tally;
use crate::workspace::{Package, Workspace};

/// Checks the program as `cargo run` builds it. `lint` checks all features, and [`pairs`] the libraries with fewer features.
pub(crate) fn usual() -> Tally {
    // Without `-p`, cargo takes the default member of the workspace.
    checked("the program with its default features", &[])
}

/// Checks each crate in a build of its own: with its default features, without features, with each feature, with each pair, and with all.
pub(crate) fn pairs(workspace: &Workspace) -> Tally {
    let mut tally = Tally::default();
    for package in workspace.published() {
        for features in sets(package) {
            let features: Vec<&str> = features.into_iter().collect();
            let features = features.join(",");
            let name = format!("{} with [{features}]", package.name);
            let only = ["-p", &package.name, "--no-default-features"];
            tally += checked(&name, &[&only[..], &["--features", &features]].concat());
        }
    }
    tally
}

/// Runs Clippy on the selected packages.
fn checked(name: &str, selection: &[&str]) -> Tally {
    let arguments = [&["clippy", "--quiet"], selection, &["--", "-D", "warnings"]].concat();
    let success = command::run("cargo", &arguments, Show::OnFailure).success;
    println!(
        "features: {name}: {}",
        if success { "ok" } else { "FAILED" }
    );
    match success {
        true => Tally::passed(1),
        false => Tally::failed(format!("features: {name}")),
    }
}

/// Returns the sets to check, each once: if the default features are all features, both give the same set.
fn sets(package: &Package) -> BTreeSet<BTreeSet<&str>> {
    let all: BTreeSet<&str> = package.features.iter().map(String::as_str).collect();
    let default = package.default_features.iter().map(String::as_str);
    let mut sets = BTreeSet::from([BTreeSet::new(), default.collect(), all.clone()]);
    for one in &all {
        // A pair of a feature with itself is that feature alone.
        sets.extend(all.iter().map(|other| BTreeSet::from([*one, *other])));
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_set_of_features_is_tried_twice() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let package = Package {
            name: "a".into(),
            features: names(&["x", "y", "z"]),
            default_features: names(&["y"]),
            ..Package::default()
        };
        let sets: Vec<String> = sets(&package)
            .into_iter()
            .map(|set| set.into_iter().collect())
            .collect();
        assert_eq!(sets, ["", "x", "xy", "xyz", "xz", "y", "yz", "z"]);
    }
}

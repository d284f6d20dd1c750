//! The published crates from `cargo metadata`, and their upload order.

use std::collections::BTreeMap;
use std::path::PathBuf;

use semver::{Version, VersionReq};
use serde_json::Value;

use crate::workspace::{array, text};

/// A published crate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Crate {
    pub(crate) name: String,
    pub(crate) version: Version,
    /// The directory of its manifest.
    pub(crate) folder: PathBuf,
    pub(crate) description: String,
    pub(crate) license: String,
    pub(crate) readme: String,
    pub(crate) keywords: Vec<String>,
    pub(crate) categories: Vec<String>,
    /// The name of its library in code.
    pub(crate) lib: Option<String>,
    pub(crate) programs: Vec<String>,
    pub(crate) features: Vec<String>,
    /// The members that a registry must have before this crate, and their required versions.
    pub(crate) siblings: BTreeMap<String, VersionReq>,
}

impl Crate {
    /// Returns the tag of its current version.
    pub(crate) fn tag(&self) -> String {
        format!("{}-v{}", self.name, self.version)
    }
}

/// Reads the published members, in the order of [`order`].
pub(crate) fn read(metadata: &Value) -> Result<Vec<Crate>, String> {
    let published = |package: &&Value| package["publish"] != Value::Array(Vec::new());
    let crates: Result<Vec<_>, _> = array(&metadata["packages"])
        .filter(published)
        .map(read_one)
        .collect();
    order(crates?)
}

fn read_one(package: &Value) -> Result<Crate, String> {
    let name = text(&package["name"]);
    let wrong = |error: semver::Error| format!("{name}: {error}");
    let mut siblings = BTreeMap::new();
    for dependency in array(&package["dependencies"]) {
        let (to, requirement) = (text(&dependency["name"]), text(&dependency["req"]));
        let is_sibling = dependency["path"].is_string() && to != name;
        // A published package omits a development dependency without a version.
        if is_sibling && (requirement != "*" || dependency["kind"] != "dev") {
            siblings.insert(to, VersionReq::parse(&requirement).map_err(wrong)?);
        }
    }
    let words = |value: &Value| array(value).map(text).collect();
    let mut folder = PathBuf::from(text(&package["manifest_path"]));
    folder.pop();
    let targets = |kind: &'static str| {
        let of_kind = array(&package["targets"]).filter(move |it| it["kind"][0] == kind);
        of_kind.map(move |it| text(&it["name"]).replace('-', if kind == "lib" { "_" } else { "-" }))
    };
    Ok(Crate {
        version: Version::parse(&text(&package["version"])).map_err(wrong)?,
        description: text(&package["description"]),
        license: text(&package["license"]),
        readme: text(&package["readme"]),
        keywords: words(&package["keywords"]),
        categories: words(&package["categories"]),
        lib: targets("lib").next(),
        programs: targets("bin").collect(),
        features: package["features"]
            .as_object()
            .map(|features| features.keys().cloned().collect())
            .unwrap_or_default(),
        siblings,
        folder,
        name,
    })
}

/// Sorts each crate after its dependencies, and otherwise by name.
pub(crate) fn order(mut crates: Vec<Crate>) -> Result<Vec<Crate>, String> {
    crates.sort_by(|one, other| one.name.cmp(&other.name));
    let mut ordered: Vec<Crate> = Vec::new();
    while !crates.is_empty() {
        let waits = |found: &Crate| {
            crates
                .iter()
                .any(|it| found.siblings.contains_key(&it.name))
        };
        let Some(next) = crates.iter().position(|found| !waits(found)) else {
            let names: Vec<_> = crates.iter().map(|found| found.name.as_str()).collect();
            return Err(format!(
                "no order: {} depend on each other; remove the version of a development dependency",
                names.join(", ")
            ));
        };
        ordered.push(crates.remove(next));
    }
    Ok(ordered)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A crate for tests, which depends on others at 0.1.0.
    pub(crate) fn sample(name: &str, siblings: &[&str]) -> Crate {
        let package = serde_json::json!({
            "name": name, "version": "0.1.0", "description": "Does it", "license": "MIT", "readme": "README.md",
            "manifest_path": format!("/crates/{name}/Cargo.toml"), "targets": [{ "kind": ["lib"] }],
            "dependencies": siblings.iter().map(|it| serde_json::json!({
                "name": it, "req": "^0.1.0", "path": "/x", "kind": null
            })).collect::<Vec<_>>(),
        });
        read_one(&package).unwrap()
    }

    fn names(crates: &[Crate]) -> Vec<&str> {
        crates.iter().map(|found| found.name.as_str()).collect()
    }

    #[test]
    fn dependencies_are_published_first() {
        let crates = vec![
            sample("app", &["shell", "leaf"]),
            sample("shell", &["leaf"]),
            sample("leaf", &[]),
            sample("alone", &[]),
        ];
        assert_eq!(
            names(&order(crates).unwrap()),
            ["alone", "leaf", "shell", "app"]
        );
    }

    #[test]
    fn dependency_cycle_is_named() {
        let crates = vec![sample("one", &["two"]), sample("two", &["one"])];
        let error = order(crates).unwrap_err();
        assert!(error.starts_with("no order: one, two"), "{error}");
    }

    #[test]
    fn dev_dependency_orders_crates_only_if_published_with_them() {
        let metadata = |requirement: &str, publish: Value| {
            serde_json::json!({ "packages": [
                { "name": "a", "version": "0.1.0", "manifest_path": "/a/Cargo.toml", "publish": null,
                  "dependencies": [
                      { "name": "a", "req": "*", "path": "/a", "kind": "dev" },
                      { "name": "b", "req": requirement, "path": "/b", "kind": "dev" },
                  ] },
                { "name": "b", "version": "0.1.0", "manifest_path": "/b/Cargo.toml", "publish": publish },
            ]})
        };
        let read = |requirement, publish| read(&metadata(requirement, publish)).unwrap();
        assert_eq!(names(&read("*", Value::Null)), ["a", "b"]);
        assert_eq!(names(&read("^0.1.0", Value::Null)), ["b", "a"]);
        assert_eq!(names(&read("*", serde_json::json!([]))), ["a"]);
    }

    proptest! {
        /// For any dependencies without cycles: each crate comes once, after all that it needs, and the order is deterministic.
        #[test]
        fn every_crate_follows_its_dependencies(edges in prop::collection::vec(any::<u16>(), 1..9), turn in any::<usize>()) {
            let name = |at: usize| format!("c{}", (at * 7) % 11);
            let mut crates: Vec<Crate> = edges.iter().enumerate().map(|(at, bits)| {
                let needed: Vec<String> = (0..at).filter(|it| bits >> it & 1 == 1).map(name).collect();
                sample(&name(at), &needed.iter().map(String::as_str).collect::<Vec<_>>())
            }).collect();
            let ordered = order(crates.clone()).unwrap();
            prop_assert_eq!(ordered.len(), crates.len());
            for (at, found) in ordered.iter().enumerate() {
                for needed in found.siblings.keys() {
                    prop_assert!(ordered[..at].iter().any(|it| it.name == *needed));
                }
            }
            let by = turn % crates.len();
            crates.rotate_left(by);
            prop_assert_eq!(order(crates).unwrap(), ordered);
        }
    }
}

//! Tests of the version bumps: they follow the changes and never decrease.

use proptest::prelude::*;

use super::super::crates::tests::sample;
use super::*;

fn version(text: &str) -> Version {
    Version::parse(text).unwrap()
}

fn history(is_tagged: bool, is_changed: bool) -> History {
    History {
        is_tagged,
        is_changed,
    }
}

fn shown(cuts: &[CrateVersion]) -> Vec<String> {
    cuts.iter().map(ToString::to_string).collect()
}

#[test]
fn version_is_bumped_by_the_named_part() {
    let of = |bump: Bump| bump.of(&version("0.1.2-rc.1")).to_string();
    assert_eq!(of(Bump::Patch), "0.1.3");
    assert_eq!(of(Bump::Minor), "0.2.0");
    assert_eq!(of(Bump::Major), "1.0.0");
}

#[test]
fn first_release_keeps_the_version_of_the_manifest() {
    let crates = [
        (sample("leaf", &[]), history(false, true)),
        (sample("app", &["leaf"]), history(false, true)),
    ];
    for bump in [None, Some(Bump::Minor)] {
        let cuts = decide(&crates, bump, &[]).unwrap();
        assert_eq!(shown(&cuts), ["leaf 0.1.0", "app 0.1.0"]);
    }
}

#[test]
fn unchanged_crate_is_not_released() {
    let crates = [
        (sample("alone", &[]), history(true, false)),
        (sample("leaf", &[]), history(true, true)),
        (sample("app", &["leaf"]), history(true, false)),
    ];
    let patch = decide(&crates, Some(Bump::Patch), &[]).unwrap();
    assert_eq!(shown(&patch), ["leaf 0.1.1"]);
    let minor = decide(&crates, Some(Bump::Minor), &[]).unwrap();
    assert_eq!(shown(&minor), ["leaf 0.2.0", "app 0.2.0"]);
    assert_eq!(minor[1].notes, ["- `leaf` 0.2.0."]);
    let error = decide(&crates, None, &[]).unwrap_err();
    assert!(
        error.contains("leaf 0.1.0 is already released: give --bump"),
        "{error}"
    );
}

#[test]
fn picked_version_is_used_and_never_decreases() {
    let crates = [(sample("leaf", &[]), history(true, false))];
    let pick = |text: &str| decide(&crates, None, &[text.parse().unwrap()]);
    assert_eq!(
        shown(&pick("leaf=1.0.0-rc.1").unwrap()),
        ["leaf 1.0.0-rc.1"]
    );
    for wrong in ["leaf=0.1.0", "leaf=0.0.9", "other=1.0.0"] {
        assert!(pick(wrong).is_err(), "{wrong}");
    }
    assert!("leaf".parse::<Pick>().is_err() && "leaf=x".parse::<Pick>().is_err());
}

#[test]
fn manifests_keep_their_text() {
    let member = "# Why.\n[package]\nname = \"leaf\"\nversion = \"0.1.0\" # its own\n\n[dependencies]\nserde.workspace = true\n";
    assert_eq!(
        set_version(member, &version("0.2.0")).unwrap(),
        member.replace("0.1.0", "0.2.0")
    );
    let root = "[workspace.dependencies]\nleaf = { path = \"crates/leaf\", version = \"0.1.0\", default-features = false }\nserde = { version = \"0.1.0\" } # no sibling\n";
    let cuts = [CrateVersion {
        name: "leaf".into(),
        version: version("0.2.0"),
        notes: Vec::new(),
    }];
    assert_eq!(
        set_requirements(root, &cuts).unwrap(),
        root.replacen("0.1.0", "0.2.0", 1)
    );
    assert!(set_version("[workspace]", &version("1.0.0")).is_err());
}

#[test]
fn readme_requires_the_released_version() {
    let readme = "```toml\nleaf = \"0.1\"\n  leaf = { version = \"0.1\", features = [\"x\"] }\nleaf-two = \"0.1\"\n```\n";
    assert_eq!(set_readme(readme, "leaf", &version("0.1.5")), readme);
    let minor = set_readme(readme, "leaf", &version("0.2.0"));
    assert_eq!(minor.matches("\"0.2\"").count(), 2);
    assert_eq!(minor.matches("\"0.1\"").count(), 1);
    assert!(set_readme(readme, "leaf", &version("1.2.0")).contains("leaf = \"1\""));
}

proptest! {
    /// After any release, each published crate accepts the version of each sibling published with it, or gets a new version itself.
    #[test]
    fn crate_is_released_with_its_siblings(
        edges in prop::collection::vec((any::<u8>(), any::<bool>(), any::<bool>()), 1..8),
        bump in prop::sample::select(vec![Bump::Patch, Bump::Minor, Bump::Major]),
    ) {
        let crates: Vec<(Crate, History)> = edges.iter().enumerate().map(|(at, (bits, tagged, changed))| {
            let needed: Vec<String> = (0..at).filter(|it| bits >> it & 1 == 1).map(|it| format!("c{it}")).collect();
            let needed: Vec<&str> = needed.iter().map(String::as_str).collect();
            (sample(&format!("c{at}"), &needed), history(*tagged, *changed))
        }).collect();
        let cuts = decide(&crates, Some(bump), &[]).unwrap();
        let new = |name: &str| cuts.iter().find(|cut| cut.name == name);
        for (found, history) in &crates {
            prop_assert!(!history.is_changed || new(&found.name).is_some());
            for (sibling, requirement) in &found.siblings {
                let fits = new(sibling).is_none_or(|cut| requirement.matches(&cut.version));
                prop_assert!(fits || new(&found.name).is_some());
            }
            if let Some(cut) = new(&found.name) {
                prop_assert!(cut.version > found.version || !history.is_tagged);
            }
        }
    }
}

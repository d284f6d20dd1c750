//! The allowed dependencies between crates. A new edge is a separate commit that changes these tables and gives the reason.

use crate::sources;
use crate::workspace::{Dependency, Package, Workspace};

/// The members that each member can depend on, and the additional ones for its tests.
const MEMBERS: &[(&str, &[&str], &[&str])] = &[
    (
        "agent-api",
        &["agent-duplex", "agent-subprocess", "checkpoint-store"],
        &[],
    ),
    (
        "agent-drivers",
        &["agent-api", "agent-duplex", "agent-subprocess"],
        &[],
    ),
    ("agent-duplex", &[], &[]),
    ("agent-subprocess", &[], &[]),
    ("cancellable-sleep", &[], &[]),
    ("checkpoint-store", &[], &[]),
    ("interrupt-stack", &[], &[]),
    (
        "loop-runner",
        &[
            "agent-drivers",
            "agent-duplex",
            "agent-subprocess",
            "cancellable-sleep",
            "checkpoint-store",
            "loop-state",
            "rlm-store",
        ],
        &[],
    ),
    ("loop-state", &[], &[]),
    (
        "rlm-bench",
        &[
            "agent-api",
            "agent-drivers",
            "agent-duplex",
            "agent-subprocess",
            "cancellable-sleep",
            "checkpoint-store",
            "interrupt-stack",
            "loop-state",
            "rlm-fleet",
            "rlm-store",
            "rlm-tests",
        ],
        &[],
    ),
    ("rlm-crash", &["checkpoint-store", "rlm-fleet"], &[]),
    (
        "rlm-fleet",
        &[
            "cancellable-sleep",
            "checkpoint-store",
            "loop-state",
            "rlm-store",
        ],
        &["agent-drivers"],
    ),
    (
        "rlm-loop",
        &[
            "agent-api",
            "agent-drivers",
            "agent-duplex",
            "agent-subprocess",
            "cancellable-sleep",
            "checkpoint-store",
            "interrupt-stack",
            "loop-runner",
            "loop-state",
            "rlm-fleet",
            "rlm-report",
            "rlm-store",
            "rlm-terminal",
            "rlm-text",
            "rlm-view",
        ],
        &[],
    ),
    (
        "rlm-report",
        &["agent-duplex", "loop-state", "rlm-store", "rlm-text"],
        &["checkpoint-store"],
    ),
    (
        "rlm-score",
        &["rlm-loop", "rlm-survivors", "rlm-tests"],
        &[],
    ),
    (
        "rlm-store",
        &[
            "agent-drivers",
            "agent-duplex",
            "agent-subprocess",
            "cancellable-sleep",
            "checkpoint-store",
            "loop-state",
            "rlm-text",
        ],
        &[],
    ),
    ("rlm-storm", &["rlm-fleet", "rlm-loop", "rlm-tests"], &[]),
    (
        "rlm-survivors",
        &["agent-subprocess", "rlm-loop", "rlm-tests"],
        &[],
    ),
    (
        "rlm-terminal",
        &[
            "agent-duplex",
            "agent-subprocess",
            "interrupt-stack",
            "loop-runner",
            "loop-state",
            "rlm-store",
            "rlm-text",
        ],
        &[],
    ),
    (
        "rlm-tests",
        &[
            "agent-drivers",
            "agent-duplex",
            "agent-subprocess",
            "rlm-loop",
        ],
        &[],
    ),
    ("rlm-text", &["loop-state"], &[]),
    (
        "rlm-view",
        &[
            "agent-duplex",
            "loop-runner",
            "loop-state",
            "rlm-report",
            "rlm-store",
            "rlm-text",
        ],
        &[],
    ),
    ("xtask", &[], &[]),
];

/// The crates that can use these dependencies. Development dependencies are free.
const OTHERS: &[(&str, &[&str])] = &[
    ("ciborium", &["checkpoint-store", "loop-state", "rlm-bench"]),
    (
        "clap",
        &[
            "rlm-bench",
            "rlm-crash",
            "rlm-loop",
            "rlm-score",
            "rlm-storm",
            "rlm-survivors",
            "rlm-tests",
            "xtask",
        ],
    ),
    (
        "fs-err",
        &[
            "checkpoint-store",
            "loop-runner",
            "rlm-bench",
            "rlm-loop",
            "rlm-score",
            "rlm-store",
            "rlm-storm",
            "rlm-survivors",
            "rlm-terminal",
            "rlm-tests",
            "xtask",
        ],
    ),
    ("hyper", &["agent-api", "rlm-bench", "rlm-view"]),
    ("rmcp", &["agent-api"]),
    (
        "rustix",
        &[
            "agent-api",
            "agent-drivers",
            "agent-subprocess",
            "checkpoint-store",
            "interrupt-stack",
            "loop-runner",
            "rlm-bench",
            "rlm-fleet",
            "rlm-loop",
            "rlm-score",
            "rlm-store",
            "rlm-storm",
            "rlm-survivors",
            "rlm-terminal",
            "rlm-tests",
        ],
    ),
    (
        "signal-hook",
        &[
            "interrupt-stack",
            "rlm-score",
            "rlm-storm",
            "rlm-survivors",
            "rlm-tests",
        ],
    ),
    ("signal-hook-tokio", &["rlm-loop", "rlm-terminal"]),
    ("tokio", TOKIO),
    ("tokio-util", TOKIO),
];

const TOKIO: &[&str] = &[
    "agent-api",
    "agent-drivers",
    "agent-duplex",
    "agent-subprocess",
    "cancellable-sleep",
    "interrupt-stack",
    "loop-runner",
    "rlm-bench",
    "rlm-fleet",
    "rlm-loop",
    "rlm-store",
    "rlm-survivors",
    "rlm-terminal",
    "rlm-tests",
    "rlm-view",
];

/// Names each edge that is not in the tables.
pub(super) fn wrong(packages: &[Package]) -> Vec<String> {
    let mut wrong = Vec::new();
    for package in packages {
        let row = MEMBERS.iter().find(|(name, ..)| *name == package.name);
        let Some((_, normal, dev)) = row else {
            wrong.push(format!("{} is not in the table of members", package.name));
            continue;
        };
        for dependency in &package.dependencies {
            let tests_may = dependency.dev && dev.contains(&dependency.name.as_str());
            let allowed = tests_may || normal.contains(&dependency.name.as_str());
            wrong.extend(
                complaint(package, allowed, dependency)
                    .map(|why| format!("{} -> {}: {why}", package.name, dependency.name)),
            );
        }
    }
    wrong
}

fn complaint(package: &Package, allowed: bool, dependency: &Dependency) -> Option<&'static str> {
    let (from, to) = (package.name.as_str(), dependency.name.as_str());
    // A crate that tests itself with other features depends on itself.
    if dependency.inner && from != to && !allowed {
        return Some("not an edge of the architecture");
    }
    let users = OTHERS
        .iter()
        .find(|(name, _)| *name == to && !dependency.dev)?
        .1;
    (!users.contains(&from)).then_some("not allowed for this crate")
}

/// Names the libraries without a snapshot test or a property test.
pub(super) fn without_tests(workspace: &Workspace) -> Vec<String> {
    let sources = sources::read(&workspace.root);
    let libraries = workspace.libraries().flat_map(|package| {
        let folder = package.folder.strip_prefix(&workspace.root);
        let folder = folder.unwrap_or(&package.folder);
        let own = sources.iter().filter(move |it| it.path.starts_with(folder));
        let lacks = lacking(own.map(|source| source.text.as_str()));
        lacks
            .into_iter()
            .map(|what| format!("{}: has no test with {what}", package.name))
    });
    libraries.collect()
}

/// Returns the kinds of tests (snapshot, property) that are in none of these sources.
fn lacking<'a>(sources: impl Iterator<Item = &'a str>) -> Vec<&'static str> {
    let (mut snapshot, mut property) = (false, false);
    let lines = sources.flat_map(str::lines).map(str::trim);
    for line in lines.filter(|line| !line.starts_with("//")) {
        snapshot |= line.contains("assert_") && line.contains("snapshot!");
        property |= line.starts_with("proptest!") || line.starts_with("proptest::proptest!");
    }
    let kinds = [
        (snapshot, "a snapshot (`assert_snapshot!`)"),
        (property, "a property (`proptest!`)"),
    ];
    let absent = kinds.into_iter().filter(|(is_there, _)| !is_there);
    absent.map(|(_, what)| what).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(from: &str, to: &str, dev: bool) -> Vec<String> {
        let inner = MEMBERS.iter().any(|(name, ..)| *name == to);
        let dependency = Dependency {
            name: to.into(),
            dev,
            inner,
        };
        wrong(&[Package {
            name: from.into(),
            is_library: true,
            is_published: true,
            dependencies: vec![dependency],
            ..Package::default()
        }])
    }

    #[test]
    fn edges_outside_the_diagram_are_named() {
        assert_eq!(
            edge("loop-state", "tokio", false),
            ["loop-state -> tokio: not allowed for this crate"]
        );
        assert_eq!(
            edge("cancellable-sleep", "interrupt-stack", true),
            ["cancellable-sleep -> interrupt-stack: not an edge of the architecture"]
        );
        assert_eq!(
            edge("agent-subprocess", "agent-duplex", true),
            ["agent-subprocess -> agent-duplex: not an edge of the architecture"]
        );
        assert_eq!(
            edge("loop-runner", "signal-hook", false),
            ["loop-runner -> signal-hook: not allowed for this crate"]
        );
        assert_eq!(
            edge("newcomer", "serde", false),
            ["newcomer is not in the table of members"]
        );
    }

    #[test]
    fn dev_dependency_is_no_edge_of_the_crate() {
        assert!(edge("rlm-report", "checkpoint-store", true).is_empty());
        assert_eq!(
            edge("rlm-report", "checkpoint-store", false),
            ["rlm-report -> checkpoint-store: not an edge of the architecture"]
        );
        assert_eq!(
            edge("rlm-loop", "rlm-tests", false),
            ["rlm-loop -> rlm-tests: not an edge of the architecture"]
        );
    }

    #[test]
    fn a_library_needs_a_test_of_each_kind() {
        let both = ["insta::assert_json_snapshot!(x);", "    proptest! {"];
        assert_eq!(lacking(both.into_iter()).len(), 0);
        let none = [
            "// proptest! and assert_snapshot! are named only",
            "let a = 1;",
        ];
        assert_eq!(lacking(none.into_iter()).len(), 2);
        assert_eq!(lacking(both[..1].iter().copied()).len(), 1);
    }

    #[test]
    fn edges_of_the_diagram_pass() {
        assert!(edge("agent-drivers", "agent-duplex", false).is_empty());
        assert!(edge("rlm-loop", "interrupt-stack", false).is_empty());
        assert!(edge("interrupt-stack", "interrupt-stack", true).is_empty());
        assert!(edge("loop-state", "tokio", true).is_empty());
    }
}

//! Who may depend on whom. A new edge is a commit of its own that changes these tables and says why.

use crate::workspace::{Dependency, Package, Workspace};

/// The members that each member may depend on, in any kind of dependency; `*` is all.
const MEMBERS: &[(&str, &[&str])] = &[
    ("agent-drivers", &["agent-duplex", "agent-subprocess"]),
    ("agent-duplex", &[]),
    ("agent-subprocess", &[]),
    ("cancellable-sleep", &[]),
    ("checkpoint-store", &[]),
    ("interrupt-stack", &[]),
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
    ),
    ("loop-state", &[]),
    ("rlm-bench", &["*"]),
    ("rlm-crash", &["checkpoint-store"]),
    ("rlm-loop", &["*"]),
    (
        "rlm-report",
        &[
            "agent-duplex",
            "checkpoint-store",
            "loop-state",
            "rlm-store",
            "rlm-text",
        ],
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
        ],
    ),
    ("rlm-survivors", &["*"]),
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
    ),
    ("rlm-tests", &["*"]),
    ("rlm-text", &["loop-state"]),
    ("xtask", &[]),
];

/// Who may use these; development dependencies are free.
const OTHERS: &[(&str, &[&str])] = &[
    ("ciborium", &["checkpoint-store", "loop-state", "rlm-bench"]),
    (
        "clap",
        &[
            "rlm-bench",
            "rlm-crash",
            "rlm-loop",
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
            "rlm-store",
            "rlm-survivors",
            "rlm-terminal",
            "rlm-tests",
            "xtask",
        ],
    ),
    (
        "rustix",
        &[
            "agent-drivers",
            "agent-subprocess",
            "checkpoint-store",
            "interrupt-stack",
            "loop-runner",
            "rlm-bench",
            "rlm-loop",
            "rlm-store",
            "rlm-survivors",
            "rlm-terminal",
            "rlm-tests",
        ],
    ),
    (
        "signal-hook",
        &["interrupt-stack", "rlm-survivors", "rlm-tests"],
    ),
    ("tokio", TOKIO),
    ("tokio-util", TOKIO),
];

const TOKIO: &[&str] = &[
    "agent-drivers",
    "agent-duplex",
    "agent-subprocess",
    "cancellable-sleep",
    "interrupt-stack",
    "loop-runner",
    "rlm-bench",
    "rlm-loop",
    "rlm-store",
    "rlm-survivors",
    "rlm-terminal",
    "rlm-tests",
];

/// Names each edge that the tables do not have.
pub(super) fn wrong(packages: &[Package]) -> Vec<String> {
    let mut wrong = Vec::new();
    for package in packages {
        let Some((_, allowed)) = MEMBERS.iter().find(|(name, _)| *name == package.name) else {
            wrong.push(format!("{} is not in the table of members", package.name));
            continue;
        };
        for dependency in &package.dependencies {
            wrong.extend(
                complaint(package, allowed, dependency)
                    .map(|why| format!("{} -> {}: {why}", package.name, dependency.name)),
            );
        }
    }
    wrong
}

fn complaint(package: &Package, allowed: &[&str], dependency: &Dependency) -> Option<&'static str> {
    let (from, to) = (package.name.as_str(), dependency.name.as_str());
    // A crate that tests itself with other features depends on itself.
    if dependency.inner && from != to && !allowed.contains(&"*") && !allowed.contains(&to) {
        return Some("no such edge in the architecture");
    }
    let users = OTHERS
        .iter()
        .find(|(name, _)| *name == to && !dependency.dev)?
        .1;
    (!users.contains(&from)).then_some("not given to this crate")
}

/// Names the libraries that lack the tools for snapshot or property tests.
pub(super) fn without_test_tools(workspace: &Workspace) -> Vec<String> {
    let has = |package: &Package, tool: &str| {
        package
            .dependencies
            .iter()
            .any(|found| found.dev && found.name == tool)
    };
    let tools = ["insta", "proptest"];
    let lacking = workspace.libraries().flat_map(|package| {
        tools
            .into_iter()
            .filter(|tool| !has(package, tool))
            .map(|tool| format!("{}: {tool} is not among its dev-dependencies", package.name))
    });
    lacking.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(from: &str, to: &str, dev: bool) -> Vec<String> {
        let inner = MEMBERS.iter().any(|(name, _)| *name == to);
        let dependency = Dependency {
            name: to.into(),
            dev,
            inner,
        };
        wrong(&[Package {
            name: from.into(),
            folder: "".into(),
            is_library: true,
            is_published: true,
            features: Vec::new(),
            default_features: Vec::new(),
            roots: Vec::new(),
            dependencies: vec![dependency],
        }])
    }

    #[test]
    fn edges_outside_the_picture_are_named() {
        assert_eq!(
            edge("loop-state", "tokio", false),
            ["loop-state -> tokio: not given to this crate"]
        );
        assert_eq!(
            edge("cancellable-sleep", "interrupt-stack", true),
            ["cancellable-sleep -> interrupt-stack: no such edge in the architecture"]
        );
        assert_eq!(
            edge("agent-subprocess", "agent-duplex", true),
            ["agent-subprocess -> agent-duplex: no such edge in the architecture"]
        );
        assert_eq!(
            edge("loop-runner", "signal-hook", false),
            ["loop-runner -> signal-hook: not given to this crate"]
        );
        assert_eq!(
            edge("newcomer", "serde", false),
            ["newcomer is not in the table of members"]
        );
    }

    #[test]
    fn edges_of_the_picture_pass() {
        assert!(edge("agent-drivers", "agent-duplex", false).is_empty());
        assert!(edge("rlm-loop", "interrupt-stack", false).is_empty());
        assert!(edge("interrupt-stack", "interrupt-stack", true).is_empty());
        assert!(edge("loop-state", "tokio", true).is_empty());
    }
}

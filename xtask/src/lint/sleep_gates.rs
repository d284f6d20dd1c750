//! Refuses a gate that nobody can wake: waits for work hang on the one gate of the program, so that a shutdown ends them, and bounded waits of a stop
//! have their own deadline.

use crate::lint::shipped::{self, Seen};
use crate::sources::Source;
use crate::workspace::Workspace;

/// The crate that makes them.
const HOME: &str = "crates/cancellable-sleep";

/// What makes a gate of its own; one that is made from a token is shut by whoever has that.
const MAKERS: [&str; 3] = ["new", "default", "with_wall_clock"];

pub(super) fn wrong(workspace: &Workspace) -> Vec<String> {
    let sources = shipped::sources(workspace);
    judge(&sources.iter().collect::<Vec<_>>())
}

fn judge(sources: &[&Source]) -> Vec<String> {
    let (found, mut wrong) = shipped::read(sources);
    for (path, seen) in found {
        if path.starts_with(HOME) {
            continue;
        }
        wrong.extend(made(&seen).map(|(name, line)| {
            format!(
                "{}:{line}: {name} is a gate that no shutdown wakes; take one from the caller, or `rlm_store::deadline::until` for a bounded wait",
                path.display()
            )
        }));
    }
    wrong
}

/// Each place that makes a gate, under whatever name the type has there.
fn made(seen: &Seen) -> impl Iterator<Item = (String, usize)> {
    seen.paths.iter().filter_map(|(path, line)| {
        let [.., kind, maker] = &path[..] else {
            return None;
        };
        let imports = seen.imports.get(kind).into_iter().flatten();
        let is_gate = kind == "SleepGate"
            || imports
                .filter_map(|it| it.last())
                .any(|it| it == "SleepGate");
        (is_gate && MAKERS.contains(&maker.as_str())).then(|| (path.join("::"), *line))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_is_refused_where_it_is_shipped_under_any_name() {
        let judged = |path: &str, text: &str| {
            let (path, text) = (path.into(), text.to_owned());
            judge(&[&Source { path, text }]).len()
        };
        let shipped = "crates/a/src/lib.rs";
        for text in [
            "use cancellable_sleep::SleepGate; fn f() { let gate = SleepGate::new(); }",
            "fn f() { cancellable_sleep::SleepGate::default() }",
            "use cancellable_sleep::SleepGate as Gate; fn f() { Gate::with_wall_clock(now) }",
            "fn f() { it.unwrap_or_else(SleepGate::new) }",
        ] {
            assert_eq!(judged(shipped, text), 1, "{text}");
            assert_eq!(judged("crates/cancellable-sleep/src/a.rs", text), 0);
        }
        for text in [
            "fn f(gate: &SleepGate) { gate.child() }",
            "fn f() { SleepGate::from_token(token) }",
            "/// `SleepGate::new()` is for tests.\nfn f() {}",
            "#[cfg(test)] mod tests { fn f() { SleepGate::new() } }",
            "use other::Gate; fn f() { Gate::new() }",
        ] {
            assert_eq!(judged(shipped, text), 0, "{text}");
        }
    }
}

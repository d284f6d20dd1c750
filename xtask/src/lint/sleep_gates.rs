//! Refuses a gate or a sleep that nothing can wake. Waits for work belong to the one gate of the program, so that a shutdown ends them. Bounded waits
//! of a stop have their own deadline. `clippy.toml` refuses the plain sleeps; this lint refuses calls that sleep without the word `sleep` in their
//! name.

use crate::lint::shipped::{self, ShippedNames};
use crate::sources::Source;
use crate::workspace::Workspace;

/// The crate of the gates.
const HOME: &str = "crates/cancellable-sleep";

/// The functions that create an independent gate. The owner of a token shuts down a gate created from that token.
const MAKERS: [&str; 3] = ["new", "default", "with_wall_clock"];

/// The files that may make such a call, each with the call and the reason.
const SLEEPS: [(&str, &str, &str); 20] = [
    (
        "agent-api/src/agent/model_call.rs",
        "timeout of pending",
        "an interrupt, a stop and the end of the connection end the wait before a further try",
    ),
    (
        "agent-drivers/src/codex/connection/cleanup.rs",
        "timeout of pending",
        "a driver has no gate: the wait takes 100 ms at most, and the caller drops it",
    ),
    (
        "agent-duplex/src/actor.rs",
        "timeout of pending",
        "each caller races the wait against a halt of the conversation",
    ),
    (
        "rlm-store/src/deadline.rs",
        "timeout of pending",
        "the bounded wait of a stop itself",
    ),
    (
        "agent-duplex/src/contract/scenario_run.rs",
        "timeout of pending",
        "a contract scenario observes an agent that reports nothing; only tests run it",
    ),
    (
        "agent-subprocess/src/group.rs",
        "poll of nothing",
        "ends a process tree in rounds up to a deadline, which a shutdown must not interrupt",
    ),
    (
        "agent-subprocess/src/proc_fs.rs",
        "poll of nothing",
        "searches or ends a process tree in rounds up to a deadline, which a shutdown must not interrupt",
    ),
    (
        "checkpoint-store/src/disk.rs",
        "park_timeout",
        "two milliseconds, a limited number of times, for a lock that another process releases",
    ),
    (
        "interrupt-stack/src/signal_catcher.rs",
        "park_timeout",
        "the signal thread itself, in a process that closed all descriptors",
    ),
    (
        "loop-runner/src/control/force_stop.rs",
        "park_timeout",
        "the wait of a stop, up to its deadline",
    ),
    (
        "loop-runner/src/control/live_run.rs",
        "park_timeout",
        "a client connects again, up to its deadline",
    ),
    (
        "loop-runner/src/control/health.rs",
        "park_timeout",
        "signals keep their default and end this command, which has no session",
    ),
    (
        "rlm/src/command/attach.rs",
        "park_timeout",
        "the wait for a process that ends anyway, up to a second",
    ),
    (
        "rlm/src/command/checkpoints.rs",
        "park_timeout",
        "a progress thread, which its owner unparks",
    ),
    (
        "rlm/src/command/logs.rs",
        "park_timeout",
        "signals keep their default and end this command, which has no session",
    ),
    (
        "rlm/src/session.rs",
        "park_timeout",
        "the console thread unparks it; the loop checks for a shutdown between the waits",
    ),
    (
        "rlm-terminal/src/editor.rs",
        "park_timeout",
        "the wait for the group of an editor that failed, up to a deadline",
    ),
    (
        "rlm-view/src/export.rs",
        "park_timeout",
        "at most 10 s, for an exporter that rolls back; the end of the process ends it",
    ),
    (
        "rlm-view/src/runs.rs",
        "park_timeout",
        "at most 2 s, for a scan of another thread; the page then shows what is known",
    ),
    (
        "rlm/src/command/view/serve.rs",
        "park_timeout",
        "a thread of its own removes a file after 30 s; the end of the process ends it",
    ),
];

pub(super) fn wrong(workspace: &Workspace) -> Vec<String> {
    let sources = shipped::sources(workspace);
    let sources: Vec<&Source> = sources.iter().collect();
    let mut wrong = judge(&sources);
    wrong.extend(sleeps(&sources, &SLEEPS));
    wrong
}

/// Names the sleeps that are not among these exceptions, and the exceptions that no file needs.
fn sleeps(sources: &[&Source], allowed: &[(&str, &str, &str)]) -> Vec<String> {
    // `judge` reports the files that can't be parsed.
    let (found, _) = shipped::read(sources);
    let (mut wrong, mut used) = (Vec::new(), vec![false; allowed.len()]);
    for (path, seen) in found {
        for (call, line) in slept(&seen) {
            let row = { allowed.iter() }
                .position(|(file, known, _)| path.ends_with(file) && *known == call);
            match row {
                Some(row) => used[row] = true,
                None => wrong.push(format!(
                    "{}:{line}: {call} is a sleep that no shutdown wakes; wait on a gate or a deadline, or name the file and the reason in xtask/src/lint/sleep_gates.rs",
                    path.display()
                )),
            }
        }
    }
    let unused = { allowed.iter().zip(used) }.filter(|(_, used)| !used);
    wrong.extend(unused.map(|((file, call, _), _)| {
        format!("xtask/src/lint/sleep_gates.rs: {file} has no {call}: remove the exception")
    }));
    wrong
}

/// Returns each call that sleeps without the word `sleep` in its name.
fn slept(seen: &ShippedNames) -> impl Iterator<Item = (&'static str, usize)> {
    seen.calls.iter().filter_map(|(path, with, line)| {
        let call = match path.last()?.as_str() {
            "park_timeout" => "park_timeout",
            "timeout" | "timeout_at"
                if with.contains("pending(") || with.contains("pending::<") =>
            {
                "timeout of pending"
            }
            "poll" if with.starts_with("&mut[],") => "poll of nothing",
            _ => return None,
        };
        Some((call, *line))
    })
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

/// Returns each place that creates a gate, under any name of the type.
fn made(seen: &ShippedNames) -> impl Iterator<Item = (String, usize)> {
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
    fn sleep_under_another_name_is_refused_except_for_listed_ones() {
        let judged = |text: &str, allowed: &[(&str, &str, &str)]| {
            let (path, text) = ("crates/a/src/lib.rs".into(), text.to_owned());
            sleeps(&[&Source { path, text }], allowed).len()
        };
        for (text, call) in [
            ("fn f() { std::thread::park_timeout(POLL) }", "park_timeout"),
            (
                "fn f() { timeout(x, std::future::pending::<()>()).await }",
                "timeout of pending",
            ),
            (
                "fn f() { tokio::time::timeout(a.b(), pending()).await }",
                "timeout of pending",
            ),
            (
                "fn f() { rustix::event::poll(&mut [], Some(&time)) }",
                "poll of nothing",
            ),
        ] {
            assert_eq!(judged(text, &[]), 1, "{text}");
            assert_eq!(judged(text, &[("a/src/lib.rs", call, "why")]), 0, "{text}");
            assert_eq!(judged(text, &[("b.rs", call, "why")]), 2, "{text}");
        }
        for text in [
            "fn f() { timeout(x, done.recv()).await }",
            "fn f() { poll(&mut [fd], Some(&time)) }",
            "#[cfg(test)] mod tests { fn f() { park_timeout(x) } }",
        ] {
            assert_eq!(judged(text, &[]), 0, "{text}");
        }
    }

    #[test]
    fn shipped_gate_is_refused_under_any_name() {
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

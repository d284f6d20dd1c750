//! A network namespace with only loopback, so that no agent can reach the internet.

use std::process::{Command, ExitCode, Stdio};

/// The variable that is set in a process inside the namespace.
const VARIABLE: &str = "RLM_TEST_CAGED";
/// As root, and as a user who becomes root in a new namespace.
const WAYS: [&[&str]; 2] = [&["-n"], &["-r", "-n"]];

pub(super) enum Isolation {
    /// This process is inside.
    Inside,
    /// Another process was inside and has done the work.
    Left(ExitCode),
    /// Isolation is not available, with the reason.
    None(String),
}

/// Returns whether this process is inside the namespace.
pub(super) fn is_inside() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// Starts this program again inside the namespace, if possible.
pub(super) fn enter() -> Isolation {
    if is_inside() {
        return Isolation::Inside;
    }
    let up = ["ip", "link", "set", "lo", "up"];
    let Some(way) = WAYS
        .into_iter()
        .find(|way| succeeds(Command::new("unshare").args(*way).args(up)))
    else {
        return Isolation::None("`unshare -n ip link set lo up` does not work here".into());
    };
    let this = std::env::current_exe().expect("a running program has a path");
    let script = r#"ip link set lo up && exec "$0" "$@""#;
    let inside = Command::new("unshare")
        .args(way)
        .args(["sh", "-c", script])
        .arg(this)
        .args(std::env::args_os().skip(1))
        .env(VARIABLE, "1")
        .status();
    match inside {
        Ok(status) if status.success() => Isolation::Left(ExitCode::SUCCESS),
        _ => Isolation::Left(ExitCode::FAILURE),
    }
}

fn succeeds(command: &mut Command) -> bool {
    let silent = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    silent.status().is_ok_and(|status| status.success())
}

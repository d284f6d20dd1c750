//! Failures of the agent's start, which show only as exit code 1 and a line on standard error.

use crate::convert::one_line;
use crate::dialogue::last_line;
use agent_duplex::Error;

/// Returns the fix for a known failure, which is recognised by its text on standard error.
pub(super) fn known(stderr: &str) -> Option<String> {
    let line = |mark: &str| stderr.lines().find(|line| line.contains(mark));
    let shown = |line: &str| {
        let line = line
            .trim_start_matches("error: ")
            .trim_start_matches("Error: ");
        one_line(line.trim_end_matches('.'), 300)
    };
    if line("cannot be used with root").is_some() {
        let hint = "run as another user, or set IS_SANDBOX=1 in a container";
        return Some(format!(
            "the agent refuses to run with all permissions as root: {hint}"
        ));
    }
    let known = [
        ("No conversation found", "start a fresh session"),
        (
            "is already in use",
            "start a fresh session, or resume that one",
        ),
        (
            "unknown option",
            "fix the agent's extra arguments, or update the agent",
        ),
        ("argument missing", "fix the agent's extra arguments"),
        ("is invalid", "fix the agent's extra arguments"),
    ];
    let mut known = known.into_iter();
    known
        .find_map(|(mark, hint)| Some(format!("the agent reports: {}; {hint}", shown(line(mark)?))))
}

/// Returns the error for an agent that ended before its first output.
pub(super) fn at_start(program: &str, how: &str, stderr: &str) -> Error {
    let what = known(stderr).unwrap_or_else(|| {
        let detail = last_line(stderr);
        format!("`{program}` exited immediately ({how}){detail}; run it by hand to see why")
    });
    Error::start(what, None)
}

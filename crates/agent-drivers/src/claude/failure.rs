//! What the agent's start fails with: an exit code of 1 and a line of standard error, nothing else.

use crate::converse::last_line;
use crate::duplex::one_line;
use agent_duplex::Error;

/// Returns what to do about a failure that is known by what stands on standard error.
pub(super) fn known(stderr: &str) -> Option<String> {
    let line = |mark: &str| stderr.lines().find(|line| line.contains(mark));
    let shown = |line: &str| {
        let line = line
            .trim_start_matches("error: ")
            .trim_start_matches("Error: ");
        one_line(line.trim_end_matches('.'), 300)
    };
    if line("cannot be used with root").is_some() {
        let mend = "run as another user, or set IS_SANDBOX=1 in a container";
        return Some(format!(
            "the agent refuses to skip permissions as root: {mend}"
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
            "correct the agent's extra arguments, or update the agent",
        ),
        ("argument missing", "correct the agent's extra arguments"),
        ("is invalid", "correct the agent's extra arguments"),
    ];
    let mut known = known.into_iter();
    known.find_map(|(mark, mend)| Some(format!("the agent says: {}; {mend}", shown(line(mark)?))))
}

/// The error for an agent that ended before it said a word.
pub(super) fn at_start(program: &str, how: &str, stderr: &str) -> Error {
    let what = known(stderr).unwrap_or_else(|| {
        let said = last_line(stderr);
        format!("`{program}` ended at once ({how}){said}; try it by hand")
    });
    Error::start(what, None)
}

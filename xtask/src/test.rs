//! All tests: nextest when it is there and doctests always.

use crate::command::{self, Ended, Show};
use crate::tally::Tally;
use crate::tools::Tool;
use crate::workspace::Workspace;

pub(crate) fn run(workspace: &Workspace, show: Show) -> Tally {
    let nextest = [
        "run",
        "--cargo-quiet",
        "--workspace",
        "--all-features",
        "--profile",
        "ci",
    ];
    let mut tally = match Tool::Nextest.run(workspace, &nextest, show) {
        Ok(ended) => counted(Tally::of_nextest(&ended.output), &ended, "the tests"),
        Err(why) => {
            println!("{why}: the tests of a binary share a process");
            let ended = command::run(
                "cargo",
                &[
                    "test",
                    "--workspace",
                    "--all-features",
                    "--all-targets",
                    "--no-fail-fast",
                ],
                show,
            );
            counted(Tally::of_libtest(&ended.output), &ended, "the tests")
        }
    };
    let ended = command::run(
        "cargo",
        &[
            "test",
            "--doc",
            "--workspace",
            "--all-features",
            "--no-fail-fast",
        ],
        show,
    );
    tally += counted(Tally::of_libtest(&ended.output), &ended, "the doctests");
    tally
}

/// A runner that failed without counting a failure (nothing compiled, say) is a failure all the same.
fn counted(tally: Option<Tally>, ended: &Ended, what: &str) -> Tally {
    let mut tally = tally.unwrap_or_default();
    if !ended.success && !tally.is_red() {
        tally += Tally::failed(format!("test: {what} did not run to their end"));
    }
    if ended.success && tally.passed == 0 {
        tally += Tally::failed(format!("test: {what}: none ran"));
    }
    tally
}

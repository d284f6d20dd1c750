//! Builds and runs the live checks, which are a program of `rlm-tests`.

use crate::command::{self, Show};
use crate::tally::Tally;

/// Runs all checks, or the most important ones.
pub(crate) fn run(quick: bool) -> Tally {
    let built = command::run(
        "cargo",
        &["build", "--quiet", "-p", "rlm-tests", "--bins"],
        Show::OnFailure,
    );
    if !built.success {
        return Tally::failed("live: it does not build");
    }
    let mut words = vec!["run", "--quiet", "-p", "rlm-tests", "--bin", "live"];
    if quick {
        words.extend(["--", "--quick"]);
    }
    let ended = command::run("cargo", &words, Show::WithoutSkips);
    let mut tally = Tally::of_live(&ended.output);
    if !ended.success && !tally.is_red() {
        tally += Tally::failed("live: it ended before its checks did");
    }
    tally
}

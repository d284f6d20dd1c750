//! Records `rlm demo` and draws the picture of the README. The recorder is a program of `rlm-tests`.

use crate::command::{self, Show};
use crate::tally::Tally;

pub(crate) fn run() -> Tally {
    let build = ["build", "--quiet", "-p", "rlm-tests", "--bins"];
    if !command::run("cargo", &build, Show::OnFailure).success {
        return Tally::failed("picture: the build failed");
    }
    let run = ["run", "--quiet", "-p", "rlm-tests", "--bin", "picture"];
    match command::run("cargo", &run, Show::AsItComes).success {
        true => Tally::passed(1),
        false => Tally::failed("picture: the demo differed from its story"),
    }
}

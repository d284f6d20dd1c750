//! Builds and runs the crash tests of the store, which are a program of `rlm-crash`.

use crate::command::{self, Show};
use crate::tally::Tally;

/// How much is tried; passed on as it is.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// `--quick` (half a minute, the default), `--ci`, `--nightly`, `--layer NAME`, `--case LAYER=CASE`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Tries as much as a night has time for.
pub(crate) fn nightly() -> Tally {
    let arguments = vec!["--nightly".to_owned()];
    run(&Arguments { arguments })
}

pub(crate) fn run(arguments: &Arguments) -> Tally {
    // Some layers start `rlm` itself; without it they are skipped by name.
    let _without = command::build("rlm-loop", &["--bin", "rlm"]);
    let mut cargo = vec!["run", "--quiet", "--release", "-p", "rlm-crash", "--"];
    cargo.extend(arguments.arguments.iter().map(String::as_str));
    let ended = command::run("cargo", &cargo, Show::WithoutSkips);
    let mut tally = match ended.success {
        true => Tally::passed(1),
        false => Tally::failed("crash-test: a promise was not kept, or it did not run"),
    };
    let skipped = ended.output.lines().filter_map(command::skip_of);
    tally
        .skipped
        .extend(skipped.map(|skip| format!("crash-test: {skip}")));
    tally
}

//! Builds and runs the crash tests of the store, a program of `rlm-crash`.

use crate::command::{self, Show};
use crate::tally::Tally;

/// The amount of work, passed on unchanged.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// `--quick` (half a minute, the default), `--ci`, `--nightly`, `--layer NAME`, `--case LAYER=CASE`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Runs the crash tests with the effort of a nightly run.
pub(crate) fn nightly() -> Tally {
    let arguments = vec!["--nightly".to_owned()];
    run(&Arguments { arguments })
}

pub(crate) fn run(arguments: &Arguments) -> Tally {
    // Some layers start `rlm` itself. Without the program they are skipped with a message.
    let _without = command::build("rlm-loop", &["--bin", "rlm"]);
    let mut cargo = vec!["run", "--quiet", "--release", "-p", "rlm-crash", "--"];
    cargo.extend(arguments.arguments.iter().map(String::as_str));
    let ended = command::run("cargo", &cargo, Show::WithoutSkips);
    let mut tally = match ended.success {
        true => Tally::passed(1),
        false => Tally::failed("crash-test: an invariant failed, or the program did not run"),
    };
    let skipped = ended.output.lines().filter_map(command::skip_of);
    tally
        .skipped
        .extend(skipped.map(|skip| format!("crash-test: {skip}")));
    tally
}

//! `rlm view`: serves the page of all runs, and opens it in a browser.

use std::process::ExitCode;

use crate::args::ViewArgs;
use crate::exit::Failure;

#[cfg(feature = "view")]
mod program;
#[cfg(feature = "view")]
mod serve;

#[cfg(feature = "view")]
pub(crate) fn execute(args: &ViewArgs) -> Result<ExitCode, Failure> {
    serve::execute(args)
}

#[cfg(not(feature = "view"))]
pub(crate) fn execute(args: &ViewArgs) -> Result<ExitCode, Failure> {
    // The command is known in each build, so that its help is the same everywhere.
    let ViewArgs {
        what: _,
        listen: _,
        public_url: _,
        tls_cert: _,
        tls_key: _,
        password_file: _,
        read_only: _,
        no_open: _,
    } = args;
    Err(Failure::failed(
        "this build of rlm has no page; install a release, or build rlm with --features view",
    ))
}

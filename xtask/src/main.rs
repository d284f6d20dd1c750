//! `cargo xtask`: everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    xtask::main()
}

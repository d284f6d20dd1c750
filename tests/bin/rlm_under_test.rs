//! The `rlm` binary's `main` again, as a binary of this package: `CARGO_BIN_EXE_…` exists only for those.

fn main() -> std::process::ExitCode {
    rlm::main_impl()
}

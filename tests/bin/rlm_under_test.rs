//! The `main` of `rlm` as a binary of this package: `CARGO_BIN_EXE_…` exists only for binaries of the same package.

fn main() -> std::process::ExitCode {
    rlm::main_impl()
}

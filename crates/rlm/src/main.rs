//! The `rlm` binary. All code is in the library, so that tests can include the program.

fn main() -> std::process::ExitCode {
    rlm::main_impl()
}

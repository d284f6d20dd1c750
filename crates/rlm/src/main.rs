//! The `rlm` binary; everything is in the library so that tests can carry a copy of it.

fn main() -> std::process::ExitCode {
    rlm::main_impl()
}

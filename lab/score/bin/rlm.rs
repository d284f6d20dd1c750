//! `rlm-scored`: the unchanged `rlm`, which the tests of this package score.

fn main() -> std::process::ExitCode {
    rlm::main_impl()
}

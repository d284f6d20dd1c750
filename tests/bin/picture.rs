//! `picture`: records `rlm demo` and writes the picture of the README. See `rlm_tests::picture`.

fn main() -> std::process::ExitCode {
    rlm_tests::picture::main_impl()
}

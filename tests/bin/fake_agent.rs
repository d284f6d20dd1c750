//! `fake-agent`: a scripted agent that is a real process. See `rlm_tests::agent`.

fn main() -> std::process::ExitCode {
    rlm_tests::agent::main_impl()
}

//! `survivors-agent`: the scripted agent. See `rlm_tests::agent`.

fn main() -> std::process::ExitCode {
    rlm_tests::agent::main_impl()
}

//! `live`: `rlm` around a real agent CLI. See `rlm_tests::live`.

fn main() -> std::process::ExitCode {
    rlm_tests::live::main_impl()
}

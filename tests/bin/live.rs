//! `live`: `rlm` with real agent CLIs. See `rlm_tests::live`.

fn main() -> std::process::ExitCode {
    rlm_tests::live::main_impl()
}

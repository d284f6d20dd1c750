//! `fake-model`: a scripted model server on loopback. See `rlm_tests::model`.

fn main() -> std::process::ExitCode {
    rlm_tests::model::main_impl()
}

//! `fake-model`: a scripted model server on loopback. See `rlm_tests::model`.

fn main() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}

//! `rlm-scored`: the unchanged `rlm`, which the lab scores unless it gets another tool.

fn main() -> std::process::ExitCode {
    rlm::main_impl()
}

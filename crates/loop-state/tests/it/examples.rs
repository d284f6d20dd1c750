//! Runs the example: the program is killed in a turn, resumes, and ends.

#[path = "../../examples/shell.rs"]
mod shell;

#[test]
fn smallest_runner_survives_kills_and_finishes() {
    shell::main().unwrap();
}

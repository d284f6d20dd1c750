//! Runs the example: the program is killed in a turn, resumes, and ends.

#[path = "../../examples/shell.rs"]
mod shell;

#[test]
fn the_smallest_shell_is_killed_and_goes_on_to_its_end() {
    shell::main().unwrap();
}

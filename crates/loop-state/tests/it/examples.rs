//! The example runs to its end: the shell is killed within a turn, and goes on.

#[path = "../../examples/shell.rs"]
mod shell;

#[test]
fn the_smallest_shell_is_killed_and_goes_on_to_its_end() {
    shell::main().unwrap();
}

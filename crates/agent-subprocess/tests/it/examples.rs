//! The example runs to its end, with a group in the place of a guard: a test is no program that can be its own.

#[path = "../../examples/tree.rs"]
mod tree;

#[test]
fn a_daemon_is_named_and_ended() {
    tree::main().unwrap();
}

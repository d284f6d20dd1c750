//! Runs the example to its end, with a process group and no guard: a test binary cannot be its own guard.

#[path = "../../examples/tree.rs"]
mod tree;

#[test]
fn a_daemon_is_named_and_ended() {
    tree::main().unwrap();
}

//! Runs the example to its end.

#[path = "../../examples/tree.rs"]
mod tree;

#[test]
fn a_daemon_is_named_and_ended() {
    agent_subprocess::guard::guard_program(env!("CARGO_BIN_EXE_agent-guard"));
    tree::main().unwrap();
}

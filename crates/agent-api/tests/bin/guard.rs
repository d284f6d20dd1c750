//! The guard of the tests, because a test binary can't be its own guard.

fn main() -> Result<(), &'static str> {
    agent_subprocess::guard::run_if_guard();
    Err("only the tests of agent-api start this program")
}

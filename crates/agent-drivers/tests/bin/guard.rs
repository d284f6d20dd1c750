//! The guard of the tests, whose own program cannot be one.

fn main() -> Result<(), &'static str> {
    agent_subprocess::guard::run_if_guard();
    Err("the tests of agent-drivers start this program, nobody else")
}

//! A guard for programs that cannot be their own: see `agent_subprocess::guard::guard_program`.

fn main() -> Result<(), &'static str> {
    agent_subprocess::guard::run_if_guard();
    Err("this is started by the agent-subprocess library, not by hand")
}

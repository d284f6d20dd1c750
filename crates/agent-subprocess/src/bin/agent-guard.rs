//! A guard for programs that cannot be their own guard; see `agent_subprocess::guard::guard_program`.

fn main() -> Result<(), &'static str> {
    agent_subprocess::guard::run_if_guard();
    Err("the agent-subprocess library starts this program; it can't be started by hand")
}

//! An agent leaves a daemon behind; the program names the daemon and ends it.
//!
//! `cargo run -p agent-subprocess --example tree` ends by itself, immediately. If you search for `sleep 60` afterwards, you find no such process.
#![expect(clippy::print_stdout, reason = "this is what the example shows")]

use agent_subprocess::{AgentCommand, StopPolicy, guard};

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    // This program is its own guard, so this call comes first.
    guard::run_if_guard();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let script = "setsid sleep 60 >/dev/null 2>&1 </dev/null & sleep 0.1";
        let mut agent = AgentCommand::new("sh").args(["-c", script]).spawn().await?;
        println!("owned by: {:?}", agent.containment());
        let exit = agent.wait().await;
        for process in agent.leftovers().await {
            println!("left over: {process}");
        }
        println!("{exit}; {}", agent.stop(&StopPolicy::default()).await);
        Ok(())
    })
}

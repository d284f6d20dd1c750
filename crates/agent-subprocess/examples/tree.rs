//! A shell leaves a daemon behind; this program names the daemon and ends it.
//!
//! `cargo run -p agent-subprocess --example tree` ends by itself, immediately. If you search for `sleep 60` afterwards, you find no such process.
#![expect(clippy::print_stdout, reason = "this is what the example shows")]

use agent_subprocess::{StopPolicy, TreeCommand, guard};

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    // This program is its own guard, so this call comes first.
    guard::run_if_guard();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let script = "setsid sleep 60 >/dev/null 2>&1 </dev/null & sleep 0.1";
        let mut tree = TreeCommand::new("sh").args(["-c", script]).spawn().await?;
        println!("owned by: {:?}", tree.containment());
        let exit = tree.wait().await;
        for process in tree.leftovers().await {
            println!("left over: {process}");
        }
        println!("{exit}; {}", tree.stop(&StopPolicy::default()).await);
        Ok(())
    })
}

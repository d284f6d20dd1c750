//! `survivors-subject`: `rlm`, or `rlm` without its guard. `SURVIVORS_SUBJECT` selects the variant.
//!
//! *not set*: the unchanged `rlm`. `unguarded`: `rlm` in a process that can't have a guard. `killpg`: a loop around its first argument that SIGTERM
//! stops, and that then, like most programs, kills the agent's process group.

use std::process::ExitCode;

use agent_subprocess::{StopPolicy, TreeCommand};
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    match std::env::var("SURVIVORS_SUBJECT").as_deref() {
        Ok("unguarded") => {
            // A guard refuses to start from a process with a second thread.
            std::thread::spawn(|| {
                loop {
                    std::thread::park();
                }
            });
            rlm::main_impl()
        }
        Ok("killpg") => killpg(),
        _ => rlm::main_impl(),
    }
}

fn killpg() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the runtime can be built");
    runtime.block_on(async {
        let mut asked = signal(SignalKind::terminate()).expect("SIGTERM can be handled");
        let program = std::env::args_os().nth(1).expect("the agent's program");
        let command = TreeCommand::new(program).group_only();
        let mut agent = command.spawn().await.expect("the agent starts");
        asked.recv().await;
        drop(agent.stop(&StopPolicy::default()).await);
    });
    ExitCode::SUCCESS
}

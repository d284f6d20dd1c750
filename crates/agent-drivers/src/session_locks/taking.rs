//! Taking a session for an agent that is about to be started.

use super::{Lease, Refusal, SessionLocks};
use crate::duplex::no_descriptor;
use agent_duplex::Error;
use agent_subprocess::AgentCommand;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// How long to wait for a session that nobody writes any more, and how often to look.
const PASSING: Duration = Duration::from_secs(3);
const GLANCE: Duration = Duration::from_millis(50);

/// Takes the session, if sessions are locked, and has the agent's guard hold it. Waits a little for what a dead process's
/// agent left behind, and a glance for who only looks whether its file may be removed.
pub(crate) async fn held(
    command: AgentCommand,
    locks: Option<&SessionLocks>,
    id: &str,
) -> Result<(AgentCommand, Option<Lease>), Error> {
    let Some(locks) = locks else {
        return Ok((command, None));
    };
    let begun = Instant::now();
    loop {
        let refusal = match locks.take(id) {
            Ok(lease) => {
                let descriptor = lease.descriptor().map_err(no_descriptor)?;
                return Ok((command.hold(descriptor), Some(lease)));
            }
            Err(refusal) => refusal,
        };
        match refusal {
            Refusal::Held { passing, .. }
                if begun.elapsed() < if passing { PASSING } else { GLANCE } =>
            {
                let _due = timeout(GLANCE, std::future::pending::<()>()).await;
            }
            Refusal::Held { by, .. } => {
                return Err(Error::held(by.to_string(), Some(by.into())));
            }
            Refusal::Io(e) => {
                let what = format!("the session can't be locked: {e}");
                let mend = "correct the directory of its locks, or do without";
                return Err(Error::start(format!("{what}; {mend}"), Some(e.into())));
            }
        }
    }
}

//! How the tests of each driver wait for a change that an agent is asked for.

use agent_duplex::{Changing, Connection, Error};

/// Reads the agent until it is known what came of a change.
pub(crate) async fn made(
    connection: &mut dyn Connection,
    mut changing: Changing,
) -> Result<(), Error> {
    loop {
        tokio::select! {
            changed = &mut changing => return changed,
            seen = connection.next() => if seen.is_none() {
                return changing.await;
            },
        }
    }
}

//! The connection of a command to the server of a fleet.

use rlm_fleet::nats::Fleet;

use crate::args::FleetServerArgs;
use crate::session::Session;

/// Connects to the fleet of the command line. A shutdown of the session ends the waits of the connection.
pub(crate) async fn connect(
    server: &FleetServerArgs,
    session: &Session,
) -> Result<Fleet, rlm_fleet::nats::Error> {
    Fleet::connect(&server.servers, &server.namespace, session.gate()).await
}

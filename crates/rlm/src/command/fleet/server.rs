//! The connection of a command to the servers of a fleet.

use std::ops::AsyncFnOnce;

use rlm_fleet::nats::{Error, Fleet, FleetAddress};

use crate::args::FleetServerArgs;
use crate::session::Session;

/// Connects to the fleet of the command line, and waits for an operation on it. A shutdown of the session ends the waits of the connection.
pub(crate) fn on_fleet<T>(
    server: &FleetServerArgs,
    session: &Session,
    operation: impl AsyncFnOnce(&Fleet) -> Result<T, Error>,
) -> Result<T, Error> {
    session.block_on(async {
        let fleet = Fleet::connect(&address(server), session.gate()).await?;
        fleet.permitted(operation(&fleet)).await
    })
}

/// Returns the address of the fleet. The path in it is absolute, because the process of a run has another working directory.
pub(crate) fn address(server: &FleetServerArgs) -> FleetAddress {
    // Only an empty path has no absolute form, and that is no file.
    let absolute = |path| std::path::absolute(path).unwrap_or_default();
    FleetAddress {
        servers: server.servers.clone(),
        namespace: server.namespace.clone(),
        tls_ca: server.tls_ca.as_ref().map(absolute),
    }
}

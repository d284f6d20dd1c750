//! The options of one conversation that all drivers share.

use crate::api::ApiServer;
use crate::dialogue::Timeouts;
use crate::mcp::McpServers;
use crate::session_locks::SessionLocks;
use agent_duplex::{Driver, Error, Permissions};
use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

/// The options of one conversation that all drivers share. The agent's own options are separate.
///
/// `Debug` shows only the number of arguments, because they can be secret.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Choices {
    /// The permissions of the agent; see each driver.
    pub permissions: Permissions,
    /// The MCP servers that the agent gets.
    pub mcp_servers: McpServers,
    /// Locks sessions against other processes that use the same directory; `None` locks nothing. Codex locks its sessions itself and ignores this
    /// option.
    ///
    /// If another agent uses the session, `connect` fails with an error for which [`is_session_in_use`](agent_duplex::Error::is_session_in_use) is
    /// true, and whose source is a [`SessionInUse`](crate::SessionInUse).
    pub session_locks: Option<SessionLocks>,
    /// The model server of the agent of this project. Other agents ignore it.
    pub api_server: ApiServer,
    pub(crate) timeouts: Timeouts,
    pub(crate) model: Option<String>,
    pub(crate) args: Vec<OsString>,
}

impl Choices {
    /// Sets the time for the answer to the initialization request and to any other request; 60 s each by default. A late answer is ignored. A turn
    /// has no time limit, and neither has a permission request of the agent.
    #[must_use]
    pub fn request_timeouts(mut self, initialize: Duration, others: Duration) -> Self {
        self.timeouts = Timeouts {
            initialize,
            other_requests: others,
        };
        self
    }
}

/// A driver that can check its options before it starts the agent.
pub(crate) trait CheckedDriver: Driver {
    /// Returns an error for the first invalid option or argument; the error says what to write instead.
    fn check(&self) -> Result<(), Error>;
}

/// The methods for options that are the same for every agent. The documentation of two of the methods is different for each agent, so the caller of
/// the macro passes it.
macro_rules! shared_options {
    (
        $driver:ident, $options:ident;
        $(#[$permissions:meta])* permissions;
        $(#[$servers:meta])* mcp_servers;
        $($session_locks:ident;)?
    ) => {
        impl $crate::choices::CheckedDriver for $driver {
            fn check(&self) -> Result<(), agent_duplex::Error> {
                $driver::check(self)
            }
        }

        /// The driver checks these options when it opens a connection.
        impl $driver {
            /// Replaces the agent's own options.
            #[must_use]
            pub fn options(mut self, options: $options) -> Self {
                self.options = options;
                self
            }

            /// Replaces the options that all drivers share.
            #[must_use]
            pub(crate) fn choices(mut self, choices: $crate::choices::Choices) -> Self {
                self.choices = choices;
                self
            }

            $(#[$permissions])*
            #[must_use]
            pub fn permissions(mut self, permissions: agent_duplex::Permissions) -> Self {
                self.choices.permissions = permissions;
                self
            }

            $(#[$servers])*
            #[must_use]
            pub fn mcp_servers(mut self, servers: $crate::mcp::McpServers) -> Self {
                self.choices.mcp_servers = servers;
                self
            }

            $(
                /// Locks sessions against other processes that use the same directory: see [`Choices::session_locks`](crate::Choices::session_locks).
                #[must_use]
                pub fn $session_locks(mut self, locks: $crate::SessionLocks) -> Self {
                    self.choices.session_locks = Some(locks);
                    self
                }
            )?

            /// Sets the model; by default the agent's own settings choose it.
            #[must_use]
            pub fn model(mut self, model: impl Into<String>) -> Self {
                self.choices.model = Some(model.into());
                self
            }

            /// Adds arguments at the end. If the driver knows the agent's arguments, it refuses an argument that the driver sets itself, such as an
            /// argument for permissions.
            #[must_use]
            pub fn args(mut self, args: Vec<std::ffi::OsString>) -> Self {
                self.choices.args.extend(args);
                self
            }

            /// Sets the time for answers of the agent: see [`Choices::request_timeouts`](crate::Choices::request_timeouts).
            #[must_use]
            pub fn request_timeouts(
                mut self,
                initialize: std::time::Duration,
                others: std::time::Duration,
            ) -> Self {
                self.choices = self.choices.request_timeouts(initialize, others);
                self
            }
        }
    };
}
pub(crate) use shared_options;

impl fmt::Debug for Choices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Choices")
            .field("permissions", &self.permissions)
            .field("mcp_servers", &self.mcp_servers)
            .field("session_locks", &self.session_locks)
            .field("api_server", &self.api_server)
            .field("timeouts", &self.timeouts)
            .field("model", &self.model)
            .field("args", &self.args.len())
            .finish()
    }
}

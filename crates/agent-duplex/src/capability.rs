//! What agents differ in, said before one is started, so that nobody finds it out from an error.

use std::fmt;

/// Something that one agent can do and another can't.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Capability {
    /// A turn can be ended while its process goes on.
    Interrupt,
    /// An input is taken while a turn runs.
    Steer,
    /// A later process can go on with an earlier conversation.
    Resume,
    /// Tool calls are reported when they begin and when they end.
    Tools,
    /// Tokens or money are reported.
    Usage,
    /// The agent asks before it uses a tool.
    Permissions,
    /// A new conversation can begin as a copy of an earlier one.
    Fork,
    /// It can be handed MCP servers.
    Mcp,
    /// The model can be changed while it runs.
    Model,
}

impl Capability {
    const ALL: [Self; 9] = [
        Self::Interrupt,
        Self::Steer,
        Self::Resume,
        Self::Tools,
        Self::Usage,
        Self::Permissions,
        Self::Fork,
        Self::Mcp,
        Self::Model,
    ];

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interrupt => "interrupt",
            Self::Steer => "steer",
            Self::Resume => "resume",
            Self::Tools => "tools",
            Self::Usage => "usage",
            Self::Permissions => "permissions",
            Self::Fork => "fork",
            Self::Mcp => "mcp",
            Self::Model => "model",
        })
    }
}

/// The set of what an agent can do, declared by its driver before anything is started.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Capabilities(u16);

impl Capabilities {
    /// Returns the empty set: a one-shot program of which nothing is known.
    #[must_use]
    pub const fn none() -> Self {
        Self(0)
    }

    /// Returns this set with `capability` in it.
    #[must_use]
    pub const fn with(self, capability: Capability) -> Self {
        Self(self.0 | capability.bit())
    }

    /// Returns whether `capability` is in the set.
    #[must_use]
    pub const fn has(self, capability: Capability) -> bool {
        self.0 & capability.bit() != 0
    }

    /// Iterates over the set in a fixed order.
    pub fn iter(self) -> impl Iterator<Item = Capability> {
        Capability::ALL.into_iter().filter(move |c| self.has(*c))
    }
}

impl fmt::Debug for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

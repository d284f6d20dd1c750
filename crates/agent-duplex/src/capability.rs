//! The capabilities that not every agent has. A driver declares them before an agent starts, so that callers know them without a failed call.

use std::fmt;

/// A capability that some agents have and others don't.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Capability {
    /// A turn can be ended while the process of the agent continues.
    Interrupt,
    /// The agent accepts an input while a turn runs.
    Steer,
    /// A later process can continue an earlier conversation.
    Resume,
    /// Tool calls are reported when they begin and when they end.
    Tools,
    /// The agent reports its tokens or its cost.
    Usage,
    /// The agent asks before it uses a tool.
    Permissions,
    /// A new conversation can start as a copy of an earlier one.
    Fork,
    /// The agent can use MCP servers that the caller provides.
    Mcp,
    /// The model can be changed while the agent runs.
    Model,
    /// An input can have [images](crate::Part::Image).
    Images,
    /// An input can have [files](crate::Part::File).
    Files,
    /// The session is on disk before each effect. After a crash, a later process continues it without repeating an effect, and the caller can choose
    /// its [id](crate::SessionChoice::Create).
    DurableSession,
}

impl Capability {
    const ALL: [Self; 12] = [
        Self::Interrupt,
        Self::Steer,
        Self::Resume,
        Self::Tools,
        Self::Usage,
        Self::Permissions,
        Self::Fork,
        Self::Mcp,
        Self::Model,
        Self::Images,
        Self::Files,
        Self::DurableSession,
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
            Self::Images => "images",
            Self::Files => "files",
            Self::DurableSession => "durable session",
        })
    }
}

/// The capabilities of an agent, declared by its driver before anything starts.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Capabilities(u16);

impl Capabilities {
    /// Returns the empty set: for a one-shot program without known capabilities.
    #[must_use]
    pub const fn none() -> Self {
        Self(0)
    }

    /// Returns this set with `capability` in it.
    #[must_use]
    pub const fn with(self, capability: Capability) -> Self {
        Self(self.0 | capability.bit())
    }

    /// Returns this set without `capability`.
    #[must_use]
    pub const fn without(self, capability: Capability) -> Self {
        Self(self.0 & !capability.bit())
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

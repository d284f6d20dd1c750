//! The access of a tool call, which decides whether the user is asked for permission. It is a module of its own, because a call's context contains it too.

/// The access that a tool call needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only reads files in the working directory. This needs no permission.
    Reads,
    /// Changes files in the working directory.
    Edits,
    /// Can do anything else.
    Anything {
        /// The reason why this call is more than an edit, for people. It can be empty.
        reason: String,
    },
}

impl Access {
    /// Returns whether a call with this access may use a path that needs the `other` access. `Anything` without a
    /// reason is the access of a tool of the caller, which may use any path through one of these tools.
    pub(super) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Reads) => true,
            (Self::Anything { reason }, _) if reason.is_empty() => true,
            _ => self == other,
        }
    }
}

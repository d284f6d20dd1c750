//! The access of a tool call, which decides whether a person is asked. It is a module of its own, because a call's context contains it too.

/// The access that a tool call needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// It only reads files in the working directory. No person is asked.
    Reads,
    /// It changes files in the working directory.
    Edits,
    /// It can do anything else.
    Anything {
        /// The reason, for people: why this call is more than an edit. It can be empty.
        reason: String,
    },
}

impl Access {
    /// Returns whether a call with this access may use a path that needs the `other` access. An access to anything, without a reason, names no path: it
    /// is the access of a tool of the caller, which can use one of ours.
    pub(super) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Reads) => true,
            (Self::Anything { reason }, _) if reason.is_empty() => true,
            _ => self == other,
        }
    }
}

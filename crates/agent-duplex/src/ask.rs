//! What an agent may do: without being asked for it, after a question, and what the answers are.

/// A question of the agent's: may it use this tool?
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Ask {
    /// The question's id.
    pub id: String,
    /// The tool's name.
    pub tool: String,
    /// What it would do, on one line. Comes from the model; it may hold anything.
    pub summary: String,
    /// Why the agent asks, in its own words; may be empty.
    pub reason: String,
}

/// The answer to an [`Ask`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// This once.
    Allow,
    /// Not this once; the turn goes on.
    Deny {
        /// What the agent is told.
        message: String,
    },
}

/// What an agent may do without being told each time.
///
/// What it asks for all the same waits for its [answer](crate::Connection::answer), except with [`All`](Self::All); the driver denies nothing by
/// itself that it can ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Permissions {
    /// It asks for what its own settings don't allow.
    Ask,
    /// It may edit files in its working directory; it asks for anything else that its own settings don't allow.
    #[default]
    Edits,
    /// Everything.
    All,
    /// Nothing that its own settings don't allow. What it asks is to be denied.
    Deny,
}

impl Permissions {
    /// Returns whether the agent may do more by these than by the `other` ones. [`Ask`](Self::Ask) is narrower than [`Edits`](Self::Edits), because a
    /// person sees each edit first, and wider than [`Deny`](Self::Deny).
    #[must_use]
    pub fn are_wider_than(self, other: Self) -> bool {
        let width = |permissions| match permissions {
            Self::Deny => 0,
            Self::Ask => 1,
            Self::Edits => 2,
            Self::All => 3,
        };
        width(self) > width(other)
    }
}

#[cfg(test)]
mod tests {
    use super::Permissions::{All, Ask, Deny, Edits};

    #[test]
    fn each_permission_is_wider_than_the_ones_before_it() {
        let narrow_to_wide = [Deny, Ask, Edits, All];
        for (at, one) in narrow_to_wide.iter().enumerate() {
            for (other_at, other) in narrow_to_wide.iter().enumerate() {
                assert_eq!(
                    one.are_wider_than(*other),
                    at > other_at,
                    "{one:?}, {other:?}"
                );
            }
        }
    }
}

//! The permissions of an agent, its permission requests, and the answers to them.

/// A permission request: the agent asks whether it may use a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PermissionRequest {
    /// The id of the request.
    pub id: String,
    /// The tool's name.
    pub tool: String,
    /// The action of the tool, on one line. The text comes from the model and can contain anything.
    pub summary: String,
    /// The reason of the request, in the agent's own words; can be empty.
    pub reason: String,
}

/// The answer to a [`PermissionRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// Allow the tool once.
    Allow,
    /// Deny the tool once; the turn continues.
    Deny {
        /// The message for the agent.
        message: String,
    },
}

/// The actions that an agent may take without a permission request.
///
/// Each permission request waits for its [answer](crate::Connection::answer), except with [`All`](Self::All). A driver denies nothing by itself if
/// the agent can ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Permissions {
    /// The agent asks for everything that its own settings don't allow.
    Ask,
    /// The agent may edit files in its working directory. It asks for everything else that its own settings don't allow.
    #[default]
    Edits,
    /// Everything.
    All,
    /// Only what its own settings allow. The caller denies all permission requests.
    Deny,
}

impl Permissions {
    /// Returns whether these permissions allow more than `other`. [`Ask`](Self::Ask) allows less than [`Edits`](Self::Edits), because a person sees
    /// each edit first, and more than [`Deny`](Self::Deny).
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
    fn each_permission_mode_includes_the_previous_one() {
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

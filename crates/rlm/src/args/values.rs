//! Words that options and `rlm.toml` share.

use loop_state::SessionPolicy;
use rlm_store::{Leftovers, Permissions};

/// The values of `--leftovers`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LeftoversArg {
    End,
    Keep,
}

/// The values of `--permissions`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PermissionsArg {
    Ask,
    Edits,
    All,
    Deny,
}

impl From<PermissionsArg> for Permissions {
    fn from(arg: PermissionsArg) -> Self {
        match arg {
            PermissionsArg::Ask => Self::Ask,
            PermissionsArg::Edits => Self::Edits,
            PermissionsArg::All => Self::All,
            PermissionsArg::Deny => Self::Deny,
        }
    }
}

/// The values of `--session`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SessionArg {
    Fresh,
    Continue,
}

impl From<SessionArg> for SessionPolicy {
    fn from(arg: SessionArg) -> Self {
        match arg {
            SessionArg::Fresh => Self::Fresh,
            SessionArg::Continue => Self::Continue,
        }
    }
}

impl From<LeftoversArg> for Leftovers {
    fn from(arg: LeftoversArg) -> Self {
        match arg {
            LeftoversArg::End => Self::End,
            LeftoversArg::Keep => Self::Keep,
        }
    }
}

//! The model server of the agent, as a user chooses it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::section::{OptionKey, OptionKind};

/// The variables with the keys of the known services.
pub(super) const KEY_VARIABLES: [&str; 2] = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY"];

/// The API of a model server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApiDialect {
    /// Anthropic's Messages API.
    Messages,
    /// OpenAI's Responses API.
    Responses,
    /// OpenAI's chat completions, which most other servers have too.
    Chat,
}

/// The model server of the agent, as a user chooses it. Neither a project nor a saved run can: they could send a key elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ApiServer {
    /// The API of the server. `None` means chat completions at a `base_url`, and otherwise the service whose key is in the environment.
    pub dialect: Option<ApiDialect>,
    /// The address below which the API is; `None` is the address of Anthropic or OpenAI.
    pub base_url: Option<String>,
    /// The name of the variable that holds the key. Without it, a server with a `base_url` gets no key.
    pub key_env: Option<String>,
    /// The prices in dollars for a million tokens: `input`, `output`, and `cached-input` and `cache-write` if they differ from `input`.
    pub prices: BTreeMap<String, String>,
}

impl ApiServer {
    /// The keys of the server in its section of a user's own file.
    pub const KEYS: &'static [OptionKey] = &[
        OptionKey::new(
            "dialect",
            OptionKind::Text,
            "The API of the server: messages (Anthropic), responses (OpenAI) or chat (chat completions, also of local servers).",
        ),
        OptionKey::new(
            "base-url",
            OptionKind::Text,
            "The address below which the API is, such as http://localhost:11434/v1.",
        ),
        OptionKey::new(
            "key-env",
            OptionKind::Text,
            "The name of the variable that holds the key of the server.",
        ),
        OptionKey::new(
            "prices",
            OptionKind::Named,
            "Dollars for a million tokens: input, output, cached-input, cache-write.",
        ),
    ];
}

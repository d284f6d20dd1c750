//! Settings for the three dialects.

use agent_api::{Dialect, RequestSettings, ToolDefinition};

use crate::support::object;

pub(crate) const DIALECTS: [Dialect; 3] = [Dialect::Messages, Dialect::Responses, Dialect::Chat];

pub(crate) fn settings() -> RequestSettings {
    let tool = |name: &str, description: &str, schema: &str| ToolDefinition {
        name: name.into(),
        description: description.into(),
        schema: object(schema),
    };
    RequestSettings {
        system: "You are a careful engineer.".into(),
        tools: vec![
            tool(
                "bash",
                "Runs a command.",
                r#"{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}"#,
            ),
            tool(
                "read",
                "Reads a file.",
                r#"{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}"#,
            ),
        ],
        max_output_tokens: Some(8_192),
        cache_key: Some("session-1".into()),
        ..RequestSettings::new("a-model")
    }
}

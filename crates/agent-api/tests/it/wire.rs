//! Settings and recordings of the three dialects.

use agent_api::{
    Decoder, Delta, Dialect, Error, ModelResponse, RequestSettings, ResponseLimits, ToolDefinition,
};

use crate::support::object;

pub(crate) const DIALECTS: [Dialect; 3] = [Dialect::Messages, Dialect::Responses, Dialect::Chat];
pub(crate) const TOOLS: [&str; 2] = ["bash", "read"];

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

/// Returns a whole stream of a dialect.
pub(crate) fn recording(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Messages => include_str!("../golden/messages.sse"),
        Dialect::Responses => include_str!("../golden/responses.sse"),
        _ => include_str!("../golden/chat.sse"),
    }
}

pub(crate) fn decoder(dialect: Dialect) -> Decoder {
    Decoder::new(dialect, TOOLS, ResponseLimits::default())
}

/// Decodes a stream that arrives in these chunks, and returns its deltas too.
pub(crate) fn decode<'a>(
    dialect: Dialect,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> (Result<ModelResponse, Error>, Vec<Delta>) {
    let (mut decoder, mut deltas) = (decoder(dialect), Vec::new());
    for chunk in chunks {
        if decoder.push(chunk, &mut deltas).is_err() {
            break;
        }
    }
    (decoder.finish(), deltas)
}

/// Splits bytes at positions that depend on `cuts`.
pub(crate) fn split<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let (mut chunks, mut rest) = (Vec::new(), bytes);
    for cut in cuts {
        let (chunk, later) = rest.split_at(cut % (rest.len() + 1));
        chunks.push(chunk);
        rest = later;
    }
    chunks.push(rest);
    chunks
}

//! The tools that a server lists, as the model sees them: names that each model API accepts, and schemas that are objects.

use std::collections::HashSet;

use ring::digest::{SHA256, digest};
use rmcp::model::{PaginatedRequestParams, Tool};
use rmcp::{Peer, RoleClient, ServiceError};
use serde_json::{Map, Value};

use crate::dialect::ToolDefinition;
use crate::json::JsonObject;
use crate::text::{one_line, start};

/// The most tools of one server.
const MAX_TOOLS: usize = 128;
/// The most pages of the list of tools.
const MAX_PAGES: usize = 64;
/// The most bytes of the names, descriptions and schemas of one server.
const MAX_BYTES: usize = 256 << 10;
/// The longest description of a tool, in bytes.
const MAX_DESCRIPTION: usize = 8 << 10;
/// The longest name of a tool in a request: the limit of the model APIs.
const MAX_NAME: usize = 64;
/// The digits at the end of a changed name.
const DIGITS: usize = 8;
/// The keys that a model API refuses at the root of a schema.
const REFUSED_AT_ROOT: [&str; 5] = ["anyOf", "oneOf", "allOf", "not", "enum"];
/// The longest name of a tool in a message, in characters.
const MAX_SHOWN: usize = 64;

/// The tools of a server as it lists them.
#[derive(Debug)]
pub(super) struct Listed {
    tools: Vec<Tool>,
    /// Whether there are more.
    is_cut: bool,
}

/// A tool, and the name that its server knows.
#[derive(Debug)]
pub(super) struct NamedTool {
    pub(super) definition: ToolDefinition,
    pub(super) name: String,
}

/// Asks a server for its tools, page by page.
pub(super) async fn list(peer: &Peer<RoleClient>) -> Result<Listed, ServiceError> {
    let mut tools = Vec::new();
    let mut cursor = None;
    for _ in 0..MAX_PAGES {
        let page = PaginatedRequestParams::default().with_cursor(cursor);
        let page = peer.list_tools(Some(page)).await?;
        tools.extend(page.tools);
        cursor = page.next_cursor;
        if cursor.is_none() || tools.len() > MAX_TOOLS {
            break;
        }
    }
    let is_cut = cursor.is_some() || tools.len() > MAX_TOOLS;
    tools.truncate(MAX_TOOLS);
    Ok(Listed { tools, is_cut })
}

/// Returns the definitions of the tools in their order, and why some are left out.
pub(super) fn of_tools(server: &str, listed: Listed) -> (Vec<NamedTool>, Vec<String>) {
    let (mut named, mut problems) = (Vec::new(), Vec::new());
    let mut names = HashSet::new();
    let mut bytes = 0;
    let mut is_cut = listed.is_cut;
    for tool in listed.tools {
        let shown = one_line(&tool.name, MAX_SHOWN);
        let Some(schema) = schema_of(&tool) else {
            problems.push(format!(
                "the tool `{shown}` of the MCP server `{server}` is left out: the model APIs don't accept the schema of its arguments"
            ));
            continue;
        };
        let name = name_of(server, &tool.name);
        if !names.insert(name.clone()) {
            problems.push(format!(
                "the MCP server `{server}` lists the tool `{shown}` twice; the first one is used"
            ));
            continue;
        }
        let description = tool.description.as_deref().unwrap_or_default();
        let description = start(description, MAX_DESCRIPTION).to_owned();
        bytes += name.len() + description.len() + schema.as_str().len();
        if bytes > MAX_BYTES {
            is_cut = true;
            break;
        }
        named.push(NamedTool {
            definition: ToolDefinition {
                name,
                description,
                schema,
            },
            name: tool.name.into_owned(),
        });
    }
    if is_cut {
        problems.push(format!(
            "the MCP server `{server}` lists more than {MAX_TOOLS} tools or {} KiB; only its first {} tools are used",
            MAX_BYTES >> 10,
            named.len()
        ));
    }
    (named, problems)
}

/// Returns the name of a tool for the model. If the model APIs don't accept it, it is changed, and ends with digits of a digest, so that two tools
/// don't get the same name.
fn name_of(server: &str, tool: &str) -> String {
    let is_good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let name = format!("mcp__{server}__{tool}");
    if name.len() <= MAX_NAME && name.chars().all(is_good) {
        return name;
    }
    let replaced = name.chars().map(|c| if is_good(c) { c } else { '_' });
    let mut changed: String = replaced.take(MAX_NAME - DIGITS - 1).collect();
    changed.push('_');
    let digest = digest(&SHA256, name.as_bytes());
    for byte in &digest.as_ref()[..DIGITS / 2] {
        changed.push_str(&format!("{byte:02x}"));
    }
    changed
}

/// Returns the schema of the arguments, with the type and the properties that some model APIs need. One schema that an API doesn't accept would fail
/// every request.
fn schema_of(tool: &Tool) -> Option<JsonObject> {
    let mut schema = tool.input_schema.as_ref().clone();
    let kind = schema.entry("type").or_insert_with(|| "object".into());
    if kind != "object" || REFUSED_AT_ROOT.iter().any(|key| schema.contains_key(*key)) {
        return None;
    }
    let properties = schema.entry("properties");
    if !properties
        .or_insert_with(|| Value::Object(Map::new()))
        .is_object()
    {
        return None;
    }
    JsonObject::parse(&Value::Object(schema).to_string()).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn tool(name: &str, schema: &Value) -> Tool {
        Tool::new(
            name.to_owned(),
            "does it",
            Arc::new(schema.as_object().unwrap().clone()),
        )
    }

    fn listed(tools: Vec<Tool>) -> Listed {
        Listed {
            tools,
            is_cut: false,
        }
    }

    #[test]
    fn a15_names_fit_the_limits_of_the_model_apis_and_stay_distinct() {
        assert_eq!(name_of("docs", "find-page"), "mcp__docs__find-page");
        let long = "x".repeat(64);
        let names = [
            name_of("docs", "a.b"),
            name_of("docs", "a b"),
            name_of("docs", "a_b"),
            name_of("docs", "é"),
            name_of(&long, "a"),
            name_of(&long, "b"),
            name_of("docs", &long),
        ];
        let is_good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        for (at, name) in names.iter().enumerate() {
            assert!(name.len() <= 64 && name.chars().all(is_good), "{name}");
            assert!(!names[..at].contains(name), "{name}");
        }
        assert_eq!(name_of(&long, "a"), names[4], "the same in each session");
    }

    #[test]
    fn a15_schemas_get_the_type_and_properties_that_model_apis_need() {
        let tools = vec![
            tool("bare", &json!({})),
            tool("text", &json!({"type": "string"})),
            tool("bare", &json!({"type": "object"})),
            tool(
                "either",
                &json!({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            ),
            tool("null", &json!({"properties": null})),
            tool(
                "full",
                &json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}),
            ),
        ];
        let (named, problems) = of_tools("docs", listed(tools));
        let schemas: Vec<_> = { named.iter() }
            .map(|tool| (tool.name.as_str(), tool.definition.schema.as_str()))
            .collect();
        let full = r#"{"properties":{"a":{"type":"string"}},"required":["a"],"type":"object"}"#;
        let bare = r#"{"properties":{},"type":"object"}"#;
        assert_eq!(schemas, [("bare", bare), ("full", full)]);
        assert_eq!(problems.len(), 4, "{problems:?}");
        for (at, name) in [(0, "text"), (2, "either"), (3, "null")] {
            let why = format!("the tool `{name}` of the MCP server `docs` is left out");
            assert!(problems[at].starts_with(&why), "{problems:?}");
        }
        assert!(problems[1].contains("lists the tool `bare` twice"));
    }

    #[test]
    fn a15_tools_of_a_server_are_bounded() {
        let many = (0..200).map(|n| tool(&n.to_string(), &json!({})));
        let cut = Listed {
            tools: many.take(MAX_TOOLS).collect(),
            is_cut: true,
        };
        let (named, problems) = of_tools("docs", cut);
        assert_eq!(
            (named.len(), problems.len()),
            (MAX_TOOLS, 1),
            "{problems:?}"
        );

        let huge = json!({"type": "object", "description": "x".repeat(100 << 10)});
        let tools = (0..5).map(|n| tool(&n.to_string(), &huge)).collect();
        let (named, problems) = of_tools("docs", listed(tools));
        assert_eq!((named.len(), problems.len()), (2, 1), "{problems:?}");

        let mut chatty = tool("chatty", &json!({}));
        chatty.description = Some("é".repeat(10_000).into());
        let (named, problems) = of_tools("docs", listed(vec![chatty]));
        assert_eq!(named[0].definition.description.len(), MAX_DESCRIPTION);
        assert!(problems.is_empty(), "{problems:?}");
    }
}

//! The tools that a server lists, as the model sees them: names that each model API accepts, schemas that are objects, and always the same order.

use std::collections::BTreeMap;

use ring::digest::{SHA256, digest};
use rmcp::model::{PaginatedRequestParams, Tool};
use rmcp::{Peer, RoleClient, ServiceError};
use serde_json::{Map, Value};

use super::budget::ToolBudget;
use crate::dialect::ToolDefinition;
use crate::json::JsonObject;
use crate::text::{one_line, start};

/// The maximum number of pages of the list of tools.
const MAX_PAGES: usize = 64;
/// The longest description of a tool, in bytes.
const MAX_DESCRIPTION: usize = 8 << 10;
/// The longest name of a tool in a request: the limit of the model APIs.
const MAX_NAME: usize = 64;
/// The longest name of a tool as its server knows it, in bytes.
const MAX_OWN_NAME: usize = 1 << 10;
/// The digits at the end of a changed name.
const DIGITS: usize = 8;
/// The keys that a model API refuses at the root of a schema.
const REFUSED_AT_ROOT: [&str; 5] = ["anyOf", "oneOf", "allOf", "not", "enum"];
/// The longest name of a tool in a message, in characters.
const MAX_SHOWN: usize = 64;
/// The maximum number of tools of a server that messages name because they can't be used.
const MAX_PROBLEMS: u64 = 8;

/// The tools of a server that the model can get, by name: the first ones that fit into [`ToolBudget::WHOLE`]. So neither the order of a server's list
/// nor its length matters.
#[derive(Debug)]
pub(super) struct Listed {
    server: String,
    /// By the name in a request.
    tools: BTreeMap<String, NamedTool>,
    /// The bytes of these tools.
    bytes: usize,
    /// The first name that did not fit. No tool after it is used.
    cut_at: Option<String>,
    /// The tools of the server so far that the model could get.
    count: u64,
    /// Whether the server has more pages.
    has_more: bool,
    /// Why tools are omitted, for people.
    problems: Vec<String>,
    /// The tools that are omitted.
    omitted: u64,
}

/// A tool, and the name that its server knows.
#[derive(Debug)]
pub(super) struct NamedTool {
    pub(super) definition: ToolDefinition,
    pub(super) name: String,
}

/// The tools of a server that the model gets, in the order of their names.
#[derive(Debug)]
pub(super) struct Offered {
    pub(super) tools: Vec<NamedTool>,
    /// Why some are omitted, for people.
    pub(super) problems: Vec<String>,
}

/// Asks a server for its tools, page by page.
pub(super) async fn list(server: &str, peer: &Peer<RoleClient>) -> Result<Listed, ServiceError> {
    let mut listed = Listed::new(server);
    let mut cursor = None;
    for _ in 0..MAX_PAGES {
        let page = PaginatedRequestParams::default().with_cursor(cursor);
        let page = peer.list_tools(Some(page)).await?;
        page.tools.into_iter().for_each(|tool| listed.push(tool));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    listed.has_more = cursor.is_some();
    Ok(listed)
}

impl Listed {
    fn new(server: &str) -> Self {
        Self {
            server: server.to_owned(),
            tools: BTreeMap::new(),
            bytes: 0,
            cut_at: None,
            count: 0,
            has_more: false,
            problems: Vec::new(),
            omitted: 0,
        }
    }

    /// Adds a tool. Of the tools in memory, the last ones by name are discarded if they don't fit.
    fn push(&mut self, tool: Tool) {
        let named = match named(&self.server, tool) {
            Ok(named) => named,
            Err(why) => return self.omit(&why),
        };
        let name = named.definition.name.clone();
        if self.tools.contains_key(&name) {
            let shown = one_line(&named.name, MAX_SHOWN);
            let server = &self.server;
            return self.omit(&format!(
                "the MCP server `{server}` lists the tool `{shown}` twice; the first one is used"
            ));
        }
        self.count += 1;
        if self.cut_at.as_ref().is_some_and(|cut| name >= *cut) {
            return;
        }
        self.bytes += named.definition.bytes();
        self.tools.insert(name, named);
        let whole = ToolBudget::WHOLE;
        while self.tools.len() > whole.tools || self.bytes > whole.bytes {
            let Some((name, last)) = self.tools.pop_last() else {
                return;
            };
            self.bytes -= last.definition.bytes();
            self.cut_at = Some(name);
        }
    }

    fn omit(&mut self, why: &str) {
        self.omitted += 1;
        if self.omitted <= MAX_PROBLEMS {
            self.problems.push(why.to_owned());
        }
    }

    /// Takes from the budget what the tools need, and omits those that don't fit.
    pub(super) fn within(self, budget: &mut ToolBudget) -> Offered {
        let mut problems = self.problems;
        if let Some(more @ 1..) = self.omitted.checked_sub(MAX_PROBLEMS) {
            problems.push(format!(
                "{more} more tools of the MCP server `{}` are omitted in the same way",
                self.server
            ));
        }
        let mut tools = Vec::new();
        for tool in self.tools.into_values() {
            if !budget.take(&tool.definition) {
                break;
            }
            tools.push(tool);
        }
        if self.has_more || self.count > tools.len() as u64 {
            let (server, used, whole) = (self.server, tools.len(), ToolBudget::WHOLE);
            let least = if self.has_more { "more than " } else { "" };
            problems.push(format!(
                "the MCP server `{server}` lists {least}{} tools, and only {used} of them fit: all tools of the agent together are limited to {} tools, {} KiB of \
                 descriptions and half of the context window; remove MCP servers, or let this one list fewer tools",
                self.count,
                whole.tools,
                whole.bytes >> 10
            ));
        }
        Offered { tools, problems }
    }
}

/// Returns the definition of a tool, or why the model can't get it.
fn named(server: &str, tool: Tool) -> Result<NamedTool, String> {
    let omitted = |why: &str| {
        let shown = one_line(&tool.name, MAX_SHOWN);
        Err(format!(
            "the tool `{shown}` of the MCP server `{server}` is omitted: {why}"
        ))
    };
    if tool.name.len() > MAX_OWN_NAME {
        return omitted("its name is too long");
    }
    let Some(schema) = schema_of(&tool) else {
        return omitted("the model APIs don't accept the schema of its arguments");
    };
    let description = tool.description.as_deref().unwrap_or_default();
    let definition = ToolDefinition {
        name: name_of(server, &tool.name),
        description: start(description, MAX_DESCRIPTION).to_owned(),
        schema,
    };
    if definition.bytes() > ToolBudget::WHOLE.bytes {
        return omitted("the schema of its arguments is too long");
    }
    Ok(NamedTool {
        definition,
        name: tool.name.into_owned(),
    })
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

    fn listed(tools: impl IntoIterator<Item = Tool>) -> Listed {
        let mut listed = Listed::new("docs");
        tools.into_iter().for_each(|tool| listed.push(tool));
        listed
    }

    fn offered(tools: impl IntoIterator<Item = Tool>) -> Offered {
        listed(tools).within(&mut ToolBudget::WHOLE.clone())
    }

    fn names(offered: &Offered) -> Vec<&str> {
        { offered.tools.iter() }.map(|tool| &*tool.name).collect()
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
        let Offered {
            tools: named,
            problems,
        } = offered(tools);
        let schemas: Vec<_> = { named.iter() }
            .map(|tool| (tool.name.as_str(), tool.definition.schema.as_str()))
            .collect();
        let full = r#"{"properties":{"a":{"type":"string"}},"required":["a"],"type":"object"}"#;
        let bare = r#"{"properties":{},"type":"object"}"#;
        assert_eq!(schemas, [("bare", bare), ("full", full)]);
        assert_eq!(problems.len(), 4, "{problems:?}");
        for (at, name) in [(0, "text"), (2, "either"), (3, "null")] {
            let why = format!("the tool `{name}` of the MCP server `docs` is omitted");
            assert!(problems[at].starts_with(&why), "{problems:?}");
        }
        assert!(problems[1].contains("lists the tool `bare` twice"));
    }

    #[test]
    fn a15_tools_are_in_the_order_of_their_names() {
        let tools = ["b", "c", "a"].map(|name| tool(name, &json!({})));
        let mut reversed = tools.clone();
        reversed.reverse();
        assert_eq!(names(&offered(tools)), ["a", "b", "c"]);
        assert_eq!(names(&offered(reversed)), ["a", "b", "c"]);
    }

    #[test]
    fn a15_tools_of_a_server_are_bounded_in_any_order_of_its_list() {
        let many: Vec<_> = (100..300)
            .map(|n| tool(&n.to_string(), &json!({})))
            .collect();
        let expected: Vec<_> = (100..228).map(|n| n.to_string()).collect();
        let mut shuffled = many.clone();
        shuffled.reverse();
        shuffled.rotate_left(70);
        for many in [many, shuffled] {
            let offered = offered(many);
            assert_eq!(names(&offered), expected);
            let why = "the MCP server `docs` lists 200 tools, and only 128 of them fit: all tools of the agent together are limited to 128 tools, 256 KiB";
            assert_eq!(offered.problems.len(), 1, "{offered:?}");
            assert!(offered.problems[0].starts_with(why), "{offered:?}");
        }

        // `d` and `e` would fit again after `c`, but then the order of the list would matter.
        let sizes = [
            ("a", 100),
            ("b", 100),
            ("c", 100),
            ("d", 10),
            ("e", 1),
            ("f", 300),
        ];
        let tools = sizes.map(|(name, size)| {
            tool(
                name,
                &json!({"type": "object", "description": "x".repeat(size << 10)}),
            )
        });
        for first in 0..tools.len() {
            let mut tools = tools.clone();
            tools.rotate_left(first);
            for _ in 0..2 {
                tools.reverse();
                let listed = listed(tools.clone());
                assert!(listed.bytes <= ToolBudget::WHOLE.bytes);
                let offered = listed.within(&mut ToolBudget::WHOLE.clone());
                assert_eq!(names(&offered), ["a", "b"]);
                assert_eq!(offered.problems.len(), 2, "{offered:?}");
                assert!(offered.problems[0].contains("`f`"), "{offered:?}");
                assert!(offered.problems[1].contains("lists 5 tools, and only 2"));
            }
        }

        let mut chatty = tool("chatty", &json!({}));
        chatty.description = Some("é".repeat(10_000).into());
        let offered = offered([chatty]);
        assert_eq!(
            offered.tools[0].definition.description.len(),
            MAX_DESCRIPTION
        );
        assert!(offered.problems.is_empty(), "{offered:?}");
    }

    #[test]
    fn a15_servers_share_one_budget_with_the_other_tools() {
        let mut budget = ToolBudget {
            tools: 5,
            bytes: 1 << 10,
        };
        let three = || ["a", "b", "c"].map(|name| tool(name, &json!({})));
        let first = listed(three()).within(&mut budget);
        let second = listed(three()).within(&mut budget);
        assert_eq!((first.tools.len(), second.tools.len()), (3, 2));
        assert!(first.problems.is_empty(), "{first:?}");
        let why = "the MCP server `docs` lists 3 tools, and only 2 of them fit";
        assert!(second.problems[0].starts_with(why), "{second:?}");
    }

    #[test]
    fn a15_messages_about_tools_that_can_not_be_used_are_bounded() {
        let long = "x".repeat(MAX_OWN_NAME + 1);
        let bad = (0..100).map(|n| tool(&format!("{long}{n}"), &json!({})));
        let offered = offered(bad);
        assert_eq!(offered.tools.len(), 0);
        assert_eq!(offered.problems.len() as u64, MAX_PROBLEMS + 1);
        assert!(offered.problems.iter().all(|problem| problem.len() < 300));
        assert!(offered.problems[8].starts_with("92 more tools of the MCP server `docs`"));
    }
}

//! The tools of an agent, by name.

use std::sync::Arc;

use super::options::AgentOptions;
use super::prompt;
use crate::compaction::CompactionSettings;
use crate::dialect::{RequestSettings, ToolDefinition};
use crate::error::{Error, ErrorKind};
use crate::history::{Arguments, CallProblem, ToolCall};
use crate::json::JsonObject;
use crate::text;
#[cfg(feature = "mcp")]
use crate::tool::ServerTool;
use crate::tool::{Tool, ToolOutput};

/// The longest name of a tool in a message, in characters.
const MAX_NAME: usize = 64;

/// The longest list of the names of all tools in a message, in characters.
const MAX_NAMES: usize = 4_096;

/// The tools of an agent, and the parts of a request that don't change.
#[derive(Clone, Debug)]
pub(super) struct Toolbox {
    tools: Vec<Arc<dyn Tool>>,
    /// The MCP servers of the last tools.
    #[cfg(feature = "mcp")]
    servers: Vec<String>,
    pub(super) settings: RequestSettings,
    /// The tokens of the system prompt and the tools, about.
    pub(super) overhead: u64,
}

impl Toolbox {
    pub(super) fn new(options: &AgentOptions) -> Result<Self, Error> {
        let mut settings = options.request.clone();
        if settings.system.is_empty() {
            settings.system = prompt::system_prompt(&options.directory, &options.instructions);
        } else if !options.instructions.is_empty() {
            settings.system = format!("{}\n\n{}", settings.system, options.instructions);
        }
        settings.tools = options.tools.iter().map(|tool| tool.definition()).collect();
        for (at, tool) in settings.tools.iter().enumerate() {
            if settings.tools[..at]
                .iter()
                .any(|other| other.name == tool.name)
            {
                let message = format!("two tools have the name `{}`; rename one", tool.name);
                return Err(Error::new(ErrorKind::Settings, message));
            }
        }
        let overhead = overhead(&settings);
        let compaction = CompactionSettings {
            overhead,
            ..CompactionSettings::for_window(options.context_window)
        };
        if overhead >= compaction.limit() {
            return Err(Error::new(ErrorKind::Settings, no_room(&compaction)));
        }
        Ok(Self {
            tools: options.tools.clone(),
            #[cfg(feature = "mcp")]
            servers: Vec::new(),
            settings,
            overhead,
        })
    }

    /// Adds tools of MCP servers after the others. Returns a text about each tool whose name another one has; it is omitted.
    #[cfg(feature = "mcp")]
    pub(super) fn add(&mut self, tools: Vec<ServerTool>) -> Vec<String> {
        let mut omitted = Vec::new();
        for ServerTool { tool, server } in tools {
            let definition = tool.definition();
            if self.get(&definition.name).is_some() {
                omitted.push(format!(
                    "a second tool with the name `{}` is omitted; rename its MCP server",
                    definition.name
                ));
                continue;
            }
            self.settings.tools.push(definition);
            self.tools.push(tool);
            self.servers.push(server);
        }
        self.overhead = overhead(&self.settings);
        omitted
    }

    /// Adds the server to an error of the model API about one of its tools.
    #[cfg(feature = "mcp")]
    pub(super) fn explained(&self, error: Error) -> Error {
        let own = self.tools.len() - self.servers.len();
        let names: Vec<_> = self.names().skip(own).collect();
        let tool = match error.kind() {
            ErrorKind::BadRequest => named_tool(&error.to_string(), own, &names),
            _ => None,
        };
        let Some(tool) = tool else {
            return error;
        };
        let (name, server) = (names[tool], &self.servers[tool]);
        let message = format!(
            "{error}; `{name}` is a tool of the MCP server `{server}`, so remove that server if its tools can't be corrected"
        );
        Error::new(error.kind(), message)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.settings.tools.iter().map(|tool| tool.name.as_str())
    }

    /// Returns whether the tool of this name only reads.
    pub(super) fn only_reads(&self, name: &str) -> bool {
        self.get(name).is_some_and(|tool| tool.only_reads())
    }

    fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        let at = self.names().position(|other| other == name)?;
        Some(&self.tools[at])
    }

    /// Returns the tool of a call and its arguments, or the result of a call that can't run.
    pub(super) fn find<'a>(
        &'a self,
        call: &'a ToolCall,
    ) -> Result<(&'a Arc<dyn Tool>, &'a JsonObject), ToolOutput> {
        match (&call.arguments, self.get(&call.name)) {
            (Arguments::Object(arguments), Some(tool)) => Ok((tool, arguments)),
            _ => Err(not_callable(call, &self.names().collect::<Vec<_>>())),
        }
    }
}

/// Returns the index of the tool that a text of a model API names: by its name, or by its position in the request, as in `tools.3.input_schema` and
/// `tools[3].function`. `before` tools come before these.
#[cfg(feature = "mcp")]
fn named_tool(text: &str, before: usize, names: &[&str]) -> Option<usize> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let by_name = |name: &&str| text.split(|c| !is_part(c)).any(|word| word == *name);
    let by_position = |after_tools: &str| {
        let number = after_tools.strip_prefix(['.', '['])?;
        let end = number.find(|c: char| !c.is_ascii_digit());
        let position: usize = number[..end.unwrap_or(number.len())].parse().ok()?;
        let index = position.checked_sub(before)?;
        (index < names.len()).then_some(index)
    };
    { names.iter().position(by_name) }.or_else(|| text.split("tools").skip(1).find_map(by_position))
}

/// Returns the message that no conversation fits beside the system prompt and the tools.
pub(super) fn no_room(settings: &CompactionSettings) -> String {
    format!(
        "the system prompt and the tools alone take about {} of the {} tokens of the context window; shorten the instructions, use fewer tools, or set the \
         context window of the model if it is larger",
        settings.overhead, settings.window
    )
}

/// Returns the tokens of the system prompt and the tools, about.
fn overhead(settings: &RequestSettings) -> u64 {
    let tools: usize = settings.tools.iter().map(ToolDefinition::bytes).sum();
    let bytes = settings.system.len() + tools;
    (bytes as u64).div_ceil(4)
}

/// Returns the result of a call that can't run.
fn not_callable(call: &ToolCall, names: &[&str]) -> ToolOutput {
    match &call.arguments {
        Arguments::Invalid {
            problem: CallProblem::NotAnObject(why),
            ..
        } => ToolOutput::failed(format!(
            "the arguments are not a JSON object ({why}); call the tool again"
        )),
        _ => ToolOutput::failed(format!(
            "there is no tool `{}`; the tools are {}",
            text::one_line(&call.name, MAX_NAME),
            text::one_line(&names.join(", "), MAX_NAMES)
        )),
    }
}

#[cfg(all(test, feature = "mcp"))]
mod tests {
    use super::*;

    #[test]
    fn a15_refused_tool_is_found_by_its_name_or_its_position() {
        let names = ["mcp__a__x", "mcp__a__x_1", "mcp__b__tools"];
        let found = |text: &str| named_tool(text, 6, &names);
        for (text, expected) in [
            (
                "tools.8.custom.input_schema: JSON schema is invalid",
                Some(2),
            ),
            ("Invalid 'tools[6].function.name': too long", Some(0)),
            (
                "Invalid schema for function 'mcp__a__x_1': bad type",
                Some(1),
            ),
            (
                "Invalid schema for function 'mcp__a__x': see tools[8]",
                Some(0),
            ),
            ("tools.9.name: no such tool", None),
            ("tools.5.name: a tool of the agent itself", None),
            ("tools: Input should be a valid list", None),
            ("this model has no tools", None),
            ("too many tools: 20 > 16 allowed", None),
            ("too many tools: 8 > 4 allowed", None),
            (
                "invalid tools: tools.8.custom.input_schema: JSON schema is invalid",
                Some(2),
            ),
            ("see tools[5] and tools[7]", Some(1)),
            ("tools.99999999999999999999", None),
            ("max_tokens: 3 is too small", None),
        ] {
            assert_eq!(found(text), expected, "{text}");
        }
    }
}

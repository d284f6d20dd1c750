//! A request of any dialect: its conversation, and the step of the script that it leads to.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::reply::Call;

/// The maximum number of stored bytes of each text, so that a log of many requests stays small.
const KEPT: usize = 64 << 10;

/// The names that clients give their shell tools.
const SHELLS: [&str; 5] = ["Bash", "bash", "exec_command", "shell", "run_shell_command"];

/// One block of the conversation in the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Item {
    /// `user`, `assistant` or `system`, or any other value of the client.
    pub role: String,
    /// `text`, `tool_use`, `tool_result` or any other value of the client.
    pub kind: String,
    /// The text, a tool's input as JSON, or a tool's result.
    pub text: String,
}

/// A tool that the client offers.
#[derive(Debug)]
pub(super) struct Tool {
    pub(super) name: String,
    /// Its parameters by name, each with its schema.
    pub(super) parameters: Map<String, Value>,
}

/// The content of a request.
#[derive(Debug, Default)]
pub(super) struct PromptRequest {
    pub(super) model: String,
    pub(super) session: String,
    pub(super) stream: bool,
    pub(super) tools: Vec<Tool>,
    pub(super) system: String,
    pub(super) items: Vec<Item>,
    /// The number of user messages, and the last of them without the client's additions.
    pub(super) turn: usize,
    pub(super) last_user: String,
    /// The first user message.
    pub(super) first_user: String,
    /// The number of the model's replies after the last user message.
    pub(super) step: usize,
    /// The user's messages since then, while the model worked.
    pub(super) steers: Vec<String>,
}

impl Tool {
    /// Creates a tool with this name and the JSON schema of its input.
    pub(super) fn new(name: &Value, schema: &Value) -> Self {
        let parameters = schema["properties"].as_object();
        Self {
            name: text_of(name),
            parameters: parameters.cloned().unwrap_or_default(),
        }
    }
}

impl PromptRequest {
    /// Adds a user message that the model must answer.
    pub(super) fn said(&mut self, text: &str) {
        if !text.is_empty() {
            (self.last_user, self.step) = (text.into(), 0);
            self.steers.clear();
            if self.turn == 0 {
                self.first_user = text.into();
            }
            self.turn += 1;
        }
    }

    /// Stores a block of the conversation.
    pub(super) fn item(&mut self, role: &str, kind: &str, text: &str) {
        self.items.push(Item {
            role: role.into(),
            kind: kind.into(),
            text: short(text),
        });
    }

    /// Stores the system prompt.
    pub(super) fn system(&mut self, text: &str) {
        self.system = short(text);
    }

    /// Returns a call of the client's shell tool, with the parameters of its schema.
    pub(super) fn shell(&self, command: &str) -> Call {
        let named = |name: &&str| self.tools.iter().find(|tool| tool.name == *name);
        let Some(tool) = SHELLS.iter().find_map(named) else {
            return Call {
                tool: SHELLS[0].into(),
                input: json!({"command": command, "description": "Run a command"}),
            };
        };
        let parameters = &tool.parameters;
        let mut input = if parameters.contains_key("cmd") {
            json!({"cmd": command})
        } else if parameters
            .get("command")
            .is_some_and(|it| it["type"] == "array")
        {
            json!({"command": ["bash", "-lc", command]})
        } else {
            json!({"command": command})
        };
        if parameters.is_empty() || parameters.contains_key("description") {
            input["description"] = "Run a command".into();
        }
        Call {
            tool: tool.name.clone(),
            input,
        }
    }
}

fn short(text: &str) -> String {
    if text.len() > KEPT {
        text.chars().take(KEPT / 4).collect()
    } else {
        text.into()
    }
}

pub(super) fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns a text, or the joined texts of a list of blocks.
pub(super) fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks
            .iter()
            .map(|block| text_of(&block["text"]))
            .collect::<Vec<_>>()
            .join("\n"),
        _ => String::new(),
    }
}

/// Returns a user message without the elements that the client adds to it.
pub(super) fn without(text: &str, notes: &[&str]) -> String {
    let mut said = text.to_owned();
    for note in notes {
        let (open, close) = (format!("<{note}>"), format!("</{note}>"));
        while let Some(begin) = said.find(&open) {
            let end = said[begin..].find(&close);
            let end = end.map_or(said.len(), |end| begin + end + close.len());
            said.replace_range(begin..end, "");
        }
    }
    said.trim().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_tool_gets_arguments_of_its_schema() {
        let called = |name: &str, properties: &Value| {
            let tools = vec![Tool::new(&name.into(), &json!({"properties": properties}))];
            let asked = PromptRequest {
                tools,
                ..PromptRequest::default()
            };
            let call = asked.shell("date");
            format!("{} {}", call.tool, call.input)
        };
        let cmd = json!({"cmd": {"type": "string"}});
        assert_eq!(
            called("exec_command", &cmd),
            r#"exec_command {"cmd":"date"}"#
        );
        let list = json!({"command": {"type": "array"}});
        let words = r#"shell {"command":["bash","-lc","date"]}"#;
        assert_eq!(called("shell", &list), words);
        let text = json!({"command": {"type": "string"}, "description": {}});
        let both = r#"bash {"command":"date","description":"Run a command"}"#;
        assert_eq!(called("bash", &text), both);
    }

    #[test]
    fn notes_are_not_user_messages() {
        let text = "<a>x</a> go <b>y</b><a>cut";
        assert_eq!(without(text, &["a"]), "go <b>y</b>");
        assert_eq!(without(text, &["a", "b"]), "go");
    }
}

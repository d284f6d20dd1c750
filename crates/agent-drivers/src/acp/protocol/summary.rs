//! Short texts for people about the arguments and results of tool calls.

use super::json::{list, text};
use crate::convert::one_line;
use crate::dialogue::{SUMMARY, truncate_result};
use serde_json::Value;
/// The largest number of checked paths of a call; a call with more needs a permission request.
const PATHS: usize = 64;

/// The facts about a call; later reports replace earlier ones.
#[derive(Debug, Default)]
pub(super) struct CallInfo {
    title: String,
    kind: String,
    name: String,
    /// The command, if the input has one.
    command: Option<String>,
    input: String,
    paths: Vec<String>,
    input_paths: Vec<String>,
    /// The beginning of the reported content.
    pub(super) content: String,
}

impl CallInfo {
    pub(super) fn update(&mut self, call: &Value) {
        let replace = |known: &mut String, key| {
            let value = text(call, key);
            if !value.is_empty() {
                *known = one_line(value, SUMMARY);
            }
        };
        replace(&mut self.title, "title");
        replace(&mut self.kind, "kind");
        let name = text(&call["_meta"]["claudeCode"], "toolName");
        if !name.is_empty() {
            self.name = one_line(name, SUMMARY);
        }
        let input = &call["rawInput"];
        if input.as_object().is_some_and(|input| !input.is_empty()) {
            self.command = command(&input["command"]);
            self.input = one_line(&input.to_string(), SUMMARY);
            self.input_paths = { ["file_path", "filePath", "path", "abs_path"].iter() }
                .filter_map(|key| input[*key].as_str().map(str::to_owned))
                .collect();
        }
        let content = list(&call["content"]);
        let changed = content.iter().filter(|item| text(item, "type") == "diff");
        let paths = list(&call["locations"]).iter().chain(changed);
        let paths: Vec<String> = { paths.filter_map(|place| place["path"].as_str()) }
            .take(PATHS + 1)
            .map(str::to_owned)
            .collect();
        if !paths.is_empty() {
            self.paths = paths;
        }
        let returned = result(call);
        if !returned.is_empty() {
            self.content = returned;
        }
    }

    /// Returns the tool's own name if the agent reports it; otherwise the kind of tool.
    pub(super) fn name(&self) -> String {
        let names = [&self.name, &self.kind].into_iter();
        let name = { names }.find(|name| !name.is_empty()).cloned();
        name.unwrap_or_else(|| "tool".to_owned())
    }

    /// Describes the call in one line: its command, or its files if there are any, or else its whole input, so that nothing is hidden.
    pub(super) fn summary(&self) -> String {
        if let Some(command) = &self.command {
            return one_line(command, SUMMARY);
        }
        let is_plain = ["read", "edit", "delete", "move", "search", "fetch", "think"]
            .contains(&self.kind.as_str());
        let mut summary = self.title.clone();
        let more = match is_plain {
            true => self.paths.iter().chain(&self.input_paths).collect(),
            false => vec![&self.input],
        };
        for more in more {
            if !more.is_empty() && !summary.contains(more.as_str()) {
                summary = format!("{summary} {more}");
            }
        }
        one_line(&summary, SUMMARY)
    }

    /// Whether the call only edits files below one of these directories, as the agent reports it.
    pub(super) fn only_edits_below(&self, roots: &[String]) -> bool {
        let all = || self.paths.iter().chain(&self.input_paths);
        let is_below = |path: &String| roots.iter().any(|root| is_below(path, root));
        self.kind == "edit" && self.paths.len() <= PATHS && all().count() > 0 && all().all(is_below)
    }
}

fn command(input: &Value) -> Option<String> {
    let words = { list(input).iter() }.map(|word| word.as_str().map(str::to_owned));
    match input {
        Value::String(command) => Some(command.clone()),
        Value::Array(_) => Some(words.collect::<Option<Vec<_>>>()?.join(" ")),
        _ => None,
    }
}

fn is_below(path: &str, root: &str) -> bool {
    let root = root.trim_end_matches('/');
    let inside = match path.starts_with('/') {
        true => path
            .strip_prefix(root)
            .and_then(|rest| rest.strip_prefix('/')),
        false => Some(path),
    };
    inside.is_some_and(|inside| !inside.is_empty() && !inside.split('/').any(|part| part == ".."))
}

/// Returns the beginning of a tool's result: its texts, or else its raw output.
pub(super) fn result(call: &Value) -> String {
    let texts = list(&call["content"]).iter();
    let texts: Vec<&str> = texts
        .filter_map(|item| item["content"]["text"].as_str())
        .collect();
    let mut text = texts.join("\n");
    if text.is_empty() {
        text = match &call["rawOutput"] {
            Value::Null => String::new(),
            Value::String(output) => output.clone(),
            output => output["output"]
                .as_str()
                .map_or_else(|| output.to_string(), str::to_owned),
        };
    }
    truncate_result(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn known(call: Value) -> CallInfo {
        let mut known = CallInfo::default();
        known.update(&call);
        known
    }

    #[test]
    fn x124f_edit_outside_the_directory_needs_permission() {
        let below =
            |call| known(call).only_edits_below(&["/place/a".to_owned(), "/real/a/".to_owned()]);
        let at = |path| json!({"kind": "edit", "locations": [{"path": path}]});
        assert!(below(at("/place/a/b")) && below(at("/real/a/b/c")) && below(at("b/c")));
        for path in [
            "/place/ab",
            "/place/a",
            "/place/a/../b",
            "../b",
            "",
            "/",
            "/etc/passwd",
        ] {
            assert!(!below(at(path)), "{path}");
        }
        assert!(!below(json!({"kind": "edit"})), "the file is unknown");
        assert!(!below(
            json!({"kind": "delete", "locations": [{"path": "/place/a/b"}]})
        ));
        let two = json!({"kind": "edit", "locations": [{"path": "b"}], "content": [{"type": "diff", "path": "/etc/b"}]});
        assert!(!below(two));
        let hidden = json!({"kind": "edit", "locations": [{"path": "b"}], "rawInput": {"file_path": "/etc/b"}});
        assert!(!below(hidden));
        let many: Vec<_> = (0..70).map(|n| json!({"path": format!("b{n}")})).collect();
        assert!(!below(json!({"kind": "edit", "locations": many})));
    }

    #[test]
    fn call_is_summarised_by_its_command_or_all_known_fields() {
        let calls = [
            json!({"title": "Terminal", "kind": "execute", "rawInput": {"command": "make\n  all"}}),
            json!({"title": "Terminal", "kind": "execute", "rawInput": {"command": ["sh", "-c", "make"]}}),
            json!({"title": "Edit", "kind": "edit", "locations": [{"path": "/a/b"}], "rawInput": {"file_path": "/a/c"}}),
            json!({"title": "send mail", "kind": "other", "rawInput": {"to": "all"}}),
            json!({"title": "", "rawInput": {}}),
        ];
        let shown: Vec<_> = calls.map(|call| known(call).summary()).into();
        insta::assert_debug_snapshot!(shown);
        let named = json!({"title": "Edit /a/b", "kind": "edit", "locations": [{"path": "/a/b"}]});
        assert_eq!(
            known(named).summary(),
            "Edit /a/b",
            "the path is shown once"
        );
    }
}

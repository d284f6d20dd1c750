//! The tool `write`: a whole file. It replaces a file only in the state in which the model knows it.

use agent_duplex::BoxFuture;

use super::arguments::Arguments;
use super::file_change::MAX_BYTES;
use super::files;
use super::{Access, FileChange, Prepared, Tool, ToolContext, ToolOutput};
use crate::dialect::ToolDefinition;
use crate::json::JsonObject;

const EXAMPLE: &str = r#"{"path":"src/new.rs","content":"fn main() {}\n"}"#;
const SCHEMA: &str = r#"{"type":"object","properties":{"path":{"type":"string","description":"The file, relative to the working directory"},"content":{"type":"string","description":"The whole new content"}},"required":["path","content"]}"#;

/// Writes a whole file.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteFile;

impl Tool for WriteFile {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: "write".to_owned(),
            description: "Writes a whole file, and makes its directories. Read an existing file before you replace it; use `edit` to change a part."
                .to_owned(),
            schema: JsonObject::parse(SCHEMA).expect("the schema is an object"),
        }
    }

    fn access(&self, arguments: &JsonObject, context: &ToolContext) -> Access {
        let path = Arguments::new(arguments, EXAMPLE).text("path");
        files::access(path, &context.directory, files::to_change, Access::Edits)
    }

    fn summary(&self, arguments: &JsonObject) -> String {
        super::interface::summary_of("path", arguments)
    }

    fn prepare<'a>(
        &'a self,
        arguments: &'a JsonObject,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolOutput>> {
        Box::pin(async {
            let mut arguments = Arguments::new(arguments, EXAMPLE);
            let (path, content) = (arguments.text("path")?, arguments.text("content")?);
            let used = context.clone();
            files::blocking(context, move |cancel| {
                let target = files::target(&path, MAX_BYTES, &used, cancel)?;
                let shown = target.shown;
                if target.before.is_some() && !target.is_known {
                    return Err(ToolOutput::failed(format!(
                        "`{shown}` exists; read it first"
                    )));
                }
                let done = match target.before {
                    None => "created",
                    Some(_) => "replaced",
                };
                let (lines, bytes) = (content.lines().count(), content.len());
                let done = format!("{done} `{shown}`: {lines} lines, {bytes} bytes");
                let change = FileChange::new(target.path, target.before.as_deref(), content, done);
                Ok(Prepared::Change(change.known_in(&used.files)))
            })
            .await
        })
    }

    fn run<'a>(
        &'a self,
        arguments: &'a JsonObject,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, ToolOutput> {
        Box::pin(super::interface::make_prepared(self, arguments, context))
    }
}

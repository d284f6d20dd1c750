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
        match Arguments::new(arguments, EXAMPLE).text("path") {
            Ok(path) => files::access_to_change(&path, &context.directory),
            Err(_) => Access::Edits,
        }
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
            let (directory, seen) = (context.directory.clone(), context.files.clone());
            files::unblocked(context, move |cancel| {
                let path = directory.resolve(&path).map_err(ToolOutput::failed)?.path;
                let shown = directory.shown(&path);
                let size = format!("{} lines, {} bytes", content.lines().count(), content.len());
                let change = match files::open(&path, &shown)? {
                    None => {
                        FileChange::new(&path, None, content, format!("created `{shown}`: {size}"))
                    }
                    Some(open) => {
                        match seen.stamp(&path) {
                            Some(stamp) if stamp == open.stamp => {}
                            Some(_) => {
                                return Err(ToolOutput::failed(format!(
                                    "`{shown}` was changed since you read it; read it again"
                                )));
                            }
                            None => {
                                return Err(ToolOutput::failed(format!(
                                    "`{shown}` exists; read it first"
                                )));
                            }
                        }
                        let before = files::contents(open.file, MAX_BYTES, &shown, cancel)?;
                        let Some(before) = before else {
                            return Err(ToolOutput::failed(format!(
                                "`{shown}` is larger than {} MB; use `bash` to replace it",
                                MAX_BYTES >> 20
                            )));
                        };
                        let done = format!("replaced `{shown}`: {size}");
                        FileChange::new(&path, Some(&before), content, done)
                    }
                };
                Ok(Prepared::Change(change.known_in(&seen)))
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

//! The tool `write`: a whole file. It replaces a file only in the state in which the model knows it.

use super::arguments::Arguments;
use super::file_change::MAX_BYTES;
use super::file_tool::{Changer, FileTool};
use super::files::Target;
use super::{FileChange, ToolOutput, WorkingDirectory};
use crate::json::JsonObject;

const EXAMPLE: &str = r#"{"path":"src/new.rs","content":"fn main() {}\n"}"#;

/// Writes a whole file.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteFile;

pub(super) struct Call {
    path: String,
    content: String,
}

impl FileTool for WriteFile {
    const NAME: &'static str = "write";
    const DESCRIPTION: &'static str = "Writes a whole file, and makes its directories. Read an existing file before you replace it; use `edit` to change a part.";
    const SCHEMA: &'static str = r#"{"type":"object","properties":{"path":{"type":"string","description":"The file, relative to the working directory"},"content":{"type":"string","description":"The whole new content"}},"required":["path","content"]}"#;
    const SUMMARY: &'static str = "path";

    type Call = Call;

    fn parse(arguments: &JsonObject) -> Result<Call, ToolOutput> {
        let mut arguments = Arguments::new(arguments, EXAMPLE);
        Ok(Call {
            path: arguments.text("path")?,
            content: arguments.text("content")?,
        })
    }

    fn path(call: &Call) -> &str {
        &call.path
    }
}

impl Changer for WriteFile {
    const MAX_BYTES: u64 = MAX_BYTES;

    fn change(call: Call, target: Target, _: &WorkingDirectory) -> Result<FileChange, ToolOutput> {
        let (shown, content) = (target.shown, call.content);
        if target.before.is_some() && !target.is_known {
            let reason = format!("`{shown}` exists; read it first");
            return Err(ToolOutput::failed(reason));
        }
        let done = match target.before {
            None => "created",
            Some(_) => "replaced",
        };
        let (lines, bytes) = (content.lines().count(), content.len());
        let done = format!("{done} `{shown}`: {lines} lines, {bytes} bytes");
        let before = target.before.as_deref();
        Ok(FileChange::new(target.path, before, content, done))
    }
}

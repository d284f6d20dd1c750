//! The tool `glob`: the files whose path matches a pattern, in the order of their paths.

use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::arguments::Arguments;
use super::file_tool::{FileTool, Reader};
use super::files;
use super::output::{Output, push_note};
use super::walk::{PathPattern, Walk};
use super::{ToolContext, ToolOutput};
use crate::json::JsonObject;

const EXAMPLE: &str = r#"{"pattern":"src/**/*.rs"}"#;
/// The maximum number of paths in a result.
const MAX_PATHS: usize = 1_000;
const HINT: &str = "give a narrower `pattern` or `path`";

/// Lists the files whose path matches a pattern.
#[derive(Clone, Copy, Debug)]
pub(super) struct Glob;

pub(super) struct Call {
    pattern: String,
    path: String,
}

impl FileTool for Glob {
    const NAME: &'static str = "glob";
    const DESCRIPTION: &'static str = "Lists the files whose path matches a pattern, sorted. It includes hidden files, and omits files that .gitignore names.";
    const SCHEMA: &'static str = r#"{"type":"object","properties":{"pattern":{"type":"string","description":"A glob; without a slash it is for the names of files in any directory"},"path":{"type":"string","description":"The directory; by default the working directory"}},"required":["pattern"]}"#;
    const SUMMARY: &'static str = "pattern";

    type Call = Call;

    fn parse(arguments: &JsonObject) -> Result<Call, ToolOutput> {
        let mut arguments = Arguments::new(arguments, EXAMPLE);
        let path = arguments.optional_text("path")?;
        Ok(Call {
            pattern: arguments.text("pattern")?,
            path: path
                .filter(|path| !path.is_empty())
                .unwrap_or(".".to_owned()),
        })
    }

    fn path(call: &Call) -> &str {
        &call.path
    }
}

impl Reader for Glob {
    fn read(
        call: &Call,
        root: &Path,
        context: &ToolContext,
        cancel: &CancellationToken,
    ) -> Result<ToolOutput, ToolOutput> {
        let directory = &context.directory;
        let pattern = PathPattern::new(&call.pattern, root)?;
        let mut walk = Walk::new(root, directory, cancel)?;
        let (mut output, mut count) = (Output::default(), 0);
        for found in walk.by_ref().filter(|found| pattern.matches(&found.path)) {
            count += 1;
            if count <= MAX_PATHS {
                output.push_str(&directory.shown(&found.path));
                output.push_str("\n");
            }
        }
        if cancel.is_cancelled() {
            return Err(files::interrupted());
        }
        let mut text = match count {
            0 => "no file matches\n".to_owned(),
            _ => output.finish(HINT),
        };
        if count > MAX_PATHS {
            let note = format!("only the first {MAX_PATHS} of {count} files are shown; {HINT}");
            push_note(&mut text, &note);
        }
        if walk.unreadable() > 0 {
            let note = format!("{} directories can't be listed", walk.unreadable());
            push_note(&mut text, &note);
        }
        Ok(ToolOutput::ok(text))
    }
}

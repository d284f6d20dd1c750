//! The tool `glob`: the files whose path matches a pattern, in the order of their paths.

use agent_duplex::BoxFuture;

use super::arguments::Arguments;
use super::files;
use super::output::{Output, push_note};
use super::walk::{PathPattern, Walk};
use super::{Access, Tool, ToolContext, ToolOutput};
use crate::dialect::ToolDefinition;
use crate::json::JsonObject;

const EXAMPLE: &str = r#"{"pattern":"src/**/*.rs"}"#;
const SCHEMA: &str = r#"{"type":"object","properties":{"pattern":{"type":"string","description":"A glob; without a slash it is for the names of files in any directory"},"path":{"type":"string","description":"The directory; by default the working directory"}},"required":["pattern"]}"#;
/// The most paths in a result.
const MAX_PATHS: usize = 1_000;
const HINT: &str = "give a narrower `pattern` or `path`";

/// Lists the files whose path matches a pattern.
#[derive(Clone, Copy, Debug)]
pub(super) struct Glob;

struct Call {
    pattern: String,
    path: String,
}

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

impl Tool for Glob {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: "glob".to_owned(),
            description: "Lists the files whose path matches a pattern, sorted. It includes hidden files, and leaves out files that .gitignore names."
                .to_owned(),
            schema: JsonObject::parse(SCHEMA).expect("the schema is an object"),
        }
    }

    fn access(&self, arguments: &JsonObject, context: &ToolContext) -> Access {
        let path = parse(arguments).map(|call| call.path);
        files::access(path, &context.directory, files::to_read, Access::Reads)
    }

    fn summary(&self, arguments: &JsonObject) -> String {
        super::interface::summary_of("pattern", arguments)
    }

    fn only_reads(&self) -> bool {
        true
    }

    fn run<'a>(
        &'a self,
        arguments: &'a JsonObject,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async {
            let call = match parse(arguments) {
                Ok(call) => call,
                Err(wrong) => return wrong,
            };
            let used = context.clone();
            files::blocking(context, move |cancel| {
                let root = files::resolve(&call.path, &used, files::to_read)?;
                let directory = &used.directory;
                let pattern = PathPattern::new(&call.pattern, &root)?;
                let mut walk = Walk::new(&root, directory, cancel)?;
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
                    let note =
                        format!("only the first {MAX_PATHS} of {count} files are shown; {HINT}");
                    push_note(&mut text, &note);
                }
                if walk.unreadable() > 0 {
                    push_note(
                        &mut text,
                        &format!("{} directories can't be listed", walk.unreadable()),
                    );
                }
                Ok(ToolOutput::ok(text))
            })
            .await
            .unwrap_or_else(|failed| failed)
        })
    }
}

//! The system prompt. It contains no time and nothing else that changes within a session, so that the cache of a server applies.

use std::path::Path;

/// Returns the system prompt of a coding agent, followed by the instructions of the caller.
pub(super) fn system_prompt(directory: &Path, instructions: &str) -> String {
    let mut prompt = format!(
        "You are a coding agent. You work in the directory {} until the task is done, without a person beside you.\n\
         \n\
         - Look before you change: read the files that matter, and search instead of guessing.\n\
         - Make the smallest change that does the whole task, in the style of the code around it.\n\
         - After a change, run the project's own checks, and read what they print.\n\
         - If a call fails, read its message and do something else; don't repeat the same call.\n\
         - A result \"outcome unknown\" means that the tool may have run: look at its effects before you run it again.\n\
         - When the task is done, say in a few sentences what you changed, and which check you ran. Say plainly what doesn't work.\n",
        directory.display()
    );
    if !instructions.is_empty() {
        prompt.push('\n');
        prompt.push_str(instructions);
    }
    prompt
}

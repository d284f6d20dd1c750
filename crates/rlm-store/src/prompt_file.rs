//! The text of a phase's prompt: read from the file that a person names, and kept with the run.

use std::io::Read as _;
use std::path::Path;

use crate::{Error, state_dir};

/// The largest prompt file: a model reads no more, and a mistyped path may name anything.
pub const MAX_PROMPT: u64 = 4 << 20;

/// Reads a prompt file; missing, empty and huge ones are refused by name.
pub fn read(path: &Path) -> Result<String, Error> {
    let file = state_dir::open_named(path).map_err(|e| {
        let problem = match e.kind() {
            std::io::ErrorKind::NotFound => {
                "is missing; write it or name another one with --prompt-file".to_owned()
            }
            kind => unreadable(kind),
        };
        Error::prompt(path, problem)
    })?;
    let Some(file) = file else {
        return Err(Error::prompt(
            path,
            "is not a file; name a text file with --prompt-file",
        ));
    };
    let failed = |e: std::io::Error| Error::prompt(path, unreadable(e.kind()));
    let mut bytes = Vec::new();
    let mut length = file.metadata().map_err(failed)?.len();
    if length <= MAX_PROMPT {
        let read = file.take(MAX_PROMPT + 1).read_to_end(&mut bytes);
        length = read.map_err(failed)? as u64;
    }
    if length > MAX_PROMPT {
        return Err(Error::prompt(
            path,
            format!(
                "has {length} bytes; at most {MAX_PROMPT} are taken: put the rest into files that it names"
            ),
        ));
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| Error::prompt(path, "is not UTF-8 text; save it as that"))?;
    if text.trim().is_empty() {
        return Err(Error::prompt(
            path,
            "is empty; write down what the agent shall do",
        ));
    }
    Ok(text)
}

fn unreadable(kind: std::io::ErrorKind) -> String {
    format!("can't be read: {kind}; mend that or name another one with --prompt-file")
}

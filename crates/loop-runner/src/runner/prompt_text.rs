use std::path::Path;

use crate::Error;

/// The largest prompt file: a model reads no more, and a mistyped path may name anything.
const MAX_PROMPT: u64 = 4 << 20;

/// Reads a prompt file; missing, empty and huge ones are refused by name.
pub(crate) fn read(path: &Path) -> Result<String, Error> {
    let meta = fs_err::metadata(path).map_err(|e| {
        let problem = match e.kind() {
            std::io::ErrorKind::NotFound => {
                "is missing; write it or name another one with --prompt-file".to_owned()
            }
            _ => format!("can't be read: {}", e.kind()),
        };
        Error::prompt(path, problem)
    })?;
    if !meta.is_file() {
        return Err(Error::prompt(path, "is not a file"));
    }
    if meta.len() > MAX_PROMPT {
        return Err(Error::prompt(
            path,
            format!("has {} bytes; at most {MAX_PROMPT} are taken", meta.len()),
        ));
    }
    let bytes = fs_err::read(path)
        .map_err(|e| Error::prompt(path, format!("can't be read: {}", e.kind())))?;
    let text = String::from_utf8(bytes).map_err(|_| Error::prompt(path, "is not UTF-8 text"))?;
    if text.trim().is_empty() {
        return Err(Error::prompt(
            path,
            "is empty; write down what the agent shall do",
        ));
    }
    Ok(text)
}

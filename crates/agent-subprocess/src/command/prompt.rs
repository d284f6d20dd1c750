//! Where the prompt goes: into a word of the command line, into a file, or neither.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

const TEXT: &[u8] = b"{prompt}";
const FILE: &[u8] = b"{prompt_file}";

/// A command line with the prompt in its place.
#[derive(Debug)]
pub(super) struct Prompt {
    pub(super) argv: Vec<OsString>,
    /// Whether a word took it; else it belongs on standard input.
    pub(super) placed: bool,
    pub(super) file: Option<PromptFile>,
}

impl Prompt {
    pub(super) fn place(argv: &[OsString], text: &[u8], scratch: &Path) -> io::Result<Prompt> {
        let words = argv.get(1..).unwrap_or_default();
        let wants = |what| {
            words
                .iter()
                .any(|word| memchr::memmem::find(word.as_bytes(), what).is_some())
        };
        let file = if wants(FILE) {
            Some(PromptFile::write(scratch, text)?)
        } else {
            None
        };
        let path = file
            .as_ref()
            .map_or(OsStr::new(""), |file| file.0.as_os_str());
        let fill =
            |word: &OsString| OsString::from_vec(fill(word.as_bytes(), text, path.as_bytes()));
        let filled = argv
            .iter()
            .take(1)
            .cloned()
            .chain(words.iter().map(fill))
            .collect();
        Ok(Prompt {
            argv: filled,
            placed: file.is_some() || wants(TEXT),
            file,
        })
    }
}

/// Fills in one word, in one pass: what the prompt itself holds is not looked at.
fn fill(word: &[u8], text: &[u8], path: &[u8]) -> Vec<u8> {
    let mut filled = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, tail)) = rest.split_first() {
        if let Some(tail) = rest.strip_prefix(TEXT) {
            filled.extend_from_slice(text);
            rest = tail;
        } else if let Some(tail) = rest.strip_prefix(FILE) {
            filled.extend_from_slice(path);
            rest = tail;
        } else {
            filled.push(*first);
            rest = tail;
        }
    }
    filled
}

/// A file with the prompt that only its owner may read. Dropping it removes the file.
#[derive(Debug)]
pub(super) struct PromptFile(PathBuf);

impl PromptFile {
    fn write(scratch: &Path, text: &[u8]) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(scratch)?;
        // The agent has a working directory of its own.
        let scratch = std::path::absolute(scratch)?;
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = scratch.join(format!("prompt-{}-{number}.md", std::process::id()));
            match OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)
            {
                // Left by a host that was killed and had the same pid.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                file => {
                    let mut file = file?;
                    let prompt = PromptFile(path);
                    file.write_all(text)?;
                    return Ok(prompt);
                }
            }
        }
    }
}

impl Drop for PromptFile {
    fn drop(&mut self) {
        // The agent may have removed it, and nobody could do anything about another failure.
        let _gone = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::fill;

    #[test]
    fn words_are_filled_in_one_pass() {
        let fill = |word: &str| {
            String::from_utf8(fill(word.as_bytes(), b"say {prompt_file}", b"/f")).expect("text")
        };
        assert_eq!(fill("{prompt}"), "say {prompt_file}");
        assert_eq!(
            fill("--file={prompt_file}:{prompt}"),
            "--file=/f:say {prompt_file}"
        );
        assert_eq!(
            fill("{prompt_files} {{prompt}}"),
            "{prompt_files} {say {prompt_file}}"
        );
    }
}

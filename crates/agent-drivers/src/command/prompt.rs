//! Puts the prompt into an argument, into a file, or leaves it for standard input.

use agent_subprocess::ScratchFile;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

const TEXT: &[u8] = b"{prompt}";
const FILE: &[u8] = b"{prompt_file}";

/// A command line that contains the prompt.
#[derive(Debug)]
pub(super) struct Prompt {
    pub(super) argv: Vec<OsString>,
    /// Whether an argument or the file contains the prompt; otherwise the prompt goes to standard input.
    pub(super) has_prompt_arg: bool,
    pub(super) file: Option<ScratchFile>,
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
            Some(ScratchFile::write(scratch, "prompt", "md", text)?)
        } else {
            None
        };
        let path = file
            .as_ref()
            .map_or(OsStr::new(""), |file| file.path().as_os_str());
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
            has_prompt_arg: file.is_some() || wants(TEXT),
            file,
        })
    }
}

/// Expands one argument in one pass: placeholders in the prompt itself are not expanded.
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

#[cfg(test)]
mod tests {
    use super::fill;

    #[test]
    fn placeholders_are_filled_in_one_pass() {
        let fill = |word: &str| {
            String::from_utf8(fill(word.as_bytes(), b"say {prompt_file}", b"/f"))
                .expect("valid UTF-8")
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

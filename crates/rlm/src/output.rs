//! The only module that writes to standard output, so that lost text is always reported.
//!
//! A command, and above all a run, continues if standard output accepts nothing. This module notes the loss, and [`final_exit_code`] turns the loss
//! into a line on standard error and an exit code. A reader that closed the pipe is not a loss: `rlm logs | head` ends quietly.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use anstream::AutoStream;
use rustix::fs::FileType;

use crate::exit::{Code, Failure};
use crate::render;

/// The reason why standard output did not accept some text. Only the first reason is stored.
static LOST: OnceLock<String> = OnceLock::new();
static REPORTED: AtomicBool = AtomicBool::new(false);

/// A writer that notes the text that standard output did not accept.
#[derive(Debug)]
pub(crate) struct TrackedWriter<W>(W);

/// Returns standard output for text, without colours if they are off.
pub(crate) fn text() -> TrackedWriter<AutoStream<io::Stdout>> {
    TrackedWriter(anstream::stdout())
}

/// Returns standard output for bytes that another program reads.
pub(crate) fn bytes() -> TrackedWriter<io::Stdout> {
    TrackedWriter(io::stdout())
}

/// Prints a line, and returns whether the output still has a reader.
pub(crate) fn line(text: &str) -> bool {
    writeln!(self::text(), "{text}").is_ok()
}

impl<W: Write> Write for TrackedWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).inspect_err(note)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().inspect_err(note)
    }
}

fn note(error: &io::Error) {
    if error.kind() != io::ErrorKind::Interrupted && !is_gone(error) {
        let _first_counts = LOST.set(error.to_string());
    }
}

/// Returns whether the reader is gone: the pipe is closed, or the terminal hung up.
fn is_gone(error: &io::Error) -> bool {
    let is_device = || {
        let kind = rustix::fs::fstat(io::stdout());
        kind.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice)
    };
    error.kind() == io::ErrorKind::BrokenPipe
        || (error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) && is_device())
}

/// Flushes the buffer, and reports lost output on standard error, once. Returns whether output was lost.
pub(crate) fn report() -> bool {
    let _noted = bytes().flush();
    let Some(why) = LOST.get() else {
        return false;
    };
    if !REPORTED.swap(true, Ordering::SeqCst) {
        let failure = Failure::failed(format!(
            "output was lost: can't write to standard output: {why}; free some space, or redirect the output"
        ));
        let _unseen = writeln!(anstream::stderr(), "{}", render::failure(&failure));
    }
    true
}

/// Returns the exit code of a command that would exit with `code`: a success with lost output is a failure.
pub(crate) fn final_exit_code(code: ExitCode) -> ExitCode {
    match report() && code == ExitCode::from(Code::Done) {
        true => Code::Failed.into(),
        false => code,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// Files that name standard output without printing to it, with the reason.
    const OTHERS: [(&str, &str); 7] = [
        ("rlm/src/output.rs", "writes to it"),
        ("rlm/src/render/screen.rs", "asks for its colours"),
        (
            "rlm/src/detach.rs",
            "replaces it by a file, which reports lost output",
        ),
        (
            "rlm/src/command/checkpoints.rs",
            "copies its descriptor; a failed export is an error",
        ),
        ("rlm/src/demo/mod.rs", "is an agent; a run reads its output"),
        ("rlm-terminal/src/terminal.rs", "asks for its size and kind"),
        ("rlm-terminal/src/tty.rs", "asks for its size and kind"),
    ];

    fn sources(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in fs_err::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => sources(&path, found),
                false => found.push(path),
            }
        }
    }

    #[test]
    fn w10_only_one_module_prints() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let mut all = Vec::new();
        for part in ["rlm", "rlm-report", "rlm-terminal", "rlm-text"] {
            sources(&root.join(part).join("src"), &mut all);
        }
        let prints = |line: &str| {
            let line = line.trim_start();
            let asks = line.contains("is_terminal()");
            let stdout = line.contains("stdout()") && !asks;
            let says = |name: &str| {
                line.contains(&format!("{name}!(")) && !line.contains(&format!("e{name}!("))
            };
            !line.starts_with("//") && (stdout || says("println") || says("print"))
        };
        let mut wrong = Vec::new();
        for path in all
            .iter()
            .filter(|path| path.extension().is_some_and(|it| it == "rs"))
        {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap();
            let is_test = name.ends_with("tests.rs") || name.contains("tests/");
            if is_test || OTHERS.iter().any(|(other, _)| *other == name) {
                continue;
            }
            let text = fs_err::read_to_string(path).unwrap();
            let product = text.split("#[cfg(test)]").next().unwrap_or_default();
            let lines = product.lines().filter(|line| prints(line));
            wrong.extend(lines.map(|line| format!("{name}: {}", line.trim())));
        }
        assert!(wrong.is_empty(), "print with `crate::output`: {wrong:#?}");
    }
}

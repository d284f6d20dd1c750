//! Runs a program and shows its output at once or stores it.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::{io, thread};

use crate::tally::Tally;

/// The maximum number of bytes stored of an output, counted from its end.
const KEPT: usize = 8 << 20;

/// The result of a program.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) success: bool,
    /// stdout and stderr, in the order of arrival.
    pub(crate) output: String,
    /// stdout alone, for callers that parse it: it has no warnings.
    pub(crate) stdout: String,
}

/// When to show the output of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    Never,
    OnFailure,
    AsItComes,
    /// Only the progress of cargo: its lines that start with this word (one per package), and its lines about waiting for another cargo.
    Steps(&'static str),
    /// At once, without the lines `skipped: …`, which the tally counts.
    WithoutSkips,
}

impl Show {
    fn passes_on(self, line: &str) -> bool {
        match self {
            Self::Never | Self::OnFailure => false,
            Self::Steps(word) => {
                let first = line.split_whitespace().next();
                first == Some(word) || first == Some("Blocking")
            }
            Self::AsItComes => true,
            Self::WithoutSkips => skip_of(line).is_none(),
        }
    }
}

/// Returns cargo's output from its first error on.
pub(crate) fn errors(output: &str) -> &str {
    let error = output.find("\nerror").unwrap_or(0);
    output[error..].trim()
}

/// Returns the reason of a `skipped: …` line.
pub(crate) fn skip_of(line: &str) -> Option<&str> {
    line.strip_prefix("skipped: ")
}

/// Runs `program` in the root of the workspace.
pub(crate) fn run(program: &str, arguments: &[&str], show: Show) -> Ended {
    finish(Command::new(program).args(arguments), show)
}

/// Checks that a nightly compiler is installed.
pub(crate) fn nightly() -> Result<(), String> {
    match run("cargo", &["+nightly", "--version"], Show::Never).success {
        true => Ok(()),
        false => Err("a nightly compiler is not installed".into()),
    }
}

/// Runs a program to its end with empty standard input. A program that can't start counts as failed, with the error as its output.
pub(crate) fn finish(command: &mut Command, show: Show) -> Ended {
    try_finish(command, show).unwrap_or_else(|error| Ended {
        success: false,
        output: format!("{}: {error}\n", command.get_program().display()),
        stdout: String::new(),
    })
}

/// The profile of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// For a program whose behaviour is measured. The tests share this build.
    Dev,
    /// For a program whose speed is measured.
    Release,
}

impl Profile {
    /// Returns the profile's name for cargo.
    fn name(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Release => "release",
        }
    }
}

/// Builds a package, or a part of it, in the release profile. Returns whether the build passed, and prints the errors of a failed build.
pub(crate) fn build(package: &str, part: &[&str]) -> bool {
    build_in(Profile::Release, package, part)
}

/// Builds a package, or a part of it. Returns whether the build passed, and prints the errors of a failed build.
pub(crate) fn build_in(profile: Profile, package: &str, part: &[&str]) -> bool {
    let build = [
        "build",
        "--quiet",
        "--profile",
        profile.name(),
        "-p",
        package,
    ];
    run("cargo", &[&build, part].concat(), Show::OnFailure).success
}

/// Compiles a program and runs it in this terminal. `failed` says what its exit with an error means.
pub(crate) fn run_program(
    profile: Profile,
    (package, program): (&str, &str),
    arguments: Vec<OsString>,
    failed: &str,
) -> Tally {
    if !build_in(profile, package, &["--bin", program]) {
        return Tally::failed(format!("{program}: the program doesn't compile"));
    }
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--quiet", "--profile", profile.name(), "-p", package]);
    cargo.args(["--bin", program, "--"]).args(arguments);
    match cargo.status() {
        Ok(status) if status.success() => Tally::passed(1),
        Ok(_) => Tally::failed(format!("{program}: {failed}")),
        Err(error) => Tally::failed(format!("cargo: {error}")),
    }
}

fn try_finish(command: &mut Command, show: Show) -> io::Result<Ended> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let output = Arc::new(Mutex::new(String::new()));
    let readers = [
        child.stdout.take().map(boxed),
        child.stderr.take().map(boxed),
    ];
    let readers = readers.map(|stream| {
        let (stream, output) = (stream?, Arc::clone(&output));
        Some(thread::spawn(move || follow(stream, &output, show)))
    });
    let [stdout, _stderr] = readers.map(|reader| {
        let own = reader.and_then(|reader| reader.join().ok());
        own.unwrap_or_default()
    });
    let success = child.wait()?.success();
    let output = std::mem::take(&mut *output.lock().unwrap_or_else(PoisonError::into_inner));
    if show == Show::OnFailure && !success {
        print!("{output}");
    }
    Ok(Ended {
        success,
        output,
        stdout,
    })
}

fn boxed(stream: impl Read + Send + 'static) -> Box<dyn Read + Send> {
    Box::new(stream)
}

/// Reads one stream to its end, adds it to the common output, and returns it.
fn follow(stream: Box<dyn Read + Send>, output: &Mutex<String>, show: Show) -> String {
    let mut reader = BufReader::new(stream);
    let (mut line, mut own) = (Vec::new(), String::new());
    while matches!(reader.read_until(b'\n', &mut line), Ok(1..)) {
        let text = String::from_utf8_lossy(&line);
        let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
        if show.passes_on(&text) {
            print!("{text}");
        }
        keep(&mut output, &text);
        keep(&mut own, &text);
        drop(output);
        line.clear();
    }
    own
}

/// Appends to the stored text, and drops its beginning if it is too long.
fn keep(kept: &mut String, text: &str) {
    kept.push_str(text);
    if kept.len() > 2 * KEPT {
        let cut = (KEPT..kept.len())
            .find(|at| kept.is_char_boundary(*at))
            .unwrap_or(kept.len());
        kept.drain(..cut);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clean_input_has_no_warning() {
        let ended = run("sh", &["-c", "echo warning >&2; echo data"], Show::Never);
        assert_eq!(ended.stdout, "data\n");
        assert_eq!(ended.output.len(), "warning\ndata\n".len());
    }

    #[test]
    fn tally_lines_are_not_repeated() {
        let (skip, other) = ("skipped: two: no npm\n", "ok: one\n");
        assert!(Show::WithoutSkips.passes_on(other) && !Show::WithoutSkips.passes_on(skip));
        assert!(Show::AsItComes.passes_on(skip) && !Show::OnFailure.passes_on(other));
    }

    #[test]
    fn cargo_steps_are_shown_and_errors_are_stored() {
        let waits = "    Blocking waiting for file lock on build directory";
        let compiles = "   Compiling one v0.1.0";
        let output =
            format!("{waits}\n{compiles}\nwarning: x\nerror: two\n\nCaused by:\n  three\n");
        let shown = |line: &&str| Show::Steps("Compiling").passes_on(line);
        assert_eq!(
            output.lines().filter(shown).collect::<Vec<_>>(),
            [waits, compiles]
        );
        assert_eq!(errors(&output), "error: two\n\nCaused by:\n  three");
        assert_eq!(errors("no such program\n"), "no such program");
    }
}

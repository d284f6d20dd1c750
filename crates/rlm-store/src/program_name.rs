//! The name of this program, from which the names of its state directory and of its environment variables come.

use std::fmt;
use std::sync::OnceLock;

/// The longest accepted name, in bytes.
const MAX_NAME: usize = 32;
/// The longest accepted version, in bytes.
const MAX_VERSION: usize = 40;

static NAMES: OnceLock<Names> = OnceLock::new();

/// The names that come from the name of the program.
#[derive(Debug, PartialEq, Eq)]
struct Names {
    program: String,
    /// `rlm 0.1.0`
    title: String,
    /// `.rlm`
    state_directory: String,
    /// `RLM_`
    prefix: String,
    /// `RLM_MARKER`
    marker: String,
}

impl Names {
    fn new(program: &str, version: &str) -> Self {
        let prefix = program.to_ascii_uppercase().replace('-', "_") + "_";
        Self {
            program: program.to_owned(),
            title: format!("{program} {version}"),
            state_directory: format!(".{program}"),
            marker: format!("{prefix}MARKER"),
            prefix,
        }
    }

    fn get() -> &'static Self {
        NAMES.get_or_init(|| Self::new("rlm", env!("CARGO_PKG_VERSION")))
    }
}

/// Sets the name and the version of this program, for the whole process. Without a call, the program is `rlm`.
///
/// The state of a project is in the directory `.NAME`; the variables of an agent and of a check begin with `NAME_`, in capitals and with `_` for `-`.
/// So two programs with different names never touch each other's runs: after `set_program_name("acme", "1.2.0")` the state is in `.acme`, and an
/// agent finds its iteration in `ACME_ITERATION`. Each line of a control socket contains the name and the version, so a message about a mismatch shows
/// both versions. Messages still suggest the commands of `rlm`.
///
/// Call it first in `main`. Don't change the name later: the program then doesn't find its runs.
///
/// # Errors
///
/// The name must begin with a lower-case ASCII letter, and have lower-case letters, digits and `-` only, at most 32 bytes; `git` and `ssh` are not
/// possible, because other programs use `.git` and `.ssh`. A version has 1 to 40 printable ASCII characters. It is also an error if the process already
/// uses another name or version.
pub fn set_program_name(name: &str, version: &str) -> Result<(), ProgramNameError> {
    let is_usual = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    let begins_well = name.as_bytes().first().is_some_and(u8::is_ascii_lowercase);
    let is_taken = ["git", "ssh"].contains(&name);
    if !begins_well || !name.bytes().all(is_usual) || name.len() > MAX_NAME || is_taken {
        return Err(ProgramNameError::Name(name.to_owned()));
    }
    let is_version = |it: &str| it.bytes().all(|c| c.is_ascii_graphic() || c == b' ');
    if version.is_empty() || version.len() > MAX_VERSION || !is_version(version) {
        return Err(ProgramNameError::Version(version.to_owned()));
    }
    let names = Names::new(name, version);
    if *NAMES.get_or_init(|| Names::new(name, version)) == names {
        return Ok(());
    }
    Err(ProgramNameError::InUse(Names::get().title.clone()))
}

/// The reason why [`set_program_name`] failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProgramNameError {
    /// The name is invalid.
    Name(String),
    /// The version is invalid.
    Version(String),
    /// The process already uses another name or version: this one.
    InUse(String),
}

impl fmt::Display for ProgramNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(
                f,
                "`{}` can't be the name of a program: begin with a lower-case letter, then use lower-case letters, digits and `-`, at most {MAX_NAME} characters, and not `git` or `ssh`",
                name.escape_debug()
            ),
            Self::Version(version) => write!(
                f,
                "`{}` can't be a version: use 1 to {MAX_VERSION} printable ASCII characters",
                version.escape_debug()
            ),
            Self::InUse(title) => write!(
                f,
                "the process already has the name `{title}`: set the name first in `main`"
            ),
        }
    }
}

impl std::error::Error for ProgramNameError {}

/// Returns the name of this program: `rlm`.
#[must_use]
pub fn program_name() -> &'static str {
    &Names::get().program
}

/// Returns the name and version of this program: `rlm 0.1.0`.
#[must_use]
pub fn program_title() -> &'static str {
    &Names::get().title
}

/// Returns the name of the state directory: `.rlm`.
#[must_use]
pub fn state_directory() -> &'static str {
    &Names::get().state_directory
}

/// Returns the name of an environment variable of this program: `RLM_ITERATION` for `ITERATION`.
#[must_use]
pub fn variable(name: &str) -> String {
    format!("{}{name}", Names::get().prefix)
}

/// Returns the environment variable that carries the marker of a run's processes: the run's random scope, the iteration and the attempt.
#[must_use]
pub fn marker_variable() -> &'static str {
    &Names::get().marker
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tests of a binary share one process under `cargo test`, so no test here changes the name.
    #[test]
    fn invalid_name_or_version_is_refused() {
        let long = "a".repeat(MAX_NAME + 1);
        for name in [
            "", "A", "1a", "-a", "a/b", "..", "a b", "a.b", "ä", "git", "ssh", &long,
        ] {
            let refused = set_program_name(name, "1").unwrap_err();
            assert_eq!(refused, ProgramNameError::Name(name.to_owned()));
        }
        let long = "1".repeat(MAX_VERSION + 1);
        for version in ["", "1\n", "1\u{1b}[2J", &long] {
            let refused = set_program_name("acme", version).unwrap_err();
            assert_eq!(refused, ProgramNameError::Version(version.to_owned()));
        }
    }

    #[test]
    fn names_come_from_the_name_of_the_program() {
        let names = Names::new("acme-2", "1.0");
        assert_eq!(names.state_directory, ".acme-2");
        assert_eq!(names.marker, "ACME_2_MARKER");
        assert_eq!(names.title, "acme-2 1.0");
    }

    #[test]
    fn name_stays_after_its_first_use() {
        assert_eq!(state_directory(), ".rlm");
        assert_eq!(variable("PHASE"), "RLM_PHASE");
        let late = set_program_name("acme", "1").unwrap_err();
        assert!(late.to_string().contains("set the name first"), "{late}");
        set_program_name("rlm", env!("CARGO_PKG_VERSION")).unwrap();
    }
}

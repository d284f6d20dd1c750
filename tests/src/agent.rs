//! A scripted agent that is a real process: the program behind `fake-agent`, and the reader of what it records.
//!
//! `fake-agent --record DIR [--script FILE | LINE…]`, or with `FAKE_AGENT_RECORD` and `FAKE_AGENT_SCRIPT`. It notes how it was started
//! ([`Start`]), reads stdin to its end, performs its script and leaves with 0. A script is a list of lines; `@2`, `@2..` and `@2..4` in front of
//! one limit it to those starts, counted over the record folder:
//!
//! | line | does |
//! |---|---|
//! | `print TEXT`, `warn TEXT`, `part TEXT` | a line on stdout, on stderr, text without line end on stdout |
//! | `echo` | prints what came on stdin |
//! | `flood SIZE [stderr] [unbroken]` | `64K`, `5M`, `1G` of lines, or of one line |
//! | `garbage` | escape sequences and invalid UTF-8 |
//! | `write FILE TEXT`, `append FILE TEXT`, `touch FILE` | |
//! | `delay MS`, `await FILE`, `hang` | waits; the last two at most ten minutes |
//! | `exit CODE`, `die SIGNAL` | ends at once |
//! | `close stdin\|stdout\|stderr` | |
//! | `child plain\|setsid\|daemon\|holder [ignore SIGNAL…]` | starts a child that lives ten minutes, and waits until it is ready ([`Kind`]) |
//! | `ignore SIGNAL…`, `no-stdin` | settings, in force before the start is recorded |
//!
//! In a text `\n \t \r \e \\ \xNN` are bytes, `{start}` is the number of the start and `{NAME}` a variable of the environment.
//! Signals that can be caught are logged ([`Received`]) before they act.

mod children;
mod perform;
mod record;
mod script;
mod signals;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

pub use record::{Child, Received, Start};
pub use script::Kind;

use crate::{Rlm, Sandbox};

/// The exit code after a mistake in the arguments or the script, so that no test takes it for a scripted end.
const BROKEN: u8 = 99;

#[derive(Debug, Parser)]
#[command(name = "fake-agent", about = "A scripted agent that is a real process")]
struct Arguments {
    /// The folder for the records; made if it is not there.
    #[arg(long)]
    record: PathBuf,
    /// The file with the script, else the arguments are its lines.
    #[arg(long)]
    script: Option<PathBuf>,
    #[command(flatten)]
    role: children::Role,
    lines: Vec<String>,
}

/// Runs `fake-agent`.
pub fn main_impl() -> ExitCode {
    let mut argv: Vec<OsString> = std::env::args_os().collect();
    for (variable, flag) in [
        ("FAKE_AGENT_SCRIPT", "--script"),
        ("FAKE_AGENT_RECORD", "--record"),
    ] {
        if let Some(value) = std::env::var_os(variable)
            && !argv.iter().any(|given| given == flag)
        {
            argv.splice(1..1, [flag.into(), value]);
        }
    }
    let arguments = match Arguments::try_parse_from(argv) {
        Ok(arguments) => arguments,
        Err(error) => return broken(&error),
    };
    let outcome = match children::live(&arguments) {
        Some(lived) => lived.map(|()| ExitCode::SUCCESS),
        None => perform::run(&arguments),
    };
    outcome.unwrap_or_else(|error| broken(&error))
}

fn broken(error: &dyn std::fmt::Display) -> ExitCode {
    let _unheard = writeln!(std::io::stderr(), "fake-agent: {error}");
    ExitCode::from(BROKEN)
}

/// A fake agent as a test sees it: how to start it, and what it recorded.
#[derive(Debug)]
pub struct FakeAgent {
    program: PathBuf,
    folder: PathBuf,
}

impl FakeAgent {
    /// Writes `script` into `folder` (made if needed); `program` is `env!("CARGO_BIN_EXE_fake-agent")`.
    ///
    /// # Panics
    ///
    /// When the script cannot be written.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, folder: impl Into<PathBuf>, script: &str) -> Self {
        let this = Self {
            program: program.into(),
            folder: folder.into(),
        };
        fs_err::create_dir_all(this.record()).unwrap();
        this.set_script(script);
        this
    }

    /// Replaces the script; the next start reads it.
    ///
    /// # Panics
    ///
    /// When the script cannot be written.
    pub fn set_script(&self, script: &str) {
        fs_err::write(self.folder.join("script"), script).unwrap();
    }

    /// The command line that starts it.
    #[must_use]
    pub fn argv(&self) -> Vec<OsString> {
        let script = self.folder.join("script");
        vec![
            self.program.clone().into(),
            "--record".into(),
            self.record().into(),
            "--script".into(),
            script.into(),
        ]
    }

    /// Prepares a start of the agent itself, without `rlm`.
    pub fn prepare<'a>(&self, sandbox: &'a Sandbox) -> Rlm<'a> {
        sandbox.rlm(&self.program).args(&self.argv()[1..])
    }

    /// All starts so far; their number is the start count.
    ///
    /// # Panics
    ///
    /// When a record cannot be read; likewise the other two.
    #[must_use]
    pub fn starts(&self) -> Vec<Start> {
        record::read_all(&self.record(), "start-")
    }

    /// The children that became ready so far.
    #[must_use]
    pub fn children(&self) -> Vec<Child> {
        record::read_all(&self.record(), "child-")
    }

    /// The signals that it and its children received so far, oldest first.
    #[must_use]
    pub fn signals(&self) -> Vec<Received> {
        record::read_signals(&self.record())
    }

    /// The folder in which everything of this agent lies.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn record(&self) -> PathBuf {
        self.folder.join("record")
    }
}

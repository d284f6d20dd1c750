//! A scripted agent that is a real process: the program `fake-agent`, and the reader of its records.
//!
//! The command line is `fake-agent --record DIR [--script FILE | LINE…]`; the variables `FAKE_AGENT_RECORD` and `FAKE_AGENT_SCRIPT` are an
//! alternative. The agent records its start ([`AgentStart`]), reads stdin to its end, performs its script and exits with 0. A script is a list of
//! lines. The prefix `@2`, `@2..` or `@2..4` limits a line to these starts, which are counted in the record directory:
//!
//! | line | action |
//! |---|---|
//! | `print TEXT`, `warn TEXT`, `part TEXT` | prints a line on stdout, a line on stderr, or a text without line end on stdout |
//! | `echo` | prints the content of stdin |
//! | `flood SIZE [stderr] [unbroken]` | prints `64K`, `5M` or `1G` of lines, or one line of that size |
//! | `garbage` | prints escape sequences and invalid UTF-8 |
//! | `write FILE TEXT`, `append FILE TEXT`, `touch FILE` | |
//! | `delay MS`, `await FILE`, `hang` | waits; the last two for at most ten minutes |
//! | `exit CODE`, `die SIGNAL` | ends immediately |
//! | `close stdin\|stdout\|stderr` | |
//! | `child plain\|setsid\|daemon\|holder [ignore SIGNAL…]` | starts a child that lives for ten minutes, and waits until it is ready ([`ChildKind`]) |
//! | `ignore SIGNAL…`, `no-stdin` | settings, in force before the start is recorded |
//!
//! With `--input-format stream-json` it speaks that protocol, as the real CLI does (2.1.329 was recorded). An unknown option ends it, and a line on
//! stdin that is not exactly one JSON object ends it with 99. The script then describes a whole conversation:
//!
//! | line | action |
//! |---|---|
//! | `turn`, `turn ..` | the lines below belong to the next turn, or to all turns from there on; a turn without a script prints `Done.` |
//! | `say [MS] TEXT` | writes a text, one delta per word, with MS between them; `echo` repeats the message, `recall` all messages of this session |
//! | `big SIZE` | writes a text in one line of that size |
//! | `tool NAME SUMMARY` … `tool-end [TEXT]` | the lines between them run during the tool |
//! | `run COMMAND` | a Bash tool that really runs, in its own session |
//! | `ask TOOL SUMMARY` | sends a permission request unless the permission mode decides; a permitted Bash command really runs |
//! | `expect-steer` | waits for a message that no turn has taken |
//! | `retry STATUS TIMES [MS]` | reports this number of service failures; after ten it gives up |
//! | `not-logged-in` | fails like the CLI without an account |
//! | `noise TEXT`, `event JSON`, `unknown-event` | writes a line that is not JSON, one that is, or one of an unknown type |
//! | `deaf WORD…` | a setting: it ignores that control request (`interrupt`, `end_session`…), or the end of stdin (`eof`) |
//! | `refuse TEXT`, `unknown-session` | settings: it does not start, or not with `--resume` |
//! | `number-asks` | a setting: the ids of its permission requests repeat in the next process |
//!
//! With `app-server` as the first argument it is Codex; with `acp` or `--acp` it speaks the Agent Client Protocol. Both support `turn`, `say`,
//! `echo`, `recall`, `run`, `ask`, `expect-steer`, `hang`, `unknown-session` and the lines that need no conversation. For them `retry 429 SECONDS` is
//! a rate limit of that duration.
//!
//! As in the CLI, messages that are queued at the end of a tool join the turn, and messages that are queued at the end of a turn begin the next one
//! together. SIGINT is an interrupt and an orderly end; SIGTERM ends it with 143. The record directory also has the sessions ([`SessionEntry`]) and
//! the received [`Message`]s, [`Control`]s and [`Answer`]s.
//!
//! In a text `\n \t \r \e \\ \xNN` are bytes, `{start}` is the number of the start, and `{NAME}` is an environment variable. Signals that can be
//! caught are logged ([`Received`]) before they act.

mod children;
mod duplex;
mod log;
mod peer;
mod perform;
mod record;
mod script;
mod signals;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

pub use duplex::session::SessionEntry;
pub use log::{Answer, Control, Message, MessageState};
pub use record::{AgentStart, Child, Received};
pub use script::ChildKind;

use crate::{Rlm, Sandbox};

/// The exit code after an error in the arguments or the script. Scripted ends don't use it, so no test takes an error for one.
const BROKEN: u8 = 99;

#[derive(Debug, Parser)]
#[command(name = "fake-agent", about = "A scripted agent that is a real process")]
struct Arguments {
    /// The directory for the records, created if missing.
    #[arg(long)]
    record: PathBuf,
    /// The file with the script; without it the arguments are its lines.
    #[arg(long)]
    script: Option<PathBuf>,
    #[command(flatten)]
    role: children::ChildRole,
    lines: Vec<String>,
}

/// Runs `fake-agent`.
pub fn main_impl() -> ExitCode {
    let words: Vec<String> = std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    if duplex::is_conversation(&words) {
        return duplex::run(&words).unwrap_or_else(|error| broken(&error));
    }
    if let Some(speaks) = peer::Protocol::of(&words) {
        return peer::run(speaks).map_or_else(|error| broken(&error), |()| ExitCode::SUCCESS);
    }
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
    let Arguments {
        record,
        script,
        role,
        lines,
    } = arguments;
    let outcome = match children::live(&record, &role) {
        Some(lived) => lived.map(|()| ExitCode::SUCCESS),
        None => match script {
            Some(path) => fs_err::read_to_string(path),
            None => Ok(lines.join("\n")),
        }
        .and_then(|script| perform::run(&record, &script)),
    };
    outcome.unwrap_or_else(|error| broken(&error))
}

fn broken(error: &dyn std::fmt::Display) -> ExitCode {
    let _unheard = writeln!(std::io::stderr(), "fake-agent: {error}");
    ExitCode::from(BROKEN)
}

impl Sandbox {
    /// Creates a fake agent whose files are beside the repository; `program` is `env!("CARGO_BIN_EXE_fake-agent")`.
    #[must_use]
    pub fn fake_agent(&self, program: impl Into<PathBuf>, script: &str) -> FakeAgent {
        FakeAgent::new(program, self.path().join("agent"), script)
    }
}

/// A fake agent as a test uses it: its command line and its records.
#[derive(Debug)]
pub struct FakeAgent {
    program: PathBuf,
    folder: PathBuf,
}

impl FakeAgent {
    /// Writes `script` into `folder` (created if needed); `program` is `env!("CARGO_BIN_EXE_fake-agent")`.
    ///
    /// # Panics
    ///
    /// If the script can't be written.
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

    /// Replaces the script for the next start.
    ///
    /// # Panics
    ///
    /// If the script can't be written.
    pub fn set_script(&self, script: &str) {
        fs_err::write(self.folder.join("script"), script).unwrap();
    }

    /// Returns the command line that starts it.
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

    /// Writes the program `path`, which runs the shell lines `before` and then becomes the agent. The agent ignores the arguments of the program.
    /// `--version` prints a version, because some loop runners look for their agent in this way, and no turn begins.
    ///
    /// # Panics
    ///
    /// If the program can't be written.
    pub fn install(&self, sandbox: &Sandbox, path: &Path, before: &str) {
        let words = self.argv().into_iter().map(|word| {
            let word = word.to_string_lossy().replace('\'', r"'\''");
            format!(" '{word}'")
        });
        let words = words.collect::<String>();
        let version = "[ \"$*\" != --version ] || { echo '1.0.0 (scripted agent)'; exit 0; }";
        let text = format!("#!/bin/sh\n{version}\n{before}exec{words}\n");
        // Another process writes the file, because a program that is open for writing in a fork of this process can't be executed.
        let write = r#"mkdir -p "${0%/*}" && cat >"$0" && chmod +x "$0""#;
        let written = sandbox.rlm("/bin/sh").args(["-c", write]).args([path]);
        written
            .input(text)
            .run(Duration::from_secs(10))
            .expect_code(0);
    }

    /// Prepares a start of the agent itself, without `rlm`.
    pub fn prepare<'a>(&self, sandbox: &'a Sandbox) -> Rlm<'a> {
        sandbox.rlm(&self.program).args(&self.argv()[1..])
    }

    /// Returns all starts so far.
    ///
    /// # Panics
    ///
    /// If a record can't be read. The methods for children and signals panic in the same case.
    #[must_use]
    pub fn starts(&self) -> Vec<AgentStart> {
        record::read_all(&self.record(), "start-")
    }

    /// Returns the children that are ready so far.
    #[must_use]
    pub fn children(&self) -> Vec<Child> {
        record::read_all(&self.record(), "child-")
    }

    /// Returns the signals that the agent and its children received so far, oldest first.
    #[must_use]
    pub fn signals(&self) -> Vec<Received> {
        record::read_signals(&self.record())
    }

    /// Returns the messages that the agent got in conversations, oldest first, each with its state.
    #[must_use]
    pub fn messages(&self) -> Vec<Message> {
        log::messages(&self.record())
    }

    /// Returns the control requests that the agent got, oldest first.
    #[must_use]
    pub fn controls(&self) -> Vec<Control> {
        log::controls(&self.record())
    }

    /// Returns the answers that the agent got to its permission requests, oldest first.
    #[must_use]
    pub fn answers(&self) -> Vec<Answer> {
        log::answers(&self.record())
    }

    /// Returns the stored entries of a session.
    #[must_use]
    pub fn session(&self, id: &str) -> Vec<SessionEntry> {
        duplex::session::memories(&self.record(), id)
    }

    /// Returns the variables with the paths of its script and its records, for tests that don't choose its command line.
    #[must_use]
    pub fn variables(&self) -> [(&'static str, PathBuf); 2] {
        [
            ("FAKE_AGENT_RECORD", self.record()),
            ("FAKE_AGENT_SCRIPT", self.folder.join("script")),
        ]
    }

    /// Returns the path of the program.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Returns the directory with all files of this agent.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn record(&self) -> PathBuf {
        self.folder.join("record")
    }
}

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
//! Started with `--input-format stream-json` it speaks that protocol instead, as the real CLI does (2.1.329 was recorded): options that this does
//! not know end it, and a line on stdin that is not exactly one JSON object ends it with 99. The script is then one of a whole conversation:
//!
//! | line | does |
//! |---|---|
//! | `turn`, `turn ..` | what follows belongs to the next turn, or to all from there on; a turn without a script says `Done.` |
//! | `say [MS] TEXT` | writes an answer, a delta a word, with MS between them; `echo` says what it was sent, `recall` all it was told in this session |
//! | `big SIZE` | an answer in one line of that size |
//! | `tool NAME SUMMARY` … `tool-end [TEXT]` | what stands between them happens while the tool runs |
//! | `run COMMAND` | a Bash tool that is really run, in a session of its own |
//! | `ask TOOL SUMMARY` | asks whether it may, unless its permission mode says; a Bash command that it may is really run |
//! | `expect-steer` | waits until a message came that no turn has taken |
//! | `retry STATUS TIMES [MS]` | so many failures of the service; after ten it gives up |
//! | `not-logged-in` | fails like the CLI without an account |
//! | `noise TEXT`, `event JSON`, `unknown-event` | a line that is no JSON, one that is, one of a type that nobody knows |
//! | `deaf WORD…` | a setting: it does not hear that control request (`interrupt`, `end_session`…), or the end of stdin (`eof`) |
//! | `refuse TEXT`, `unknown-session` | settings: it does not start, or not with `--resume` |
//! | `number-asks` | a setting: the ids of its questions repeat from one process to the next |
//!
//! Started with `app-server` as its first word it is Codex, with `acp` or `--acp` an agent that speaks the Agent Client Protocol; both play of such a script
//! `turn`, `say`, `echo`, `recall`, `run`, `ask`, `expect-steer`, `hang`, `unknown-session` and what needs no conversation, and `retry 429 SECONDS` is a limit
//! that is over then.
//!
//! What waits when a tool ends is folded into the turn, what waits when a turn ends begins one together, and so on: as the CLI does it. SIGINT is an
//! interrupt and an orderly end, SIGTERM ends it with 143. Sessions lie in the record folder ([`Memory`]); what it was told is in [`Message`],
//! [`Control`] and [`Answer`].
//!
//! In a text `\n \t \r \e \\ \xNN` are bytes, `{start}` is the number of the start and `{NAME}` a variable of the environment.
//! Signals that can be caught are logged ([`Received`]) before they act.

mod children;
mod duplex;
mod heard;
mod peer;
mod perform;
mod record;
mod script;
mod signals;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

pub use duplex::session::Memory;
pub use heard::{Answer, Control, Message, Taken};
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
    let words: Vec<String> = std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    if duplex::is_meant(&words) {
        return duplex::run(&words).unwrap_or_else(|error| broken(&error));
    }
    if let Some(speaks) = peer::Speaks::of(&words) {
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
    /// Makes a fake agent whose files lie beside the repository; `program` is `env!("CARGO_BIN_EXE_fake-agent")`.
    #[must_use]
    pub fn fake_agent(&self, program: impl Into<PathBuf>, script: &str) -> FakeAgent {
        FakeAgent::new(program, self.path().join("agent"), script)
    }
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

    /// The messages that it got in conversations, oldest first, and what became of them.
    #[must_use]
    pub fn messages(&self) -> Vec<Message> {
        heard::messages(&self.record())
    }

    /// The control requests that it got, oldest first.
    #[must_use]
    pub fn controls(&self) -> Vec<Control> {
        heard::controls(&self.record())
    }

    /// The answers that it got to its questions, oldest first.
    #[must_use]
    pub fn answers(&self) -> Vec<Answer> {
        heard::answers(&self.record())
    }

    /// What it remembers of a session.
    #[must_use]
    pub fn session(&self, id: &str) -> Vec<Memory> {
        duplex::session::memories(&self.record(), id)
    }

    /// The variables by which it finds its script and its records when its command line is not the test's to say.
    #[must_use]
    pub fn variables(&self) -> [(&'static str, PathBuf); 2] {
        [
            ("FAKE_AGENT_RECORD", self.record()),
            ("FAKE_AGENT_SCRIPT", self.folder.join("script")),
        ]
    }

    /// The program itself.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
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

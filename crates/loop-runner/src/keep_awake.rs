//! Keeps the computer awake while a run lives, by a program of the operating system that runs under a guard.
//!
//! The program ends with the run in two independent ways: it lives only as long as a pipe or the process of the run, and its guard ends it.

use std::time::Duration;

use agent_subprocess::{ProcessContext, StdinMode, StopPolicy, TreeCommand};
use loop_state::CheckResult;
use rlm_store::RunId;
use rlm_store::deadline::Deadline;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::check::{self, CheckOutcome, Freezer, Limit};

/// The longest reason in a warning, in characters.
const MAX_REASON: usize = 200;

/// The program that keeps the computer awake, while it runs. Dropping this value ends the program.
#[derive(Debug)]
pub(crate) struct SleepInhibitor {
    program: &'static str,
    /// The shared deadline of the program. Dropping it ends the program.
    deadline: Deadline,
    task: JoinHandle<CheckOutcome>,
}

/// A program that keeps the computer awake, with its arguments.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    name: &'static str,
    args: Vec<String>,
    /// Whether the program ends when its standard input closes; otherwise it watches the process of the run.
    ends_with_stdin: bool,
}

impl Program {
    /// Returns the program of this operating system; `None` if the system has no known one. `pid` is the process of the run.
    fn of(system: &str, run: &RunId, pid: u32) -> Option<Self> {
        Some(match system {
            "linux" => Self {
                name: "systemd-inhibit",
                // `cat` holds the lock: it exits when the pipe closes.
                args: vec![
                    "--what=idle:sleep".into(),
                    format!("--who={}", rlm_store::program_name()),
                    format!("--why=run {run}"),
                    "--mode=block".into(),
                    "cat".into(),
                ],
                ends_with_stdin: true,
            },
            "macos" => Self {
                name: "caffeinate",
                args: vec!["-i".into(), "-w".into(), pid.to_string()],
                ends_with_stdin: false,
            },
            _ => return None,
        })
    }

    fn command(self) -> TreeCommand {
        TreeCommand::new(self.name)
            .args(self.args)
            .stdin(match self.ends_with_stdin {
                true => StdinMode::Piped,
                false => StdinMode::Null,
            })
    }
}

impl SleepInhibitor {
    /// Starts the program of this operating system for the run. The error is a warning.
    pub(crate) fn start(run: &RunId, context: ProcessContext) -> Result<Self, String> {
        let system = std::env::consts::OS;
        let program = Program::of(system, run, std::process::id()).ok_or_else(|| {
            let why = format!("rlm knows no program for this on {system}");
            warning(&why)
        })?;
        let name = program.name;
        Ok(Self::run(name, program.command(), context))
    }

    fn run(program: &'static str, command: TreeCommand, context: ProcessContext) -> Self {
        let deadline = Deadline::default();
        // Without senders, the program has no time limit and is never suspended.
        let (_, limit) = mpsc::channel(1);
        let (_, freezes) = Freezer::new();
        let task = tokio::spawn(check::run(
            command,
            context_of_inhibitor(context),
            Limit::OnMessage(limit),
            deadline.subscribe(),
            freezes,
        ));
        Self {
            program,
            deadline,
            task,
        }
    }

    /// Waits for the end of the program. Cancel safe.
    pub(crate) async fn ended(&mut self) -> CheckOutcome {
        (&mut self.task).await.unwrap_or_else(CheckOutcome::not_run)
    }

    /// Ends the program within `budget`.
    pub(crate) async fn end(mut self, budget: Duration) -> CheckOutcome {
        self.deadline.tighten_to(budget);
        self.ended().await
    }

    /// Returns the warning for a program that ended by itself.
    pub(crate) fn warning(&self, end: &CheckOutcome) -> String {
        let why = match &end.result {
            CheckResult::Failed(text) | CheckResult::NotRun(text) => one_line(text),
            _ => "it ended".to_owned(),
        };
        warning(&format!("{}: {why}", self.program))
    }
}

/// Returns the context of the program. It has nothing to do with the working tree: its guard doesn't hold the lock, and reports nothing if the run dies.
fn context_of_inhibitor(mut context: ProcessContext) -> ProcessContext {
    context.cwd = "/".into();
    context.hold = None;
    context.survivors_file = None;
    context.stop = StopPolicy::default().without_interrupt();
    context
}

fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(MAX_REASON).collect()
}

fn warning(why: &str) -> String {
    format!("the computer may go to sleep: {why}; the run continues")
}

#[cfg(test)]
mod tests {
    use agent_subprocess::Containment;

    use super::*;

    fn context(dir: &std::path::Path) -> ProcessContext {
        let mut context = ProcessContext::new(dir, dir.join("scratch"));
        context.containment = Containment::Group;
        context
    }

    #[test]
    fn program_lives_only_as_long_as_the_run() {
        let run = "r1".parse().unwrap();
        let of = |system| {
            let program = Program::of(system, &run, 42)?;
            let line = format!("{} {}", program.name, program.args.join(" "));
            Some((line, program.ends_with_stdin))
        };
        let linux = "systemd-inhibit --what=idle:sleep --who=rlm --why=run r1 --mode=block cat";
        assert_eq!(of("linux"), Some((linux.to_owned(), true)));
        assert_eq!(of("macos"), Some(("caffeinate -i -w 42".to_owned(), false)));
        assert_eq!(of("plan9"), None);
    }

    #[tokio::test]
    async fn missing_or_refusing_program_is_a_warning_with_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let command = TreeCommand::new("/nowhere/inhibit");
        let mut missing = SleepInhibitor::run("inhibit", command, context(dir.path()));
        let end = missing.ended().await;
        let warning = missing.warning(&end);
        assert!(warning.contains("/nowhere/inhibit"), "{warning}");

        let refuses = "echo 'Failed to inhibit:' >&2; echo 'no bus' >&2; exit 1";
        let command = TreeCommand::new("sh").args(["-c", refuses]);
        let mut refusing = SleepInhibitor::run("inhibit", command, context(dir.path()));
        let end = refusing.ended().await;
        assert_eq!(
            refusing.warning(&end),
            "the computer may go to sleep: inhibit: Failed to inhibit: no bus (exit status 1); the run continues"
        );
    }

    #[tokio::test]
    async fn program_ends_when_its_input_closes() {
        let dir = tempfile::tempdir().unwrap();
        // A signal would leave no file.
        let command = TreeCommand::new("sh")
            .args(["-c", "cat; echo closed > $0"])
            .arg(dir.path().join("end"))
            .stdin(StdinMode::Piped);
        let running = SleepInhibitor::run("inhibit", command, context(dir.path()));
        // The shell may not have started yet; it reads the closed input then.
        let end = running.end(Duration::from_secs(20)).await;
        assert_eq!((end.result, end.survivors), (CheckResult::Stopped, vec![]));
        let text = fs_err::read_to_string(dir.path().join("end")).unwrap();
        assert_eq!(text, "closed\n");
    }
}

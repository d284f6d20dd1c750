//! The `command` driver: any program as an agent for one turn. The program gets the prompt and runs; its exit ends the turn.
//!
//! By default the prompt is on standard input. An argument with `{prompt_file}` gets the path of a file with the prompt instead (mode 0600, removed
//! at the end of the turn). An argument with `{prompt}` gets the prompt itself. With either, standard input is `/dev/null`. Every user who can list
//! processes can read a prompt that `{prompt}` passes, and the system limits the size of one argument (128 KiB on Linux).
//!
//! The driver passes the program's output through as uninterpreted lines, [`Observation::raw`](agent_duplex::Observation::raw): there are no
//! messages, deltas or tools. A turn has one [`TurnEnd`], at the exit.

mod prompt;
mod refusal;

use crate::acp::gemini;
use crate::choices::CheckedDriver;
use crate::convert::{
    exit_status, freeze, names, no_descriptor, nothing_to_stop, observation, start, stop_report,
};
use crate::host_variables;
use agent_duplex::{BoxFuture, Capabilities, Connection, Driver, EndReason, Error, Event};
use agent_duplex::{Message, Observation, ProcessName, QueuedMessages, SessionChoice};
use agent_duplex::{StopReport, TurnEnd};
use agent_subprocess::{
    Exit, ProcessContext, ProcessTree, ScratchFile, Signal, StdinMode, TreeCommand,
};
use prompt::Prompt;
use refusal::{LastLines, Refusal};
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, SystemTime};

pub(crate) const NAME: &str = "command";

/// The longest line that is passed through complete. Nothing is parsed here, so a longer line only loses its middle for the reader.
const MAX_LINE: usize = 2 << 20;

/// Runs a program as an agent for one turn. See the [module](self) for the ways to pass the prompt.
///
/// A turn is completed when the program exits with 0, failed when it exits with another code, and died when a signal killed it. After an interrupt or
/// a stop it counts as interrupted with any exit code, because some agents then exit with 0. For a program that is called `gemini`, two exit codes
/// have a meaning: with 42 the program refused its input, and with 53 it reached its limit of model calls.
///
/// If the last line of a failed program is the text with which Claude Code, Codex or Gemini CLI report a limit or an outage of their service, the turn
/// ends with [`EndReason::RateLimited`] or [`EndReason::ServiceFailed`]. If that line names a full disk, or with exit code 75 (`EX_TEMPFAIL` of
/// `sysexits.h`), it ends with [`EndReason::TemporaryFailure`].
#[derive(Clone, Debug)]
pub struct CommandDriver {
    argv: Vec<OsString>,
    context: ProcessContext,
}

impl CommandDriver {
    /// Creates a driver for this program and its arguments. With an empty `argv`, `connect` returns an error.
    pub fn new(argv: Vec<OsString>, context: ProcessContext) -> Self {
        CommandDriver { argv, context }
    }
}

impl CheckedDriver for CommandDriver {
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }
}

impl Driver for CommandDriver {
    fn name(&self) -> &str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
    }

    fn connect(&self, session: SessionChoice) -> BoxFuture<'_, Result<Box<dyn Connection>, Error>> {
        Box::pin(async move {
            if session != SessionChoice::Fresh {
                let hint =
                    "start a fresh session, or pass the agent's own resume option in its arguments";
                return Err(Error::unsupported(NAME, "continue a session", hint));
            } else if self.argv.is_empty() {
                return Err(Error::start(
                    "no command given: name the program to run",
                    None,
                ));
            }
            let driver = self.clone();
            let connection = CommandConnection {
                driver,
                turn: None,
                closed: false,
                stopped: None,
            };
            Ok(Box::new(connection) as Box<dyn Connection>)
        })
    }
}

#[derive(Debug)]
struct CommandConnection {
    driver: CommandDriver,
    /// The first input starts the program, because its arguments can contain the prompt.
    turn: Option<Turn>,
    /// Whether no further program starts.
    closed: bool,
    stopped: Option<StopReport>,
}

#[derive(Debug)]
struct Turn {
    agent: ProcessTree,
    /// The file of the prompt, removed when this value is dropped.
    prompt_file: Option<ScratchFile>,
    /// Whether the exit codes are those of Gemini CLI.
    is_gemini: bool,
    interrupted: bool,
    last_lines: LastLines,
    next: NextEvent,
}

/// The next report of a turn.
#[derive(Debug)]
enum NextEvent {
    Started,
    /// The output, and then the exit.
    Output,
    /// The end, after a report of its limit.
    End(TurnEnd),
    Nothing,
}

impl Turn {
    async fn start(driver: &CommandDriver, text: &str) -> Result<Self, Error> {
        let context = &driver.context;
        let prompt =
            Prompt::place(&driver.argv, text.as_bytes(), &context.scratch).map_err(|e| {
                let what = format!("{}: {e}", context.scratch.display());
                Error::start(
                    format!(
                        "can't write the prompt to {what}; free space there or fix its permissions"
                    ),
                    Some(e.into()),
                )
            })?;
        let mut words = prompt.argv.into_iter();
        let program = words.next().unwrap_or_default();
        let stdin = if prompt.has_prompt_arg {
            StdinMode::Null
        } else {
            StdinMode::Bytes(text.into())
        };
        let command = host_variables::restored(TreeCommand::new(program))
            .args(words)
            .stdin(stdin)
            .max_line(MAX_LINE)
            .context(context)
            .map_err(no_descriptor)?;
        let agent = start(command).await?;
        let prompt_file = prompt.file;
        let is_gemini = { driver.argv.first().map(Path::new) }
            .is_some_and(|program| program.file_name().is_some_and(|name| name == gemini::NAME));
        Ok(Turn {
            agent,
            prompt_file,
            is_gemini,
            interrupted: false,
            last_lines: LastLines::default(),
            next: NextEvent::Started,
        })
    }

    async fn next(&mut self) -> Option<Observation> {
        match &self.next {
            NextEvent::Started => {
                self.next = NextEvent::Output;
                let pid = self.agent.pid();
                return Some(Event::Started { pid }.into());
            }
            NextEvent::Output => {}
            NextEvent::End(end) => {
                let end = end.clone();
                self.next = NextEvent::Nothing;
                return Some(Event::TurnCompleted(end).into());
            }
            NextEvent::Nothing => return None,
        }
        if let Some(output) = self.agent.next_output().await {
            self.last_lines.note(&output);
            return Some(observation(output));
        }
        let exit = self.agent.wait().await;
        self.prompt_file = None;
        let refusal = self.refusal(exit);
        let until = refusal.as_ref().and_then(|refusal| refusal.until);
        let (reason, detail) = { gemini::exit_code(exit_status(exit)) }
            .filter(|_| self.is_gemini && !self.interrupted)
            .or_else(|| refusal.map(|Refusal { reason, detail, .. }| (reason, detail)))
            .unwrap_or_else(|| (reason(exit, self.interrupted), String::new()));
        let limit = Event::RateLimited {
            rejected: true,
            resets_at: until,
            limit: detail.clone(),
        };
        let end = TurnEnd {
            reason,
            detail,
            exit: exit_status(exit),
            output_tail: self.agent.stderr_tail(),
        };
        if until.is_some() {
            self.next = NextEvent::End(end);
            return Some(limit.into());
        }
        self.next = NextEvent::Nothing;
        Some(Event::TurnCompleted(end).into())
    }

    /// Returns why a failed program asks for another try.
    fn refusal(&self, exit: Exit) -> Option<Refusal> {
        let code = exit.code.filter(|code| *code != 0 && !self.interrupted)?;
        self.last_lines.refusal(code, SystemTime::now())
    }

    async fn stop(&mut self, driver: &CommandDriver, budget: Duration) -> StopReport {
        let policy = driver.context.stop.clone().within(budget);
        // An earlier interrupt has already used its time.
        let policy = if self.interrupted {
            policy.without_interrupt()
        } else {
            policy
        };
        self.interrupted |= !self.agent.has_exited();
        let report = self.agent.stop(&policy).await;
        self.prompt_file = None;
        stop_report(report)
    }
}

impl Connection for CommandConnection {
    fn send(&mut self, message: Message) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            if self.turn.is_some() || self.closed {
                let hint = "start it again with the new prompt";
                return Err(Error::unsupported(NAME, "take a second input", hint));
            }
            message.check_parts(NAME, Capabilities::none())?;
            self.turn = Some(Turn::start(&self.driver, &message.text).await?);
            Ok(())
        })
    }

    fn next(&mut self) -> BoxFuture<'_, Option<Observation>> {
        Box::pin(async move {
            match &mut self.turn {
                Some(turn) => turn.next().await,
                None if self.closed => None,
                // `send` needs the connection mutably, so its caller drops this future first.
                None => std::future::pending().await,
            }
        })
    }

    fn interrupt(&mut self, _queued: QueuedMessages) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let Some(turn) = self.turn.as_mut().filter(|turn| !turn.agent.has_exited()) else {
                return Ok(());
            };
            turn.interrupted = true;
            turn.agent
                .signal(Signal::Interrupt)
                .map_err(|e| Error::unsupported(NAME, format!("be interrupted ({e})"), "stop it"))
        })
    }

    fn freeze(&mut self, frozen: bool) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            match self.turn.as_mut() {
                Some(turn) => freeze(&mut turn.agent, frozen),
                None => Ok(()),
            }
        })
    }

    /// Only prevents a later start: the program has ended by itself, or was never started.
    fn close(&mut self) -> BoxFuture<'_, ()> {
        self.closed = true;
        Box::pin(async {})
    }

    fn leftovers(&mut self) -> BoxFuture<'_, Vec<ProcessName>> {
        Box::pin(async move {
            match &mut self.turn {
                Some(turn) => names(turn.agent.leftovers().await),
                None => Vec::new(),
            }
        })
    }

    fn stop(&mut self, budget: Duration) -> BoxFuture<'_, StopReport> {
        Box::pin(async move {
            if let Some(report) = &self.stopped {
                return report.clone();
            }
            self.closed = true;
            let report = match &mut self.turn {
                Some(turn) => turn.stop(&self.driver, budget).await,
                None => nothing_to_stop(),
            };
            self.stopped.insert(report).clone()
        })
    }
}

fn reason(exit: Exit, interrupted: bool) -> EndReason {
    match exit {
        _ if interrupted => EndReason::Interrupted,
        Exit { code: Some(0), .. } => EndReason::Completed,
        Exit { code: Some(_), .. } => EndReason::Failed,
        _ => EndReason::Died,
    }
}

//! The `command` driver: any program as a one-shot agent.
//!
//! The program gets the prompt on its standard input and one turn to make of it. An argument that contains
//! `{prompt_file}` gets the path of a private file instead, one that contains `{prompt}` the text itself, which every
//! user of the machine can read in the process list; with either, standard input is `/dev/null`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agent_duplex::{
    BoxFuture, Capabilities, Connection, Driver, EndReason, Event, ExitStatus, Input, Receipt,
    SessionChoice, StopStage, TurnEnd,
};

use crate::{
    Agent, AgentCommand, Containment, Context, Exit, Output, ProcessName, Stage, StdinMode, Stream,
};

const NAME: &str = "command";
const PROMPT: &[u8] = b"{prompt}";
const PROMPT_FILE: &[u8] = b"{prompt_file}";

/// Runs any program as an agent, one process a turn.
#[derive(Clone, Debug)]
pub struct CommandDriver {
    argv: Vec<OsString>,
    context: Context,
}

impl CommandDriver {
    /// Makes the driver of a program and its arguments; all processes are started in `context`.
    ///
    /// # Panics
    /// When `argv` is empty: there is no program to name.
    pub fn new(argv: Vec<OsString>, context: Context) -> Self {
        assert!(!argv.is_empty(), "an agent command needs a program");
        CommandDriver { argv, context }
    }
}

impl Driver for CommandDriver {
    fn name(&self) -> &str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
    }

    fn connect(
        &self,
        session: SessionChoice,
    ) -> BoxFuture<'_, Result<Box<dyn Connection>, agent_duplex::Error>> {
        Box::pin(async move {
            if session != SessionChoice::Fresh {
                let mend = "start it fresh, or say in its own arguments what it shall resume";
                return Err(agent_duplex::Error::unsupported(
                    NAME,
                    "go on with a session",
                    mend,
                ));
            }
            let connection: Box<dyn Connection> = Box::new(CommandConnection {
                driver: self.clone(),
                process: None,
                started: false,
                interrupted: false,
                completed: false,
                prompt_file: None,
            });
            Ok(connection)
        })
    }
}

/// One turn of the program. The process is started by the first `send`, because its arguments may hold the prompt.
#[derive(Debug)]
struct CommandConnection {
    driver: CommandDriver,
    process: Option<Agent>,
    started: bool,
    interrupted: bool,
    completed: bool,
    prompt_file: Option<PromptFile>,
}

impl CommandConnection {
    async fn start(&mut self, input: &Input) -> Result<(), agent_duplex::Error> {
        let fail = |message: String, e: Box<dyn std::error::Error + Send + Sync>| {
            agent_duplex::Error::start(message, Some(e))
        };
        let context = &self.driver.context;
        let wants = |what: &[u8]| {
            self.driver
                .argv
                .iter()
                .any(|word| find(word.as_bytes(), what).is_some())
        };
        let in_arguments = wants(PROMPT) || wants(PROMPT_FILE);
        if wants(PROMPT_FILE) {
            let file = PromptFile::write(&context.scratch, &input.text).map_err(|e| {
                fail(
                    format!(
                        "the prompt can't be kept in `{}`: {e}",
                        context.scratch.display()
                    ),
                    e.into(),
                )
            })?;
            self.prompt_file = Some(file);
        }
        let path = self
            .prompt_file
            .as_ref()
            .map_or(OsStr::new(""), |file| file.0.as_os_str());
        let mut words = self.driver.argv.iter().map(|word| {
            let word = replace(word.as_bytes(), PROMPT_FILE, path.as_bytes());
            OsString::from_vec(replace(&word, PROMPT, input.text.as_bytes()))
        });
        let program = words.next().expect("the driver has a program");
        let stdin = if in_arguments {
            StdinMode::Null
        } else {
            StdinMode::Bytes(input.text.clone().into_bytes())
        };
        let command = AgentCommand::new(program)
            .args(words)
            .stdin(stdin)
            .context(context)
            .map_err(|e| fail(format!("the agent can't be started: {e}"), e.into()))?;
        let process = command
            .spawn()
            .await
            .map_err(|e| fail(e.to_string(), e.into()))?;
        self.process = Some(process);
        Ok(())
    }

    async fn next_event(&mut self) -> Option<Event> {
        let process = self.process.as_mut()?;
        if !self.started {
            self.started = true;
            return Some(Event::Started { pid: process.pid() });
        }
        if let Some(output) = process.next_output().await {
            return Some(event(output));
        }
        if self.completed {
            return None;
        }
        let exit = process.wait().await;
        self.completed = true;
        Some(Event::TurnCompleted(TurnEnd {
            reason: reason(exit, self.interrupted),
            exit: status(exit),
            stderr_tail: process.stderr_tail(),
        }))
    }
}

impl Connection for CommandConnection {
    fn send(&mut self, input: Input) -> BoxFuture<'_, Result<Receipt, agent_duplex::Error>> {
        Box::pin(async move {
            if self.process.is_some() {
                let mend = "start it again with the new prompt";
                return Err(agent_duplex::Error::unsupported(
                    NAME,
                    "take a second input",
                    mend,
                ));
            }
            self.start(&input).await?;
            Ok(Receipt::now(&input))
        })
    }

    fn next(&mut self) -> BoxFuture<'_, Option<Event>> {
        Box::pin(self.next_event())
    }

    fn interrupt(&mut self) -> BoxFuture<'_, Result<(), agent_duplex::Error>> {
        Box::pin(async move {
            let Some(process) = &mut self.process else {
                return Ok(());
            };
            // Its exit code will say nothing: some agents exit with 0 when they are interrupted.
            self.interrupted = true;
            process.interrupt().map_err(|e| {
                agent_duplex::Error::unsupported(NAME, format!("be interrupted ({e})"), "stop it")
            })
        })
    }

    fn leftovers(&mut self) -> BoxFuture<'_, Vec<agent_duplex::ProcessName>> {
        Box::pin(async move {
            match &mut self.process {
                Some(process) => names(process.leftovers().await),
                None => Vec::new(),
            }
        })
    }

    fn stop(&mut self, budget: Duration) -> BoxFuture<'_, agent_duplex::StopReport> {
        Box::pin(async move {
            let Some(process) = &mut self.process else {
                return agent_duplex::StopReport {
                    stage: StopStage::AlreadyEnded,
                    ended: Vec::new(),
                    survivors: Vec::new(),
                    proven: true,
                };
            };
            let policy = self.driver.context.stop.clone().within(budget);
            // The agent had its time for that already.
            let policy = if self.interrupted {
                policy.without_interrupt()
            } else {
                policy
            };
            let report = process.stop(&policy).await;
            agent_duplex::StopReport {
                stage: stage(report.stage),
                proven: report.containment == Containment::Guard && !report.guard_lost,
                ended: names(report.ended),
                survivors: names(report.survivors),
            }
        })
    }
}

/// A turn of a one-shot agent is its process: nothing but exit code 0 completes it, and an interrupt of ours overrules that.
fn reason(exit: Exit, interrupted: bool) -> EndReason {
    match exit {
        _ if interrupted => EndReason::Interrupted,
        Exit { code: Some(0), .. } => EndReason::Completed,
        Exit { code: Some(_), .. } => EndReason::Failed,
        _ => EndReason::Died,
    }
}

fn status(exit: Exit) -> Option<ExitStatus> {
    exit.code
        .map(ExitStatus::Code)
        .or(exit.signal.map(ExitStatus::Signal))
}

fn stage(stage: Stage) -> StopStage {
    match stage {
        Stage::Gone => StopStage::AlreadyEnded,
        Stage::Interrupt => StopStage::Interrupt,
        Stage::CloseStdin => StopStage::CloseInput,
        Stage::Terminate => StopStage::Terminate,
        Stage::Kill => StopStage::Kill,
    }
}

fn names(processes: Vec<ProcessName>) -> Vec<agent_duplex::ProcessName> {
    processes
        .into_iter()
        .map(|p| agent_duplex::ProcessName {
            pid: p.pid,
            name: p.name,
        })
        .collect()
}

fn event(output: Output) -> Event {
    let stream = match output.stream {
        Stream::Stdout => agent_duplex::Stream::Stdout,
        Stream::Stderr => agent_duplex::Stream::Stderr,
    };
    let line = agent_duplex::Line {
        bytes: output.line.bytes,
        omitted: output.line.truncated.unwrap_or(0),
    };
    Event::Output { stream, line }
}

/// A prompt in a file that only its owner can read, gone when the turn is.
#[derive(Debug)]
struct PromptFile(PathBuf);

impl PromptFile {
    fn write(directory: &Path, text: &str) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("prompt-{}-{number}.md", std::process::id()));
        // A process with this number that was killed may have left one behind.
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        let file = (file.write_all(text.as_bytes()), PromptFile(path));
        file.0.map(|()| file.1)
    }
}

impl Drop for PromptFile {
    fn drop(&mut self) {
        // What can't be removed stays private.
        let _private = fs::remove_file(&self.0);
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    memchr::memmem::find(text, what)
}

/// Replaces every occurrence, and looks at nothing that was put in.
fn replace(text: &[u8], what: &[u8], with: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = find(rest, what) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(with);
        rest = &rest[at + what.len()..];
    }
    out.extend_from_slice(rest);
    out
}

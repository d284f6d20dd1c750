//! The clients of the agent: two with only pipes, our driver alone, our driver in a conversation, and the SDK in Python.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use agent_duplex::{
    Connection, Conversation, ConversationEvent, ConversationOptions, Driver as _, Event, Input,
    Message, Observation, Primary, QueuedMessages, SessionChoice,
};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Runtime;

use crate::b7::claude;
use crate::harness::{Process, Result, pause};
use crate::peers::Script;
use crate::scripted_agent::{command, words};

const PART: &[&str] = &["turns"];
/// The message that makes the agent begin its answer, without ending it.
const HOLD: &str = "hold";
const GONE: &str = "the agent ended";

/// A client of an agent.
pub(super) trait Client {
    /// Runs two whole turns, and returns the time to the first event of the second one; the first turn is the warm-up.
    fn turn(&mut self) -> Result<Duration>;

    /// Begins a turn, interrupts it, and returns the time to its end.
    fn interrupt(&mut self) -> Result<Duration>;
}

const INTERRUPT: &str = concat!(
    r#"{"type":"control_request","request_id":"1","request":{"subtype":"interrupt"}}"#,
    "\n"
);

fn spoken(text: &str) -> String {
    let uuid = uuid::Uuid::new_v4();
    format!(
        r#"{{"type":"user","message":{{"role":"user","content":"{text}"}},"uuid":"{uuid}"}}{}"#,
        "\n"
    )
}

/// A client that knows the protocol and is written only for speed.
pub(super) struct Bare {
    _process: Process,
    input: ChildStdin,
    out: BufReader<ChildStdout>,
    line: String,
}

impl Bare {
    pub(super) fn start() -> Result<Self> {
        let (process, input, out) = Process::piped(command(PART)?)?;
        Ok(Self {
            _process: process,
            input,
            out: BufReader::new(out),
            line: String::new(),
        })
    }

    fn say(&mut self, line: &str) -> Result<()> {
        Ok(self.input.write_all(line.as_bytes())?)
    }

    fn whole(&mut self) -> Result<Duration> {
        let begun = Instant::now();
        self.say(&spoken("go"))?;
        self.read_to("text_delta")?;
        let took = begun.elapsed();
        self.read_to(r#""type":"result""#)?;
        Ok(took)
    }

    fn read_to(&mut self, what: &str) -> Result<()> {
        loop {
            self.line.clear();
            if self.out.read_line(&mut self.line)? == 0 {
                return Err(GONE.into());
            } else if self.line.contains(what) {
                return Ok(());
            }
        }
    }
}

impl Client for Bare {
    fn turn(&mut self) -> Result<Duration> {
        self.whole()?;
        settle();
        self.whole()
    }

    fn interrupt(&mut self) -> Result<Duration> {
        self.say(&spoken(HOLD))?;
        self.read_to("text_delta")?;
        settle();
        let begun = Instant::now();
        self.say(INTERRUPT)?;
        self.read_to(r#""type":"result""#)?;
        Ok(begun.elapsed())
    }
}

/// The same client, but in tokio like our driver. Its additional time is the cost of the runtime.
pub(super) struct BareAsync {
    runtime: Runtime,
    talker: Talker,
}

struct Talker {
    _child: tokio::process::Child,
    input: tokio::process::ChildStdin,
    out: tokio::io::BufReader<tokio::process::ChildStdout>,
    line: String,
}

impl BareAsync {
    pub(super) fn start(runtime: Runtime) -> Result<Self> {
        let inside = runtime.enter();
        let mut command = tokio::process::Command::from(command(PART)?);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn()?;
        drop(inside);
        let (Some(input), Some(out)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both are piped")
        };
        let talker = Talker {
            _child: child,
            input,
            out: tokio::io::BufReader::new(out),
            line: String::new(),
        };
        Ok(Self { runtime, talker })
    }
}

impl Talker {
    async fn whole(&mut self) -> Result<Duration> {
        let begun = Instant::now();
        self.say(&spoken("go")).await?;
        self.read_to("text_delta").await?;
        let took = begun.elapsed();
        self.read_to(r#""type":"result""#).await?;
        Ok(took)
    }

    async fn say(&mut self, line: &str) -> Result<()> {
        Ok(self.input.write_all(line.as_bytes()).await?)
    }

    async fn read_to(&mut self, what: &str) -> Result<()> {
        loop {
            self.line.clear();
            if self.out.read_line(&mut self.line).await? == 0 {
                return Err(GONE.into());
            } else if self.line.contains(what) {
                return Ok(());
            }
        }
    }
}

impl Client for BareAsync {
    fn turn(&mut self) -> Result<Duration> {
        let talker = &mut self.talker;
        self.runtime.block_on(async {
            talker.whole().await?;
            settle();
            talker.whole().await
        })
    }

    fn interrupt(&mut self) -> Result<Duration> {
        let talker = &mut self.talker;
        self.runtime.block_on(async {
            talker.say(&spoken(HOLD)).await?;
            talker.read_to("text_delta").await?;
            settle();
            let begun = Instant::now();
            talker.say(INTERRUPT).await?;
            talker.read_to(r#""type":"result""#).await?;
            Ok(begun.elapsed())
        })
    }
}

/// Gives the agent time to sleep. A client in tokio calls this inside `block_on`, because a program does not enter its runtime again for each
/// message.
fn settle() {
    pause(Duration::from_micros(200));
}

fn is_answer(seen: &Observation) -> bool {
    seen.events
        .iter()
        .any(|event| matches!(event, Event::TextDelta(_)))
}

/// Our driver, without a conversation around it.
pub(super) struct Direct {
    runtime: Runtime,
    connection: Box<dyn Connection>,
}

impl Direct {
    pub(super) fn start(runtime: Runtime) -> Result<Self> {
        let driver = claude(PART)?;
        let connection = runtime.block_on(async {
            let mut connection = driver.connect(SessionChoice::Fresh).await?;
            connection.ready().await?;
            Ok::<_, agent_duplex::Error>(connection)
        })?;
        Ok(Self {
            runtime,
            connection,
        })
    }
}

async fn seen(
    connection: &mut dyn Connection,
    enough: impl Fn(&Observation) -> bool,
) -> Result<()> {
    while !enough(&connection.next().await.ok_or(GONE)?) {}
    Ok(())
}

fn is_end(seen: &Observation) -> bool {
    let mut events = seen.events.iter();
    events.any(|event| matches!(event, Event::TurnCompleted(_)))
}

async fn whole(connection: &mut dyn Connection) -> Result<Duration> {
    let begun = Instant::now();
    connection.send(Message::new("go")).await?;
    seen(connection, is_answer).await?;
    let took = begun.elapsed();
    seen(connection, is_end).await?;
    Ok(took)
}

impl Client for Direct {
    fn turn(&mut self) -> Result<Duration> {
        let connection = self.connection.as_mut();
        self.runtime.block_on(async {
            whole(connection).await?;
            settle();
            whole(connection).await
        })
    }

    fn interrupt(&mut self) -> Result<Duration> {
        let connection = self.connection.as_mut();
        self.runtime.block_on(async {
            connection.send(Message::new(HOLD)).await?;
            seen(connection, is_answer).await?;
            settle();
            let begun = Instant::now();
            connection.interrupt(QueuedMessages::Keep).await?;
            seen(connection, is_end).await?;
            Ok(begun.elapsed())
        })
    }
}

/// A conversation and its primary.
pub(super) struct Talk {
    runtime: Runtime,
    conversation: Conversation,
    primary: Primary,
}

impl Talk {
    pub(super) fn start(runtime: Runtime) -> Result<Self> {
        let driver = claude(PART)?;
        let (conversation, primary) = runtime.block_on(async {
            let (conversation, primary) = Conversation::with_primary(
                Box::new(driver),
                ConversationOptions::default().with_manual_start(),
            );
            conversation.start(SessionChoice::Fresh).await?;
            Ok::<_, agent_duplex::Error>((conversation, primary))
        })?;
        Ok(Self {
            runtime,
            conversation,
            primary,
        })
    }
}

async fn told(primary: &mut Primary, enough: impl Fn(&ConversationEvent) -> bool) -> Result<()> {
    while !enough(&primary.next_shared().await.ok_or(GONE)?.event) {}
    Ok(())
}

fn tells_answer(what: &ConversationEvent) -> bool {
    matches!(what, ConversationEvent::Observed(seen) if is_answer(seen))
}

fn tells_end(what: &ConversationEvent) -> bool {
    matches!(what, ConversationEvent::Completed(_))
}

async fn talked(conversation: &Conversation, primary: &mut Primary) -> Result<Duration> {
    let begun = Instant::now();
    conversation.send(Input::new("go"))?;
    told(primary, tells_answer).await?;
    let took = begun.elapsed();
    told(primary, tells_end).await?;
    Ok(took)
}

impl Client for Talk {
    fn turn(&mut self) -> Result<Duration> {
        let (conversation, primary) = (&self.conversation, &mut self.primary);
        self.runtime.block_on(async {
            talked(conversation, primary).await?;
            settle();
            talked(conversation, primary).await
        })
    }

    fn interrupt(&mut self) -> Result<Duration> {
        let (conversation, primary) = (&self.conversation, &mut self.primary);
        self.runtime.block_on(async {
            conversation.send(Input::new(HOLD))?;
            told(primary, tells_answer).await?;
            settle();
            let begun = Instant::now();
            let interrupted = conversation.interrupt(QueuedMessages::Keep);
            told(primary, tells_end).await?;
            let took = begun.elapsed();
            interrupted.await?;
            Ok(took)
        })
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        self.runtime
            .block_on(self.conversation.stop(Duration::from_secs(2)));
    }
}

/// The SDK of the agent's vendor, which reports the nanoseconds itself.
pub(super) struct Sdk(Script);

impl Sdk {
    /// Starts the SDK, with a script in `scratch` in place of the agent's program.
    pub(super) fn start(scratch: &Path) -> Result<Self> {
        let path = std::path::absolute(scratch.join("agent"))?;
        let words: Vec<String> = words(PART)?
            .iter()
            .map(|word| format!("'{}'", word.to_string_lossy().replace('\'', r"'\''")))
            .collect();
        fs_err::write(
            &path,
            format!("#!/bin/sh\nexec {} \"$@\"\n", words.join(" ")),
        )?;
        fs_err::set_permissions(&path, Permissions::from_mode(0o700))?;
        let script = include_str!("../../peers/agent_sdk.py");
        let mut command = crate::peers::python(script, &scratch.join("home"))?;
        command
            .arg(&path)
            .env("CLAUDE_AGENT_SDK_SKIP_VERSION_CHECK", "1");
        Ok(Self(Script::start(command)?))
    }
}

impl Client for Sdk {
    fn turn(&mut self) -> Result<Duration> {
        self.0.time(b"turn\n")
    }

    fn interrupt(&mut self) -> Result<Duration> {
        self.0.time(b"interrupt\n")
    }
}

//! Runs a program that somebody else wrote, for a bounded time and with nothing left of it: under a guard, away from the
//! project, whose settings and hooks are none of the doctor's business.

use std::ffi::OsString;

use agent_subprocess::{
    Agent, AgentCommand, Exit, Marker, Stdin, StdinMode, StopPolicy, StopReport, Stream,
};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, timeout_at};

/// How much of an answer is looked at.
const MAX_ANSWER: usize = 64 << 10;
const MAX_LINE: usize = 1 << 20;
/// How many lines may come before an answer.
const MAX_LINES: usize = 1000;

/// What a program said until it ended.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) exit: Exit,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Why there is no answer, for people.
pub(super) type Silence = String;

/// What is asked.
#[derive(Debug)]
pub(super) struct Program {
    /// Its path, and arguments before all others.
    pub(super) words: Vec<OsString>,
    /// What `rlm.toml` sets for it.
    pub(super) env: Vec<(String, String)>,
}

impl Program {
    pub(super) fn new(words: Vec<OsString>) -> Self {
        let env = Vec::new();
        Self { words, env }
    }
}

/// Returns the command with which a program is asked. `/` has no settings of a project, and none above it.
pub(super) fn command(program: &Program, arguments: &[&str]) -> AgentCommand {
    let marker = Marker {
        variable: "RLM_MARKER".into(),
        scope: uuid::Uuid::new_v4().simple().to_string(),
        member: "doctor".into(),
    };
    let mut words = program.words.iter();
    let asked = AgentCommand::new(words.next().cloned().unwrap_or_default())
        .args(words)
        .args(arguments)
        .current_dir("/")
        .marker(marker)
        .max_line(MAX_LINE);
    let env = program.env.iter();
    env.fold(asked, |asked, (name, value)| asked.env(name, value))
}

/// Runs a command to its end.
pub(super) async fn run(command: AgentCommand, until: Instant) -> Result<Said, Silence> {
    let asked = Instant::now();
    let mut agent = command.spawn().await.map_err(|e| e.to_string())?;
    let mut stdout = String::new();
    let exit = timeout_at(until, async {
        while let Some(output) = agent.next_output().await {
            if output.stream == Stream::Stdout && stdout.len() < MAX_ANSWER {
                stdout.push_str(&output.line.text());
                stdout.push('\n');
            }
        }
        agent.wait().await
    })
    .await;
    let stderr = agent.stderr_tail();
    end(&mut agent).await;
    let exit = exit.map_err(|_| no_answer(asked))?;
    Ok(Said {
        exit,
        stdout,
        stderr,
    })
}

/// Ends what is left of a program, at once.
pub(super) async fn end(agent: &mut Agent) -> StopReport {
    agent.stop(&StopPolicy::kill()).await
}

fn no_answer(asked: Instant) -> Silence {
    let seconds = asked.elapsed().as_secs_f64().round();
    format!("it did not answer within {seconds} s")
}

/// Has a conversation with a program that answers requests, one JSON object a line, and ends the program.
pub(super) async fn converse<T>(
    command: AgentCommand,
    until: Instant,
    talk: impl AsyncFnOnce(&mut Talk) -> Result<T, Silence>,
) -> Result<T, Silence> {
    let started = command.stdin(StdinMode::Piped).spawn().await;
    let mut agent = started.map_err(|e| e.to_string())?;
    let stdin = agent.take_stdin().expect("its input is a pipe");
    let mut talked = Talk {
        agent,
        stdin,
        asked: 0,
        until,
    };
    let said = talk(&mut talked).await;
    end(&mut talked.agent).await;
    said
}

/// A conversation with a program.
#[derive(Debug)]
pub(super) struct Talk {
    agent: Agent,
    stdin: Stdin,
    asked: u64,
    until: Instant,
}

impl Talk {
    /// Asks, and waits for the result; what is an error to the program is one here, as it told it.
    pub(super) async fn ask(
        &mut self,
        method: &str,
        params: Value,
    ) -> Result<Result<Value, Value>, Silence> {
        let asked = Instant::now();
        self.asked += 1;
        let id = self.asked;
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let answered = async {
            // A program that has ended is known by the end of its output.
            let _ended = self
                .stdin
                .write_all(format!("{request}\n").as_bytes())
                .await;
            for _ in 0..MAX_LINES {
                let output = self.agent.next_output().await?;
                let line = serde_json::from_slice::<Value>(&output.line.bytes);
                let is_answer = |line: &Value| line["id"] == id && line["method"].is_null();
                if let Some(answer) = line.ok().filter(is_answer) {
                    return Some(answer);
                }
            }
            None
        };
        match timeout_at(self.until, answered).await {
            Ok(Some(mut answer)) => Ok(match answer["error"].take() {
                Value::Null => Ok(answer["result"].take()),
                error => Err(error),
            }),
            Ok(None) => Err("it ended without an answer".into()),
            Err(_) => Err(no_answer(asked)),
        }
    }
}

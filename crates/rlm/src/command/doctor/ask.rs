//! Runs a program of somebody else for a limited time, under a guard that ends all its processes. It runs outside of the project, because the
//! doctor must not use the settings and hooks of the project.

use std::ffi::OsString;

use agent_subprocess::{
    Agent, AgentCommand, Exit, Marker, Stdin, StdinMode, StopPolicy, StopReport, Stream,
};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, timeout_at};

/// The maximum size of a response that is read.
const MAX_ANSWER: usize = 64 << 10;
const MAX_LINE: usize = 1 << 20;
/// The maximum number of lines before a response.
const MAX_LINES: usize = 1000;

/// The output of a program until it ended.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) exit: Exit,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// The reason why there is no response, as text.
pub(super) type Silence = String;

/// A program to ask.
#[derive(Debug)]
pub(super) struct Program {
    /// Its path, and the arguments that come first.
    pub(super) words: Vec<OsString>,
    /// The variables that `rlm.toml` sets for it.
    pub(super) env: Vec<(String, String)>,
}

impl Program {
    pub(super) fn new(words: Vec<OsString>) -> Self {
        let env = Vec::new();
        Self { words, env }
    }
}

/// Returns the command that asks a program. It runs in `/`, where no project has settings.
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

/// Kills the remaining processes of a program.
pub(super) async fn end(agent: &mut Agent) -> StopReport {
    agent.stop(&StopPolicy::kill()).await
}

fn no_answer(asked: Instant) -> Silence {
    let seconds = asked.elapsed().as_secs_f64().round();
    format!("no response within {seconds} s")
}

/// Talks to a program that answers requests, one JSON object per line, and then ends the program.
pub(super) async fn converse<T>(
    command: AgentCommand,
    until: Instant,
    talk: impl AsyncFnOnce(&mut Talk) -> Result<T, Silence>,
) -> Result<T, Silence> {
    let started = command.stdin(StdinMode::Piped).spawn().await;
    let mut agent = started.map_err(|e| e.to_string())?;
    let stdin = agent.take_stdin().expect("the input is a pipe");
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

/// A connection to a program.
#[derive(Debug)]
pub(super) struct Talk {
    agent: Agent,
    stdin: Stdin,
    asked: u64,
    until: Instant,
}

impl Talk {
    /// Sends a request and waits for its result. An error that the program reports is returned unchanged.
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
            // If the program has ended, its output ends too, which is handled below.
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
            Ok(None) => Err("it exited without a response".into()),
            Err(_) => Err(no_answer(asked)),
        }
    }
}

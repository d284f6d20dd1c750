//! Runs an agent's program for a bounded time, under a guard, and ends everything that it started.

use std::ffi::OsString;

use agent_subprocess::{
    Agent, AgentCommand, Exit, ProcessContext, Stdin, StdinMode, StopPolicy, Stream,
};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, timeout_at};

use super::Failure;

/// The most bytes of output that [`Program::run`] returns.
const MAX_ANSWER: usize = 64 << 10;
const MAX_LINE: usize = 1 << 20;
/// The most lines that may precede the response to a request.
const MAX_LINES: usize = 1000;

/// The output of a program that ended.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) exit: Exit,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// An agent's program, and the time by which it must answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program<'a> {
    /// The program and the arguments that precede all others.
    pub(crate) argv: &'a [OsString],
    pub(crate) context: &'a ProcessContext,
    /// Variables that this agent needs besides those of the context.
    pub(crate) env: &'a [(&'a str, &'a str)],
    pub(crate) deadline: Instant,
}

impl Program<'_> {
    pub(crate) fn until(self, deadline: Instant) -> Self {
        Self { deadline, ..self }
    }

    fn command(self, arguments: &[&str]) -> std::io::Result<AgentCommand> {
        let mut argv = self.argv.iter();
        let command = AgentCommand::new(argv.next().cloned().unwrap_or_default())
            .args(argv)
            .args(arguments)
            .max_line(MAX_LINE)
            .context(self.context)?;
        let env = self.env.iter();
        Ok(env.fold(command, |it, (name, value)| it.env(name, value)))
    }

    /// Runs the program with these arguments until it exits.
    pub(crate) async fn run(self, arguments: &[&str]) -> Result<Output, Failure> {
        let start = Instant::now();
        let command = self.command(arguments).map_err(|e| e.to_string())?;
        let mut agent = command.spawn().await.map_err(|e| e.to_string())?;
        let mut stdout = String::new();
        let exit = timeout_at(self.deadline, async {
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
        agent.stop(&StopPolicy::kill()).await;
        Ok(Output {
            exit: exit.map_err(|_| no_answer(start))?,
            stdout,
            stderr,
        })
    }

    /// Starts the program with these arguments, lets `talk` send requests to it (JSON-RPC, one object a line), and ends it.
    pub(crate) async fn converse<T>(
        self,
        arguments: &[&str],
        talk: impl AsyncFnOnce(&mut Requests) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let command = self.command(arguments).map_err(|e| e.to_string())?;
        let started = command.stdin(StdinMode::Piped).spawn().await;
        let mut agent = started.map_err(|e| e.to_string())?;
        let stdin = agent.take_stdin().expect("stdin is a pipe");
        let mut requests = Requests {
            agent,
            stdin,
            last_id: 0,
            deadline: self.deadline,
        };
        let result = talk(&mut requests).await;
        requests.agent.stop(&StopPolicy::kill()).await;
        result
    }
}

fn no_answer(start: Instant) -> Failure {
    let seconds = start.elapsed().as_secs_f64().round();
    format!("no response within {seconds} s")
}

/// Sends requests to a running program, one at a time.
#[derive(Debug)]
pub(crate) struct Requests {
    agent: Agent,
    stdin: Stdin,
    last_id: u64,
    deadline: Instant,
}

impl Requests {
    /// Sends a request and waits for its response. The inner error is the program's own error object.
    pub(crate) async fn send(
        &mut self,
        method: &str,
        params: Value,
    ) -> Result<Result<Value, Value>, Failure> {
        let start = Instant::now();
        self.last_id += 1;
        let id = self.last_id;
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let response = async {
            // A failed write needs no report: the output of a program that exited ends too.
            let _closed = self
                .stdin
                .write_all(format!("{request}\n").as_bytes())
                .await;
            for _ in 0..MAX_LINES {
                let output = self.agent.next_output().await?;
                let line = serde_json::from_slice::<Value>(&output.line.bytes);
                let is_response = |line: &Value| line["id"] == id && line["method"].is_null();
                if let Some(response) = line.ok().filter(is_response) {
                    return Some(response);
                }
            }
            None
        };
        match timeout_at(self.deadline, response).await {
            Ok(Some(mut response)) => Ok(match response["error"].take() {
                Value::Null => Ok(response["result"].take()),
                error => Err(error),
            }),
            Ok(None) => Err("it exited without a response".into()),
            Err(_) => Err(no_answer(start)),
        }
    }
}

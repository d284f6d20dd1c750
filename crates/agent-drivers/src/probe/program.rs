//! Runs an agent's program for a bounded time, under a guard, and ends everything that it started.

use std::ffi::OsString;

use agent_subprocess::{
    Exit, ProcessContext, ProcessTree, Stdin, StdinMode, StopPolicy, Stream, TreeCommand,
};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, timeout_at};

use super::Failure;
use crate::host_variables;

/// The maximum number of bytes of standard output that [`Program::run`] returns.
const MAX_OUTPUT: usize = 64 << 10;
/// The maximum length of a response, in bytes.
const MAX_LINE: usize = 1 << 20;
/// The maximum number of lines that are read while waiting for one response.
const MAX_LINES: usize = 1000;

/// The output of a program that ended.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) exit: Exit,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// An agent's program, and the deadline for its response.
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

    fn command(self, arguments: &[&str]) -> std::io::Result<TreeCommand> {
        let mut argv = self.argv.iter();
        let command = TreeCommand::new(argv.next().cloned().unwrap_or_default());
        let command = host_variables::restored(command)
            .args(argv)
            .args(arguments)
            .max_line(MAX_LINE)
            .context(self.context)?;
        let env = self.env.iter();
        Ok(env.fold(command, |it, (name, value)| it.env(name, value)))
    }

    async fn spawn(self, arguments: &[&str], stdin: StdinMode) -> Result<ProcessTree, Failure> {
        let start = Instant::now();
        let command = self.command(arguments).map_err(|e| e.to_string())?;
        match timeout_at(self.deadline, command.stdin(stdin).spawn()).await {
            Ok(spawned) => spawned.map_err(|e| e.to_string()),
            Err(_) => Err(no_response(start, self.deadline)),
        }
    }

    /// Runs the program with these arguments until it exits, and then ends what it left running.
    pub(crate) async fn run(self, arguments: &[&str]) -> Result<Output, Failure> {
        let start = Instant::now();
        let mut agent = self.spawn(arguments, StdinMode::Null).await?;
        let mut stdout = String::new();
        let exit = timeout_at(self.deadline, async {
            while let Some(output) = agent.next_output().await {
                if output.stream == Stream::Stdout {
                    push_line(&mut stdout, &output.line.text());
                }
            }
            agent.wait().await
        })
        .await;
        let stderr = agent.stderr_tail();
        agent.stop(&StopPolicy::kill()).await;
        Ok(Output {
            exit: exit.map_err(|_| no_response(start, self.deadline))?,
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
        let mut agent = self.spawn(arguments, StdinMode::Piped).await?;
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

/// Appends a line, up to [`MAX_OUTPUT`] bytes in total.
fn push_line(output: &mut String, line: &str) {
    let room = MAX_OUTPUT.saturating_sub(output.len() + 1);
    if room > 0 {
        let mut end = room.min(line.len());
        while !line.is_char_boundary(end) {
            end -= 1;
        }
        output.push_str(&line[..end]);
        output.push('\n');
    }
}

/// Names the time that the program had. The end of its processes takes more, and isn't a part of it.
fn no_response(start: Instant, deadline: Instant) -> Failure {
    let seconds = deadline
        .saturating_duration_since(start)
        .as_secs_f64()
        .round();
    format!("no response within {seconds} s")
}

/// Sends requests to a running program, one at a time.
#[derive(Debug)]
pub(crate) struct Requests {
    agent: ProcessTree,
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
                let Some(output) = self.agent.next_output().await else {
                    return Err("it exited without a response".into());
                };
                if output.stream != Stream::Stdout {
                    continue;
                }
                let line = serde_json::from_slice::<Value>(&output.line.bytes);
                let is_response = |line: &Value| line["id"] == id && line["method"].is_null();
                if let Some(response) = line.ok().filter(is_response) {
                    return Ok(response);
                }
            }
            Err(format!("no response in {MAX_LINES} lines of output"))
        };
        match timeout_at(self.deadline, response).await {
            Ok(Ok(mut response)) => Ok(match response["error"].take() {
                Value::Null => Ok(response["result"].take()),
                error => Err(error),
            }),
            Ok(Err(why)) => Err(why),
            Err(_) => Err(no_response(start, self.deadline)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_bounded_and_ends_at_a_character() {
        let mut output = String::from("a\n");
        push_line(&mut output, &"é".repeat(MAX_OUTPUT));
        assert_eq!(output.len(), MAX_OUTPUT - 1);
        push_line(&mut output, "more");
        assert_eq!(output.len(), MAX_OUTPUT - 1);
        assert!(output.ends_with("é\n"));
    }
}

//! Both ends of a fake agent's pipes, for the tests of the fake agent itself.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use rlm_tests::agent::FakeAgent;
use rlm_tests::{Sandbox, poll_until};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{FAKE_AGENT, LONG};

const FLAGS: [&str; 9] = [
    "-p",
    "--input-format",
    "stream-json",
    "--output-format=stream-json",
    "--verbose",
    "--include-partial-messages",
    "--replay-user-messages",
    "--permission-prompt-tool",
    "stdio",
];

/// Both ends of the pipes of one fake agent.
pub(crate) struct AgentPipes {
    pub(crate) child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) lines: Receiver<String>,
    pub(crate) heard: Vec<Value>,
}

impl AgentPipes {
    pub(crate) fn begin(sandbox: &Sandbox, agent: &FakeAgent, more: &[&str]) -> Self {
        let mut command = Command::new(FAKE_AGENT);
        command.args(FLAGS).args(more).env_clear();
        command
            .envs(sandbox.environment())
            .envs(agent.variables())
            .current_dir(sandbox.repo());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines() {
                if sender.send(line.unwrap()).is_err() {
                    return;
                }
            }
        });
        Self {
            stdin: child.stdin.take(),
            child,
            lines,
            heard: Vec::new(),
        }
    }

    pub(crate) fn write(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").unwrap();
    }

    pub(crate) fn say(&mut self, text: &str) -> String {
        let id = Uuid::new_v4().to_string();
        let message = json!({"role": "user", "content": [{"type": "text", "text": text}]});
        let line = json!({"type": "user", "message": message, "uuid": id});
        self.write(&line.to_string());
        id
    }

    pub(crate) fn control(&mut self, request: &Value) {
        let line = json!({"type": "control_request", "request_id": "r", "request": request});
        self.write(&line.to_string());
    }

    /// Reads until a line matches.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.lines.recv_timeout(LONG);
            let line = line.unwrap_or_else(|e| panic!("no {what}: {e}; {}", self.show()));
            let value: Value =
                serde_json::from_str(&line).unwrap_or_else(|_| json!({"noise": line}));
            self.heard.push(value.clone());
            if is_it(&value) {
                return value;
            }
        }
    }

    #[track_caller]
    pub(crate) fn result(&mut self) -> Value {
        self.until("result", |line| line["type"] == "result")
    }

    #[track_caller]
    pub(crate) fn until_delta(&mut self, text: &str) {
        self.until(text, |line| line["event"]["delta"]["text"] == text);
    }

    pub(crate) fn show(&self) -> String {
        let names = self.heard.iter().map(name).collect::<Vec<_>>();
        names.join("\n")
    }

    /// Returns the names of the lines since the last call, with consecutive deltas as one.
    pub(crate) fn names(&mut self) -> String {
        let mut names: Vec<String> = self.heard.drain(..).map(|line| name(&line)).collect();
        names.dedup();
        names.join("\n")
    }

    /// Closes stdin, reads the rest, and returns the exit code and the stderr.
    #[track_caller]
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        self.stdin = None;
        self.wait()
    }

    #[track_caller]
    pub(crate) fn wait(&mut self) -> (Option<i32>, String) {
        let status = poll_until(LONG, || self.child.try_wait().unwrap());
        let status = status.unwrap_or_else(|| panic!("it continues: {}", self.show()));
        while let Ok(line) = self.lines.recv() {
            self.heard
                .push(serde_json::from_str(&line).unwrap_or_default());
        }
        let mut stderr = String::new();
        let mut pipe = self.child.stderr.take().unwrap();
        std::io::Read::read_to_string(&mut pipe, &mut stderr).unwrap();
        (status.code(), stderr)
    }
}

impl Drop for AgentPipes {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

fn name(line: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut name = text(&line["type"]);
    let more = match name.as_str() {
        "stream_event" => text(&line["event"]["type"]),
        "command_lifecycle" => text(&line["state"]),
        "control_response" => text(&line["response"]["subtype"]),
        "control_request" => text(&line["request"]["subtype"]),
        "result" => format!(
            "{} {}",
            text(&line["subtype"]),
            text(&line["terminal_reason"])
        ),
        "user" | "assistant" => {
            let block = &line["message"]["content"][0];
            let kind = text(&block["type"]);
            let what = [&block["text"], &block["content"], &block["name"]]
                .map(text)
                .concat();
            let aborted = if line["aborted"] == true {
                " (aborted)"
            } else {
                ""
            };
            let again = if line["isReplay"] == true {
                " (replay)"
            } else {
                ""
            };
            format!("{kind} {what}{aborted}{again}")
        }
        _ => text(&line["subtype"]),
    };
    if !more.is_empty() {
        name = format!("{name} {more}");
    }
    name
}

//! The tool `bash`: a command under a guard, with a time limit, and without secrets in its environment. All of its processes end with the call.

use std::ffi::OsString;
use std::time::Duration;

use agent_duplex::BoxFuture;
use agent_subprocess::{
    Error, Exit, OutputMode, ProcessContext, ProcessTree, RawOutput, StopReport, TreeCommand,
};
use tokio::io::AsyncReadExt as _;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::arguments::Arguments;
use super::limit_clock::{LimitClock, within_limit};
use super::output::{Output, push_note};
use super::process::{HiddenVariables, start_unless, stop_policy};
use super::{Access, Tool, ToolContext, ToolOutput, files};
use crate::dialect::ToolDefinition;
use crate::json::JsonObject;
use crate::times;

const EXAMPLE: &str = r#"{"command":"cargo test","timeout_seconds":600}"#;
const SCHEMA: &str = r#"{"type":"object","properties":{"command":{"type":"string","description":"The command; it has no standard input"},"timeout_seconds":{"type":"integer","description":"The time limit; 120 by default, 3600 at most"}},"required":["command"]}"#;
/// The time limit of a command by default.
const DEFAULT_TIME_LIMIT: Duration = Duration::from_secs(120);
/// The longest time limit of a command.
const MAX_TIME_LIMIT: Duration = Duration::from_secs(3_600);
/// The shells, in the order in which they are tried.
const SHELLS: [&str; 2] = ["bash", "sh"];
/// Starts the command with both outputs in one pipe, so that they stay in their order.
const BOTH_OUTPUTS: &str = r#"exec "$0" -c "$1" 2>&1"#;
/// The maximum number of processes that a note names.
const MAX_NAMED: usize = 8;
const HINT: &str = "use `head`, `tail` or `grep`, or send the output to a file and read that";

/// The tool `bash`, which runs commands.
///
/// A command gets the environment of this program, without variables whose name looks secret: one of the words in it, between underscores, is for
/// example `KEY`, `TOKEN` or `PASSWORD`.
#[derive(Clone, Debug)]
pub struct Bash {
    context: ProcessContext,
    hidden: HiddenVariables,
}

impl Bash {
    /// Creates the tool. Commands run with this environment, marker and containment, in the working directory of the agent.
    #[must_use]
    pub fn new(context: ProcessContext) -> Self {
        Self {
            context,
            hidden: HiddenVariables::default(),
        }
    }

    /// Removes a variable from the environment of commands, whatever its name looks like. It takes precedence over [`keep_variable`](Self::keep_variable).
    #[must_use]
    pub fn hide_variable(mut self, name: impl Into<OsString>) -> Self {
        self.hidden.hide(name.into());
        self
    }

    /// Keeps a variable in the environment of commands although its name looks secret.
    #[must_use]
    pub fn keep_variable(mut self, name: impl Into<OsString>) -> Self {
        self.hidden.keep(name.into());
        self
    }

    fn command(
        &self,
        shell: &str,
        command: &str,
        context: &ToolContext,
    ) -> std::io::Result<TreeCommand> {
        let tree = TreeCommand::new(shell)
            .args(["-c", BOTH_OUTPUTS, shell, command])
            .stdout(OutputMode::Bytes)
            .stderr(OutputMode::Null)
            .context(&self.context)?
            .current_dir(context.directory.path());
        Ok(self.hidden.removed_from(tree, &self.context))
    }

    /// Starts a command with the first shell that exists. An error comes before the start.
    fn start(
        &self,
        command: &str,
        context: &ToolContext,
    ) -> std::io::Result<impl Future<Output = Result<ProcessTree, Error>> + use<>> {
        let [first, second] = SHELLS.map(|shell| self.command(shell, command, context));
        let (first, second) = (first?, second?);
        Ok(async {
            match first.spawn().await {
                Err(error) if error.is_not_found() => second.spawn().await,
                spawned => spawned,
            }
        })
    }
}

fn not_started(reason: &str) -> ToolOutput {
    ToolOutput::failed(format!("the command can't be started: {reason}"))
}

fn explain(error: &Error) -> ToolOutput {
    match error.is_argument_list_too_long() {
        true => ToolOutput::failed(
            "the command is too long; write it to a file with `write`, and run that file",
        ),
        false => not_started(&error.to_string()),
    }
}

struct Call {
    command: String,
    limit: Duration,
}

fn parse(arguments: &JsonObject) -> Result<Call, ToolOutput> {
    let mut arguments = Arguments::new(arguments, EXAMPLE);
    let command = arguments.text("command")?;
    let limit = arguments.number("timeout_seconds")?;
    let limit = limit.map_or(DEFAULT_TIME_LIMIT, |seconds| {
        Duration::from_secs(seconds.max(1)).min(MAX_TIME_LIMIT)
    });
    match command.contains('\0') {
        true => Err(ToolOutput::failed("`command` has a NUL character")),
        false => Ok(Call { command, limit }),
    }
}

impl Tool for Bash {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: "bash".to_owned(),
            description: "Runs a command with `bash -c` in the working directory, and returns its output. Each call is a new shell. All processes of the command end with the call, also those in the background."
                .to_owned(),
            schema: JsonObject::parse(SCHEMA).expect("the schema is an object"),
        }
    }

    fn access(&self, _: &JsonObject, _: &ToolContext) -> Access {
        Access::Anything {
            reason: String::new(),
        }
    }

    fn summary(&self, arguments: &JsonObject) -> String {
        super::interface::summary_of("command", arguments)
    }

    fn run<'a>(
        &'a self,
        arguments: &'a JsonObject,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async {
            let call = match parse(arguments) {
                Ok(call) => call,
                Err(wrong) => return wrong,
            };
            if context.cancel.is_cancelled() {
                return files::interrupted();
            }
            let mut clock = LimitClock::new(call.limit);
            let over = within_limit(
                &mut clock,
                context.frozen.clone(),
                context.cancel.cancelled(),
            );
            let starting = match self.start(&call.command, context) {
                Ok(starting) => starting,
                Err(error) => return not_started(&error.to_string()),
            };
            let policy = stop_policy(&self.context);
            let started = start_unless(over, starting, policy.clone(), &context.stops).await;
            let mut tree = match started {
                Ok(Ok(tree)) => tree,
                Ok(Err(error)) => return explain(&error),
                Err(Some(())) => return files::interrupted(),
                Err(None) => {
                    let seconds = call.limit.as_secs();
                    return ToolOutput::failed(format!(
                        "the command did not start within {seconds} s and was ended; it may have run for a moment"
                    ));
                }
            };
            let mut pipe = Pipe::new(tree.take_stdout());
            let end = supervise(&mut tree, &mut pipe, clock, context).await;
            if matches!(end, End::Exited(_)) {
                pipe.drain().await;
            }
            let report = pipe.read_while(tree.stop(&policy)).await;
            pipe.drain().await;
            context.stops.record(report.clone(), end == End::Cancelled);
            result(pipe.output, &end, call.limit, &report)
        })
    }
}

/// The reason why a command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Exited(Exit),
    TimeLimit,
    Cancelled,
}

/// An event in the life of a command.
enum Event {
    End(End),
    Output,
    /// A person froze or thawed the agent, or can't any more.
    Frozen(Result<(), watch::error::RecvError>),
}

/// Waits for the end of a command. While a person has frozen the agent, the command is suspended and its time does not count.
async fn supervise(
    tree: &mut ProcessTree,
    pipe: &mut Pipe,
    mut clock: LimitClock,
    context: &ToolContext,
) -> End {
    let mut frozen = context.frozen.clone();
    let mut is_watched = true;
    // The command runs now, also if a person froze the agent while it started.
    clock.pause(false);
    freeze(tree, &mut clock, *frozen.borrow_and_update());
    loop {
        let event = async {
            tokio::select! {
                biased;
                () = context.cancel.cancelled() => Event::End(End::Cancelled),
                exit = tree.wait() => Event::End(End::Exited(exit)),
                changed = frozen.changed(), if is_watched => Event::Frozen(changed),
                () = pipe.read(), if pipe.is_open() => Event::Output,
            }
        };
        let event = match clock.deadline() {
            None => event.await,
            // `timeout_at` looks at the clock only when nothing else happens.
            Some(deadline) if Instant::now() >= deadline => return End::TimeLimit,
            Some(deadline) => match timeout_at(deadline, event).await {
                Ok(event) => event,
                Err(_elapsed) => return End::TimeLimit,
            },
        };
        match event {
            Event::End(end) => return end,
            Event::Output => {}
            Event::Frozen(changed) => {
                is_watched = changed.is_ok();
                freeze(tree, &mut clock, *frozen.borrow_and_update());
            }
        }
    }
}

fn freeze(tree: &mut ProcessTree, clock: &mut LimitClock, is_frozen: bool) {
    if is_frozen == clock.is_paused() {
        return;
    }
    // It fails only if the guard is gone, and then the tree has ended.
    let _unreachable = match is_frozen {
        true => tree.suspend(),
        false => tree.resume(),
    };
    clock.pause(is_frozen);
}

/// The output of a command, while it arrives.
#[derive(Debug)]
struct Pipe {
    pipe: Option<RawOutput>,
    buffer: Vec<u8>,
    output: Output,
}

impl Pipe {
    fn new(pipe: Option<RawOutput>) -> Self {
        Self {
            pipe,
            buffer: vec![0; 64 << 10],
            output: Output::default(),
        }
    }

    fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// Waits for some output, or for its end. Cancel safe.
    async fn read(&mut self) {
        let Some(pipe) = &mut self.pipe else { return };
        match pipe.read(&mut self.buffer).await {
            Ok(read @ 1..) => self.output.push(&self.buffer[..read]),
            Ok(_) | Err(_) => self.pipe = None,
        }
    }

    /// Reads until another future is ready.
    async fn read_while<T>(&mut self, other: impl Future<Output = T>) -> T {
        let mut other = std::pin::pin!(other);
        loop {
            tokio::select! {
                biased;
                done = &mut other => return done,
                () = self.read(), if self.is_open() => {}
            }
        }
    }

    /// Reads to the end of the output, or for a short time.
    async fn drain(&mut self) {
        let deadline = Instant::now() + times::TOOL_DRAIN;
        while self.is_open() && Instant::now() < deadline {
            if timeout_at(deadline, self.read()).await.is_err() {
                return;
            }
        }
    }
}

/// Returns the result for the model.
fn result(output: Output, end: &End, limit: Duration, report: &StopReport) -> ToolOutput {
    let is_success = matches!(end, End::Exited(exit) if exit.success());
    let mut text = match output.is_empty() {
        true => "(no output)\n".to_owned(),
        false => output.finish(HINT),
    };
    match end {
        End::Exited(exit) => {
            if !is_success {
                push_note(&mut text, &exit.to_string());
            }
            let ended = report.ended.len() as u64 + report.unnamed;
            if ended > 0 {
                let note = format!(
                    "{ended} processes that the command left behind were ended: {}",
                    names(&report.ended)
                );
                push_note(&mut text, &note);
            }
        }
        End::TimeLimit => {
            let note = format!(
                "the command was ended at its time limit of {} s; set `timeout_seconds` (at most {}) for more time, or do less in one call",
                limit.as_secs(),
                MAX_TIME_LIMIT.as_secs()
            );
            push_note(&mut text, &note);
        }
        End::Cancelled => push_note(&mut text, "the command was interrupted"),
    }
    if !report.survivors.is_empty() {
        let note = format!(
            "{} processes can't be ended: {}",
            report.survivors.len(),
            names(&report.survivors)
        );
        push_note(&mut text, &note);
    }
    match is_success {
        true => ToolOutput::ok(text),
        false => ToolOutput::failed(text),
    }
}

fn names(processes: &[agent_subprocess::ProcessName]) -> String {
    let named = processes.iter().take(MAX_NAMED).map(ToString::to_string);
    let more = if processes.len() > MAX_NAMED {
        ", …"
    } else {
        ""
    };
    named.collect::<Vec<_>>().join(", ") + more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a4_end_of_a_cancelled_command_is_recorded_for_the_report_of_a_stop() {
        let dir = tempfile::tempdir().unwrap();
        let mut processes = ProcessContext::new(dir.path(), dir.path());
        processes.containment = agent_subprocess::Containment::Group;
        let bash = Bash::new(processes);
        let directory = super::super::WorkingDirectory::new(dir.path()).unwrap();
        let context = ToolContext::new(directory);
        let arguments = JsonObject::parse(r#"{"command":"echo done"}"#).unwrap();
        assert_eq!(
            bash.run(&arguments, &context).await,
            ToolOutput::ok("done\n")
        );
        // Nothing of it is left for a later stop.
        assert!(context.stops.reports().is_empty());

        let arguments = JsonObject::parse(r#"{"command":"touch ready; sleep 600"}"#).unwrap();
        let cancel = async {
            while !dir.path().join("ready").exists() {
                tokio::task::yield_now().await;
            }
            context.cancel.cancel();
        };
        tokio::join!(bash.run(&arguments, &context), cancel);
        let reports = context.stops.reports();
        assert_eq!(reports.len(), 1, "{reports:?}");
        assert!(!reports[0].0.ended.is_empty(), "{reports:?}");
    }

    #[test]
    fn a12_time_limit_has_a_default_and_a_maximum() {
        let limit = |text: &str| {
            let arguments = format!(r#"{{"command":"x"{text}}}"#);
            parse(&JsonObject::parse(&arguments).unwrap())
                .unwrap()
                .limit
                .as_secs()
        };
        assert_eq!(limit(""), 120);
        assert_eq!(limit(r#","timeout_seconds":"10""#), 10);
        assert_eq!(limit(r#","timeout_seconds":0"#), 1);
        assert_eq!(limit(r#","timeout_seconds":99999999999999"#), 3_600);
    }
}

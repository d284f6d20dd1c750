//! Many calls: the memory stays flat, a request grows with the history only, and a save costs as much as the change.
#![cfg(target_os = "linux")] // They read `/proc`.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};

use agent_api::{
    Access, ApiAgent, BoxFuture, Dialect, JsonObject, Tool, ToolContext, ToolDefinition, ToolOutput,
};
use agent_duplex::{Driver as _, Event, Message, SessionChoice};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::effort::Effort;
use crate::scene::{DEADLINE, DIALECTS, Scene, definition, options};
use crate::server::{Reply, Request, Server};

const A20_CALLS: Effort = Effort {
    ci: 400,
    nightly: 10_000,
};
/// The bytes of each result while the memory is measured.
const RESULT: usize = 24_000;
/// The growth of the memory that is no leak: of the allocator, and of buffers with a limit. A leak of each result would be larger.
const NO_LEAK: u64 = 6 << 20;
/// The calls of a turn that has a session of its own.
const CALLS_OF_TURN: usize = 10;

/// A tool whose result has a length that the model chooses.
#[derive(Debug)]
struct Text;

impl Tool for Text {
    fn definition(&self) -> ToolDefinition {
        definition("text")
    }

    fn access(&self, _: &JsonObject, _: &ToolContext) -> Access {
        Access::Reads
    }

    fn run<'a>(
        &'a self,
        arguments: &'a JsonObject,
        _: &'a ToolContext,
    ) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async {
            let call: serde_json::Value = serde_json::from_str(arguments.as_str()).unwrap();
            let bytes = usize::try_from(call["bytes"].as_u64().unwrap()).unwrap();
            ToolOutput::ok("x".repeat(bytes))
        })
    }
}

fn call(number: usize, bytes: usize) -> Reply {
    let arguments = format!(r#"{{"number":{},"bytes":{bytes}}}"#, 1_000_000 + number);
    Reply::call("text", &arguments)
}

/// The process that a test measures: it sends the same message again and again, each time in a new session.
#[tokio::test]
#[ignore = "a child process: `samples` in endurance.rs runs this binary with `endurance::child --exact --ignored`"]
async fn child() {
    let variable = |name: &str| std::env::var(name).unwrap();
    let (work, sessions) = (variable("TEST_WORK"), variable("TEST_SESSIONS"));
    let dialect = DIALECTS[variable("TEST_DIALECT").parse::<usize>().unwrap()];
    let server = Server::at(dialect, &variable("TEST_URL"));
    loop {
        let tools = [Arc::new(Text) as _];
        let mut options = options(&server, Path::new(&work), Path::new(&sessions), tools);
        options.context_window = variable("TEST_WINDOW").parse().unwrap();
        options.max_calls = u32::MAX;
        let agent = ApiAgent::new(options).unwrap();
        let mut connection = agent.connect(SessionChoice::Fresh).await.unwrap();
        connection.send(Message::new("go")).await.unwrap();
        let mut is_running = true;
        while is_running {
            let events = connection.next().await.unwrap().events;
            is_running = !{ events.iter() }.any(|it| matches!(it, Event::TurnCompleted(_)));
        }
        connection.stop(DEADLINE).await;
    }
}

/// The state of the process when a request has arrived. The process waits for the answer.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// The length of the body.
    request: u64,
    /// The bytes that the process has written so far, also to sockets.
    written: u64,
    /// The resident memory.
    resident: u64,
    is_summary: bool,
}

impl Sample {
    fn of(pid: u32, request: &Request) -> Self {
        let figure = |file: &str, key: &str| -> u64 {
            let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(key))
                .unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        Self {
            request: request.body.len() as u64,
            written: figure("io", "wchar:"),
            resident: figure("status", "VmRSS:") << 10,
            // The request for a summary has no tools.
            is_summary: !request.body.windows(8).any(|it| it == b"\"tools\":"),
        }
    }
}

/// A process that is killed at the end of its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Runs a process with this context window until it has sent `count` requests.
async fn samples(
    dialect: Dialect,
    window: u64,
    count: usize,
    respond: impl Fn(usize) -> Reply + Send + Sync + 'static,
) -> Vec<Sample> {
    let scene = Scene::new();
    let pid = Arc::new(OnceLock::new());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (number, mut progress) = watch::channel(0);
    let server = {
        let (pid, seen) = (Arc::clone(&pid), Arc::clone(&seen));
        Server::start(dialect, move |request| {
            let sample = Sample::of(*pid.get().unwrap(), request);
            seen.lock().unwrap().push(sample);
            number.send_replace(request.number + 1);
            match sample.is_summary {
                true => Reply::text("a summary"),
                false => respond(request.number),
            }
        })
        .await
    };
    let at = DIALECTS.iter().position(|it| *it == dialect).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "endurance::child",
            "--ignored",
            "--test-threads=1",
        ])
        .env("TEST_WORK", scene.work())
        .env("TEST_SESSIONS", scene.sessions())
        .env("TEST_URL", &server.url)
        .env("TEST_DIALECT", at.to_string())
        .env("TEST_WINDOW", window.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let child = Killed(child);
    // The process sends nothing before this task waits.
    pid.set(child.0.id()).unwrap();
    while *progress.borrow_and_update() < count {
        let next = timeout(DEADLINE, progress.changed()).await;
        next.expect("the next request comes in time").unwrap();
    }
    drop((child, server));
    std::mem::take(&mut *seen.lock().unwrap())
}

#[tokio::test]
async fn a20_memory_is_flat_in_a_session_that_is_compacted() {
    let count = A20_CALLS.number() as usize;
    let seen = samples(Dialect::Chat, 64_000, count, |number| call(number, RESULT)).await;
    assert_flat(&seen);
    assert!(seen.iter().any(|sample| sample.is_summary));
    // A window of 64,000 tokens, and about four bytes for each.
    let longest = seen.iter().map(|sample| sample.request).max();
    assert!(longest < Some(64_000 * 4), "{longest:?}");
}

#[tokio::test]
async fn a20_memory_is_flat_with_a_session_for_each_turn() {
    let count = A20_CALLS.number() as usize;
    let seen = samples(Dialect::Chat, 1_000_000, count, |number| {
        match (number + 1) % CALLS_OF_TURN {
            0 => Reply::text("done"),
            _ => call(number, RESULT),
        }
    })
    .await;
    assert_flat(&seen);
    // Each turn begins as the first one did.
    for turn in seen.chunks(CALLS_OF_TURN) {
        assert!(turn[0].request <= seen[0].request + 16, "{turn:?}");
    }
}

fn assert_flat(seen: &[Sample]) {
    let late = seen.last().unwrap().resident;
    let early = seen[seen.len() / 4].resident;
    let kib = |bytes: u64| bytes >> 10;
    assert!(
        late < early + NO_LEAK,
        "{} KiB after {} calls, {} KiB after {}",
        kib(early),
        seen.len() / 4,
        kib(late),
        seen.len()
    );
}

#[tokio::test]
async fn a20_request_grows_with_the_history_only_and_a_save_costs_the_change() {
    const CALLS: usize = 160;
    for dialect in DIALECTS {
        let seen = samples(dialect, 1_000_000, CALLS, |number| call(number, 1_000)).await;
        // The ids of these calls have the same length.
        let growth = |pair: &[Sample]| pair[1].request - pair[0].request;
        let growths: Vec<u64> = seen[102..].windows(2).map(growth).collect();
        assert!(growths[0] > 1_000, "the result is in the next request");
        assert!(
            growths.iter().all(|it| *it == growths[0]),
            "{dialect:?}: {growths:?}"
        );
        // A journal reserves room now and then, so the median counts.
        let saved = |samples: &[Sample]| {
            let saved = |pair: &[Sample]| pair[1].written - pair[0].written - pair[1].request;
            let mut saved: Vec<u64> = samples.windows(2).map(saved).collect();
            saved.sort_unstable();
            saved[saved.len() / 2]
        };
        let (early, late) = (saved(&seen[10..40]), saved(&seen[CALLS - 30..]));
        assert!(
            late <= early + early / 5,
            "{dialect:?}: {early}, then {late}"
        );
    }
}

//! Crashes: what was confirmed is on disk, and no effect happens twice.

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use agent_api::{
    ApiAgent, BoxFuture, Dialect, JsonObject, Tool, ToolContext, ToolDefinition, ToolOutput,
};
use agent_duplex::{Driver as _, EndReason, Event, Message, SessionChoice};
use serde_json::Value;
use uuid::Uuid;

use crate::effort::Effort;
use crate::scene::{DEADLINE, DIALECTS, Scene, definition, options};
use crate::server::{Reply, Request, Server};

const A6_KILLS: Effort = Effort {
    ci: 48,
    nightly: 1_000,
};
/// The kills of one session.
const KILLS_OF_SESSION: usize = 4;

/// The effects of the task.
const EFFECTS: usize = 4;

/// A tool with an effect that can be counted: a line in a file.
#[derive(Debug)]
struct Append;

impl Tool for Append {
    fn definition(&self) -> ToolDefinition {
        definition("append")
    }

    fn run<'a>(
        &'a self,
        arguments: &'a JsonObject,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async {
            append(
                &context.directory.path().join("effects"),
                arguments.as_str(),
            );
            ToolOutput::ok("appended")
        })
    }
}

fn append(path: &Path, line: &str) {
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// Returns the number of tool results in a request.
fn results(request: &Request, dialect: Dialect) -> usize {
    let text = request.text();
    text.matches(match dialect {
        Dialect::Messages => r#""type":"tool_result""#,
        Dialect::Responses => r#""type":"function_call_output""#,
        _ => r#""role":"tool""#,
    })
    .count()
}

/// Starts a server that leads through the effects one after the other, whatever their outcome was.
async fn server(dialect: Dialect) -> Server {
    Server::start(dialect, move |request| match results(request, dialect) {
        EFFECTS.. => Reply::text("all done"),
        done => Reply::call("append", &format!(r#"{{"effect":{done}}}"#)),
    })
    .await
}

/// The process that a test ends: it continues the only session, or begins it.
///
/// Prints `ended: …` after its turn, or `in use`.
#[tokio::test]
#[ignore = "a child process: `start_as` in crashes.rs runs this binary with `crashes::child --exact --ignored`"]
async fn child() {
    let variable = |name: &str| std::env::var(name).unwrap();
    let (work, sessions) = (variable("TEST_WORK"), variable("TEST_SESSIONS"));
    let server = Server::at(
        DIALECTS[variable("TEST_DIALECT").parse::<usize>().unwrap()],
        &variable("TEST_URL"),
    );
    let options = options(
        &server,
        Path::new(&work),
        Path::new(&sessions),
        [Arc::new(Append) as _],
    );
    let choice = match session(Path::new(&sessions)) {
        Some(id) => SessionChoice::Resume(id),
        None => SessionChoice::Fresh,
    };
    let agent = ApiAgent::new(options).unwrap();
    let mut connection = match agent.connect(choice).await {
        Ok(connection) => connection,
        Err(error) if error.is_session_in_use() => return println!("in use"),
        Err(error) => panic!("{error}"),
    };
    connection
        .send(Message::new("do the task").with_id(Uuid::from_u128(1)))
        .await
        .unwrap();
    loop {
        for event in connection.next().await.unwrap().events {
            if let Event::TurnCompleted(end) = event {
                return println!("ended: {end}");
            }
        }
    }
}

/// Returns the id of the only session.
fn session(sessions: &Path) -> Option<String> {
    let mut entries = std::fs::read_dir(sessions).ok()?;
    let name = entries.next()?.unwrap().file_name();
    assert!(entries.next().is_none(), "there is one session");
    Some(name.into_string().unwrap())
}

fn start(scene: &Scene, server: &Server) -> Child {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    start_as(&mut command, scene, server, &scene.sessions())
}

/// Starts the process by a command that ends with its program.
fn start_as(command: &mut Command, scene: &Scene, server: &Server, sessions: &Path) -> Child {
    let dialect = DIALECTS
        .iter()
        .position(|dialect| *dialect == server.dialect)
        .unwrap();
    command
        .args([
            "--exact",
            "crashes::child",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env("TEST_WORK", scene.work())
        .env("TEST_SESSIONS", sessions)
        .env("TEST_URL", &server.url)
        .env("TEST_DIALECT", dialect.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits for the end of a process, and returns its output.
async fn output(mut child: Child) -> String {
    tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        child.wait().unwrap();
        text
    })
    .await
    .unwrap()
}

/// Returns the time of the last save of the only session, in nanoseconds.
fn last_save(scene: &Scene) -> u128 {
    let Some(id) = session(&scene.sessions()) else {
        return 0;
    };
    let files = std::fs::read_dir(scene.sessions().join(id));
    let times = files.into_iter().flatten().filter_map(|file| {
        let modified = file.ok()?.metadata().ok()?.modified().ok()?;
        Some(modified.duration_since(UNIX_EPOCH).unwrap().as_nanos())
    });
    times.max().unwrap_or(0)
}

/// Kills the process at the moment that `is_due` says, and starts it again until it ends by itself. Then checks the effects. Returns the number of
/// effects whose outcome is unknown.
async fn killed(
    dialect: Dialect,
    mut is_due: impl FnMut(&Scene, Instant) -> bool,
    kills: usize,
) -> usize {
    let scene = Scene::new();
    let server = server(dialect).await;
    for _ in 0..kills {
        let mut child = start(&scene, &server);
        let began = Instant::now();
        while child.try_wait().unwrap().is_none() {
            assert!(
                began.elapsed() < DEADLINE,
                "the process ends or is killed in time"
            );
            if is_due(&scene, began) {
                child.kill().unwrap();
                child.wait().unwrap();
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    let text = output(start(&scene, &server)).await;
    assert!(text.contains("ended: the turn was completed"), "{text}");
    check_effects(&scene, &server)
}

/// Compares the effects with the outcomes that the last request reports. Returns the number of effects whose outcome is unknown.
fn check_effects(scene: &Scene, server: &Server) -> usize {
    let effects = std::fs::read_to_string(scene.work().join("effects")).unwrap_or_default();
    let happened = |effect: usize| {
        let start = format!(r#"{{"effect":{effect}"#);
        let lines = effects.lines().filter(|line| line.starts_with(&start));
        lines.count()
    };
    let mut told = Vec::new();
    outcomes(&server.requests().pop().unwrap().json(), &mut told);
    assert_eq!(told.len(), EFFECTS);
    let mut unknown = 0;
    for (effect, outcome) in told.iter().enumerate() {
        let happened = happened(effect);
        match outcome.as_str() {
            "appended" => assert_eq!(happened, 1, "{effect} was reported as done"),
            "not run" => assert_eq!(happened, 0, "{effect} was reported as not run"),
            _ => {
                unknown += 1;
                assert!(happened <= 1, "{effect} happened twice");
            }
        }
    }
    unknown
}

/// Collects what the model is told of the calls, in order.
fn outcomes(value: &Value, told: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            let known = ["appended", "not run", "outcome unknown: the agent"];
            told.extend(
                { known.iter() }
                    .find(|it| text.starts_with(**it))
                    .map(ToString::to_string),
            );
        }
        Value::Array(values) => values.iter().for_each(|value| outcomes(value, told)),
        Value::Object(fields) => fields.values().for_each(|value| outcomes(value, told)),
        _ => {}
    }
}

#[tokio::test]
async fn a6_no_effect_runs_twice_after_kill_at_any_time() {
    for round in 0..A6_KILLS.number() as usize / KILLS_OF_SESSION {
        // The process begins its turn after about 20 ms, and ends after less than 80 ms.
        let mut time = Duration::ZERO;
        let due = move |_: &Scene, began: Instant| {
            if time.is_zero() {
                time = Duration::from_micros(15_000 + Uuid::new_v4().as_u64_pair().1 % 65_000);
            }
            let is_due = began.elapsed() > time;
            if is_due {
                time = Duration::ZERO;
            }
            is_due
        };
        killed(DIALECTS[round % 3], due, KILLS_OF_SESSION).await;
    }
}

#[tokio::test]
async fn a6_no_effect_runs_twice_after_kill_at_each_save() {
    let mut unknown = 0;
    // On a loaded machine, a kill can come long after its save.
    for _ in 0..10 {
        for save in 1..=12 {
            let (mut last, mut saves) = (0, 0);
            let due = move |scene: &Scene, _| {
                let now = last_save(scene);
                saves += usize::from(now != last);
                last = now;
                saves >= save
            };
            unknown += killed(Dialect::Chat, due, 1).await;
        }
        if unknown > 0 {
            return;
        }
    }
    panic!("no kill came between an intent and its result");
}

/// The process on a disk of this size, which disappears with it. The disk then grows, and the process runs again.
fn start_on_small_disk(kilobytes: u32, scene: &Scene, server: &Server) -> std::io::Result<Child> {
    let disk = scene.work().with_file_name("disk");
    std::fs::create_dir(&disk)?;
    let script = format!(
        r#"mount -t tmpfs -o size={kilobytes}k full "$0" || {{ echo "no mount"; exit 0; }}
        "$@"; mount -o remount,size=4m "$0" && "$@""#
    );
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
        .arg(&disk)
        .arg(std::env::current_exe()?);
    match Command::new("unshare").arg("--version").output() {
        Ok(_) => Ok(start_as(
            &mut command,
            scene,
            server,
            &disk.join("sessions"),
        )),
        Err(error) => Err(error),
    }
}

#[tokio::test]
async fn a6_no_effect_runs_without_its_intent_on_a_full_disk() {
    let mut failed = 0;
    for kilobytes in (8..=40).step_by(4) {
        let scene = Scene::new();
        let server = Server::start(Dialect::Chat, |request| {
            match results(request, Dialect::Chat) {
                EFFECTS.. => Reply::text("all done"),
                done => {
                    // Random text, which no compression makes short.
                    let text: String = (0..60).map(|_| Uuid::new_v4().to_string()).collect();
                    let arguments = format!(r#"{{"effect":{done},"text":"{text}"}}"#);
                    Reply::call("append", &arguments)
                }
            }
        })
        .await;
        let Ok(child) = start_on_small_disk(kilobytes, &scene, &server) else {
            return println!("skipped: unshare is not installed");
        };
        let text = output(child).await;
        if text.is_empty() || text.contains("no mount") {
            return println!("skipped: no disk can be mounted here");
        }
        assert!(text.contains("ended: the turn was completed"), "{text}");
        failed += usize::from(text.contains("the session can't be saved"));
        check_effects(&scene, &server);
    }
    assert!(failed > 0, "each disk was large enough");
}

#[tokio::test]
async fn a7_one_of_eight_processes_gets_the_session() {
    let scene = Scene::new();
    let server = Server::start(Dialect::Chat, |request| {
        match results(request, Dialect::Chat) {
            0 => Reply::call("append", "{}"),
            _ => Reply::text("done"),
        }
    })
    .await;
    // A first process makes the session.
    let first = output(start(&scene, &server)).await;
    assert!(first.contains("ended"), "{first}");
    std::fs::remove_file(scene.work().join("effects")).unwrap();
    let children: Vec<Child> = (0..8).map(|_| start(&scene, &server)).collect();
    let mut ended = 0;
    for child in children {
        let text = output(child).await;
        ended += usize::from(text.contains("ended: the turn was completed"));
        assert!(text.contains("ended") || text.contains("in use"), "{text}");
    }
    assert!(ended >= 1);
    assert!(
        !scene.work().join("effects").exists(),
        "the effect of an answered message is not repeated"
    );
    assert_eq!(EndReason::Completed.to_string(), "the turn was completed");
}

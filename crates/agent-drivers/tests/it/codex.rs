//! Tests of the `codex` driver that need a real process, with a scripted agent. Tests that need only lines are next to the protocol.

mod commands;
mod end;
mod start;
mod turns;

use crate::reading::{next, rest, turn, until};
use crate::scene::{DEADLINE, Scene};
use agent_drivers::codex::CodexDriver;
use agent_duplex::{Connection, Driver as _, EndReason, Event, Message, SessionChoice};
use agent_subprocess::ProcessContext;
use std::ffi::OsString;
use tokio::time::timeout;

/// Shell functions that answer each request in the usual way. A test overrides some of them.
const AGENT: &str = r#"
say() { printf '%s\n' "$1"; }
id() { printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p'; }
ok() { say '{"id":'"$(id)"',"result":{'"$1"'}}'; }
no() { say '{"id":'"$(id)"',"error":{"code":-32600,"message":"'"$1"'"}}'; }
tell() { say '{"method":"'"$1"'","params":{"threadId":"t",'"$2"'}}'; }
completed() { tell turn/completed '"turn":{"id":"'"$n"'","status":"'"$1"'"}'; }
tool() { tell item/started '"turnId":"'"$n"'","item":{"type":"commandExecution","id":"c'"$n"'","command":"make"}'; }
delta() { tell item/agentMessage/delta '"turnId":"'"$n"'","itemId":"m","delta":"'"$1"'"'; }
quiet() { "$@" </dev/null >/dev/null 2>&1 & }
n=0
on_initialize() { ok '"userAgent":"x/1.0 (y)"'; }
on_open() { ok '"thread":{"id":"t"},"model":"m"'; }
on_start() {
  n=$((n+1))
  ok '"turn":{"id":"'"$n"'"}'
  tell turn/started '"turn":{"id":"'"$n"'"}'
  work
}
work() { completed completed; }
message() { printf '%s' "$line" | sed -n 's/.*"clientUserMessageId":"\([^"]*\)".*/\1/p'; }
taken() { tell item/started '"turnId":"'"$n"'","item":{"type":"userMessage","id":"u","clientId":"'"$(message)"'"}'; }
on_steer() { ok '"turnId":"'"$n"'"'; taken; }
on_interrupt() { ok; completed interrupted; }
on_end() { :; }
"#;

const LOOP: &str = r#"
while IFS= read -r line; do case $line in
  *'"method":"initialize"'*) on_initialize ;;
  *'"method":"thread/'*) on_open ;;
  *'"method":"turn/start"'*) on_start ;;
  *'"method":"turn/steer"'*) on_steer ;;
  *'"method":"turn/interrupt"'*) on_interrupt ;;
esac; done
on_end
"#;

fn context(scene: &Scene) -> ProcessContext {
    ProcessContext {
        env: vec![("GREETING".into(), "hello".into())],
        marker: Some(scene.marker.clone()),
        ..ProcessContext::new(scene.directory.path(), scene.path("scratch"))
    }
}

/// Makes a driver for a shell script.
fn raw(scene: &Scene, script: &str) -> CodexDriver {
    let program = ["sh", "-c", script, "sh"].map(OsString::from);
    CodexDriver::new(program.into(), context(scene))
}

/// Makes a driver for a scripted agent; `functions` override its usual answers.
fn driver(scene: &Scene, functions: &str) -> CodexDriver {
    raw(scene, &format!("{AGENT}{functions}{LOOP}"))
}

/// Opens a connection and waits until its conversation is open.
async fn open(driver: &CodexDriver) -> Result<Box<dyn Connection>, agent_duplex::Error> {
    let mut connection = driver.connect(SessionChoice::Fresh).await?;
    connection.ready().await?;
    Ok(connection)
}

async fn connect(scene: &Scene, functions: &str) -> Box<dyn Connection> {
    open(&driver(scene, functions)).await.unwrap()
}

fn warnings(events: &[Event]) -> Vec<&str> {
    let warnings = events.iter().filter_map(|event| match event {
        Event::Warning(warning) => Some(warning.as_str()),
        _ => None,
    });
    warnings.collect()
}

//! Tests of the `claude` driver that need a real process, with a scripted agent. Tests that need only lines are next to the protocol.

mod end;
mod options;
mod start;
mod turns;
mod write;

use crate::reading::{next, rest, turn, until};
use crate::scene::{DEADLINE, Scene};
use agent_drivers::claude::ClaudeDriver;
use agent_duplex::{Connection, Driver as _, EndReason, Event, Message, SessionChoice};
use agent_subprocess::ProcessContext;
use std::ffi::OsString;
use tokio::time::timeout;

/// Shell functions that answer each request in the usual way. A test overrides some of them.
const AGENT: &str = r#"
say() { printf '%s\n' "$1"; }
field() { printf '%s' "$line" | sed -n 's/.*"'"$1"'":"\([^"]*\)".*/\1/p'; }
ok() { say '{"type":"control_response","response":{"subtype":"success","request_id":"'"$(field request_id)"'","response":{'"$1"'}}}'; }
begin() {
  say '{"type":"command_lifecycle","command_uuid":"'"$(field uuid)"'","state":"started"}'
  say '{"type":"system","subtype":"init","claude_code_version":"0","model":"m"}'
  say '{"type":"system","subtype":"status","status":"requesting"}'
}
delta() { say '{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"'"$1"'"}}}'; }
tool() { say '{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"make"}}]}}'; }
result() { say '{"type":"result","subtype":"success","is_error":false,"terminal_reason":"'"$1"'","result":"","total_cost_usd":0.5}'; }
on_initialize() { ok; }
on_interrupt() { ok '"still_queued":[]'; result aborted_streaming; }
on_end() { ok; exit 0; }
on_user() { begin; result completed; }
on_other() { :; }
"#;

const LOOP: &str = r#"
while IFS= read -r line; do case $line in
  *'"subtype":"initialize"'*) on_initialize ;;
  *'"subtype":"interrupt"'*) on_interrupt ;;
  *'"subtype":"end_session"'*) on_end ;;
  *'"type":"user"'*) on_user ;;
  *) on_other ;;
esac; done
"#;

fn context(scene: &Scene) -> ProcessContext {
    ProcessContext {
        env: vec![("GREETING".into(), "hello".into())],
        marker: Some(scene.marker.clone()),
        ..ProcessContext::new(scene.directory.path(), scene.path("scratch"))
    }
}

/// Makes a driver for a shell script.
fn raw(scene: &Scene, script: &str) -> ClaudeDriver {
    let program = ["sh", "-c", script, "sh"].map(OsString::from);
    ClaudeDriver::new(program.into(), context(scene))
}

/// Makes a driver for a scripted agent; `functions` override its usual answers.
fn driver(scene: &Scene, functions: &str) -> ClaudeDriver {
    raw(scene, &format!("{AGENT}{functions}{LOOP}"))
}

async fn connect(scene: &Scene, functions: &str) -> Box<dyn Connection> {
    let driver = driver(scene, functions);
    open(&driver, SessionChoice::Fresh).await.unwrap()
}

/// Opens a connection and waits until its agent is ready.
async fn open(
    driver: &ClaudeDriver,
    session: SessionChoice,
) -> Result<Box<dyn Connection>, agent_duplex::Error> {
    let mut connection = driver.connect(session).await?;
    connection.ready().await?;
    Ok(connection)
}

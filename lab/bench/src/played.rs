//! What this binary does in the place of an agent, or of a process below one.

use std::fs::File;
use std::io::{BufRead, Read, Write};
use std::process::{Command, Stdio};

use crate::harness::{Result, park};

/// The first argument of a played process.
pub(crate) const PLAYED: &str = "--played";

/// The two lines that a driver writes first: an introduction, which the agent answers with a line, and a message.
pub(crate) const INTRODUCTION: &[u8] =
    b"{\"type\":\"control_request\",\"request_id\":\"1\",\"request\":{\"subtype\":\"initialize\"}}\n";
pub(crate) const GO: &[u8] =
    b"{\"type\":\"user\",\"message\":{\"role\":\"user\",\"content\":\"go\"}}\n";

/// The words of a played process, to be started by somebody else.
pub(crate) fn words(part: &[&str]) -> Result<Vec<std::ffi::OsString>> {
    let program = std::env::current_exe()?.into_os_string();
    let part = [PLAYED].iter().chain(part).map(Into::into);
    Ok(std::iter::once(program).chain(part).collect())
}

/// The same as a command.
pub(crate) fn command(part: &[&str]) -> Result<Command> {
    let words = words(part)?;
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    Ok(command)
}

/// Plays a part. A driver's own flags come after it, and mean nothing.
pub(crate) fn play(part: &[&str]) -> Result<()> {
    match part {
        ["pour", file, times, ..] => pour(file, times.parse()?),
        ["turns", ..] => turns(),
        ["tree", shape, count, fifo, group, ..] => tree(shape, count.parse()?, fifo, group),
        ["daemon", ..] => {
            rustix::process::setsid()?;
            sleeper("stay").spawn()?;
            Ok(())
        }
        ["sleeper", session, ..] => sleep(session),
        ["nothing"] => Ok(()),
        ["stamp", file, ..] => {
            std::io::stdin().lock().read_exact(&mut [0])?;
            Ok(fs_err::write(file, crate::harness::now().to_string())?)
        }
        _ => Err("there is no such part".into()),
    }
}

/// Answers a message with all lines of a file, `times` over.
fn pour(file: &str, times: usize) -> Result<()> {
    let lines = fs_err::read(file)?;
    let mut out = unbuffered()?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        if field(&line, "type") == "user" {
            for _ in 0..times {
                out.write_all(&lines)?;
            }
        } else if !answer(&line, &mut out)? {
            break;
        }
    }
    Ok(())
}

/// Answers messages at once: with a whole turn, or, asked to hold, with its beginning; and ends the latter when interrupted.
fn turns() -> Result<()> {
    const BEGIN: &str = concat!(
        r#"{"type":"command_lifecycle","command_uuid":"ID","state":"started","uuid":"ID","session_id":"s"}"#,
        "\n",
        r#"{"type":"system","subtype":"init","claude_code_version":"0","model":"m","uuid":"ID","session_id":"s"}"#,
        "\n",
        r#"{"type":"stream_event","event":{"type":"message_start","message":{"content":[]}},"uuid":"ID","session_id":"s","parent_tool_use_id":null}"#,
        "\n",
        r#"{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"yes"}},"uuid":"ID","session_id":"s","parent_tool_use_id":null}"#,
        "\n",
    );
    const SAID: &str = concat!(
        r#"{"type":"assistant","message":{"id":"m1","role":"assistant","model":"m","content":[{"type":"text","text":"yes"}]},"uuid":"ID","session_id":"s","parent_tool_use_id":null}"#,
        "\n",
    );
    const RESULT: &str = concat!(
        r#"{"type":"result","subtype":"success","is_error":false,"terminal_reason":"END","result":"yes","duration_ms":1,"duration_api_ms":1,"num_turns":1,"total_cost_usd":0.5,"uuid":"ID","session_id":"s"}"#,
        "\n",
    );
    let mut out = unbuffered()?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        if field(&line, "subtype") == "interrupt" {
            let end = RESULT.replace("END", "aborted_streaming");
            answer(&line, &mut out)?;
            out.write_all(end.as_bytes())?;
        } else if field(&line, "type") == "user" {
            let mut text = BEGIN.to_owned();
            if !line.contains("hold") {
                text += SAID;
                text += &RESULT.replace("END", "completed");
            }
            let id = field(&line, "uuid");
            let text = text.replace("ID", if id.is_empty() { "0" } else { id });
            out.write_all(text.as_bytes())?;
        } else if !answer(&line, &mut out)? {
            break;
        }
    }
    Ok(())
}

/// Says yes to a request; `false` if that was to end.
fn answer(line: &str, out: &mut File) -> Result<bool> {
    if field(line, "type") == "control_request" {
        let id = field(line, "request_id");
        let yes = format!(
            r#"{{"type":"control_response","response":{{"subtype":"success","request_id":"{id}","response":{{"still_queued":[],"commands":[]}}}}}}"#
        );
        out.write_all(format!("{yes}\n").as_bytes())?;
    }
    Ok(field(line, "subtype") != "end_session")
}

/// Returns a field whose value has nothing to unescape, wherever it stands; some writers put a space after the colon.
fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let value = line.split_once(&format!("\"{name}\":"));
    let value = value.map(|(_, rest)| rest.trim_start());
    let value = value.and_then(|value| value.strip_prefix('"')?.split('"').next());
    value.unwrap_or_default()
}

/// Standard output without the buffer that would look for the ends of lines.
fn unbuffered() -> Result<File> {
    Ok(File::from(rustix::io::fcntl_dupfd_cloexec(
        std::io::stdout(),
        3,
    )?))
}

/// Makes `count` processes that sleep and hold `fifo` open, and sleeps itself; first it enters the control group `group`, if there is one.
fn tree(shape: &str, count: usize, fifo: &str, group: &str) -> Result<()> {
    if !group.is_empty() {
        fs_err::write(format!("{group}/cgroup.procs"), "0")?;
    }
    let fifo = File::options().write(true).open(fifo)?;
    for _ in 0..count {
        let mut command = match shape {
            "daemonised" => command(&["daemon"])?,
            "setsid" => sleeper("own"),
            _ => sleeper("stay"),
        };
        let mut child = command
            .stdin(Stdio::null())
            .stdout(fifo.try_clone()?)
            .stderr(Stdio::null())
            .spawn()?;
        if shape == "daemonised" {
            // Its child is nobody's now.
            child.wait()?;
        }
    }
    park()
}

fn sleeper(session: &str) -> Command {
    command(&["sleeper", session]).expect("it has found itself before")
}

/// Says one byte when it is where it is to be, and sleeps.
fn sleep(session: &str) -> Result<()> {
    if session == "own" {
        rustix::process::setsid()?;
    }
    unbuffered()?.write_all(b".")?;
    park()
}

/// Reads to the end of a line, byte by byte, so that nothing after it is taken.
pub(crate) fn read_line(from: &mut impl Read) -> Result<()> {
    let mut byte = [0];
    while byte[0] != b'\n' {
        from.read_exact(&mut byte)?;
    }
    Ok(())
}

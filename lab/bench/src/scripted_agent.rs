//! The scripted agents of this binary, and the processes below them.

use std::fs::File;
use std::io::{BufRead, Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::harness::{Result, park};

/// The first argument of a scripted process.
pub(crate) const PLAYED: &str = "--played";

/// The first line that a driver sends. The agent answers it with one line.
pub(crate) const INTRODUCTION: &[u8] =
    b"{\"type\":\"control_request\",\"request_id\":\"1\",\"request\":{\"subtype\":\"initialize\"}}\n";
/// The second line that a driver sends: a message, which begins a turn.
pub(crate) const GO: &[u8] =
    b"{\"type\":\"user\",\"message\":{\"role\":\"user\",\"content\":\"go\"}}\n";

/// Returns the command of a scripted process, as a list of words.
pub(crate) fn words(part: &[&str]) -> Result<Vec<std::ffi::OsString>> {
    let program = std::env::current_exe()?.into_os_string();
    let part = [PLAYED].iter().chain(part).map(Into::into);
    Ok(std::iter::once(program).chain(part).collect())
}

/// Returns the command of a scripted process, ready to start.
pub(crate) fn command(part: &[&str]) -> Result<Command> {
    let words = words(part)?;
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    Ok(command)
}

/// Runs a scripted process. A driver's own flags follow `part` and are ignored.
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
        ["ticks", timed, pause, poured, ..] => ticks(
            timed.parse()?,
            Duration::from_millis(pause.parse()?),
            poured.parse()?,
        ),
        ["stamp", file, ..] => {
            std::io::stdin().lock().read_exact(&mut [0])?;
            Ok(fs_err::write(file, crate::harness::now().to_string())?)
        }
        _ => Err("there is no such scripted process".into()),
    }
}

/// Prints lines with their number and time: `timed` lines with a pause before each, and then `poured` lines at ten times the usual speed. Then waits,
/// so that the run goes on while its page is read.
fn ticks(timed: usize, pause: Duration, poured: usize) -> Result<()> {
    let mut out = unbuffered()?;
    // A page is opened first.
    crate::harness::pause(Duration::from_secs(2));
    for number in 0..timed + poured {
        match number < timed {
            true => crate::harness::pause(pause),
            false if number % 100 == 0 => crate::harness::pause(Duration::from_millis(100)),
            false => {}
        }
        writeln!(out, "tick:{number}:{}:", crate::harness::now())?;
    }
    park()
}

/// Answers a message with all lines of a file, `times` times.
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

/// Answers each message at once with a whole turn. If the message contains "hold", it writes only the beginning of the turn, and an interrupt
/// ends the turn.
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

/// Answers a request with success; returns false if the request ends the session.
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

/// Returns a field at any place in the line. Its value must have nothing to unescape; some writers put a space after the colon.
fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let value = line.split_once(&format!("\"{name}\":"));
    let value = value.map(|(_, rest)| rest.trim_start());
    let value = value.and_then(|value| value.strip_prefix('"')?.split('"').next());
    value.unwrap_or_default()
}

/// Returns standard output without the line buffer.
fn unbuffered() -> Result<File> {
    Ok(File::from(rustix::io::fcntl_dupfd_cloexec(
        std::io::stdout(),
        3,
    )?))
}

/// Makes `count` processes that sleep and hold `fifo` open, and sleeps itself. If there is a control group `group`, it enters the group first.
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
            // When this child has ended, its own child is an orphan.
            child.wait()?;
        }
    }
    park()
}

fn sleeper(session: &str) -> Command {
    command(&["sleeper", session]).expect("this program has found its own path before")
}

/// Prints one byte when the process is in its session, and sleeps.
fn sleep(session: &str) -> Result<()> {
    if session == "own" {
        rustix::process::setsid()?;
    }
    unbuffered()?.write_all(b".")?;
    park()
}

/// Reads to the end of a line, byte by byte, so that it consumes nothing after the line.
pub(crate) fn read_line(from: &mut impl Read) -> Result<()> {
    let mut byte = [0];
    while byte[0] != b'\n' {
        from.read_exact(&mut byte)?;
    }
    Ok(())
}

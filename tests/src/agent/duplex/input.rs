//! Reads stdin, and exits at a line that is not one JSON object, as the real CLI does.

use std::io::{self, BufRead};
use std::sync::mpsc::Sender;
use std::thread;

use serde_json::Value;

/// An input from outside.
#[derive(Debug)]
pub(in crate::agent) enum Input {
    Line(Value),
    /// The end of stdin.
    End,
    /// A line that no client may send, with the reason.
    Broken(String),
    /// SIGINT.
    Interrupt,
}

/// Reads continuously, whatever the agent is doing.
pub(in crate::agent) fn read(to: Sender<Input>) {
    thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        loop {
            let mut line = Vec::new();
            let input = match stdin.read_until(b'\n', &mut line) {
                Ok(0) => Input::End,
                Ok(_) => line_of(&line).map_or_else(Input::Broken, Input::Line),
                Err(error) => Input::Broken(error.to_string()),
            };
            let last = !matches!(input, Input::Line(_));
            // The receiver is gone if the agent is exiting.
            if to.send(input).is_err() || last {
                return;
            }
        }
    });
}

fn line_of(line: &[u8]) -> Result<Value, String> {
    let shown = || String::from_utf8_lossy(&line[..line.len().min(200)]).into_owned();
    let text = line
        .strip_suffix(b"\n")
        .ok_or_else(|| format!("an unfinished line: {}", shown()))?;
    if text.ends_with(b"\r") || text.is_empty() {
        return Err("an empty line, or a carriage return".into());
    }
    let value: Value =
        serde_json::from_slice(text).map_err(|error| format!("not JSON ({error}): {}", shown()))?;
    if value.is_object() {
        Ok(value)
    } else {
        Err(format!("not an object: {}", shown()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_object() {
        assert!(line_of(b"{\"a\": 1}\n").is_ok());
        let bad: [&[u8]; 8] = [
            b"\n",
            b" \n",
            b"hello\n",
            b"{}{}\n",
            b"\xef\xbb\xbf{}\n",
            b"{}",
            b"[]\n",
            b"{}\r\n",
        ];
        for line in bad {
            assert!(line_of(line).is_err(), "{line:?}");
        }
    }
}

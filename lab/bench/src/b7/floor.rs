//! The floors, the peer and our `Lines`, all on the bare pipe: raw reads, lines, and the values that `serde_json` parses.

use std::io::{BufRead, BufReader, Read as _, Write};
use std::process::{ChildStdin, ChildStdout};
use std::sync::Arc;
use std::time::Instant;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::broadcast;

use super::expected::{Expected, Read};
use crate::harness::{Process, Result, workers};
use crate::scripted_agent::{GO, INTRODUCTION, command, read_line};

/// The largest size of a pipe without privileges, which ours also requests.
const PIPE: usize = 1 << 20;

/// The child that writes the lines after the GO message.
struct Source {
    _process: Process,
    _input: ChildStdin,
    out: ChildStdout,
    begun: Instant,
}

impl Source {
    fn open(expected: &Expected) -> Result<Self> {
        let command = command(&["pour", &expected.file, &expected.times])?;
        let (process, mut input, mut out) = Process::piped(command)?;
        #[cfg(target_os = "linux")]
        let _default_size = rustix::pipe::fcntl_setpipe_size(&out, PIPE);
        input.write_all(INTRODUCTION)?;
        read_line(&mut out)?;
        let begun = Instant::now();
        input.write_all(GO)?;
        Ok(Self {
            _process: process,
            _input: input,
            out,
            begun,
        })
    }

    fn read(self, lines: usize) -> Read {
        Read {
            took: self.begun.elapsed(),
            lines,
            dropped: 0,
        }
    }
}

pub(super) fn raw(expected: &Expected) -> Result<Read> {
    let mut source = Source::open(expected)?;
    let mut buffer = vec![0; PIPE];
    let mut left = expected.bytes;
    while left > 0 {
        match source.out.read(&mut buffer)? {
            0 => return Err("the source ended too soon".into()),
            read => left -= read,
        }
    }
    Ok(source.read(expected.lines))
}

pub(super) fn lines(expected: &Expected) -> Result<Read> {
    let mut source = Source::open(expected)?;
    let mut buffer = vec![0; 64 << 10];
    let mut lines = agent_subprocess::Lines::new(64 << 20);
    let mut count = 0;
    while count < expected.lines {
        let read = source.out.read(&mut buffer)?;
        lines.push(&buffer[..read]);
        while lines.next_line().is_some() {
            count += 1;
        }
    }
    Ok(source.read(count))
}

pub(super) fn value(expected: &Expected) -> Result<Read> {
    each_line(expected, |line| {
        let value: serde_json::Value = serde_json::from_slice(line)?;
        std::hint::black_box(value);
        Ok(())
    })
}

/// The content of events, as a hand-written client defines it, and nothing else.
#[derive(Debug, Deserialize)]
#[expect(
    dead_code,
    reason = "the work is the parsing; no code reads the values"
)]
struct Typed<'a> {
    r#type: &'a str,
    subtype: Option<&'a str>,
    session_id: Option<&'a str>,
    parent_tool_use_id: Option<&'a str>,
    #[serde(borrow)]
    event: Option<Streamed<'a>>,
    #[serde(borrow)]
    message: Option<Body<'a>>,
    model: Option<String>,
    is_error: Option<bool>,
    terminal_reason: Option<&'a str>,
    result: Option<String>,
    total_cost_usd: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "as above")]
struct Streamed<'a> {
    r#type: &'a str,
    delta: Option<Delta<'a>>,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "as above")]
struct Delta<'a> {
    r#type: Option<&'a str>,
    text: Option<String>,
    thinking: Option<String>,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "as above")]
struct Body<'a> {
    #[serde(borrow)]
    content: Vec<Block<'a>>,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "as above")]
struct Block<'a> {
    r#type: &'a str,
    text: Option<String>,
    id: Option<String>,
    name: Option<String>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    tool_use_id: Option<String>,
    is_error: Option<bool>,
    content: Option<String>,
}

pub(super) fn typed(expected: &Expected) -> Result<Read> {
    each_line(expected, |line| {
        let typed: Typed<'_> = serde_json::from_slice(line)?;
        std::hint::black_box(typed);
        Ok(())
    })
}

fn each_line(expected: &Expected, mut parse: impl FnMut(&[u8]) -> Result<()>) -> Result<Read> {
    let mut source = Source::open(expected)?;
    let mut out = BufReader::with_capacity(64 << 10, &mut source.out);
    let mut line = Vec::new();
    let mut count = 0;
    while count < expected.lines {
        line.clear();
        out.read_until(b'\n', &mut line)?;
        parse(&line)?;
        count += 1;
    }
    Ok(source.read(count))
}

/// Parses on a thread, and sends each line to 99 receivers. It waits for them, so that they miss nothing.
pub(super) fn broadcast(expected: &Expected) -> Result<Read> {
    const AHEAD: usize = 4096;
    let runtime = workers()?;
    let (sender, _) = broadcast::channel::<Arc<Vec<u8>>>(AHEAD);
    let receivers: Vec<_> = (0..99)
        .map(|_| {
            let mut receiver = sender.subscribe();
            runtime.spawn(async move {
                let mut count = 0;
                while let Ok(line) = receiver.recv().await {
                    std::hint::black_box(line);
                    count += 1;
                }
                count
            })
        })
        .collect();
    let begun = Instant::now();
    let mut read = each_line(expected, |line| {
        let typed: Typed<'_> = serde_json::from_slice(line)?;
        std::hint::black_box(typed);
        while sender.len() > AHEAD / 2 {
            std::thread::yield_now();
        }
        sender
            .send(Arc::new(line.to_vec()))
            .map_err(|_| "there is no receiver")?;
        Ok(())
    })?;
    let opening = begun.elapsed() - read.took;
    drop(sender);
    for receiver in receivers {
        read.dropped += usize::from(runtime.block_on(receiver)? != expected.lines);
    }
    read.took = begun.elapsed() - opening;
    Ok(read)
}

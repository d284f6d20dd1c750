//! The tool `read`: a part of a text file, with line numbers. It reads a file of any size in bounded memory.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read as _, Seek as _};
use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::arguments::Arguments;
use super::file_tool::{FileTool, Reader};
use super::files::{self, CancellableFile, OpenFile};
use super::output::{SHOWN, push_note};
use super::{ToolContext, ToolOutput};
use crate::json::JsonObject;

const EXAMPLE: &str = r#"{"path":"src/main.rs","offset":1,"limit":200}"#;
/// The number of bytes at the start of a file that decide whether it is binary.
const SAMPLE: u64 = 8 << 10;
/// The maximum number of characters of a line that are shown.
const MAX_LINE: usize = 2_000;

/// Reads a text file.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadFile;

pub(super) struct Call {
    path: String,
    offset: u64,
    limit: u64,
}

impl FileTool for ReadFile {
    const NAME: &'static str = "read";
    const DESCRIPTION: &'static str = "Reads a text file. Each line has its number and a tab in front. A long file is cut: continue with `offset`.";
    const SCHEMA: &'static str = r#"{"type":"object","properties":{"path":{"type":"string","description":"The file, relative to the working directory"},"offset":{"type":"integer","description":"The first line, from 1"},"limit":{"type":"integer","description":"The maximum number of lines"}},"required":["path"]}"#;
    const SUMMARY: &'static str = "path";

    type Call = Call;

    fn parse(arguments: &JsonObject) -> Result<Call, ToolOutput> {
        let mut arguments = Arguments::new(arguments, EXAMPLE);
        Ok(Call {
            path: arguments.text("path")?,
            offset: arguments.number("offset")?.unwrap_or(1).max(1),
            limit: arguments.number("limit")?.unwrap_or(u64::MAX).max(1),
        })
    }

    fn path(call: &Call) -> &str {
        &call.path
    }
}

impl Reader for ReadFile {
    fn read(
        call: &Call,
        path: &Path,
        context: &ToolContext,
        cancel: &CancellationToken,
    ) -> Result<ToolOutput, ToolOutput> {
        let shown = context.directory.shown(path);
        let Some(OpenFile { file, stamp, bytes }) = files::open(path, &shown)? else {
            return Err(files::missing(path, &context.directory));
        };
        let file = CancellableFile { file, cancel };
        let text = text(file, call, &shown, bytes)
            .map_err(|error| files::unreadable(&shown, &error))?
            .map_err(ToolOutput::failed)?;
        context.files.record(path, stamp);
        Ok(ToolOutput::ok(text))
    }
}

/// Returns the lines of a file as the model sees them, or the reason why there are none.
fn text(
    mut file: CancellableFile<'_>,
    call: &Call,
    shown: &str,
    bytes: u64,
) -> io::Result<Result<String, String>> {
    let mut sample = Vec::new();
    file.by_ref().take(SAMPLE).read_to_end(&mut sample)?;
    if sample.is_empty() {
        return Ok(Ok("the file is empty".to_owned()));
    }
    if sample.contains(&0) {
        return Ok(Err(format!(
            "`{shown}` is a binary file of {bytes} bytes; use a command that understands its format"
        )));
    }
    file.file.rewind()?;
    let mut reader = BufReader::with_capacity(64 << 10, file);
    for line in 1..call.offset {
        if reader.skip_until(b'\n')? == 0 {
            return Ok(Err(beyond(shown, line - 1, call.offset)));
        }
    }
    let mut text = String::new();
    let (mut lines, mut crlf, mut is_utf8) = (0, 0_u64, true);
    let mut is_at_end = false;
    while lines < call.limit.min(SHOWN.lines as u64) {
        let Some(line) = read_line(&mut reader)? else {
            is_at_end = true;
            break;
        };
        let number = call.offset + lines;
        let before = text.len();
        let kept = String::from_utf8_lossy(&line.kept);
        // A character that the cut of a long line splits is not the fault of the file.
        is_utf8 &= line.missing > 0 || matches!(kept, std::borrow::Cow::Borrowed(_));
        let end = kept.char_indices().nth(MAX_LINE).map(|(at, _)| at);
        let kept_text = &kept[..end.unwrap_or(kept.len())];
        let missing = match end {
            Some(_) => {
                (line.kept.len() as u64 + line.missing).saturating_sub(kept_text.len() as u64)
            }
            None => line.missing,
        };
        let _infallible = write!(text, "{number}\t{kept_text}");
        if missing > 0 {
            let _infallible = write!(text, "… [{missing} more bytes in this line]");
        }
        text.push('\n');
        if text.len() > SHOWN.bytes {
            text.truncate(before);
            break;
        }
        crlf += u64::from(line.is_crlf);
        lines += 1;
    }
    let is_at_end = is_at_end || {
        // The last line that was read may be one that didn't fit.
        let shows_all = lines == call.limit.min(SHOWN.lines as u64);
        shows_all && reader.fill_buf()?.is_empty()
    };
    let last = call.offset + lines;
    if lines == 0 {
        return Ok(Err(beyond(shown, last - 1, call.offset)));
    }
    if !is_at_end {
        push_note(
            &mut text,
            &format!(
                "the file has {bytes} bytes and more lines after line {}; continue with `offset` {last}",
                last - 1
            ),
        );
    }
    match crlf {
        0 => {}
        all if all == lines => push_note(&mut text, "the lines end with CRLF, shown as LF"),
        some => push_note(
            &mut text,
            &format!("{some} of these {lines} lines end with CRLF, shown as LF"),
        ),
    }
    if !is_utf8 {
        push_note(&mut text, "some bytes are not UTF-8, shown as \u{fffd}");
    }
    Ok(Ok(text))
}

fn beyond(shown: &str, lines: u64, offset: u64) -> String {
    format!("`{shown}` has {lines} lines, so there is no line {offset}; give a smaller `offset`")
}

/// One line of a file.
#[derive(Debug, Default)]
struct Line {
    /// Its first bytes, without the line break.
    kept: Vec<u8>,
    /// The number of its other bytes.
    missing: u64,
    is_crlf: bool,
}

/// Reads a line of any length in bounded memory; `None` at the end of the file.
fn read_line(reader: &mut impl BufRead) -> io::Result<Option<Line>> {
    // A character has at most four bytes.
    const KEPT: usize = MAX_LINE * 4;
    let mut line = Line::default();
    let mut last = None;
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(last.is_some().then_some(line));
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let part = &buffer[..end.unwrap_or(buffer.len())];
        let room = KEPT - line.kept.len();
        line.kept.extend_from_slice(&part[..part.len().min(room)]);
        line.missing += part.len().saturating_sub(room) as u64;
        last = part.last().copied().or(last).or(Some(b'\n'));
        let used = part.len() + usize::from(end.is_some());
        reader.consume(used);
        if end.is_some() {
            line.is_crlf = last == Some(b'\r');
            if line.is_crlf && line.missing > 0 {
                line.missing -= 1;
            } else if line.is_crlf {
                line.kept.pop();
            }
            return Ok(Some(line));
        }
    }
}

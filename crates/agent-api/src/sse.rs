//! A parser of server-sent events that has no I/O and bounded memory. It follows the format of the HTML standard, except that it ignores `id` and
//! `retry`: a model call is never continued by the event stream's own reconnection.

use crate::error::Error;

/// One event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SseEvent {
    /// The name of the event; empty if the stream gives none.
    pub name: String,
    /// The data; several `data` lines are joined by line feeds.
    pub data: String,
}

/// The state of one stream between two chunks.
///
/// The chunks can be split anywhere, also inside a character or between CR and LF.
///
/// ```
/// let mut parser = agent_api::SseParser::new(1 << 20);
/// let mut events = Vec::new();
/// parser.push(b"event: pi", &mut events)?;
/// parser.push(b"ng\ndata: {}\n\n", &mut events)?;
/// assert_eq!((events[0].name.as_str(), events[0].data.as_str()), ("ping", "{}"));
/// # Ok::<(), agent_api::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SseParser {
    max_event: usize,
    line: Vec<u8>,
    name: Vec<u8>,
    data: Option<Vec<u8>>,
    at: Position,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    /// A byte order mark may follow.
    FirstLine,
    InLines,
    /// The last byte was CR, so a LF belongs to the same line end.
    AfterCr,
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl SseParser {
    /// Creates a parser that refuses lines and events of more than `max_event` bytes.
    #[must_use]
    pub const fn new(max_event: usize) -> Self {
        Self {
            max_event,
            line: Vec::new(),
            name: Vec::new(),
            data: None,
            at: Position::FirstLine,
        }
    }

    /// Reads a chunk and appends the events that are complete. Bytes that are not UTF-8 become U+FFFD.
    ///
    /// An event without its blank line is never returned: a stream that is cut inside an event loses the event.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`](crate::ErrorKind::TooLarge) if a line or an event exceeds the limit. The events before it were appended; the parser
    /// can't be used after this.
    pub fn push(&mut self, chunk: &[u8], events: &mut Vec<SseEvent>) -> Result<(), Error> {
        let mut rest = chunk;
        while let Some(first) = rest.first() {
            if self.at == Position::AfterCr {
                self.at = Position::InLines;
                if *first == b'\n' {
                    rest = &rest[1..];
                    continue;
                }
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
            let (text, later) = rest.split_at(end.unwrap_or(rest.len()));
            if self.line.len() + text.len() > self.max_event {
                return Err(Error::too_large("a line of the stream", self.max_event));
            }
            self.line.extend_from_slice(text);
            rest = later;
            if let Some((byte, later)) = later.split_first() {
                self.end_line(events)?;
                if *byte == b'\r' {
                    self.at = Position::AfterCr;
                }
                rest = later;
            }
        }
        Ok(())
    }

    fn end_line(&mut self, events: &mut Vec<SseEvent>) -> Result<(), Error> {
        let line = std::mem::take(&mut self.line);
        let mut text = line.as_slice();
        if self.at == Position::FirstLine {
            text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
        }
        self.at = Position::InLines;
        if text.is_empty() {
            self.dispatch(events);
        } else {
            let colon = text.iter().position(|byte| *byte == b':');
            let (field, value) = text.split_at(colon.unwrap_or(text.len()));
            let value = value.strip_prefix(b":").unwrap_or(value);
            self.field(field, value.strip_prefix(b" ").unwrap_or(value))?;
        }
        // Keep the allocation for the next line.
        self.line = line;
        self.line.clear();
        Ok(())
    }

    fn field(&mut self, field: &[u8], value: &[u8]) -> Result<(), Error> {
        match field {
            b"event" => self.name = value.to_vec(),
            b"data" => {
                let so_far = self.data.as_ref().map_or(0, Vec::len);
                if so_far + value.len() >= self.max_event {
                    return Err(Error::too_large("an event of the stream", self.max_event));
                }
                match &mut self.data {
                    Some(data) => {
                        data.push(b'\n');
                        data.extend_from_slice(value);
                    }
                    data @ None => *data = Some(value.to_vec()),
                }
            }
            // A comment has an empty field name.
            _ => {}
        }
        Ok(())
    }

    fn dispatch(&mut self, events: &mut Vec<SseEvent>) {
        let name = std::mem::take(&mut self.name);
        if let Some(data) = self.data.take() {
            let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
            events.push(SseEvent {
                name: text(name),
                data: text(data),
            });
        }
    }
}

//! Decodes the bytes of a stream into deltas and one whole response.

use crate::dialect::{Delta, Dialect, EventReader, ModelResponse, ResponseLimits, StopReason};
use crate::error::{Error, ErrorKind};
use crate::history::AssistantMessage;
use crate::sse::{SseEvent, SseParser};
use crate::usage::Usage;

/// The decoder of one stream.
///
/// Push the bytes as they arrive, in any chunks. After the final event, or at the end of the stream, call [`finish`](Self::finish).
/// After an interrupt, call [`interrupt`](Self::interrupt) instead.
#[derive(Clone, Debug)]
pub struct Decoder {
    parser: SseParser,
    reader: EventReader,
    state: DecoderState,
    /// The events of one chunk; empty between two calls.
    events: Vec<SseEvent>,
}

#[derive(Clone, Debug)]
enum DecoderState {
    Reading,
    Complete(StopReason),
    Failed(Error),
}

impl Decoder {
    /// Creates the decoder for the response to one request. A call of a tool that is not in `tools` is marked as invalid.
    #[must_use]
    pub fn new<'a>(
        dialect: Dialect,
        tools: impl IntoIterator<Item = &'a str>,
        limits: ResponseLimits,
    ) -> Self {
        let tools = tools.into_iter().map(str::to_owned).collect();
        Self {
            parser: SseParser::new(limits.event_bytes),
            reader: EventReader::new(dialect, tools, limits),
            state: DecoderState::Reading,
            events: Vec::new(),
        }
    }

    /// Reads a chunk, and appends its deltas. Bytes after the final event are ignored.
    ///
    /// # Errors
    ///
    /// Fails if the server reports an error, if the stream is malformed, or if it exceeds a limit; [`Error::retry`] says whether another try may help.
    /// The deltas before the error were appended. Each later call returns the same error.
    pub fn push(&mut self, chunk: &[u8], deltas: &mut Vec<Delta>) -> Result<(), Error> {
        if let DecoderState::Reading = self.state
            && let Err(error) = self.read(chunk, deltas)
        {
            self.state = DecoderState::Failed(error);
        }
        match &self.state {
            DecoderState::Failed(error) => Err(error.clone()),
            DecoderState::Reading | DecoderState::Complete(_) => Ok(()),
        }
    }

    /// Returns whether the final event has arrived. The connection needs no more bytes then.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        matches!(self.state, DecoderState::Complete(_))
    }

    /// Returns the tokens so far. While the stream runs, the output is the larger of the server's number and a quarter of the bytes so far.
    #[must_use]
    pub fn usage_so_far(&self) -> Usage {
        let mut usage = self.reader.usage().unwrap_or_default();
        if !self.is_complete() {
            usage.output_tokens = usage.output_tokens.max(self.reader.estimated_output());
        }
        usage
    }

    /// Returns the whole response, at the end of the stream.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Truncated`] if the final event has not arrived; or the error of [`push`](Self::push).
    pub fn finish(self) -> Result<ModelResponse, Error> {
        match self.state {
            DecoderState::Complete(stop) => Ok(self.reader.finish(stop)),
            DecoderState::Failed(error) => Err(error),
            DecoderState::Reading => Err(Self::truncated()),
        }
    }

    /// Returns the part of the response that may be kept after an interrupt, as a partial message; `None` if nothing may be kept.
    ///
    /// It contains the text so far and the calls that are complete. Half a call and thinking without its proof are discarded. Append it to the history, then
    /// [close](crate::History::close_calls_after_interrupt) its calls.
    #[must_use]
    pub fn interrupt(self) -> Option<AssistantMessage> {
        self.reader.interrupt()
    }

    /// Returns the error of a stream that ended without its final event.
    pub(crate) fn truncated() -> Error {
        let message = "the stream ended without its final event; trying again may help";
        Error::new(ErrorKind::Truncated, message)
    }

    fn read(&mut self, chunk: &[u8], deltas: &mut Vec<Delta>) -> Result<(), Error> {
        let parsed = self.parser.push(chunk, &mut self.events);
        for event in self.events.drain(..) {
            if let Some(stop) = self.reader.event(&event, deltas)? {
                self.state = DecoderState::Complete(stop);
                return Ok(());
            }
        }
        parsed
    }
}

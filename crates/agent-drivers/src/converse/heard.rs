//! What the protocols of Codex and ACP make of a line, which may want to be answered: events, and what to write.

use agent_duplex::Event;

/// What came of one line: events, and lines to write back.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) events: Vec<Event>,
    pub(crate) lines: Vec<Vec<u8>>,
}

//! The pinned input of the store benches: the transcript of an agent, which grows by 4 KB with each save.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::harness::Random;

/// The head, which each save writes as a whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) phase: String,
    pub(crate) iteration: u64,
    pub(crate) tokens: u64,
    pub(crate) cost_usd: f64,
    pub(crate) open_files: Vec<String>,
}

/// A message of the transcript.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Event {
    pub(crate) number: u64,
    pub(crate) role: String,
    pub(crate) tool: Option<String>,
    pub(crate) text: String,
    pub(crate) tokens: u64,
}

/// The data that one save adds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Delta {
    pub(crate) head: Head,
    pub(crate) events: Vec<Event>,
}

/// Bytes of text that one save adds.
pub(crate) const DELTA: usize = 4000;

type Words = LazyLock<Vec<&'static str>>;
static WORDS: Words = LazyLock::new(|| {
    "the to of and a in is that it for this file test with error not value we on function when \
     line should returns be now run fix check because parser token length case before after \
     buffer empty caller module first second change state handler path config default missing \
     expected found lifetime borrowed iterator loop index bounds thread lock channel queue socket \
     timeout retry limit header request response schema column query cache entry offset encode \
     decode stream frame checksum version writer reader journal snapshot directory permission \
     descriptor signal process child exit"
        .split(' ')
        .collect()
});
static NAMES: Words = LazyLock::new(|| {
    "parse read write open close next count find take put load save start stop wait poll wake \
     send recv push pop merge split"
        .split(' ')
        .collect()
});
static TYPES: Words = LazyLock::new(|| {
    "usize u64 String &str Vec<u8> Option<usize> Result<()> bool PathBuf"
        .split(' ')
        .collect()
});

/// Makes consecutive deltas, the same ones for the same seed.
#[derive(Debug)]
pub(crate) struct Transcript {
    random: Random,
    iteration: u64,
    number: u64,
}

impl Transcript {
    pub(crate) fn pinned() -> Self {
        Self {
            random: Random::seeded(20_260_101),
            iteration: 0,
            number: 0,
        }
    }

    /// Makes the next delta, with about `bytes` of text: messages of the assistant, its tool calls, and their results.
    pub(crate) fn delta(&mut self, bytes: usize) -> Delta {
        self.iteration += 1;
        let mut events = Vec::new();
        let mut left = bytes;
        while left > 0 {
            let size = left.min(1000);
            let (role, tool) = match self.number % 4 {
                0 => ("assistant", None),
                1 => ("tool_use", Some("edit")),
                2 => ("tool_result", Some("read")),
                _ => ("tool_result", Some("test")),
            };
            let text = if tool.is_some() {
                self.code(size)
            } else {
                self.prose(size)
            };
            events.push(Event {
                number: self.number,
                role: role.into(),
                tool: tool.map(Into::into),
                text,
                tokens: size as u64 / 4,
            });
            self.number += 1;
            left -= size;
        }
        let head = Head {
            phase: "implement".into(),
            iteration: self.iteration,
            tokens: self.number * 250,
            cost_usd: self.number as f64 * 0.0042,
            open_files: (0..4).map(|_| self.path()).collect(),
        };
        Delta { head, events }
    }

    /// Makes as many deltas of `each` bytes of text as fit into `bytes`.
    pub(crate) fn deltas(&mut self, bytes: usize, each: usize) -> Vec<Delta> {
        let whole = (0..bytes / each).map(|_| self.delta(each));
        whole.collect()
    }

    pub(crate) fn prose(&mut self, bytes: usize) -> String {
        let mut text = String::with_capacity(bytes + 16);
        while text.len() < bytes {
            text.push_str(self.pick(&WORDS));
            text.push_str(match self.random.below(12) {
                0 => ". ",
                1 => ", ",
                _ => " ",
            });
        }
        text.truncate(bytes);
        text
    }

    pub(crate) fn code(&mut self, bytes: usize) -> String {
        use std::fmt::Write;

        let mut text = String::with_capacity(bytes + 128);
        let mut line = self.random.below(900);
        while text.len() < bytes {
            line += 1;
            let (verb, noun, kind) = (self.pick(&NAMES), self.pick(&WORDS), self.pick(&TYPES));
            let number = self.random.below(4096);
            // Writing to a string can't fail.
            _ = match self.random.below(6) {
                0 => writeln!(
                    text,
                    "{line:5}  fn {verb}_{noun}(&mut self, at: {kind}) -> {kind} {{"
                ),
                1 => writeln!(text, "{line:5}      let {noun} = self.{verb}({number})?;"),
                2 => writeln!(
                    text,
                    "{line:5}      if {noun}.len() > {number} {{ return Err(Error::{verb}({noun})); }}"
                ),
                3 => writeln!(text, "{line:5}      // {}", self.prose(40)),
                4 => writeln!(
                    text,
                    "{line:5}      assert_eq!({noun}.{verb}(), {number:#x});"
                ),
                _ => writeln!(text, "{line:5}  }}"),
            };
        }
        text.truncate(bytes);
        text
    }

    fn path(&mut self) -> String {
        format!("src/{}/{}.rs", self.pick(&WORDS), self.pick(&NAMES))
    }

    /// Picks the first words of a list more often, as in real languages.
    fn pick(&mut self, list: &[&'static str]) -> &'static str {
        let count = list.len() as u64;
        let most = 1 + self.random.below(count);
        list[self.random.below(most) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_transcript_is_deterministic_and_has_the_requested_size() {
        let deltas = Transcript::pinned().deltas(100_000, DELTA);
        assert_eq!(deltas, Transcript::pinned().deltas(100_000, DELTA));
        assert_eq!(deltas.len(), 25);
        let text = |delta: &Delta| {
            delta
                .events
                .iter()
                .map(|event| event.text.len())
                .sum::<usize>()
        };
        assert!(deltas.iter().all(|delta| text(delta) == DELTA));
        assert_ne!(deltas[0].events, deltas[1].events);
    }
}

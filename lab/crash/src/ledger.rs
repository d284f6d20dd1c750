//! The notes of a program about its saves, and the states that may be loaded after it was killed.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use checkpoint_store::Error;

use crate::reference::{CheckResult, State, broken};

/// One report of a program; one line on a pipe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// The store is open, and this state was loaded.
    Open(u64),
    /// A save of this state begins; the number is that of its head.
    Try(u64, u32),
    /// The newest save was acknowledged.
    Ack,
    /// The blob of this number was acknowledged.
    Blob(u32),
    /// A call failed; with the kind of failure and the text of the error.
    Fail(Failure, String),
    /// The program has done all its steps.
    End,
}

/// The kind of a failed call of the store, as callers distinguish it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Another writer has the lock.
    Locked,
    /// A newer writer took over.
    Fenced,
    /// There is no room.
    Full,
    /// This writer can save nothing more.
    Poisoned,
    /// Files exist, but contain no valid state.
    Corrupt,
    /// Anything else.
    Other,
}

const FAILURES: [(Failure, &str); 6] = [
    (Failure::Locked, "locked"),
    (Failure::Fenced, "fenced"),
    (Failure::Full, "full"),
    (Failure::Poisoned, "poisoned"),
    (Failure::Corrupt, "corrupt"),
    (Failure::Other, "other"),
];

impl From<&Error> for Note {
    fn from(err: &Error) -> Self {
        let failure = match err {
            err if err.is_locked() => Failure::Locked,
            err if err.is_fenced() => Failure::Fenced,
            err if err.is_full() => Failure::Full,
            err if err.is_poisoned() => Failure::Poisoned,
            err if err.is_corrupt() => Failure::Corrupt,
            _ => Failure::Other,
        };
        Self::Fail(failure, err.to_string().replace('\n', " "))
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(state) => write!(f, "open {state:x}"),
            Self::Try(state, number) => write!(f, "try {state:x} {number}"),
            Self::Ack => f.write_str("ack"),
            Self::Blob(number) => write!(f, "blob {number}"),
            Self::Fail(failure, text) => {
                let word = FAILURES.iter().find(|(one, _)| one == failure);
                write!(f, "fail {} {text}", word.map_or("other", |(_, word)| word))
            }
            Self::End => f.write_str("end"),
        }
    }
}

impl Note {
    /// Parses a line; returns `None` if it is not a note.
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(3, ' ');
        let (kind, one, two) = (words.next()?, words.next(), words.next());
        let state = || u64::from_str_radix(one?, 16).ok();
        Some(match kind {
            "open" => Self::Open(state()?),
            "try" => Self::Try(state()?, two?.parse().ok()?),
            "ack" => Self::Ack,
            "blob" => Self::Blob(one?.parse().ok()?),
            "fail" => {
                let failure = FAILURES.iter().find(|(_, word)| Some(*word) == one)?.0;
                Self::Fail(failure, two.unwrap_or_default().into())
            }
            "end" => Self::End,
            _ => return None,
        })
    }
}

/// Returns a fingerprint of a state.
pub fn fingerprint(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// All states that programs passed to the saves of one store, in order.
#[derive(Debug, Clone)]
pub struct Ledger {
    states: Vec<u64>,
    acked: usize,
    /// The numbers of the acknowledged heads.
    pub numbers: Vec<u32>,
    /// The numbers of the acknowledged blobs.
    pub blobs: Vec<u32>,
    /// The last failure.
    pub failed: Option<(Failure, String)>,
    /// Whether the program reached its end.
    pub is_at_end: bool,
    trying: u32,
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            states: vec![fingerprint(&State::default())],
            acked: 0,
            numbers: Vec::new(),
            blobs: Vec::new(),
            failed: None,
            is_at_end: false,
            trying: 0,
        }
    }
}

impl Ledger {
    /// Records a note of a program.
    ///
    /// # Errors
    /// If the program opened the store and loaded a state that it must not load.
    pub fn note(&mut self, note: Note) -> CheckResult {
        match note {
            Note::Open(state) => self.look(state, true)?,
            Note::Try(state, number) => {
                self.states.push(state);
                self.trying = number;
            }
            Note::Ack => {
                self.acked = self.states.len() - 1;
                self.numbers.push(self.trying);
            }
            Note::Blob(number) => self.blobs.push(number),
            Note::Fail(failure, text) => self.failed = Some((failure, text)),
            Note::End => self.is_at_end = true,
        }
        Ok(())
    }

    /// Fails unless this state may be loaded now.
    pub fn check(&mut self, state: &State) -> CheckResult {
        self.look(fingerprint(state), false)
    }

    /// Does the same as [`check`](Self::check); with `is_settled`, for a program that continues from this state.
    fn look(&mut self, state: u64, is_settled: bool) -> CheckResult {
        match self.states.iter().rposition(|&known| known == state) {
            Some(index) if index >= self.acked => {
                if is_settled {
                    self.states.truncate(index + 1);
                    self.acked = index;
                }
                Ok(())
            }
            Some(index) => broken(
                'D',
                format!(
                    "save {} was acknowledged, but save {index} is loaded",
                    self.acked
                ),
            ),
            None => broken('A', "the loaded state was never saved"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_survive_the_pipe() {
        let all = [
            Note::Open(7),
            Note::Try(u64::MAX, 3),
            Note::Ack,
            Note::Blob(5),
            Note::Fail(Failure::Fenced, "was taken over by writer epoch 2".into()),
            Note::End,
        ];
        for note in all {
            assert_eq!(Note::parse(&note.to_string()), Some(note));
        }
        assert_eq!(Note::parse("try 12"), None);
    }

    #[test]
    fn state_older_than_the_acknowledged_one_is_a_violation() {
        let mut ledger = Ledger::default();
        for note in [Note::Try(1, 0), Note::Ack, Note::Try(2, 0)] {
            ledger.note(note).expect("it only records the note");
        }
        assert_eq!(
            ledger
                .look(3, false)
                .expect_err("the state was never saved")
                .invariant,
            'A'
        );
        ledger.look(2, false).expect("the save may have succeeded");
        ledger.look(1, true).expect("the save was acknowledged");
        let gone = ledger
            .look(2, false)
            .expect_err("a program continued without this save");
        assert_eq!(gone.invariant, 'A');
        for note in [Note::Try(4, 0), Note::Ack] {
            ledger.note(note).expect("it only records the note");
        }
        assert_eq!(
            ledger
                .look(1, false)
                .expect_err("the state is older")
                .invariant,
            'D'
        );
    }
}

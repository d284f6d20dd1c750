//! The right contents of a store: simple states, one for each save.

use std::hash::{DefaultHasher, Hash, Hasher};

use checkpoint_store::Loaded;

use crate::computer::Progress;
use crate::rng::mix;

/// The head that the harness saves: a number, and a text that the number determines.
pub type Head = (u32, String);
/// The event that the harness saves.
pub type Event = (u32, String);

/// A state without its texts, which the numbers determine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct State {
    /// The number of the head.
    pub head: Option<u32>,
    /// The numbers of the events.
    pub events: Vec<u32>,
}

/// One broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenPromise {
    /// The letter of the invariant: D, A, L, F or B.
    pub invariant: char,
    /// The observation.
    pub what: String,
}

/// The result of a check of the promises.
pub type CheckResult<T = ()> = Result<T, BrokenPromise>;

/// Returns a broken promise.
pub fn broken<T>(invariant: char, what: impl Into<String>) -> CheckResult<T> {
    Err(BrokenPromise {
        invariant,
        what: what.into(),
    })
}

/// Returns the text that belongs to a number. It does not compress well.
pub fn text(number: u32, len: usize) -> String {
    const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    let mut text = String::with_capacity(len);
    let mut bits = 0;
    for index in 0..len {
        if index % 10 == 0 {
            bits = mix(u64::from(number) << 20 | (index as u64 + 1));
        }
        text.push(char::from(LETTERS[(bits & 63) as usize]));
        bits >>= 6;
    }
    text
}

impl State {
    /// Returns the numbers of a loaded state, if they have the right texts.
    pub fn of(head: Option<&Head>, events: &[Event]) -> CheckResult<Self> {
        let number = |(number, found): &(u32, String)| match *found == text(*number, found.len()) {
            true => Ok(*number),
            false => broken(
                'A',
                format!("number {number} has a different text from the saved one"),
            ),
        };
        Ok(Self {
            head: head.map(number).transpose()?,
            events: events.iter().map(number).collect::<CheckResult<_>>()?,
        })
    }

    /// Does the same as [`of`](Self::of), for a loaded store.
    pub fn loaded(loaded: &Loaded<Head, Event>) -> CheckResult<Self> {
        Self::of(loaded.head.as_ref(), &loaded.events)
    }
}

/// All states that were passed to saves, in order, and the index of the last acknowledged one.
#[derive(Debug, Clone)]
pub struct Reference {
    states: Vec<State>,
    acked: usize,
    /// Other states that a load may return after files were removed.
    old: Vec<State>,
    /// States of the acknowledged forks.
    pub forks: Vec<State>,
    /// Numbers of the acknowledged blobs.
    pub blobs: Vec<u32>,
    /// Whether files were removed since the last acknowledged save.
    is_void: bool,
}

impl Default for Reference {
    fn default() -> Self {
        Self {
            states: vec![State::default()],
            acked: 0,
            old: Vec::new(),
            forks: Vec::new(),
            blobs: Vec::new(),
            is_void: false,
        }
    }
}

impl Reference {
    /// Returns the reference as it was at this progress of the program.
    pub fn at(&self, progress: Progress) -> Self {
        Self {
            states: self.states[..=progress.tried].to_vec(),
            acked: progress.acked,
            old: self.old.clone(),
            forks: self.forks[..progress.forks].to_vec(),
            blobs: self.blobs[..progress.blobs].to_vec(),
            is_void: progress.is_void,
        }
    }

    /// Returns the progress of the program.
    pub fn progress(&self) -> Progress {
        Progress {
            acked: self.acked,
            tried: self.states.len() - 1,
            forks: self.forks.len(),
            blobs: self.blobs.len(),
            is_void: self.is_void,
            ..Progress::default()
        }
    }

    /// Returns the newest acknowledged state.
    pub fn acked(&self) -> &State {
        &self.states[self.acked]
    }

    /// Records that a save of this state begins.
    pub fn try_save(&mut self, state: State) {
        self.states.push(state);
    }

    /// Records that the newest save was acknowledged.
    pub fn ack(&mut self) {
        self.acked = self.states.len() - 1;
        self.is_void = false;
    }

    /// Records the state that a fenced writer tried to save. A load may return it only after files were removed.
    pub fn try_in_vain(&mut self, state: State) {
        self.old.push(state);
    }

    /// Continues from a state that damage left. The earlier states may return only after files were removed.
    pub fn settle(&mut self, before: &[State], state: State) {
        self.old.extend_from_slice(before);
        self.old.push(State::default());
        self.states.push(state);
        self.acked = self.states.len() - 1;
        self.is_void = false;
    }

    /// Records that files were removed: acknowledged saves may be lost until the next acknowledged save.
    pub fn void(&mut self) {
        self.old.extend_from_slice(&self.states);
        self.acked = 0;
        self.blobs.clear();
        self.is_void = true;
    }

    /// Returns whether files were removed since the last acknowledged save, so that a load may find nothing.
    pub fn is_void(&self) -> bool {
        self.is_void
    }

    /// Returns a fingerprint of the states that may be loaded now.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.states[self.acked..], &self.forks, &self.blobs).hash(&mut hasher);
        hasher.finish()
    }

    /// Fails unless this state may be loaded now; returns its index. With `is_settled` the program continues from the state, so it must not be lost
    /// later.
    pub fn check(&mut self, found: &State, is_settled: bool) -> CheckResult<usize> {
        match self.states.iter().rposition(|state| state == found) {
            Some(index) if index >= self.acked => {
                if is_settled {
                    // The state is appended, so that the records of earlier moments stay true.
                    if index + 1 < self.states.len() {
                        self.states.push(found.clone());
                    }
                    self.acked = self.states.len() - 1;
                    self.is_void = false;
                }
                Ok(index)
            }
            Some(index) => broken(
                'D',
                format!(
                    "save {} was acknowledged, but save {index} is loaded: {found:?}",
                    self.acked
                ),
            ),
            None if self.is_void && self.old.contains(found) => {
                if is_settled {
                    self.settle(&[], found.clone());
                }
                Ok(0)
            }
            None => broken('A', format!("the loaded state was never saved: {found:?}")),
        }
    }
}

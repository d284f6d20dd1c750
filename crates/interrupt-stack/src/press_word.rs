//! The data that the signal handler and the router share: one atomic word that both change by compare-exchange, and a ring buffer for the posts of
//! the handler.
//!
//! The handler may run on any thread, on several at once, and between any two instructions of the router, so nothing here waits or
//! allocates. This file uses no clock and no signals: times are microseconds since the install, and the atomics come from
//! `crate::atomic`, so that a model checker can replace them.

use crate::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Release},
};

/// The number of slots. There are twice as many sequence numbers, so that a slot's content differs from its content one round before.
const SLOTS: u64 = 16;
/// The maximum number of posted presses. Each of the other five kinds is posted at most once at a time, so it always finds a slot.
const MOST_PRESSES: u64 = SLOTS - 5;

/// The kind of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PostKind {
    Press,
    Terminate,
    Hangup,
    Quit,
    Suspend,
    Resume,
}

/// The result of a press.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PressOutcome {
    /// The press is part of the press before it, or the maximum number of presses is posted and the router has read none of them.
    Debounced,
    /// The router will read the press.
    Posted,
    /// The router would answer the press with the hard exit. The signal handler can end the process without waiting for the router.
    HardExit,
}

/// The shared word and the slots of the posts.
pub(crate) struct PressWord {
    word: AtomicU64,
    slots: [AtomicU64; SLOTS as usize],
}

/// The word, unpacked: 2 + 4 + 5 + 5 + 48 bits.
#[derive(Clone, Copy)]
struct Fields {
    /// The stage that the router last published: 0 idle, 1 a notice is open, 2 shutting down, 3 ending.
    stage: u64,
    /// The number of presses that are posted and not settled.
    presses: u64,
    /// The other kinds that are posted and not settled.
    flags: u64,
    /// The sequence number of the next post.
    next: u64,
    /// The time when the last press was accepted, in units of 16 µs, rounded up; 0 for never. The field lasts for 142 years.
    last: u64,
}

impl PostKind {
    /// Returns the flag of a kind that is posted at most once at a time; 0 for presses, which are counted.
    fn flag(self) -> u64 {
        match self {
            Self::Press => 0,
            other => 1 << (other as u64 - 1),
        }
    }
}

impl Fields {
    fn unpack(word: u64) -> Self {
        Self {
            stage: word & 3,
            presses: word >> 2 & 15,
            flags: word >> 6 & 31,
            next: word >> 11 & 31,
            last: word >> 16,
        }
    }

    fn pack(self) -> u64 {
        self.stage | self.presses << 2 | self.flags << 6 | self.next << 11 | self.last << 16
    }

    /// Returns the lowest stage that the ladder can have after it has processed all posts.
    fn stage_reached(self) -> u64 {
        let is_posted = |kind: PostKind| self.flags & kind.flag() != 0;
        let by_flags = match () {
            () if is_posted(PostKind::Quit) => 3,
            () if is_posted(PostKind::Terminate) || is_posted(PostKind::Hangup) => 2,
            () => 0,
        };
        by_flags.max(self.stage + self.presses)
    }

    /// Returns whether a press at this time is part of the last one.
    fn is_part(self, now: u64, debounce: u64) -> bool {
        self.last != 0 && now.saturating_sub(self.last << 4) < debounce
    }

    /// Takes the next sequence number.
    fn next_number(&mut self) -> u64 {
        let number = self.next;
        self.next = (number + 1) % (2 * SLOTS);
        number
    }
}

impl PressWord {
    pub(crate) fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            // The content is that of an earlier round, so that the tag of each slot differs from the tag of its first post.
            slots: std::array::from_fn(|slot| AtomicU64::new(slot as u64 + SLOTS)),
        }
    }

    /// Posts a press, for the signal handler, unless it is part of the press before it or ends the process.
    ///
    /// From the stage `last_stage` on, this returns [`PressOutcome::HardExit`] and changes nothing.
    pub(crate) fn press(&self, now: u64, debounce: u64, last_stage: u64) -> PressOutcome {
        let claimed = self.change(|fields| {
            if fields.is_part(now, debounce) {
                return Err(PressOutcome::Debounced);
            }
            // `last` contains the time of every earlier press, so each unsettled press raises the stage by at least one. So the handler
            // ends the process only if the ladder would also end it.
            if fields.stage_reached() >= last_stage {
                return Err(PressOutcome::HardExit);
            }
            if fields.presses == MOST_PRESSES {
                return Err(PressOutcome::Debounced);
            }
            fields.presses += 1;
            fields.last = now.div_ceil(16);
            Ok(fields.next_number())
        });
        match claimed {
            Ok(number) => {
                self.fill(number, PostKind::Press, now);
                PressOutcome::Posted
            }
            Err(outcome) => outcome,
        }
    }

    /// Returns, for the router, whether a press that is not a signal is a new press, and not part of another. If it is, later presses
    /// within the debounce are part of it, even before the ladder has processed it.
    pub(crate) fn admit(&self, now: u64, debounce: u64) -> bool {
        let admitted = self.change(|fields| match fields.is_part(now, debounce) {
            true => Err(()),
            false => {
                fields.last = now.div_ceil(16);
                Ok(())
            }
        });
        admitted.is_ok()
    }

    /// Returns whether a hard exit has begun, or the posts will cause one.
    pub(crate) fn is_ending(&self) -> bool {
        Fields::unpack(self.word.load(Acquire)).stage_reached() >= 3
    }

    /// Posts another kind, for the signal handler. Returns whether it was not posted already.
    pub(crate) fn post(&self, kind: PostKind, now: u64) -> bool {
        let claimed = self.change(|fields| {
            if fields.flags & kind.flag() != 0 {
                return Err(());
            }
            fields.flags |= kind.flag();
            Ok(fields.next_number())
        });
        claimed.map(|number| self.fill(number, kind, now)).is_ok()
    }

    /// Returns, for the router, the post with this number and its time, if it is there.
    pub(crate) fn read(&self, number: u64) -> Option<(PostKind, u64)> {
        let number = number % (2 * SLOTS);
        let slot = self.slots[(number % SLOTS) as usize].load(Acquire);
        let kind = match slot >> 5 & 7 {
            0 => PostKind::Press,
            1 => PostKind::Terminate,
            2 => PostKind::Hangup,
            3 => PostKind::Quit,
            4 => PostKind::Suspend,
            _ => PostKind::Resume,
        };
        (slot & 31 == number).then_some((kind, slot >> 8))
    }

    /// Removes, for the router, the posts that it has `read` and passed to the ladder, and publishes the new stage in the same step.
    pub(crate) fn settle(&self, read: &[PostKind], stage: u8) {
        let presses = read.iter().filter(|kind| **kind == PostKind::Press).count() as u64;
        let flags = read.iter().fold(0, |flags, kind| flags | kind.flag());
        // This can't fail, because the closure always returns `Ok`.
        let _: Result<(), ()> = self.change(|fields| {
            fields.stage = stage.into();
            fields.presses -= presses;
            fields.flags &= !flags;
            Ok(())
        });
    }

    fn change<T, E>(&self, mut change: impl FnMut(&mut Fields) -> Result<T, E>) -> Result<T, E> {
        let mut old = self.word.load(Acquire);
        loop {
            let mut fields = Fields::unpack(old);
            let done = change(&mut fields)?;
            let new = fields.pack();
            if new == old {
                return Ok(done);
            }
            match self.word.compare_exchange(old, new, AcqRel, Acquire) {
                Ok(_) => return Ok(done),
                Err(other) => old = other,
            }
        }
    }

    /// Writes a post to its slot. Only this caller has the number, and the slot is free: when the caller claimed the
    /// number, the router had already settled the slot's post from one round before.
    fn fill(&self, number: u64, kind: PostKind, now: u64) {
        let slot = now << 8 | (kind as u64) << 5 | number;
        self.slots[(number % SLOTS) as usize].store(slot, Release);
    }
}

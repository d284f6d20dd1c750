//! What the signal handler and the router share: one word that both change by compare-exchange, and a ring for what the handler posts.
//!
//! The handler may run on any thread, on several at once, and at any instruction of the router's; so nothing here waits or
//! allocates. The file knows no clock and no signal: times are microseconds since the install, and the atomics are those of
//! `crate::atomic`, so that a model checker can put its own in their place.

use crate::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Release},
};

/// Sequence numbers are twice as many, so that what a slot holds is told from what it held a round before.
const SLOTS: u64 = 16;
/// So that the other five kinds, of which one at a time is posted, always find a slot.
const MOST_PRESSES: u64 = SLOTS - 5;

/// What the handler posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Press,
    Terminate,
    Hangup,
    Quit,
    Suspend,
    Resume,
}

/// What became of a press.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is part of the press before it. Also where more are posted than anybody can have meant, and the router reads none.
    Part,
    /// The router will read it.
    Posted,
    /// The router would answer it by the hard exit, once it runs: whoever can end the process need not wait for that.
    LastRung,
}

/// See the module.
pub(crate) struct Word {
    word: AtomicU64,
    slots: [AtomicU64; SLOTS as usize],
}

/// The word, unpacked: 2 + 4 + 5 + 5 + 48 bits.
#[derive(Clone, Copy)]
struct Fields {
    /// How many rungs are climbed, as the router last said: 0 idle, 1 a notice is open, 2 shutting down, 3 ending.
    rung: u64,
    /// Presses that are posted and not settled.
    presses: u64,
    /// Other kinds that are posted and not settled.
    flags: u64,
    /// The sequence number of the next post.
    next: u64,
    /// When the last press was accepted, in units of 16 µs, rounded up; 0 for never. It lasts for 142 years.
    last: u64,
}

impl Kind {
    /// The flag of a kind that is posted once at a time; none for presses, which are counted.
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
            rung: word & 3,
            presses: word >> 2 & 15,
            flags: word >> 6 & 31,
            next: word >> 11 & 31,
            last: word >> 16,
        }
    }

    fn pack(self) -> u64 {
        self.rung | self.presses << 2 | self.flags << 6 | self.next << 11 | self.last << 16
    }

    /// How many rungs the ladder has climbed at the least, once it has decided all that is posted.
    fn climbed(self) -> u64 {
        let is_posted = |kind: Kind| self.flags & kind.flag() != 0;
        let by_flags = match () {
            () if is_posted(Kind::Quit) => 3,
            () if is_posted(Kind::Terminate) || is_posted(Kind::Hangup) => 2,
            () => 0,
        };
        by_flags.max(self.rung + self.presses)
    }

    /// Whether a press at this time belongs to the last one.
    fn is_part(self, now: u64, debounce: u64) -> bool {
        self.last != 0 && now.saturating_sub(self.last << 4) < debounce
    }

    /// Takes the next sequence number.
    fn claim(&mut self) -> u64 {
        let number = self.next;
        self.next = (number + 1) % (2 * SLOTS);
        number
    }
}

impl Word {
    pub(crate) fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            // As if a round had gone before: the tag of each is not that of its first post.
            slots: std::array::from_fn(|slot| AtomicU64::new(slot as u64 + SLOTS)),
        }
    }

    /// The handler's side: posts a press, unless it is part of another or the last one that is needed.
    ///
    /// From so many rungs on the answer is [`Verdict::LastRung`], and nothing changes.
    pub(crate) fn press(&self, now: u64, debounce: u64, last_rung: u64) -> Verdict {
        let claimed = self.change(|fields| {
            if fields.is_part(now, debounce) {
                return Err(Verdict::Part);
            }
            // Each unsettled press climbs one rung at least, since `last` knows of every press before it, so this ends no process that the
            // ladder would not end.
            if fields.climbed() >= last_rung {
                return Err(Verdict::LastRung);
            }
            if fields.presses == MOST_PRESSES {
                return Err(Verdict::Part);
            }
            fields.presses += 1;
            fields.last = now.div_ceil(16);
            Ok(fields.claim())
        });
        match claimed {
            Ok(number) => {
                self.fill(number, Kind::Press, now);
                Verdict::Posted
            }
            Err(verdict) => verdict,
        }
    }

    /// The router's side: says whether a press that no signal made is one of its own, and not part of another. From then on what follows
    /// it too closely is part of it, though it is not decided yet.
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

    /// Says whether the hard exit is decided, or will be.
    pub(crate) fn is_ending(&self) -> bool {
        Fields::unpack(self.word.load(Acquire)).climbed() >= 3
    }

    /// The handler's side: posts what is no press; says whether it was not posted already.
    pub(crate) fn raise(&self, kind: Kind, now: u64) -> bool {
        let claimed = self.change(|fields| {
            if fields.flags & kind.flag() != 0 {
                return Err(());
            }
            fields.flags |= kind.flag();
            Ok(fields.claim())
        });
        claimed.map(|number| self.fill(number, kind, now)).is_ok()
    }

    /// The router's side: what was posted under this number and when, once it is there.
    pub(crate) fn read(&self, number: u64) -> Option<(Kind, u64)> {
        let number = number % (2 * SLOTS);
        let slot = self.slots[(number % SLOTS) as usize].load(Acquire);
        let kind = match slot >> 5 & 7 {
            0 => Kind::Press,
            1 => Kind::Terminate,
            2 => Kind::Hangup,
            3 => Kind::Quit,
            4 => Kind::Suspend,
            _ => Kind::Resume,
        };
        (slot & 31 == number).then_some((kind, slot >> 8))
    }

    /// The router's side: takes off what it has `read` and decided, and says in the same step where that has led.
    pub(crate) fn settle(&self, read: &[Kind], rung: u8) {
        let presses = read.iter().filter(|kind| **kind == Kind::Press).count() as u64;
        let flags = read.iter().fold(0, |flags, kind| flags | kind.flag());
        // It cannot fail: nothing here refuses.
        let _: Result<(), ()> = self.change(|fields| {
            fields.rung = rung.into();
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

    /// The number is this caller's alone, and its slot is free: the claim saw the router settle what stood there a round before.
    fn fill(&self, number: u64, kind: Kind, now: u64) {
        let slot = now << 8 | (kind as u64) << 5 | number;
        self.slots[(number % SLOTS) as usize].store(slot, Release);
    }
}

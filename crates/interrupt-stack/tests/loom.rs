//! Checks the word that signal handlers and the router share, in every interleaving, with the atomics of a model checker.
//!
//! Here a signal handler is a thread. That allows more interleavings than in a process, where a handler never waits for the code that
//! it interrupts. `cargo xtask loom` compiles and runs these tests.

#![cfg(interrupt_stack_loom)]

mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
}
#[path = "../src/press_word.rs"]
mod press_word;

use loom::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::AcqRel},
    },
    thread,
};
use press_word::{PostKind, PressOutcome, PressWord};

const DEBOUNCE: u64 = 50_000;

/// A model of the router: it reads new posts, and raises the stage by one for each press.
struct Router {
    next: u64,
    top: usize,
    posts: Vec<(PostKind, u64)>,
}

impl Default for Router {
    fn default() -> Self {
        Self {
            next: 0,
            top: 2,
            posts: Vec::new(),
        }
    }
}

impl Router {
    fn turn(&mut self, word: &PressWord) {
        let mut read = Vec::new();
        while let Some((kind, at)) = word.read(self.next) {
            self.next += 1;
            self.posts.push((kind, at));
            read.push(kind);
        }
        word.settle(&read, self.presses().count().min(self.top) as u8);
    }

    fn presses(&self) -> impl Iterator<Item = u64> {
        let presses = self
            .posts
            .iter()
            .filter(|(kind, _)| *kind == PostKind::Press);
        presses.map(|(_, at)| *at)
    }
}

/// Explores every interleaving with at most 3 preemptions, which finds such errors in seconds, or with at most `LOOM_MAX_PREEMPTIONS`.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(model);
}

#[test]
fn no_press_is_lost_or_read_twice() {
    explore(|| {
        let word = Arc::new(PressWord::new());
        let handlers: Vec<_> = [1_000_000, 2_000_000]
            .map(|at| {
                let word = word.clone();
                thread::spawn(move || assert_eq!(word.press(at, 0, u64::MAX), PressOutcome::Posted))
            })
            .into();
        let mut router = Router::default();
        router.turn(&word);
        for handler in handlers {
            handler.join().unwrap();
        }
        router.turn(&word);
        let mut presses: Vec<_> = router.presses().collect();
        presses.sort_unstable();
        assert_eq!(presses, [1_000_000, 2_000_000]);
    });
}

#[test]
fn simultaneous_presses_count_once() {
    explore(|| {
        let word = Arc::new(PressWord::new());
        let press = {
            let word = word.clone();
            move |at| word.press(at, DEBOUNCE, 2)
        };
        let handler = thread::spawn({
            let press = press.clone();
            move || press(1_000_000)
        });
        let mut verdicts = [press(1_000_010), handler.join().unwrap()];
        verdicts.sort_by_key(|verdict| *verdict == PressOutcome::Posted);
        assert_eq!(verdicts, [PressOutcome::Debounced, PressOutcome::Posted]);
        let mut router = Router::default();
        router.turn(&word);
        assert_eq!(router.presses().count(), 1);
    });
}

/// The third press ends the process and no earlier press does, whether the router runs or not.
#[test]
fn third_press_is_the_last_stage() {
    explore(|| {
        let word = Arc::new(PressWord::new());
        let handler = thread::spawn({
            let word = word.clone();
            move || [1, 2, 3].map(|n| word.press(n * 1_000_000, DEBOUNCE, 2))
        });
        let mut router = Router::default();
        for _ in 0..2 {
            router.turn(&word);
        }
        assert_eq!(
            handler.join().unwrap(),
            [
                PressOutcome::Posted,
                PressOutcome::Posted,
                PressOutcome::HardExit
            ]
        );
    });
}

/// If a thread performs the exit at the third press, the fourth press ends the process in the handler, whether the thread runs or not.
#[test]
fn fourth_press_needs_no_thread() {
    explore(|| {
        let word = Arc::new(PressWord::new());
        assert_eq!(word.press(1_000_000, DEBOUNCE, 3), PressOutcome::Posted);
        let handler = thread::spawn({
            let word = word.clone();
            move || [2, 3, 4].map(|n| word.press(n * 1_000_000, DEBOUNCE, 3))
        });
        Router {
            top: 3,
            ..Router::default()
        }
        .turn(&word);
        assert_eq!(
            handler.join().unwrap(),
            [
                PressOutcome::Posted,
                PressOutcome::Posted,
                PressOutcome::HardExit
            ]
        );
        assert!(word.is_ending());
    });
}

/// If a press arrives both injected and as a signal, it counts once, however late the router publishes the injected one. So two presses
/// don't end the process.
#[test]
fn press_from_the_router_merges_with_its_signal() {
    explore(|| {
        let word = Arc::new(PressWord::new());
        let handler = thread::spawn({
            let word = word.clone();
            move || [1_010_000, 1_100_000].map(|at| word.press(at, DEBOUNCE, 2))
        });
        let mut presses = usize::from(word.admit(1_000_000, DEBOUNCE));
        word.settle(&[], presses as u8);
        let verdicts = handler.join().unwrap();
        assert!(!verdicts.contains(&PressOutcome::HardExit), "{verdicts:?}");
        let posted = verdicts.iter().filter(|it| **it == PressOutcome::Posted);
        presses += posted.count();
        assert_eq!(presses, 2, "{verdicts:?}");
    });
}

/// An answer in the router resets only the presses that the router has read.
#[test]
fn answer_does_not_undo_a_concurrent_press() {
    explore(|| {
        let word = Arc::new(PressWord::new());
        assert_eq!(word.press(1_000_000, DEBOUNCE, 2), PressOutcome::Posted);
        let handler = thread::spawn({
            let word = word.clone();
            move || word.press(2_000_000, DEBOUNCE, 2)
        });
        let mut router = Router::default();
        router.turn(&word);
        // `handled`: the ladder starts over, after the presses that were read so far.
        word.settle(&[], 0);
        assert_eq!(handler.join().unwrap(), PressOutcome::Posted);
        let before = router.presses().count();
        let mut read = Vec::new();
        while let Some((kind, _)) = word.read(router.next + read.len() as u64) {
            read.push(kind);
        }
        assert_eq!(before + read.len(), 2);
        word.settle(&read, read.len() as u8);
        let unread = 2 - read.len();
        let more = (0..unread).all(|n| {
            word.press(3_000_000 + n as u64 * 1_000_000, DEBOUNCE, 2) == PressOutcome::Posted
        });
        assert!(more, "a ladder that started over accepts more presses");
        assert_eq!(word.press(9_000_000, DEBOUNCE, 2), PressOutcome::HardExit);
    });
}

#[test]
fn other_signals_are_posted_once_until_settled() {
    explore(|| {
        let word = Arc::new(PressWord::new());
        let raise = {
            let word = word.clone();
            move || u64::from(word.post(PostKind::Terminate, 1_000_000))
        };
        let handler = thread::spawn(raise.clone());
        assert_eq!(raise() + handler.join().unwrap(), 1, "not settled yet");

        let handler = thread::spawn(raise);
        let mut router = Router::default();
        router.turn(&word);
        let posted = 1 + handler.join().unwrap();
        router.turn(&word);
        assert_eq!(router.posts.len() as u64, posted);
    });
}

/// The handler posts and then wakes; the reader clears the wake and then reads.
#[test]
fn no_wake_is_lost() {
    explore(|| {
        let (word, woken) = (Arc::new(PressWord::new()), Arc::new(AtomicBool::new(false)));
        let handler = thread::spawn({
            let (word, woken) = (word.clone(), woken.clone());
            move || {
                assert_eq!(word.press(1_000_000, DEBOUNCE, 2), PressOutcome::Posted);
                woken.swap(true, AcqRel);
            }
        });
        let mut router = Router::default();
        if woken.swap(false, AcqRel) {
            router.turn(&word);
            assert_eq!(router.presses().count(), 1);
        }
        handler.join().unwrap();
        if woken.swap(false, AcqRel) {
            router.turn(&word);
        }
        assert_eq!(router.presses().count(), 1);
    });
}

/// The router reads nothing, and the handler posts more than the slots can hold.
#[test]
fn maximum_presses_leave_a_slot_for_each_other_kind() {
    loom::model(|| {
        let word = PressWord::new();
        let press = |n| word.press(n * DEBOUNCE, 0, u64::MAX);
        let posted = (1..=20).take_while(|n| press(*n) == PressOutcome::Posted);
        assert_eq!(posted.count(), 11);
        let others = [
            PostKind::Resume,
            PostKind::Suspend,
            PostKind::Quit,
            PostKind::Hangup,
            PostKind::Terminate,
        ];
        for kind in others {
            assert!(word.post(kind, 1) && !word.post(kind, 2), "once at a time");
        }
        assert_eq!(
            press(30),
            PressOutcome::Debounced,
            "part of an earlier press, and nothing is overwritten"
        );
        let kinds = (0..16).map(|number| word.read(number).unwrap().0);
        let kinds = Vec::from_iter(kinds);
        assert_eq!(kinds[..11], [PostKind::Press; 11]);
        assert_eq!(kinds[11..], others);
        word.settle(&kinds, 0);
        assert_eq!(press(31), PressOutcome::Posted, "there is room again");
        assert_eq!(word.read(16), Some((PostKind::Press, 31 * DEBOUNCE)));
    });
}

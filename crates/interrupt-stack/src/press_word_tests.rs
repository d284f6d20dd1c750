//! Compares the word with a simple model, one step after another. `tests/loom.rs` tests concurrent steps.

use std::collections::VecDeque;

use proptest::{collection::vec, prelude::*, sample::select};

use crate::press_word::{PostKind, PressOutcome, PressWord};

const DEBOUNCE: u64 = 30_000;
/// The maximum number of posted presses: 16 slots, minus one for each other kind of post.
const MOST_PRESSES: usize = 11;

#[derive(Clone, Debug)]
enum Step {
    Press {
        last_stage: u64,
    },
    Raise(PostKind),
    /// The router accepts a press that is not a signal.
    Admit,
    /// The router reads at most `most` posts, and publishes the stage.
    Settle {
        most: usize,
        stage: u8,
    },
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    use PostKind::*;
    let others = select(vec![Terminate, Hangup, Quit, Suspend, Resume]);
    let settled = (0..20_usize, 0..=3_u8);
    prop_oneof![
        6 => select(vec![2, 3, u64::MAX]).prop_map(|last_stage| Step::Press { last_stage }),
        3 => others.prop_map(Step::Raise),
        1 => Just(Step::Admit),
        3 => settled.prop_map(|(most, stage)| Step::Settle { most, stage }),
        5 => select(vec![1, 15, 16, 17, 29_999, 30_000, 30_016, 1 << 20]).prop_map(Step::Wait),
    ]
}

/// A simple model of the rules.
#[derive(Default)]
struct Model {
    /// The unread posts.
    posts: VecDeque<(PostKind, u64)>,
    stage: u64,
    /// The time when the last press was accepted, rounded up to 16 µs.
    last: Option<u64>,
    /// The number of read posts.
    read: u64,
}

impl Model {
    fn is_posted(&self, kind: PostKind) -> bool {
        self.posts.iter().any(|post| post.0 == kind)
    }

    fn presses(&self) -> usize {
        let is_press = |post: &&(PostKind, u64)| post.0 == PostKind::Press;
        self.posts.iter().filter(is_press).count()
    }

    fn climbed(&self) -> u64 {
        let by_presses = self.stage + self.presses() as u64;
        match self {
            _ if self.is_posted(PostKind::Quit) => by_presses.max(3),
            _ if self.is_posted(PostKind::Terminate) => by_presses.max(2),
            _ if self.is_posted(PostKind::Hangup) => by_presses.max(2),
            _ => by_presses,
        }
    }

    fn press(&mut self, now: u64, last_stage: u64) -> PressOutcome {
        if self.is_part(now) {
            return PressOutcome::Debounced;
        }
        if self.climbed() >= last_stage {
            return PressOutcome::HardExit;
        }
        if self.presses() == MOST_PRESSES {
            return PressOutcome::Debounced;
        }
        self.last = Some(now.next_multiple_of(16));
        self.posts.push_back((PostKind::Press, now));
        PressOutcome::Posted
    }

    fn admit(&mut self, now: u64) -> bool {
        let is_new = !self.is_part(now);
        if is_new {
            self.last = Some(now.next_multiple_of(16));
        }
        is_new
    }

    fn is_part(&self, now: u64) -> bool {
        self.last.is_some_and(|last| now < last + DEBOUNCE)
    }

    fn raise(&mut self, kind: PostKind, now: u64) -> bool {
        let is_new = !self.is_posted(kind);
        if is_new {
            self.posts.push_back((kind, now));
        }
        is_new
    }
}

proptest! {
    #[test]
    fn packed_state_agrees_with_the_model(steps in vec(step(), 0..120)) {
        let (word, mut model, mut now) = (PressWord::new(), Model::default(), 1);
        for step in steps {
            match step {
                Step::Wait(time) => now += time,
                Step::Press { last_stage } => {
                    let expected = model.press(now, last_stage);
                    prop_assert_eq!(word.press(now, DEBOUNCE, last_stage), expected);
                }
                Step::Raise(kind) => {
                    prop_assert_eq!(word.post(kind, now), model.raise(kind, now));
                }
                Step::Admit => prop_assert_eq!(word.admit(now, DEBOUNCE), model.admit(now)),
                Step::Settle { most, stage } => {
                    let mut read = Vec::new();
                    while read.len() < most {
                        let post = model.posts.pop_front();
                        prop_assert_eq!(word.read(model.read), post);
                        let Some((kind, _)) = post else { break };
                        read.push(kind);
                        model.read += 1;
                    }
                    word.settle(&read, stage);
                    model.stage = stage.into();
                }
            }
            prop_assert_eq!(word.is_ending(), model.climbed() >= 3);
        }
    }
}

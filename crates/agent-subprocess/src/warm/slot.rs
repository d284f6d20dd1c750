//! The rules of the warm guard: at most one waits, for a limited time, and only a program that would inherit the same gets it.
//!
//! Pure, so that a test can try its inputs in any order: the time, the guard, and the state of the host that a guard inherits are arguments.

use std::time::{Duration, Instant};

/// The place of the warm guard. `G` is the guard, and `K` the state of the host that it inherits.
#[derive(Debug)]
pub(crate) struct WarmSlot<G, K> {
    max_age: Duration,
    state: State<G, K>,
}

#[derive(Debug)]
enum State<G, K> {
    Empty,
    Waiting {
        since: Instant,
        inherited: K,
        guard: G,
    },
    /// The last guard was given back to its owner, who ends it. There is no other guard beside it.
    Ending {
        then: Next,
    },
    /// No guard starts any more.
    Closed,
}

/// The state after the end of the last guard.
#[derive(Clone, Copy, Debug)]
enum Next {
    Empty,
    Start,
    Closed,
}

/// The result of [`WarmSlot::take`].
#[derive(Debug)]
pub(crate) enum Taken<G> {
    /// This guard serves the program.
    Guard(G),
    /// The program needs another guard. This one has to be ended.
    Unfit(G),
    /// No guard waits.
    Nothing,
}

impl<G, K: PartialEq> WarmSlot<G, K> {
    /// Creates an empty place. A guard waits there for less than `max_age`.
    pub(crate) fn new(max_age: Duration) -> Self {
        Self {
            max_age,
            state: State::Empty,
        }
    }

    /// Starts a guard if there is none. While the last one ends, only remembers the request. A guard that waits stays as old as it is.
    pub(crate) fn want(&mut self, start: impl FnOnce() -> (Instant, K, G)) {
        match &mut self.state {
            State::Empty => {
                let (since, inherited, guard) = start();
                self.state = State::Waiting {
                    since,
                    inherited,
                    guard,
                };
            }
            State::Ending {
                then: then @ Next::Empty,
            } => *then = Next::Start,
            State::Ending { .. } | State::Waiting { .. } | State::Closed => {}
        }
    }

    /// Takes the guard for a program. A guard that is too old, or that inherited another state, must be ended. No guard starts later for this program.
    pub(crate) fn take(&mut self, now: Instant, needed: &K) -> Taken<G> {
        let (since, inherited) = match &mut self.state {
            State::Waiting {
                since, inherited, ..
            } => (*since, inherited),
            // The guard was wanted for this program, which gets another one.
            State::Ending {
                then: then @ Next::Start,
            } => {
                *then = Next::Empty;
                return Taken::Nothing;
            }
            State::Empty | State::Ending { .. } | State::Closed => return Taken::Nothing,
        };
        let is_fit = now.saturating_duration_since(since) < self.max_age && inherited == needed;
        let next = match is_fit {
            true => State::Empty,
            false => State::Ending { then: Next::Empty },
        };
        match std::mem::replace(&mut self.state, next) {
            State::Waiting { guard, .. } if is_fit => Taken::Guard(guard),
            State::Waiting { guard, .. } => Taken::Unfit(guard),
            _ => Taken::Nothing,
        }
    }

    /// Returns the guard if it has become too old. It has to be ended.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<G> {
        match &self.state {
            State::Waiting { since, .. }
                if now.saturating_duration_since(*since) >= self.max_age =>
            {
                self.discard()
            }
            _ => None,
        }
    }

    /// Returns the guard that waits. It has to be ended. A guard that was wanted doesn't start.
    pub(crate) fn discard(&mut self) -> Option<G> {
        if let State::Ending {
            then: then @ Next::Start,
        } = &mut self.state
        {
            *then = Next::Empty;
        }
        self.give_back(Next::Empty)
    }

    /// Returns the guard that waits. It has to be ended. No other guard starts.
    pub(crate) fn close(&mut self) -> Option<G> {
        match &mut self.state {
            State::Empty => self.state = State::Closed,
            State::Ending { then } => *then = Next::Closed,
            State::Waiting { .. } | State::Closed => {}
        }
        self.give_back(Next::Closed)
    }

    fn give_back(&mut self, then: Next) -> Option<G> {
        if !matches!(self.state, State::Waiting { .. }) {
            return None;
        }
        match std::mem::replace(&mut self.state, State::Ending { then }) {
            State::Waiting { guard, .. } => Some(guard),
            _ => None,
        }
    }

    /// Records that the guard that was given back has ended and is reaped. Starts the next one if it was wanted.
    pub(crate) fn ended(&mut self, start: impl FnOnce() -> (Instant, K, G)) {
        let State::Ending { then } = self.state else {
            return;
        };
        self.state = match then {
            Next::Closed => State::Closed,
            Next::Empty | Next::Start => State::Empty,
        };
        if matches!(then, Next::Start) {
            self.want(start);
        }
    }

    /// Returns the guard that waits.
    pub(crate) fn waiting(&self) -> Option<&G> {
        match &self.state {
            State::Waiting { guard, .. } => Some(guard),
            State::Empty | State::Ending { .. } | State::Closed => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const MAX_AGE: Duration = Duration::from_secs(30);

    #[derive(Clone, Debug)]
    enum Input {
        Pass(u64),
        ChangeHost(u8),
        Want,
        Take,
        Expire,
        Discard,
        Close,
        Ended,
    }

    fn input() -> impl Strategy<Value = Input> {
        prop_oneof![
            3 => prop_oneof![Just(1), Just(29_999), Just(30_000), 0..40_000_u64].prop_map(Input::Pass),
            1 => (0..2_u8).prop_map(Input::ChangeHost),
            5 => Just(Input::Want),
            4 => Just(Input::Take),
            2 => Just(Input::Expire),
            1 => Just(Input::Discard),
            1 => Just(Input::Close),
            4 => Just(Input::Ended),
        ]
    }

    /// A guard: its number, its start, and the state of the host that it inherited.
    type Guard = (u32, Instant, u8);

    /// The guards as their owner sees them.
    #[derive(Default)]
    struct Owner {
        started: u32,
        waiting: BTreeSet<Guard>,
        /// The guard that the owner ends.
        ending: Option<Guard>,
        is_closed: bool,
    }

    impl Owner {
        fn start(&mut self, now: Instant, host: u8) -> (Instant, u8, Guard) {
            assert!(!self.is_closed, "no guard starts after the end");
            assert!(
                self.ending.is_none(),
                "no guard starts beside one that ends"
            );
            self.started += 1;
            let guard = (self.started, now, host);
            self.waiting.insert(guard);
            assert_eq!(self.waiting.len(), 1, "at most one guard waits");
            (now, host, guard)
        }

        fn end(&mut self, guard: Guard) {
            assert!(self.waiting.remove(&guard), "each guard is given back once");
            assert_eq!(self.ending.replace(guard), None);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn one_fit_guard_waits_at_most_and_each_is_used_or_ended(
            inputs in proptest::collection::vec(input(), 0..60),
        ) {
            let mut slot = WarmSlot::new(MAX_AGE);
            let (mut owner, mut now, mut host) = (Owner::default(), Instant::now(), 0);
            for input in inputs {
                match input {
                    Input::Pass(milliseconds) => now += Duration::from_millis(milliseconds),
                    Input::ChangeHost(new) => host = new,
                    Input::Want => {
                        slot.want(|| owner.start(now, host));
                        let can_start = !owner.is_closed && owner.ending.is_none();
                        prop_assert!(!can_start || owner.waiting.len() == 1);
                    }
                    Input::Take => match slot.take(now, &host) {
                        Taken::Guard(guard) => {
                            let (_, since, inherited) = guard;
                            prop_assert!(now - since < MAX_AGE && inherited == host);
                            prop_assert!(owner.waiting.remove(&guard));
                        }
                        Taken::Unfit(guard) => {
                            let (_, since, inherited) = guard;
                            prop_assert!(now - since >= MAX_AGE || inherited != host);
                            owner.end(guard);
                        }
                        Taken::Nothing => prop_assert!(owner.waiting.is_empty()),
                    },
                    Input::Expire => {
                        if let Some(guard) = slot.expire(now) {
                            prop_assert!(now - guard.1 >= MAX_AGE);
                            owner.end(guard);
                        }
                        prop_assert!(owner.waiting.iter().all(|it| now - it.1 < MAX_AGE));
                    }
                    Input::Discard => {
                        slot.discard().into_iter().for_each(|guard| owner.end(guard));
                        prop_assert!(owner.waiting.is_empty());
                    }
                    Input::Close => {
                        slot.close().into_iter().for_each(|guard| owner.end(guard));
                        prop_assert!(owner.waiting.is_empty());
                        owner.is_closed = true;
                    }
                    Input::Ended => {
                        if owner.ending.take().is_some() {
                            slot.ended(|| owner.start(now, host));
                        }
                    }
                }
                prop_assert_eq!(slot.waiting(), owner.waiting.first());
            }
        }
    }

    #[test]
    fn guard_that_was_wanted_while_the_last_one_ends_starts_after_it() {
        let now = Instant::now();
        let mut slot = WarmSlot::new(MAX_AGE);
        slot.want(|| (now, (), 1));
        assert_eq!(slot.discard(), Some(1));
        slot.want(|| unreachable!("the first guard is not reaped"));
        slot.ended(|| (now, (), 2));
        assert!(matches!(slot.take(now, &()), Taken::Guard(2)));
        slot.want(|| (now, (), 3));
        assert_eq!(slot.discard(), Some(3));
        slot.want(|| unreachable!("the third guard is not reaped"));
        assert_eq!(slot.discard(), None);
        slot.ended(|| unreachable!("the request was discarded"));
        slot.want(|| (now, (), 4));
        assert_eq!(slot.discard(), Some(4));
        slot.want(|| unreachable!("the fourth guard is not reaped"));
        assert!(matches!(slot.take(now, &()), Taken::Nothing));
        slot.ended(|| unreachable!("the program has started with another guard"));
    }
}

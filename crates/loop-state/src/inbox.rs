//! The order in which inputs reach the machine.

use std::collections::VecDeque;

use crate::{Happening, StopRequest};

/// The inputs that wait for the machine, each with a reply channel for its sender.
///
/// The end of a suspend goes first, so that no deadline passes because of it; then the start of the process and the end by a shutdown. Requests of
/// people follow in their order, before anything that could start work: a stop must not start anything. The results of earlier effects go last.
///
/// # Examples
///
/// ```
/// use loop_state::{Happening, Inbox, StopCause, StopRequest, TurnOutcome, When};
///
/// let mut inbox = Inbox::<()>::default();
/// inbox.follow(vec![Happening::TurnEnded(TurnOutcome::Completed)], Vec::new);
/// let stop = Happening::StopRequested(StopRequest { by: StopCause::Person, when: When::Now });
/// inbox.request(stop.clone(), ());
/// assert_eq!(inbox.take(), Some((stop, ())));
/// ```
#[derive(Debug)]
pub struct Inbox<R> {
    thawed: VecDeque<Happening>,
    first: VecDeque<Happening>,
    requests: VecDeque<(Happening, R)>,
    rest: VecDeque<Happening>,
}

impl<R: Default> Inbox<R> {
    /// Queues the first input of a process. If a stop is already requested, the early stop replaces it and all other requests are dropped.
    ///
    /// `interactive` is whether a person can be asked in a new run.
    pub fn begin(&mut self, first: Happening, interactive: bool) {
        if let Some(request) = self.stop() {
            *self = Self::default();
            self.first.push_back(Happening::StoppedEarly(request));
            return;
        }
        let attended = (first == Happening::Started).then_some(Happening::Attended(interactive));
        self.first.push_back(first);
        self.first.extend(attended);
    }

    /// Queues the report that all processes were suspended.
    pub fn thaw(&mut self, thawed: Happening) {
        self.thawed.push_back(thawed);
    }

    /// Queues the end by a shutdown that no request gave a reason for.
    pub fn shut_down(&mut self, what: Happening) {
        self.first.push_back(what);
    }

    /// Queues a request.
    pub fn request(&mut self, what: Happening, reply: R) {
        self.requests.push_back((what, reply));
    }

    /// Queues inputs from the run. Configuration changes go before the end of a turn, so that the current configuration decides about it.
    pub fn follow(&mut self, what: Vec<Happening>, changes: impl FnOnce() -> Vec<Happening>) {
        let is_over = |it: &Happening| matches!(it, Happening::TurnEnded(_));
        if what.iter().any(is_over) {
            self.rest.extend(changes());
        }
        self.rest.extend(what);
    }

    /// Queues an expired timer. If the configuration changed, queues the changes instead: with the new rules the timer may not be due yet.
    pub fn time_up(&mut self, due: Happening, changes: Vec<Happening>) {
        let is_due = changes.is_empty().then_some(due);
        self.rest.extend(changes.into_iter().chain(is_due));
    }

    /// Returns the next input.
    pub fn take(&mut self) -> Option<(Happening, R)> {
        let first = self.thawed.pop_front();
        let first = first.or_else(|| self.first.pop_front());
        { first.map(|what| (what, R::default())) }
            .or_else(|| self.requests.pop_front())
            .or_else(|| self.rest.pop_front().map(|what| (what, R::default())))
    }

    fn stop(&self) -> Option<StopRequest> {
        let requests = self.requests.iter().map(|(what, _)| what);
        self.first.iter().chain(requests).find_map(Happening::stop)
    }
}

impl<R> Default for Inbox<R> {
    fn default() -> Self {
        Self {
            thawed: VecDeque::new(),
            first: VecDeque::new(),
            requests: VecDeque::new(),
            rest: VecDeque::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Request, RuleChange, Timer, TurnOutcome, When};
    use std::time::Duration;

    /// The number of different moves in the exploration: five inputs, and taking one out.
    const MOVES: u32 = 6;

    fn steer(n: usize) -> Happening {
        let (text, now) = (n.to_string(), false);
        Happening::Requested(Request::Steer { text, now })
    }

    fn rank(what: &Happening) -> u32 {
        match what {
            Happening::Thawed(_) => 0,
            Happening::TimeUp(Timer::Shutdown) => 1,
            Happening::Requested(_) => 2,
            _ => 3,
        }
    }

    /// Plays one order of inputs and empties the inbox. Each input comes out once, before those of a later rank, and in order within its rank.
    fn play(moves: &[u32]) {
        let mut inbox = Inbox::<()>::default();
        let mut waiting: Vec<Happening> = Vec::new();
        let change = Happening::PhaseRuleSet {
            phase: 0,
            change: RuleChange::MaxIterations(Some(1)),
        };
        let check = |inbox: &mut Inbox<()>, waiting: &mut Vec<Happening>| {
            let next = inbox.take().map(|(what, ())| what);
            let due = { (0..waiting.len()).min_by_key(|it| rank(&waiting[*it])) };
            assert_eq!(next, due.map(|at| waiting.remove(at)), "{moves:?}");
        };
        for (n, what) in moves.iter().enumerate() {
            match what {
                0 => {
                    let thawed = Happening::Thawed(Duration::from_secs(n as u64));
                    inbox.thaw(thawed.clone());
                    waiting.push(thawed);
                }
                1 => {
                    inbox.shut_down(Happening::TimeUp(Timer::Shutdown));
                    waiting.push(Happening::TimeUp(Timer::Shutdown));
                }
                2 => {
                    inbox.request(steer(n), ());
                    waiting.push(steer(n));
                }
                3 => {
                    let said = Happening::Said(n.to_string());
                    inbox.follow(vec![said.clone()], || panic!("no turn is over"));
                    waiting.push(said);
                }
                4 => {
                    let over = Happening::TurnEnded(TurnOutcome::Failed(n.to_string()));
                    inbox.follow(vec![over.clone()], || vec![change.clone()]);
                    waiting.extend([change.clone(), over]);
                }
                _ => check(&mut inbox, &mut waiting),
            }
        }
        while !waiting.is_empty() {
            check(&mut inbox, &mut waiting);
        }
        assert_eq!(inbox.take(), None, "{moves:?}");
    }

    #[test]
    fn all_orders_of_up_to_five_inputs_come_out_by_rank_and_in_order() {
        let mut orders = vec![Vec::new()];
        for _ in 0..5 {
            let longer = orders.iter().flat_map(|before: &Vec<u32>| {
                (0..MOVES).map(move |it| [before.as_slice(), &[it]].concat())
            });
            orders = longer.collect();
            orders.iter().for_each(|moves| play(moves));
        }
    }

    #[test]
    fn a_process_begins_before_all_requests_unless_one_of_them_is_a_stop() {
        let mut inbox = Inbox::<()>::default();
        inbox.request(steer(1), ());
        inbox.begin(Happening::Started, true);
        let order: Vec<_> = std::iter::from_fn(|| inbox.take().map(|it| it.0)).collect();
        assert_eq!(
            order,
            [Happening::Started, Happening::Attended(true), steer(1)]
        );
        inbox.request(steer(1), ());
        let after = When::Now;
        inbox.request(Happening::Requested(Request::Stop { after }), ());
        inbox.begin(Happening::Started, true);
        let order: Vec<_> = std::iter::from_fn(|| inbox.take().map(|it| it.0)).collect();
        assert!(
            matches!(order[..], [Happening::StoppedEarly(_)]),
            "{order:?}"
        );
    }

    #[test]
    fn a_timer_gives_way_to_another_rule() {
        let mut inbox = Inbox::<()>::default();
        inbox.time_up(Happening::TimeUp(Timer::Idle), vec![steer(1)]);
        assert_eq!(inbox.take(), Some((steer(1), ())));
        assert_eq!(inbox.take(), None);
        inbox.time_up(Happening::TimeUp(Timer::Idle), Vec::new());
        assert_eq!(inbox.take(), Some((Happening::TimeUp(Timer::Idle), ())));
    }
}

//! The order in which inputs reach the machine.

use std::collections::VecDeque;

use crate::{MachineInput, StopRequest};

/// Whether a person can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attendance {
    /// A person can be asked.
    Attended,
    /// No person can be asked, so the run never waits for an answer.
    Unattended,
}

/// The inputs that wait for the machine, each with a reply channel for its sender.
///
/// The end of a suspend goes first, so that no deadline passes because of the suspend. The start of the process and the end by a shutdown come
/// second. Requests of people come third, in their order. They go before anything that could start work, so that a stop starts nothing. The results
/// of earlier effects go last.
///
/// # Examples
///
/// ```
/// use loop_state::{MachineInput, Inbox, StopCause, StopRequest, TurnOutcome, StopTiming};
///
/// let mut inbox = Inbox::<()>::default();
/// inbox.follow(vec![MachineInput::TurnEnded(TurnOutcome::Completed)], Vec::new);
/// let stop = MachineInput::StopRequested(StopRequest { by: StopCause::Person, when: StopTiming::Now });
/// inbox.request(stop.clone(), ());
/// assert_eq!(inbox.take(), Some((stop, ())));
/// ```
#[derive(Debug)]
pub struct Inbox<R> {
    thawed: VecDeque<MachineInput>,
    first: VecDeque<MachineInput>,
    requests: VecDeque<(MachineInput, R)>,
    rest: VecDeque<MachineInput>,
}

impl<R: Default> Inbox<R> {
    /// Queues the first input of a process. If a stop is already requested, [`MachineInput::StoppedBeforeStart`] replaces `first`, and all other
    /// requests are dropped.
    ///
    /// `attendance` applies to a new run. A resume has its own, see [`ResumeOptions::attended`](crate::ResumeOptions::attended).
    pub fn begin(&mut self, first: MachineInput, attendance: Attendance) {
        if let Some(request) = self.stop() {
            *self = Self::default();
            self.first
                .push_back(MachineInput::StoppedBeforeStart(request));
            return;
        }
        let is_attended = attendance == Attendance::Attended;
        let attended =
            (first == MachineInput::Started).then_some(MachineInput::Attended(is_attended));
        self.first.push_back(first);
        self.first.extend(attended);
    }

    /// Queues the report that all processes were suspended.
    pub fn thaw(&mut self, thawed: MachineInput) {
        self.thawed.push_back(thawed);
    }

    /// Queues the end by a shutdown, if no request stated the reason of the shutdown.
    pub fn shut_down(&mut self, what: MachineInput) {
        self.first.push_back(what);
    }

    /// Queues a request.
    pub fn request(&mut self, what: MachineInput, reply: R) {
        self.requests.push_back((what, reply));
    }

    /// Queues inputs from the run. Configuration changes go before the end of a turn, so that they apply to that end.
    pub fn follow(&mut self, what: Vec<MachineInput>, changes: impl FnOnce() -> Vec<MachineInput>) {
        let is_over = |it: &MachineInput| matches!(it, MachineInput::TurnEnded(_));
        if what.iter().any(is_over) {
            self.rest.extend(changes());
        }
        self.rest.extend(what);
    }

    /// Queues an expired timer. If the configuration changed, queues the changes instead: with the new rules the timer may not be due yet.
    pub fn time_up(&mut self, due: MachineInput, changes: Vec<MachineInput>) {
        let is_due = changes.is_empty().then_some(due);
        self.rest.extend(changes.into_iter().chain(is_due));
    }

    /// Returns the next input.
    pub fn take(&mut self) -> Option<(MachineInput, R)> {
        let first = self.thawed.pop_front();
        let first = first.or_else(|| self.first.pop_front());
        { first.map(|what| (what, R::default())) }
            .or_else(|| self.requests.pop_front())
            .or_else(|| self.rest.pop_front().map(|what| (what, R::default())))
    }

    fn stop(&self) -> Option<StopRequest> {
        let requests = self.requests.iter().map(|(what, _)| what);
        self.first
            .iter()
            .chain(requests)
            .find_map(MachineInput::stop)
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
    use crate::{Request, RuleChange, StopTiming, Timer, TurnOutcome};
    use std::time::Duration;

    /// The number of different moves in the exploration: five inputs, and taking one out.
    const MOVES: u32 = 6;

    fn steer(n: usize) -> MachineInput {
        let (text, now) = (n.to_string(), false);
        MachineInput::Requested(Request::Steer { text, now })
    }

    fn rank(what: &MachineInput) -> u32 {
        match what {
            MachineInput::Thawed(_) => 0,
            MachineInput::TimerExpired(Timer::Shutdown) => 1,
            MachineInput::Requested(_) => 2,
            _ => 3,
        }
    }

    /// Plays one order of inputs and empties the inbox. Each input comes out once, before those of a later rank, and in order within its rank.
    fn play(moves: &[u32]) {
        let mut inbox = Inbox::<()>::default();
        let mut waiting: Vec<MachineInput> = Vec::new();
        let change = MachineInput::PhaseRuleChanged {
            phase: 0,
            change: RuleChange::MaxIterations(Some(1)),
        };
        let check = |inbox: &mut Inbox<()>, waiting: &mut Vec<MachineInput>| {
            let next = inbox.take().map(|(what, ())| what);
            let due = { (0..waiting.len()).min_by_key(|it| rank(&waiting[*it])) };
            assert_eq!(next, due.map(|at| waiting.remove(at)), "{moves:?}");
        };
        for (n, what) in moves.iter().enumerate() {
            match what {
                0 => {
                    let thawed = MachineInput::Thawed(Duration::from_secs(n as u64));
                    inbox.thaw(thawed.clone());
                    waiting.push(thawed);
                }
                1 => {
                    inbox.shut_down(MachineInput::TimerExpired(Timer::Shutdown));
                    waiting.push(MachineInput::TimerExpired(Timer::Shutdown));
                }
                2 => {
                    inbox.request(steer(n), ());
                    waiting.push(steer(n));
                }
                3 => {
                    let result = MachineInput::ResultReported(n.to_string());
                    inbox.follow(vec![result.clone()], || panic!("no turn is over"));
                    waiting.push(result);
                }
                4 => {
                    let over = MachineInput::TurnEnded(TurnOutcome::Failed(n.to_string()));
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
    fn inputs_are_ordered_by_rank_and_arrival() {
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
    fn process_start_precedes_all_requests_except_a_stop() {
        let mut inbox = Inbox::<()>::default();
        inbox.request(steer(1), ());
        inbox.begin(MachineInput::Started, Attendance::Attended);
        let order: Vec<_> = std::iter::from_fn(|| inbox.take().map(|it| it.0)).collect();
        assert_eq!(
            order,
            [
                MachineInput::Started,
                MachineInput::Attended(true),
                steer(1)
            ]
        );
        inbox.request(steer(1), ());
        let after = StopTiming::Now;
        inbox.request(MachineInput::Requested(Request::Stop { when: after }), ());
        inbox.begin(MachineInput::Started, Attendance::Attended);
        let order: Vec<_> = std::iter::from_fn(|| inbox.take().map(|it| it.0)).collect();
        assert!(
            matches!(order[..], [MachineInput::StoppedBeforeStart(_)]),
            "{order:?}"
        );
    }

    #[test]
    fn expired_timer_is_dropped_if_the_rules_changed() {
        let mut inbox = Inbox::<()>::default();
        inbox.time_up(MachineInput::TimerExpired(Timer::Idle), vec![steer(1)]);
        assert_eq!(inbox.take(), Some((steer(1), ())));
        assert_eq!(inbox.take(), None);
        inbox.time_up(MachineInput::TimerExpired(Timer::Idle), Vec::new());
        assert_eq!(
            inbox.take(),
            Some((MachineInput::TimerExpired(Timer::Idle), ()))
        );
    }
}

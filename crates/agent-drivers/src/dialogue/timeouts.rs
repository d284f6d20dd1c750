//! The time limits of an agent: for pending work (`WaitState`), for its end by itself (`EndSequence`), and for the stop of its process tree
//! (`StopState`). Each uses one method after the other, and none blocks by itself.

use crate::times;
use agent_subprocess::Signal;
use std::time::Duration;
use tokio::time::Instant;

/// The number of bytes that may be read after a time limit, because the agent can have written them earlier. It is larger than the read-ahead.
const MAX_LATE_BYTES: usize = 16 << 20;
/// The longest budget; a longer one would overflow the clock.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// A timeout with several steps, each with its own time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EscalatingTimeout {
    times: &'static [Duration],
    /// The number of steps used so far.
    used: usize,
    /// The end of the current time; `None` after the last step.
    until: Option<Instant>,
    slack: usize,
}

impl EscalatingTimeout {
    fn new(times: &'static [Duration]) -> Self {
        let mut timeout = EscalatingTimeout {
            times,
            used: 0,
            until: None,
            slack: 0,
        };
        timeout.renew();
        timeout
    }

    pub(crate) fn until(self) -> Option<Instant> {
        self.until
    }

    /// Whether too much was read after the time limit.
    pub(crate) fn is_exhausted(self) -> bool {
        self.slack == 0
    }

    fn read(&mut self, size: usize) {
        if self.until.is_some_and(|until| until <= Instant::now()) {
            self.slack = self.slack.saturating_sub(size + 1);
        }
    }

    fn renew(&mut self) {
        self.until = self.times.get(self.used).map(|time| Instant::now() + *time);
        self.slack = MAX_LATE_BYTES;
    }

    /// Moves to the next step, and returns the number of the step to do now.
    fn next_step(&mut self) -> usize {
        self.used += 1;
        self.renew();
        self.used - 1
    }
}

/// The waits for an agent.
#[derive(Debug, Default)]
pub(crate) struct WaitState {
    /// The wait for the end of an interrupted turn.
    interrupted: Option<EscalatingTimeout>,
    /// The wait for the exit of a process that closed its outputs.
    silent: Option<EscalatingTimeout>,
}

/// The step that is due now, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeoutStep {
    Interrupted(usize),
    Silent(usize),
}

impl WaitState {
    /// Starts the wait for the end of an interrupted turn with the `times` of its steps, or ends that wait.
    pub(crate) fn watch(&mut self, is_interrupting: bool, times: &'static [Duration]) {
        if !is_interrupting {
            self.interrupted = None;
        } else if self.interrupted.is_none() {
            self.interrupted = Some(EscalatingTimeout::new(times));
        }
    }

    /// Starts the wait for the exit of the process, if it has not started.
    pub(crate) fn await_exit(&mut self) {
        self.silent
            .get_or_insert_with(|| EscalatingTimeout::new(&times::EXIT_TIMEOUT));
    }

    /// Whether output is no longer read.
    pub(crate) fn awaits_exit(&self) -> bool {
        self.silent.is_some()
    }

    /// Returns the wait that ends first.
    pub(crate) fn due(&self) -> Option<EscalatingTimeout> {
        let waits = [self.interrupted, self.silent].into_iter().flatten();
        waits
            .filter(|timeout| timeout.until.is_some())
            .min_by_key(|timeout| timeout.until)
    }

    pub(crate) fn read(&mut self, size: usize) {
        self.all().for_each(|timeout| timeout.read(size));
    }

    /// Restarts the time limits of all waits.
    pub(crate) fn renew(&mut self) {
        self.all().for_each(EscalatingTimeout::renew);
    }

    /// Moves the wait that ends first to its next step.
    pub(crate) fn next_step(&mut self) -> Option<TimeoutStep> {
        let until = self.due()?.until;
        if let Some(silent) = self.silent.as_mut().filter(|wait| wait.until == until) {
            return Some(TimeoutStep::Silent(silent.next_step()));
        }
        let interrupted = self.interrupted.as_mut()?;
        Some(TimeoutStep::Interrupted(interrupted.next_step()))
    }

    fn all(&mut self) -> impl Iterator<Item = &mut EscalatingTimeout> {
        { [&mut self.interrupted, &mut self.silent].into_iter() }.flatten()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndMethod {
    /// The protocol's own request.
    Own,
    CloseInput,
    Signal(Signal),
}

/// The progress of the end of an agent: the method that was used last, and its deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndSequence {
    /// The methods, gentlest first, each with its time.
    all: &'static [(EndMethod, Duration)],
    step: usize,
    pub(crate) until: Instant,
}

impl EndSequence {
    /// Moves to the next method, or to the first one; returns `None` after the last one.
    pub(crate) fn after(
        before: Option<Self>,
        all: &'static [(EndMethod, Duration)],
    ) -> Option<Self> {
        let step = before.map_or(0, |before| before.step + 1);
        let (_, time) = all.get(step)?;
        let until = Instant::now() + *time;
        Some(EndSequence { all, step, until })
    }

    pub(crate) fn method(&self) -> EndMethod {
        self.all[self.step].0
    }

    /// Whether the time of the current method is not over.
    pub(crate) fn is_waiting(&self) -> bool {
        Instant::now() < self.until
    }

    /// Restarts the time of the current method.
    pub(crate) fn renew(&mut self) {
        self.until = Instant::now() + self.all[self.step].1;
    }
}

/// A stop that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StopState {
    /// Whether the agent was alive when the stop began.
    pub(crate) was_alive: bool,
    /// The deadline for a turn to end by the agent's own protocol.
    pub(crate) polite_until: Instant,
    by: Instant,
}

impl StopState {
    /// Begins a stop, or continues it with the earlier deadline.
    pub(crate) fn begin_or_continue(
        stopping: &mut Option<Self>,
        budget: Duration,
        is_alive: bool,
    ) -> Self {
        let (now, budget) = (Instant::now(), budget.min(LONGEST));
        let this = StopState {
            was_alive: is_alive,
            polite_until: now + times::INTERRUPT.min(budget / 3),
            by: now + budget,
        };
        let stopping = stopping.get_or_insert(this);
        stopping.polite_until = stopping.polite_until.min(this.polite_until);
        stopping.by = stopping.by.min(this.by);
        *stopping
    }

    pub(crate) fn left(self) -> Duration {
        self.by.saturating_duration_since(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: &[Duration] = &[Duration::from_secs(1), Duration::from_secs(9)];

    #[tokio::test(start_paused = true)]
    async fn p23a_late_wait_is_skipped_and_each_stage_runs_once() {
        let mut waits = WaitState::default();
        assert_eq!(waits.next_step(), None);
        waits.watch(true, TIMES);
        waits.await_exit();
        let order = std::iter::from_fn(|| waits.next_step());
        use TimeoutStep::{Interrupted, Silent};
        let expected = [Interrupted(0), Silent(0), Silent(1), Interrupted(1)];
        assert_eq!(order.collect::<Vec<_>>(), expected);
        assert!(waits.due().is_none());
        waits.renew();
        assert!(waits.due().is_none(), "no step is left");
        waits.watch(false, TIMES);
        waits.watch(true, TIMES);
        assert_eq!(waits.next_step(), Some(Interrupted(0)));
    }

    #[tokio::test(start_paused = true)]
    async fn p23a_late_reads_are_bounded() {
        let mut waits = WaitState::default();
        waits.watch(true, TIMES);
        waits.read(2 * MAX_LATE_BYTES);
        assert!(!waits.due().unwrap().is_exhausted(), "the time is not over");
        tokio::time::advance(TIMES[0]).await;
        waits.read(MAX_LATE_BYTES / 2);
        assert!(!waits.due().unwrap().is_exhausted());
        waits.read(MAX_LATE_BYTES / 2);
        assert!(waits.due().unwrap().is_exhausted());
        waits.renew();
        assert!(!waits.due().unwrap().is_exhausted());
    }

    #[tokio::test(start_paused = true)]
    async fn l90a_each_stage_gets_its_time_before_the_next() {
        const SECOND: Duration = Duration::from_secs(1);
        static METHODS: [(EndMethod, Duration); 2] =
            [(EndMethod::Own, SECOND), (EndMethod::CloseInput, SECOND)];
        let mut sequence = EndSequence::after(None, &METHODS).unwrap();
        tokio::time::advance(SECOND / 2).await;
        sequence.renew();
        tokio::time::advance(SECOND / 2).await;
        assert!(sequence.method() == EndMethod::Own && sequence.is_waiting());
        tokio::time::advance(SECOND / 2).await;
        assert!(!sequence.is_waiting());
        let last = EndSequence::after(Some(sequence), &METHODS);
        assert_eq!(last.map(|last| last.method()), Some(EndMethod::CloseInput));
        assert!(EndSequence::after(last, &METHODS).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn l90g_a_stop_is_shortened_by_a_caller_with_less_time_and_never_prolonged() {
        let (second, mut stopping) = (Duration::from_secs(1), None);
        let mut stop =
            |seconds, alive| StopState::begin_or_continue(&mut stopping, second * seconds, alive);
        assert_eq!(stop(9, true).left(), 9 * second);
        tokio::time::advance(second).await;
        let later = stop(60, false);
        assert_eq!((later.left(), later.was_alive), (8 * second, true));
        let sooner = stop(3, false);
        assert_eq!(sooner.left(), 3 * second);
        assert_eq!(sooner.polite_until, Instant::now() + second);
        tokio::time::advance(9 * second).await;
        assert_eq!(sooner.left(), Duration::ZERO);
    }
}

//! The decided actions that are not performed yet: the next waker, hook or exit, and whether a deadline counts.

use std::{
    collections::BTreeMap,
    mem::take,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use crate::{
    Cause, PressSource,
    ladder::{HandlerId, Ladder, LadderEffect},
    press_word::PostKind,
    signal_catcher::SignalCatcher,
};

/// The delay after which a missed deadline means that the process was stopped, and did not only wait for a processor.
const MISSED_AFTER: Duration = Duration::from_millis(100);
/// The time to wait for `SIGCONT` after such a delay, because the signal handler may run in another thread.
pub(crate) const STOP_SIGNAL_GRACE: Duration = Duration::from_millis(50);

/// The name and the waker of a handler.
pub(crate) type HandlerInfo = (Arc<str>, Arc<Notify>);

/// The wakers and hooks to call next.
pub(crate) struct Announcements {
    pub(crate) wake_handler: Option<HandlerInfo>,
    pub(crate) shutdown: Option<Cause>,
    pub(crate) suspend: bool,
    pub(crate) resumed: bool,
    /// Whether a handler did not take its notice in time.
    pub(crate) has_untaken: bool,
    #[cfg(feature = "tracing")]
    pub(crate) trace: Option<Trace>,
}

impl Announcements {
    /// Returns whether this wakes only one handler and runs no hook.
    pub(crate) fn is_for_one_handler(&self) -> bool {
        self.wake_handler.is_some() && !self.suspend && !self.resumed && !self.has_untaken
    }
}

/// The ladder and the actions that are left to perform. The state is behind the router's lock; nothing here runs foreign code.
pub(crate) struct State {
    pub(crate) ladder: Ladder,
    pub(crate) handlers: BTreeMap<HandlerId, HandlerInfo>,
    inbox: Inbox,
    /// The handler to wake. One is enough, because only one notice is open at a time.
    wake_handler: Option<HandlerInfo>,
    /// Whether a take time-out has passed and the hook for it has not run yet.
    has_untaken: bool,
    /// Whether shutdown was announced, or is being announced.
    announced: bool,
    /// The number of threads that run foreign code.
    pub(crate) announcing_threads: usize,
    /// Whether a thread will soon check whether the deadline thread must be woken.
    pub(crate) is_lingering: bool,
    #[cfg(feature = "tracing")]
    trace: Trace,
    pub(crate) exit: Option<Cause>,
    /// Whether a hard exit is in progress. Unless it fails to end the process, no graceful shutdown must start at the same time.
    pub(crate) exiting: bool,
    /// Whether the process must be suspended.
    suspend: bool,
    /// Whether a thread runs the suspend hook or suspends the process. The next suspension and the resume hook wait for it.
    pub(crate) stopping: bool,
    /// Whether the process is being suspended. No deadline is due until it continues.
    pub(crate) suspended: bool,
    /// Whether the process continues and the hook for it has not run yet.
    pub(crate) resumed: bool,
    /// The time when a missed deadline was noticed.
    missed_since: Option<Instant>,
    pub(crate) closed: bool,
}

impl State {
    pub(crate) fn new(ladder: Ladder, inbox: Inbox) -> Self {
        Self {
            ladder,
            handlers: BTreeMap::new(),
            inbox,
            wake_handler: None,
            has_untaken: false,
            announced: false,
            announcing_threads: 0,
            is_lingering: false,
            #[cfg(feature = "tracing")]
            trace: Trace::default(),
            exit: None,
            exiting: false,
            suspend: false,
            stopping: false,
            suspended: false,
            resumed: false,
            missed_since: None,
            closed: false,
        }
    }

    /// Returns the cause of the graceful shutdown; `None` while a hard exit is in progress.
    pub(crate) fn shutdown(&self) -> Option<Cause> {
        self.ladder.cause().filter(|_| !self.is_ending())
    }

    fn is_ending(&self) -> bool {
        self.exiting || self.exit.is_some()
    }

    /// Passes the posts of the signal handler and the due deadlines to the ladder, in the order of time. Returns whether anything changed.
    pub(crate) fn catch_up(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some((kind, at)) = self.inbox.next() {
            any |= kind != PostKind::Resume && self.pass(at);
            let effect = match kind {
                PostKind::Press => Some(self.ladder.press(PressSource::Signal, at)),
                PostKind::Terminate => self.ladder.terminate(Cause::Terminate, at),
                PostKind::Hangup => self.ladder.terminate(Cause::Hangup, at),
                PostKind::Quit => self.ladder.terminate(Cause::Quit, at),
                PostKind::Suspend => {
                    self.suspend = true;
                    any = true;
                    None
                }
                PostKind::Resume => {
                    self.resume(at);
                    any = true;
                    None
                }
            };
            any |= self.note(effect);
        }
        any | self.pass(now)
    }

    /// Passes a press that is not a signal to the ladder.
    pub(crate) fn press(&mut self, source: PressSource, now: Instant) -> LadderEffect {
        match self.inbox.admits(now) {
            true => self.ladder.press(source, now),
            false => LadderEffect::Debounced,
        }
    }

    pub(crate) fn resume(&mut self, now: Instant) {
        self.suspend = false; // `SIGCONT` cancels a suspension that has not happened yet, as in the kernel
        (self.suspended, self.resumed, self.missed_since) = (false, true, None);
        self.ladder.resumed(now);
    }

    /// Stores the effect for the thread that performs it. Returns whether there is an effect.
    pub(crate) fn note(&mut self, effect: Option<LadderEffect>) -> bool {
        match effect {
            None | Some(LadderEffect::Debounced) => return false,
            Some(LadderEffect::Notify(id)) => self.wake_handler = self.handlers.get(&id).cloned(),
            Some(LadderEffect::HardExit(cause)) => {
                self.exit = Some(cause);
                #[cfg(feature = "tracing")]
                {
                    self.trace.exit = Some(cause);
                }
            }
            Some(LadderEffect::BeginShutdown(_)) => {} // the ladder itself has the cause
        }
        true
    }

    /// Takes the wakers and hooks to call, if there are any. The caller must call them.
    pub(crate) fn take_announcements(&mut self) -> Option<Announcements> {
        let shutdown = self.shutdown().filter(|_| !self.announced);
        self.announced |= shutdown.is_some();
        let may_hook = !self.stopping;
        let announcements = Announcements {
            // In shutdown there is no notice to take, so wake no handler: a waker that hangs must not delay the announcement of the shutdown.
            wake_handler: self
                .wake_handler
                .take()
                .filter(|_| self.ladder.cause().is_none()),
            shutdown,
            suspend: may_hook && take(&mut self.suspend),
            resumed: may_hook && take(&mut self.resumed),
            has_untaken: take(&mut self.has_untaken) && self.ladder.cause().is_none(),
            #[cfg(feature = "tracing")]
            trace: self.trace.next(&self.ladder),
        };
        self.stopping |= announcements.suspend;
        let any = announcements.wake_handler.is_some() || shutdown.is_some();
        let any =
            any || announcements.suspend || announcements.resumed || announcements.has_untaken;
        #[cfg(feature = "tracing")]
        let any = any || announcements.trace.is_some();
        any.then_some(announcements)
    }

    /// Publishes the stage of the ladder to the signal handler.
    pub(crate) fn publish_stage(&mut self) {
        let is_ending = self.is_ending();
        self.inbox.publish_stage(&self.ladder, is_ending);
    }

    /// Returns the next deadline, if deadlines count now.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.ladder.next_deadline().filter(|_| !self.suspended)
    }

    /// Returns the time until the next check of deadlines.
    pub(crate) fn time_until_next(&self, now: Instant) -> Option<Duration> {
        let left = self.next_deadline()?.saturating_duration_since(now);
        Some(self.missed_since.map_or(left, |_| STOP_SIGNAL_GRACE))
    }

    fn pass(&mut self, now: Instant) -> bool {
        let mut any = false;
        let is_due = |ladder: &Ladder| ladder.next_deadline().is_some_and(|due| due <= now);
        while !self.awaits_stop_signal(now) && is_due(&self.ladder) {
            self.has_untaken |= self.ladder.cause().is_none();
            let effect = self.ladder.on_deadline(now);
            self.note(effect);
            any = true;
        }
        any
    }

    /// Returns whether deadlines have to wait, because the process is stopped or was probably stopped.
    fn awaits_stop_signal(&mut self, now: Instant) -> bool {
        let is_late = |deadline| now.saturating_duration_since(deadline) > MISSED_AFTER;
        if !self.inbox.is_connected() || !self.ladder.next_deadline().is_some_and(is_late) {
            self.missed_since = None;
            return self.suspended;
        }
        let since = *self.missed_since.get_or_insert(now);
        self.suspended || now.saturating_duration_since(since) < STOP_SIGNAL_GRACE
    }
}

/// The router's access to the posts of the signal handler; always empty on a detached ladder.
pub(crate) struct Inbox {
    catcher: Option<Arc<SignalCatcher>>,
    /// The number of the next post to read.
    next: u64,
    /// The posts that were read since the last `settle`.
    read: Vec<PostKind>,
}

impl Inbox {
    pub(crate) fn new(catcher: Option<Arc<SignalCatcher>>) -> Self {
        Self {
            catcher,
            next: 0,
            read: Vec::new(),
        }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.catcher.is_some()
    }

    /// Returns whether a press that is not a signal is a new press, and not part of an earlier signal.
    pub(crate) fn admits(&self, now: Instant) -> bool {
        let catcher = self.catcher.as_ref();
        catcher.is_none_or(|catcher| catcher.admits(now))
    }

    /// Returns the oldest unread post.
    pub(crate) fn next(&mut self) -> Option<(PostKind, Instant)> {
        let catcher = self.catcher.as_ref()?;
        let (kind, at) = catcher.word.read(self.next)?;
        self.next += 1;
        self.read.push(kind);
        Some((kind, catcher.instant(at)))
    }

    /// Publishes the stage after all read posts have changed the ladder.
    pub(crate) fn publish_stage(&mut self, ladder: &Ladder, is_ending: bool) {
        if let Some(catcher) = &self.catcher {
            let stage = if is_ending { 3 } else { ladder.stage() };
            catcher.word.settle(&self.read, stage);
            self.read.clear();
        }
    }
}

/// The next `tracing` events.
#[cfg(feature = "tracing")]
#[derive(Clone, Default)]
pub(crate) struct Trace {
    presses: u64,
    /// The presses since the last events.
    more: u64,
    pub(crate) exit: Option<Cause>,
}

#[cfg(feature = "tracing")]
impl Trace {
    /// Takes the next events, if there are any.
    pub(crate) fn next(&mut self, ladder: &Ladder) -> Option<Self> {
        self.more = ladder.presses() - self.presses;
        self.presses += self.more;
        let next = self.clone();
        self.exit = None;
        (next.more > 0 || next.exit.is_some()).then_some(next)
    }
}

/// Emits `tracing` events, on the threads that run wakers. A subscriber may hang, as any waker. The signal handler and the thread that ends the
/// process emit no events.
#[cfg(feature = "tracing")]
pub(crate) fn emit(announcements: &Announcements) {
    let trace = announcements.trace.clone().unwrap_or_default();
    for number in trace.presses - trace.more + 1..=trace.presses {
        tracing::debug!(target: "interrupt_stack", number, "press");
    }
    if let Some((handler, _)) = &announcements.wake_handler {
        tracing::debug!(target: "interrupt_stack", %handler, "notice");
    }
    if let Some(cause) = announcements.shutdown {
        tracing::info!(target: "interrupt_stack", ?cause, "shutdown begins");
    }
    if let Some(cause) = trace.exit {
        tracing::warn!(target: "interrupt_stack", ?cause, "hard exit");
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;

//! What was decided and is to be done: which waker, hook or exit comes next, and when a deadline counts.

use std::{
    collections::BTreeMap,
    mem::take,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use crate::{
    Cause, PressSource,
    catch::Catch,
    ladder::{Effect, HandlerId, Ladder},
    word::Kind,
};

/// A deadline that is met this much too late was not met for want of a processor, but because the process was stopped.
const LATE: Duration = Duration::from_millis(100);
/// How long the news of that may take to come, from the handler of `SIGCONT` in another thread.
pub(crate) const NEWS: Duration = Duration::from_millis(50);

/// What a handler is known by: its name and what wakes it.
pub(crate) type Known = (Arc<str>, Arc<Notify>);

/// What is left to tell to code of others.
pub(crate) struct News {
    pub(crate) ring: Option<Known>,
    pub(crate) shutdown: Option<Cause>,
    pub(crate) suspend: bool,
    pub(crate) resumed: bool,
    /// No handler took a press in time.
    pub(crate) untaken: bool,
    #[cfg(feature = "tracing")]
    pub(crate) trace: Option<Trace>,
}

impl News {
    /// Says whether it is for one handler only.
    pub(crate) fn is_a_bell(&self) -> bool {
        self.ring.is_some() && !self.suspend && !self.resumed && !self.untaken
    }
}

/// All that is decided, and what of it is left to do. It is behind the router's lock; nothing here runs code of others.
pub(crate) struct State {
    pub(crate) ladder: Ladder,
    pub(crate) handlers: BTreeMap<HandlerId, Known>,
    inbox: Inbox,
    /// To be woken. One is enough: only one notice is open at a time.
    ring: Option<Known>,
    /// A take time-out has passed, and nobody was told yet.
    untaken: bool,
    /// Shutdown was announced, or is being announced.
    announced: bool,
    /// How many threads run code of others.
    pub(crate) telling: usize,
    /// A thread looks soon whether the deciding one has a deadline to mind.
    pub(crate) lingering: bool,
    #[cfg(feature = "tracing")]
    trace: Trace,
    pub(crate) exit: Option<Cause>,
    /// The exit is being performed. Until that has failed to end the process, no graceful shutdown shall start beside it.
    pub(crate) exiting: bool,
    /// The process is to be stopped.
    suspend: bool,
    /// A thread is at it, with a hook that may take its time: the next stop, and the news that the process goes on, come after that.
    pub(crate) stopping: bool,
    /// It is being stopped: no deadline is due until it goes on.
    pub(crate) suspended: bool,
    /// It has gone on.
    pub(crate) resumed: bool,
    /// Since when a deadline is found to be missed.
    late: Option<Instant>,
    pub(crate) closed: bool,
}

impl State {
    pub(crate) fn new(ladder: Ladder, inbox: Inbox) -> Self {
        Self {
            ladder,
            handlers: BTreeMap::new(),
            inbox,
            ring: None,
            untaken: false,
            announced: false,
            telling: 0,
            lingering: false,
            #[cfg(feature = "tracing")]
            trace: Trace::default(),
            exit: None,
            exiting: false,
            suspend: false,
            stopping: false,
            suspended: false,
            resumed: false,
            late: None,
            closed: false,
        }
    }

    /// Why a graceful shutdown is to be carried out: not beside a hard exit that has not failed.
    pub(crate) fn shutdown(&self) -> Option<Cause> {
        self.ladder.cause().filter(|_| !self.is_ending())
    }

    fn is_ending(&self) -> bool {
        self.exiting || self.exit.is_some()
    }

    /// Decides what the handler has posted and what the clock has made due, in the order of time; says whether there was anything.
    pub(crate) fn catch_up(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some((kind, at)) = self.inbox.next() {
            any |= kind != Kind::Resume && self.pass(at);
            let effect = match kind {
                Kind::Press => Some(self.ladder.press(PressSource::Signal, at)),
                Kind::Terminate => self.ladder.terminate(Cause::Terminate, at),
                Kind::Hangup => self.ladder.terminate(Cause::Hangup, at),
                Kind::Quit => self.ladder.terminate(Cause::Quit, at),
                Kind::Suspend => {
                    self.suspend = true;
                    any = true;
                    None
                }
                Kind::Resume => {
                    self.resume(at);
                    any = true;
                    None
                }
            };
            any |= self.note(effect);
        }
        any | self.pass(now)
    }

    /// Decides a press that no signal made.
    pub(crate) fn press(&mut self, source: PressSource, now: Instant) -> Effect {
        match self.inbox.admits(now) {
            true => self.ladder.press(source, now),
            false => Effect::Debounced,
        }
    }

    pub(crate) fn resume(&mut self, now: Instant) {
        self.suspend = false; // as the system forgets a stop that it has not carried out
        (self.suspended, self.resumed, self.late) = (false, true, None);
        self.ladder.resumed(now);
    }

    /// Leaves the effect to the thread that performs it; says whether there is one.
    pub(crate) fn note(&mut self, effect: Option<Effect>) -> bool {
        match effect {
            None | Some(Effect::Debounced) => return false,
            Some(Effect::Notify(id)) => self.ring = self.handlers.get(&id).cloned(),
            Some(Effect::HardExit(cause)) => {
                self.exit = Some(cause);
                #[cfg(feature = "tracing")]
                {
                    self.trace.exit = Some(cause);
                }
            }
            Some(Effect::BeginShutdown(_)) => {} // needs no note: the ladder has the cause
        }
        true
    }

    /// Takes what is to be told, if there is anything. Whoever has it must tell it.
    pub(crate) fn news(&mut self) -> Option<News> {
        let shutdown = self.shutdown().filter(|_| !self.announced);
        self.announced |= shutdown.is_some();
        let may_hook = !self.stopping;
        let news = News {
            // In shutdown there is nothing to take: a waker that hangs must not keep that from those who are to know.
            ring: self.ring.take().filter(|_| self.ladder.cause().is_none()),
            shutdown,
            suspend: may_hook && take(&mut self.suspend),
            resumed: may_hook && take(&mut self.resumed),
            untaken: take(&mut self.untaken) && self.ladder.cause().is_none(),
            #[cfg(feature = "tracing")]
            trace: self.trace.next(&self.ladder),
        };
        self.stopping |= news.suspend;
        let any = news.ring.is_some() || shutdown.is_some();
        let any = any || news.suspend || news.resumed || news.untaken;
        #[cfg(feature = "tracing")]
        let any = any || news.trace.is_some();
        any.then_some(news)
    }

    /// Tells the signal handler how things stand.
    pub(crate) fn settle(&mut self) {
        let is_ending = self.is_ending();
        self.inbox.settle(&self.ladder, is_ending);
    }

    /// Says when something will be due.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.ladder.next_deadline().filter(|_| !self.suspended)
    }

    /// Says how long nothing will be due.
    pub(crate) fn rest(&self, now: Instant) -> Option<Duration> {
        let left = self.next_deadline()?.saturating_duration_since(now);
        Some(self.late.map_or(left, |_| NEWS))
    }

    fn pass(&mut self, now: Instant) -> bool {
        let mut any = false;
        let is_due = |ladder: &Ladder| ladder.next_deadline().is_some_and(|due| due <= now);
        while !self.awaits_news(now) && is_due(&self.ladder) {
            self.untaken |= self.ladder.cause().is_none();
            let effect = self.ladder.on_deadline(now);
            self.note(effect);
            any = true;
        }
        any
    }

    /// Says whether deadlines have to wait, because the process was stopped or seems to have been.
    fn awaits_news(&mut self, now: Instant) -> bool {
        let is_late = |deadline| now.saturating_duration_since(deadline) > LATE;
        if !self.inbox.is_connected() || !self.ladder.next_deadline().is_some_and(is_late) {
            self.late = None;
            return self.suspended;
        }
        let since = *self.late.get_or_insert(now);
        self.suspended || now.saturating_duration_since(since) < NEWS
    }
}

/// The router's end of what the signal handler posts; always empty on a detached ladder.
pub(crate) struct Inbox {
    catch: Option<Arc<Catch>>,
    /// The number of the next post to read.
    next: u64,
    /// What was read and is not settled yet.
    read: Vec<Kind>,
}

impl Inbox {
    pub(crate) fn new(catch: Option<Arc<Catch>>) -> Self {
        Self {
            catch,
            next: 0,
            read: Vec::new(),
        }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.catch.is_some()
    }

    /// Says whether a press that no signal made is one of its own beside those that signals make.
    pub(crate) fn admits(&self, now: Instant) -> bool {
        let catch = self.catch.as_ref();
        catch.is_none_or(|catch| catch.admits(now))
    }

    /// Returns the oldest post that was not read.
    pub(crate) fn next(&mut self) -> Option<(Kind, Instant)> {
        let catch = self.catch.as_ref()?;
        let (kind, at) = catch.word.read(self.next)?;
        self.next += 1;
        self.read.push(kind);
        Some((kind, catch.instant(at)))
    }

    /// Tells the handler what came of all that was decided.
    pub(crate) fn settle(&mut self, ladder: &Ladder, is_ending: bool) {
        if let Some(catch) = &self.catch {
            let rung = if is_ending { 3 } else { ladder.rung() };
            catch.word.settle(&self.read, rung);
            self.read.clear();
        }
    }
}

/// What the events have said already, and what is to be said.
#[cfg(feature = "tracing")]
#[derive(Clone, Default)]
pub(crate) struct Trace {
    presses: u64,
    /// Presses that were accepted since.
    more: u64,
    pub(crate) exit: Option<Cause>,
}

#[cfg(feature = "tracing")]
impl Trace {
    /// Takes what is to be said, if there is anything.
    pub(crate) fn next(&mut self, ladder: &Ladder) -> Option<Self> {
        self.more = ladder.presses() - self.presses;
        self.presses += self.more;
        let next = self.clone();
        self.exit = None;
        (next.more > 0 || next.exit.is_some()).then_some(next)
    }
}

/// Sends the events for whoever subscribes, from the threads that run wakers. They may hang in a subscriber as in any waker. The signal handler and
/// the thread that ends the process send none.
#[cfg(feature = "tracing")]
pub(crate) fn say(news: &News) {
    let trace = news.trace.clone().unwrap_or_default();
    for number in trace.presses - trace.more + 1..=trace.presses {
        tracing::debug!(target: "interrupt_stack", number, "press");
    }
    if let Some((handler, _)) = &news.ring {
        tracing::debug!(target: "interrupt_stack", %handler, "notice");
    }
    if let Some(cause) = news.shutdown {
        tracing::info!(target: "interrupt_stack", ?cause, "shutdown begins");
    }
    if let Some(cause) = trace.exit {
        tracing::warn!(target: "interrupt_stack", ?cause, "hard exit");
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;

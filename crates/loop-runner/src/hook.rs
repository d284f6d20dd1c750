//! Delivers notifications of events of the run through one channel: a command, a program, or a function. Each delivery is acknowledged or tried again.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use agent_duplex::{BoxFuture, ProcessName};
use agent_subprocess::{ProcessContext, StdinMode, TreeCommand};
use loop_state::{CheckResult, Head, Timestamp, times};
use rlm_store::deadline::{Deadline, DeadlineReceiver, sleep_until};
use rlm_store::{DeliveryResult, RunId};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::check::{self, Freezer, Limit};
use crate::{Error, RunEvent, RunOutcome};

/// The most notifications that wait for the running delivery.
const WAITING: usize = 8;
/// The waits between the tries of a delivery. After the last of them follows the last try.
const RETRY_WAITS: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(120),
];
/// The reason of a delivery that was ended before the channel acknowledged it.
const ENDED: &str = "the run ended before it was acknowledged";
/// The reason of a try that took longer than its time limit.
const TOO_LONG: &str = "it took too long";

/// An event of a run that the hook can report.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HookEvent<'a> {
    /// The run.
    pub run: &'a RunId,
    /// The state of the run.
    pub head: &'a Head,
    /// The time of the event.
    pub at: Timestamp,
    /// The event.
    pub kind: HookEventKind<'a>,
    /// The number of events before this one that were dropped because the channel was too slow.
    pub missed: u64,
}

/// The kind of a [`HookEvent`]. If a save contains the event, the hook gets the event after that save.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum HookEventKind<'a> {
    /// This process began to work on the run.
    Started {
        /// Whether an earlier process worked on the run.
        resumed: bool,
    },
    /// The run reported an event.
    Event(&'a RunEvent),
    /// This process stopped working on the run, and everything that the run started is ended.
    Ended(Result<&'a RunOutcome, &'a Error>),
}

/// The content of one notification, as its channel needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookInput {
    /// The name of the event, for the record of the run.
    pub event: String,
    /// The last arguments of a program.
    pub arguments: Vec<String>,
    /// Environment variables, besides those that identify the run.
    pub variables: Vec<(String, String)>,
    /// The standard input of a command or a program, or the text for a function.
    pub input: String,
}

/// The way in which a channel delivers a notification, and how it is acknowledged.
#[derive(Clone)]
#[non_exhaustive]
pub enum HookTarget {
    /// `sh -c` runs this command in the directory of the run. The exit code 0 acknowledges the notification.
    Command(String),
    /// A program with these first arguments.
    Program {
        /// The program and its first arguments.
        words: Vec<String>,
        /// Returns the acknowledgement from the output of the program, if it is one.
        acknowledgement: fn(&str) -> Option<String>,
    },
    /// A function of this process. It returns the acknowledgement, or the reason why there is none.
    Function(HookFunction),
}

/// The function of a [`HookTarget::Function`].
pub type HookFunction =
    Arc<dyn Fn(HookInput) -> BoxFuture<'static, Result<String, String>> + Send + Sync>;

impl fmt::Debug for HookTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A command can contain a secret, such as the address of a webhook.
        f.write_str(match self {
            Self::Command(_) => "Command",
            Self::Program { .. } => "Program",
            Self::Function(_) => "Function",
        })
    }
}

/// A channel for notifications, and the function that returns the content of each.
///
/// One delivery runs at a time. Each try has 10 s, and a program runs under a guard: the hook ends everything that it leaves running. If a try is not
/// acknowledged, up to four more follow, with growing waits between them. At most eight notifications wait for the running delivery; if there are
/// more, the hook drops the oldest ones and counts them. A delivery never delays the run.
#[derive(Debug)]
pub struct Hook {
    channel: String,
    target: HookTarget,
    input: HookFilter,
}

/// Returns the content of the notification for an event.
struct HookFilter(Box<HookFilterFn>);

type HookFilterFn = dyn Fn(&HookEvent<'_>) -> Option<HookInput> + Send + Sync;

impl fmt::Debug for HookFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HookFilter")
    }
}

impl Hook {
    /// Creates a hook for a channel with this name; `input` returns the content for an event, or `None` to skip the event.
    pub fn new(
        channel: impl Into<String>,
        target: HookTarget,
        input: impl Fn(&HookEvent<'_>) -> Option<HookInput> + Send + Sync + 'static,
    ) -> Self {
        Self {
            channel: channel.into(),
            target,
            input: HookFilter(Box::new(input)),
        }
    }
}

/// Delivers one notification outside of a run, with one try, and returns the acknowledgement or the reason why there is none.
///
/// # Cancel safety
///
/// Dropping the future ends the delivery. The channel may have got the notification.
pub async fn deliver_once(
    target: &HookTarget,
    input: HookInput,
    context: ProcessContext,
) -> Result<String, String> {
    let halt = Deadline::default();
    let one = attempt(target, &input, &context, &mut halt.subscribe()).await;
    one.result
}

/// The deliveries of a hook. Dropping it ends the running one.
#[derive(Debug)]
pub(crate) struct HookQueue {
    hook: Hook,
    waiting: VecDeque<QueuedCall>,
    /// The number of events dropped since a notification reported that number.
    missed: u64,
    /// The number of events dropped since [`take_dropped`](Self::take_dropped).
    dropped: u32,
    running: Option<RunningCall>,
    /// Whether the last delivery failed; a failure is reported once.
    is_failing: bool,
}

#[derive(Debug)]
struct QueuedCall {
    context: ProcessContext,
    input: HookInput,
    missed: u64,
    retries: Retries,
}

/// Whether a delivery is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retries {
    /// It is tried again after each failure, up to the limit.
    All,
    /// It is not tried again: the run ends, and a newer notification waits.
    None,
}

#[derive(Debug)]
struct RunningCall {
    /// The shared deadline of the delivery. Dropping it ends the delivery.
    halt: Deadline,
    retries: watch::Sender<Retries>,
    task: JoinHandle<Delivery>,
}

/// A delivery that is over.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// The name of the event.
    pub(crate) event: String,
    pub(crate) tries: u32,
    pub(crate) result: DeliveryResult,
    pub(crate) processes: HookProcesses,
}

/// The processes of a delivery when it was over.
#[derive(Debug)]
pub(crate) struct HookProcesses {
    /// The processes that a program left running, and that the hook ended.
    pub(crate) leftovers: Vec<ProcessName>,
    pub(crate) survivors: Vec<ProcessName>,
    pub(crate) proven: bool,
}

/// One try of a delivery.
struct HookAttempt {
    result: Result<String, String>,
    processes: HookProcesses,
}

impl HookProcesses {
    fn none() -> Self {
        Self {
            leftovers: Vec::new(),
            survivors: Vec::new(),
            proven: true,
        }
    }

    fn add(&mut self, other: Self) {
        self.leftovers.extend(other.leftovers);
        self.survivors.extend(other.survivors);
        self.proven &= other.proven;
    }
}

impl HookQueue {
    pub(crate) fn new(hook: Hook) -> Self {
        Self {
            hook,
            waiting: VecDeque::new(),
            missed: 0,
            dropped: 0,
            running: None,
            is_failing: false,
        }
    }

    /// Returns the name of the channel.
    pub(crate) fn channel(&self) -> &str {
        &self.hook.channel
    }

    /// Returns the content for an event, if the hook reports it.
    pub(crate) fn input_for(&self, event: HookEvent<'_>) -> Option<HookInput> {
        // If the queue is full, this event displaces the oldest one, which counts as missed.
        let out = self.waiting.front().filter(|_| self.is_full());
        let missed = self.missed + out.map_or(0, |out| out.missed + 1);
        (self.hook.input.0)(&HookEvent { missed, ..event })
    }

    /// Queues a notification.
    pub(crate) fn push(&mut self, context: ProcessContext, input: HookInput) {
        if self.is_full() {
            self.drop_oldest(1);
        }
        let missed = std::mem::take(&mut self.missed);
        self.waiting.push_back(QueuedCall {
            context,
            input,
            missed,
            retries: Retries::All,
        });
        self.start_next();
    }

    fn is_full(&self) -> bool {
        self.waiting.len() == WAITING
    }

    /// Drops the oldest waiting notifications.
    fn drop_oldest(&mut self, count: usize) {
        let out = self.waiting.drain(..count);
        self.missed += out.map(|one| one.missed + 1).sum::<u64>();
        self.note_dropped(count);
    }

    /// Counts notifications that are not sent.
    pub(crate) fn note_dropped(&mut self, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.dropped = self.dropped.saturating_add(count);
    }

    /// Returns the number of notifications that were dropped since the last call.
    pub(crate) fn take_dropped(&mut self) -> u32 {
        std::mem::take(&mut self.dropped)
    }

    pub(crate) fn has_dropped(&self) -> bool {
        self.dropped > 0
    }

    /// Drops all waiting notifications.
    pub(crate) fn clear(&mut self) {
        self.drop_oldest(self.waiting.len());
    }

    /// Tries no earlier notification again, so that the one for the end of the run gets the time.
    pub(crate) fn end_retries(&mut self) {
        for call in &mut self.waiting {
            call.retries = Retries::None;
        }
        if let Some(running) = &self.running {
            running.retries.send_replace(Retries::None);
        }
    }

    /// Starts the next delivery, unless one runs.
    fn start_next(&mut self) {
        if self.running.is_some() {
            return;
        }
        let Some(mut call) = self.waiting.pop_front() else {
            return;
        };
        let variables = call.input.variables.iter().cloned();
        let variables = variables.map(|(name, value)| (name.into(), value.into()));
        call.context.env.extend(variables);
        call.context.stop = call.context.stop.within(times::NOTIFY_ENDING);
        let halt = Deadline::default();
        let (retries, allowed) = watch::channel(call.retries);
        let target = self.hook.target.clone();
        let task = tokio::spawn(deliver(target, call, halt.subscribe(), allowed));
        self.running = Some(RunningCall {
            halt,
            retries,
            task,
        });
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Ends the running delivery.
    pub(crate) fn halt(&self) {
        if let Some(running) = &self.running {
            running.halt.tighten_to(times::NOTIFY_ENDING);
        }
    }

    /// Returns the warning for a failed delivery, unless the previous one failed too. Leaves out the output of a command, which can be private.
    pub(crate) fn failure_warning(&mut self, delivery: &Delivery) -> Option<String> {
        let why = match &delivery.result {
            DeliveryResult::Delivered(_) => None,
            DeliveryResult::Failed(why) => Some(why),
        };
        let was_failing = std::mem::replace(&mut self.is_failing, why.is_some());
        let why = why.filter(|_| !was_failing)?;
        let (channel, event) = (&self.hook.channel, &delivery.event);
        let tries = match delivery.tries {
            1 => String::new(),
            tries => format!(" after {tries} tries"),
        };
        Some(format!(
            "the notification of `{event}` by {channel} failed{tries}: {why}"
        ))
    }
}

/// Waits for the end of a running delivery, and starts the next one of its queue. Returns the index of the queue. Cancel safe.
pub(crate) async fn next_delivery(queues: &mut [HookQueue]) -> (usize, Delivery) {
    std::future::poll_fn(|context| {
        for (index, queue) in queues.iter_mut().enumerate() {
            let Some(running) = &mut queue.running else {
                continue;
            };
            if let Poll::Ready(end) = Pin::new(&mut running.task).poll(context) {
                queue.running = None;
                queue.start_next();
                return Poll::Ready((index, end.unwrap_or_else(|e| Delivery::panicked(&e))));
            }
        }
        Poll::Pending
    })
    .await
}

impl Delivery {
    fn panicked(why: &dyn fmt::Display) -> Self {
        Self {
            event: String::new(),
            tries: 1,
            result: DeliveryResult::Failed(why.to_string()),
            processes: HookProcesses {
                proven: false,
                ..HookProcesses::none()
            },
        }
    }
}

/// Delivers a notification: tries until the channel acknowledges it, all tries are made, or the deadline comes.
async fn deliver(
    target: HookTarget,
    call: QueuedCall,
    mut halted: DeadlineReceiver,
    mut retries: watch::Receiver<Retries>,
) -> Delivery {
    let mut processes = HookProcesses::none();
    let mut waits = RETRY_WAITS.into_iter();
    let mut tries = 0;
    let result = loop {
        let one = attempt(&target, &call.input, &call.context, &mut halted).await;
        tries += 1;
        processes.add(one.processes);
        let why = match one.result {
            Ok(acknowledgement) => break DeliveryResult::Delivered(acknowledgement),
            Err(why) => DeliveryResult::Failed(why),
        };
        let Some(wait) = waits.next() else { break why };
        tokio::select! {
            biased;
            _ = halted.wait_for_deadline() => break why,
            // The sender is dropped only together with this task's handle.
            _ = retries.wait_for(|it| *it == Retries::None) => break why,
            () = sleep_until(Instant::now() + wait) => {}
        }
    };
    Delivery {
        event: call.input.event,
        tries,
        result,
        processes,
    }
}

/// Tries once to deliver a notification.
async fn attempt(
    target: &HookTarget,
    input: &HookInput,
    context: &ProcessContext,
    halted: &mut DeadlineReceiver,
) -> HookAttempt {
    let (command, acknowledgement): (_, fn(&str) -> Option<String>) = match target {
        HookTarget::Function(function) => {
            let result = tokio::select! {
                biased;
                _ = halted.wait_for_deadline() => Err(ENDED.to_owned()),
                sent = timeout(times::NOTIFY_CALL, function(input.clone())) => {
                    sent.unwrap_or_else(|_| Err(TOO_LONG.to_owned()))
                }
            };
            let processes = HookProcesses::none();
            return HookAttempt { result, processes };
        }
        HookTarget::Command(command) => {
            let command = TreeCommand::new("sh").args(["-c", command]);
            (command, |_| Some("exit code 0".to_owned()))
        }
        HookTarget::Program {
            words,
            acknowledgement,
        } => {
            let (program, first) = words.split_first().expect("a target names a program");
            let command = TreeCommand::new(program).args(first);
            (command.args(&input.arguments), *acknowledgement)
        }
    };
    let command = command.stdin(StdinMode::Bytes(input.input.clone().into_bytes()));
    // A try is short, so a suspended run does not suspend it.
    let (_, freezes) = Freezer::new();
    let limit = Limit::Time(times::NOTIFY_CALL);
    let end = check::run(command, context.clone(), limit, halted.clone(), freezes).await;
    let result = match &end.result {
        CheckResult::Passed => {
            acknowledgement(&end.output).ok_or_else(|| "no acknowledgement".to_owned())
        }
        CheckResult::Failed(text) | CheckResult::NotRun(text) => Err(reason(text)),
        CheckResult::Stopped => Err(ENDED.to_owned()),
        _ => Err(TOO_LONG.to_owned()),
    };
    HookAttempt {
        result,
        processes: HookProcesses {
            leftovers: end.leftovers,
            survivors: end.survivors,
            proven: end.proven,
        },
    }
}

/// Returns how a command ended. Leaves out its output, which can be private.
fn reason(text: &str) -> String {
    let how = text.rsplit('\n').next().unwrap_or_default();
    how.trim_matches(['(', ')']).to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use agent_subprocess::Containment;

    use super::*;

    /// Returns a target whose tries end with these results in turn, and the times of the tries.
    fn target(results: &[Result<&str, &str>]) -> (HookTarget, Arc<Mutex<Vec<Instant>>>) {
        let tries = Arc::<Mutex<Vec<Instant>>>::default();
        let (times, results) = (Arc::clone(&tries), results.to_vec());
        let results: Vec<Result<String, String>> = { results.into_iter() }
            .map(|it| it.map(str::to_owned).map_err(str::to_owned))
            .collect();
        let function = move |_: HookInput| -> BoxFuture<'static, Result<String, String>> {
            let mut times = times.lock().unwrap();
            let result = results[times.len().min(results.len() - 1)].clone();
            times.push(Instant::now());
            match result == Err("never".to_owned()) {
                true => Box::pin(std::future::pending()),
                false => Box::pin(std::future::ready(result)),
            }
        };
        (HookTarget::Function(Arc::new(function)), tries)
    }

    fn queue(target: HookTarget) -> HookQueue {
        HookQueue::new(Hook::new("test", target, |_: &HookEvent<'_>| None))
    }

    fn push(queue: &mut HookQueue, event: &str) {
        let input = HookInput {
            event: event.into(),
            ..HookInput::default()
        };
        queue.push(ProcessContext::new("/", "/"), input);
    }

    async fn next(queue: &mut HookQueue) -> (String, u32, DeliveryResult) {
        let (_, end) = next_delivery(std::slice::from_mut(queue)).await;
        (end.event, end.tries, end.result)
    }

    fn delivered(text: &str) -> DeliveryResult {
        DeliveryResult::Delivered(text.into())
    }

    fn failed(text: &str) -> DeliveryResult {
        DeliveryResult::Failed(text.into())
    }

    #[tokio::test(start_paused = true)]
    async fn delivery_ends_with_its_acknowledgement_or_its_last_try() {
        let (two, times) = target(&[Err("a"), Err("b"), Ok("id 7")]);
        let mut queue = queue(two);
        push(&mut queue, "done");
        assert_eq!(
            next(&mut queue).await,
            ("done".into(), 3, delivered("id 7"))
        );
        let times = times.lock().unwrap().clone();
        assert_eq!(times[1] - times[0], RETRY_WAITS[0]);
        assert_eq!(times[2] - times[1], RETRY_WAITS[1]);

        let (never, times) = target(&[Err("no")]);
        let mut queue = super::tests::queue(never);
        push(&mut queue, "done");
        assert_eq!(next(&mut queue).await, ("done".into(), 5, failed("no")));
        assert_eq!(times.lock().unwrap().len(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn silent_try_ends_at_its_limit() {
        let (silent, times) = target(&[Err("never"), Ok("late")]);
        let mut queue = queue(silent);
        push(&mut queue, "done");
        assert_eq!(
            next(&mut queue).await,
            ("done".into(), 2, delivered("late"))
        );
        let times = times.lock().unwrap().clone();
        assert_eq!(times[1] - times[0], times::NOTIFY_CALL + RETRY_WAITS[0]);
    }

    #[tokio::test(start_paused = true)]
    async fn end_of_the_run_is_not_blocked_by_tries_of_earlier_events() {
        let (target, times) = target(&[Err("no")]);
        let mut queue = queue(target);
        push(&mut queue, "started");
        push(&mut queue, "iteration");
        tokio::task::yield_now().await;
        let begin = Instant::now();
        queue.end_retries();
        push(&mut queue, "done");
        assert_eq!(next(&mut queue).await, ("started".into(), 1, failed("no")));
        assert_eq!(
            next(&mut queue).await,
            ("iteration".into(), 1, failed("no"))
        );
        assert_eq!(begin.elapsed(), Duration::ZERO);
        assert_eq!(next(&mut queue).await, ("done".into(), 5, failed("no")));
        assert_eq!(times.lock().unwrap().len(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn deadline_ends_a_silent_try_and_a_wait() {
        let (silent, _) = target(&[Err("never")]);
        let mut queue = queue(silent);
        push(&mut queue, "done");
        tokio::task::yield_now().await;
        queue.halt();
        assert_eq!(next(&mut queue).await, ("done".into(), 1, failed(ENDED)));

        let (failing, _) = target(&[Err("no")]);
        let mut queue = super::tests::queue(failing);
        push(&mut queue, "done");
        tokio::task::yield_now().await;
        queue.halt();
        assert_eq!(next(&mut queue).await, ("done".into(), 1, failed("no")));
    }

    #[tokio::test(start_paused = true)]
    async fn full_queue_drops_and_counts_the_oldest_notifications() {
        let (target, _) = target(&[Ok("id 1")]);
        let mut queue = queue(target);
        for number in 0..=WAITING + 2 {
            push(&mut queue, &number.to_string());
        }
        assert_eq!(queue.take_dropped(), 2);
        assert_eq!(queue.take_dropped(), 0);
        let mut events = Vec::new();
        while queue.is_running() {
            events.push(next(&mut queue).await.0);
        }
        assert_eq!(events, ["0", "3", "4", "5", "6", "7", "8", "9", "10"]);
    }

    #[tokio::test]
    async fn program_is_acknowledged_by_its_output_only() {
        let dir = tempfile::tempdir().unwrap();
        let mut context = ProcessContext::new(dir.path(), dir.path().join("scratch"));
        context.containment = Containment::Group;
        let target = |script: &str| HookTarget::Program {
            words: ["sh", "-c", script, "sh"].map(str::to_owned).to_vec(),
            acknowledgement: |output| output.strip_prefix("id ").map(|it| it.trim().to_owned()),
        };
        let input = HookInput {
            arguments: vec!["7".into()],
            ..HookInput::default()
        };
        let send = async |script: &str| {
            deliver_once(&target(script), input.clone(), context.clone()).await
        };
        assert_eq!(send("echo id $1").await, Ok("7".into()));
        assert_eq!(send("echo $1").await, Err("no acknowledgement".into()));
        assert_eq!(
            send("echo secret; exit 3").await,
            Err("exit status 3".into())
        );
    }
}

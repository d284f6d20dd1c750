//! The changes of open pages, as server-sent events.
//!
//! There are two kinds. A part of a page is a state: its newest HTML replaces the older one, so a missed change does no harm. The records of a
//! transcript are a sequence: each message names the positions that it covers, and a page that sees a gap loads the missing records. So after any
//! reconnect each record is on the page once, in order.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use futures_core::Stream;
use maud::html;
use rlm_store::TranscriptWindow;
use rlm_store::deadline::sleep_until;
use rlm_store::transcript::path;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::{Instant, timeout};

use crate::app::App;
use crate::attempts::{attempt_after, current_attempt, saved_attempt};
use crate::login::Session;
use crate::pages::list::{Filter, ListRows};
use crate::pages::run::{RunTerms, Tab};
use crate::pages::{PageContext, Part, badge, inbox, run, transcript};
use crate::row::RunRow;
use crate::runs::{Runs, now};

/// The shortest time between two messages of a stream.
const INTERVAL: Duration = Duration::from_millis(30);
/// The longest time between two reads of the files: a transcript can grow although no event arrived.
const READ_INTERVAL: Duration = Duration::from_millis(500);
/// The bytes of records in one message.
const MAX_RECORDS: usize = 128 << 10;
/// The messages that wait for a slow browser.
const QUEUE: usize = 16;
/// The largest number of topics of one stream.
pub(crate) const MAX_TOPICS: usize = 32;
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// The time after which the browser connects again.
const RETRY: Duration = Duration::from_millis(300);
/// The time in which a browser must take a message. The stream of a slower one ends, so that nobody counts as present for it.
const SLOWEST: Duration = Duration::from_secs(30);

/// A page whose changes a stream has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    /// A page without live parts. Its stream shows that a person is present.
    Still,
    /// A view of a run that doesn't renew itself, and the version of the data that it shows.
    View {
        of: Tab,
        key: String,
        version: String,
    },
    List(Filter),
    Inbox,
    Run(String),
}

impl Topic {
    /// Parses the name that a page has for its changes.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name.split_once(':') {
            Some(("list", filter)) => {
                let query = format!("http://page/?{filter}").parse().ok()?;
                let filter = axum::extract::Query::<Filter>::try_from_uri(&query).ok()?;
                Some(Self::List(filter.0))
            }
            Some(("run", key)) => Some(Self::Run(key.to_owned())),
            Some((name, rest)) => {
                let (key, version) = rest.rsplit_once(':')?;
                Some(Self::View {
                    of: Tab::parse(name)?,
                    key: key.to_owned(),
                    version: version.to_owned(),
                })
            }
            None => match name {
                "inbox" => Some(Self::Inbox),
                "still" => Some(Self::Still),
                _ => None,
            },
        }
    }
}

/// A stream of server-sent events. Dropping it ends its task.
#[derive(Debug)]
struct Events {
    from: mpsc::Receiver<Event>,
    task: AbortHandle,
}

impl Drop for Events {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Stream for Events {
    type Item = Result<Event, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.from.poll_recv(cx).map(|event| event.map(Ok))
    }
}

/// Returns the response with the changes of these topics.
pub(crate) fn stream(
    app: Arc<App>,
    session: Session,
    context: PageContext,
    topics: Vec<(String, Topic)>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let (to, from) = mpsc::channel(QUEUE);
    let task = tokio::spawn(send_changes(app, session, context, topics, to));
    let events = Events {
        from,
        task: task.abort_handle(),
    };
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

async fn send_changes(
    app: Arc<App>,
    session: Session,
    context: PageContext,
    topics: Vec<(String, Topic)>,
    to: mpsc::Sender<Event>,
) {
    let runs = Arc::clone(&app.runs);
    let _open = runs.open_page(context.role);
    let (mut changes, mut events) = (runs.changes(), runs.events());
    let retry = Event::default().retry(RETRY).data("{\"topic\": null}");
    if to.send(retry).await.is_err() {
        return;
    }
    let mut sent = Sent {
        topics: topics.into_iter().map(TopicState::new).collect(),
        waiting: None,
        context,
    };
    loop {
        // Mark both as seen before the read, so that no change is missed.
        changes.borrow_and_update();
        events.borrow_and_update();
        let began = Instant::now();
        let reader = Arc::clone(&app);
        let Ok((after, messages)) = spawn_blocking(move || {
            let messages = sent.read_changes(&reader.runs);
            (sent, messages)
        })
        .await
        else {
            return;
        };
        sent = after;
        if !app.is_open(&session) {
            let _gone = to
                .send(Event::default().event("end").data("logged out"))
                .await;
            return;
        }
        let is_behind = messages.iter().any(is_full);
        for message in messages {
            // A slow browser gets the newest state later, and loads the missing records.
            let taken = to.send(Event::default().data(message.to_string()));
            if !matches!(timeout(SLOWEST, taken).await, Ok(Ok(()))) {
                return;
            }
        }
        if is_behind {
            continue;
        }
        tokio::select! {
            _ = changes.changed() => {}
            _ = events.changed() => {}
            () = sleep_until(began + READ_INTERVAL) => {}
        }
        sleep_until(began + INTERVAL).await;
    }
}

/// Returns whether a message has so many records that more are probably there.
fn is_full(message: &Value) -> bool {
    let position = |name: &str| message["records"][name].as_u64().unwrap_or(0);
    position("to") - position("from") > MAX_RECORDS as u64 / 2
}

/// The state of the pages as the browser has it.
struct Sent {
    topics: Vec<TopicState>,
    waiting: Option<usize>,
    context: PageContext,
}

struct TopicState {
    name: String,
    topic: Topic,
    parts: HashMap<String, String>,
    order: Option<Vec<String>>,
    /// The transcript of the current attempt, and the position up to which its records were sent.
    attempt: Option<((u32, u32), u64)>,
}

impl TopicState {
    fn new((name, topic): (String, Topic)) -> Self {
        Self {
            name,
            topic,
            parts: HashMap::new(),
            order: None,
            attempt: None,
        }
    }
}

impl Sent {
    /// Returns the messages that bring the browser up to date.
    fn read_changes(&mut self, runs: &Arc<Runs>) -> Vec<Value> {
        let rows = runs.rows();
        let waiting = runs.waiting();
        let mut messages = Vec::new();
        if self.waiting.replace(waiting) != Some(waiting) {
            messages.push(json!({"topic": null, "parts": {"waiting": badge(waiting).html}}));
        }
        for state in &mut self.topics {
            messages.extend(state.read_changes(runs, &rows, &self.context));
        }
        messages
    }
}

impl TopicState {
    fn read_changes(
        &mut self,
        runs: &Arc<Runs>,
        rows: &[Arc<RunRow>],
        context: &PageContext,
    ) -> Vec<Value> {
        let (parts, order) = match &self.topic {
            Topic::Still => (Vec::new(), None),
            Topic::View { of, key, version } => {
                let now = runs.row(key).map(|row| run::version(&row, *of));
                let is_newer = now.is_some_and(|now| now != *version);
                (vec![run::newer(key, *of, is_newer)], None)
            }
            Topic::List(filter) => {
                let rows = ListRows::new(rows.to_vec(), filter, now());
                (rows.parts(filter, &runs.problems()), Some(rows.order()))
            }
            Topic::Inbox => {
                let rows = inbox::select(rows.to_vec(), now());
                let terms = |row: &RunRow| terms(runs, row);
                let parts = inbox::parts(&rows, context, &terms);
                (parts, Some(inbox::order(&rows)))
            }
            Topic::Run(key) => match runs.row(key) {
                Some(row) => {
                    let terms = terms(runs, &row);
                    (run::parts(&row, context, &terms), None)
                }
                None => {
                    let gone =
                        html! { div id="run-head" { p class="warn" { "The run was removed." } } };
                    let empty = run::PART_IDS.iter().skip(1);
                    let empty = empty.map(|id| Part::new(*id, html! { div id=(id) {} }));
                    let gone = Part::new(run::PART_IDS[0], gone);
                    (std::iter::once(gone).chain(empty).collect(), None)
                }
            },
        };
        let mut messages = Vec::new();
        let changed: serde_json::Map<String, Value> = parts
            .iter()
            .filter(|part| self.parts.get(&part.id) != Some(&part.html))
            .map(|part| (part.id.clone(), part.html.clone().into()))
            .collect();
        let order = order.filter(|order| self.order.as_ref() != Some(order));
        if !changed.is_empty() || order.is_some() {
            messages.push(json!({"topic": self.name, "parts": changed, "order": order}));
        }
        self.order = order.or(self.order.take());
        self.parts = parts.into_iter().map(|it| (it.id, it.html)).collect();
        if let Topic::Run(key) = &self.topic
            && let Some(row) = runs.row(key)
        {
            messages.extend(self.records(runs, &row));
        }
        messages
    }

    /// Returns the new records of the run. The first message has none: it sends only the end of the transcript.
    fn records(&mut self, runs: &Runs, row: &RunRow) -> Option<Value> {
        let run_dir = runs.project(row)?.run_dir(&row.run);
        let file = |(iteration, attempt): (u32, u32)| path(&run_dir, iteration, attempt);
        let current = match saved_attempt(&run_dir, row) {
            Some(saved) => saved,
            None => match self.attempt {
                Some((known, _)) => known,
                None => current_attempt(&run_dir, row)?,
            },
        };
        let (attempt, position) = match self.attempt {
            Some(known) if known.0 == current => known,
            // The rest of the previous attempt comes first.
            Some((known, position)) => {
                let more = TranscriptWindow::after(&file(known), position, MAX_RECORDS).ok();
                if let Some(more) = more.filter(|more| more.to > position) {
                    return Some(self.message(known, &more));
                }
                // An attempt between both may have begun and ended meanwhile.
                let next = attempt_after(&run_dir, known).unwrap_or(current);
                let begins = TranscriptWindow::after(&file(next), 0, MAX_RECORDS).ok()?;
                return Some(self.message(next, &begins));
            }
            None => {
                let end = TranscriptWindow::before(&file(current), None, 1).ok()?;
                let end = TranscriptWindow {
                    from: end.to,
                    to: end.to,
                    records: Vec::new(),
                };
                return Some(self.message(current, &end));
            }
        };
        let more = TranscriptWindow::after(&file(attempt), position, MAX_RECORDS).ok()?;
        (more.to > position).then(|| self.message(attempt, &more))
    }

    fn message(&mut self, attempt: (u32, u32), window: &TranscriptWindow) -> Value {
        self.attempt = Some((attempt, window.to));
        json!({
            "topic": self.name,
            "records": {
                "attempt": run::attempt_name(attempt),
                "from": window.from,
                "to": window.to,
                "html": transcript::records(window),
            },
        })
    }
}

/// Returns the words of the command line for a run.
pub(crate) fn terms(runs: &Runs, row: &RunRow) -> RunTerms {
    let program = runs.program();
    RunTerms {
        program: program.command(runs.project(row).as_ref()),
        limits: program.limits(),
    }
}

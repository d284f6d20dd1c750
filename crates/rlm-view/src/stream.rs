//! The changes of open pages, as server-sent events.
//!
//! There are two kinds. A part of a page is a state: its newest HTML replaces the older one, so a missed change does no harm. The records of a
//! transcript are a sequence: each message names the positions that it covers, and a page that sees a gap loads the missing records. So after any
//! reconnect each record is on the page once, in order.

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use futures_core::Stream;
use maud::html;
use rlm_store::deadline::sleep_until;
use rlm_store::transcript::path;
use rlm_store::{TranscriptWindow, sorted_by_age, transcripts};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::Instant;

use crate::app::App;
use crate::login::Session;
use crate::pages::list::{Filter, ListRows};
use crate::pages::{PageContext, Part, badge, inbox, run, transcript};
use crate::row::RunRow;
use crate::runs::{Runs, now};

/// The shortest time between two messages of a stream.
const INTERVAL: Duration = Duration::from_millis(30);
/// The longest time without a look at the files: a transcript can grow although no event arrived.
const LOOK: Duration = Duration::from_millis(500);
/// The bytes of records in one message.
const MAX_RECORDS: usize = 128 << 10;
/// The messages that wait for a slow browser.
const QUEUE: usize = 16;
/// The largest number of topics of one stream.
pub(crate) const MAX_TOPICS: usize = 32;
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A page whose changes a stream has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
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
            _ => (name == "inbox").then_some(Self::Inbox),
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
    let mut sent = Sent {
        topics: topics.into_iter().map(TopicState::new).collect(),
        waiting: None,
        context,
    };
    loop {
        // Mark both as seen before the look, so that no change is missed.
        changes.borrow_and_update();
        events.borrow_and_update();
        let looked = Instant::now();
        let look = Arc::clone(&app);
        let Ok((after, messages)) = spawn_blocking(move || {
            let messages = sent.look(&look.runs);
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
            if to
                .send(Event::default().data(message.to_string()))
                .await
                .is_err()
            {
                return;
            }
        }
        if is_behind {
            continue;
        }
        tokio::select! {
            _ = changes.changed() => {}
            _ = events.changed() => {}
            () = sleep_until(looked + LOOK) => {}
        }
        sleep_until(looked + INTERVAL).await;
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
    fn look(&mut self, runs: &Arc<Runs>) -> Vec<Value> {
        let rows = runs.rows();
        let waiting = runs.waiting();
        let mut messages = Vec::new();
        if self.waiting.replace(waiting) != Some(waiting) {
            messages.push(json!({"topic": null, "parts": {"waiting": badge(waiting).html}}));
        }
        for state in &mut self.topics {
            messages.extend(state.look(runs, &rows, &self.context));
        }
        messages
    }
}

impl TopicState {
    fn look(
        &mut self,
        runs: &Arc<Runs>,
        rows: &[Arc<RunRow>],
        context: &PageContext,
    ) -> Vec<Value> {
        let (parts, order) = match &self.topic {
            Topic::List(filter) => {
                let rows = ListRows::new(rows.to_vec(), filter, now());
                (rows.parts(filter, &runs.problems()), Some(rows.order()))
            }
            Topic::Inbox => {
                let rows = inbox::select(rows.to_vec(), now());
                (inbox::parts(&rows, context), Some(inbox::order(&rows)))
            }
            Topic::Run(key) => match runs.row(key) {
                Some(row) => {
                    let command = command(runs, &row);
                    (run::parts(&row, context, &command), None)
                }
                None => {
                    let gone =
                        html! { div id="run-head" { p class="warn" { "The run was removed." } } };
                    (vec![Part::new("run-head", gone)], None)
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

    /// Returns the new records of the run. The first message of an attempt has none: it only tells the page where the transcript ends.
    fn records(&mut self, runs: &Runs, row: &RunRow) -> Option<Value> {
        let run_dir = runs.project(row)?.run_dir(&row.run);
        let file = |(iteration, attempt): (u32, u32)| path(&run_dir, iteration, attempt);
        let saved = (row.iteration, row.attempt);
        // Between two attempts, and after the last one, the saved state names none that has a transcript.
        let current = match (file(saved).exists(), self.attempt) {
            (true, _) => saved,
            (false, Some((known, _))) => known,
            (false, None) => newest_attempt(&run_dir)?,
        };
        let (attempt, position) = match self.attempt {
            Some(known) if known.0 == current => known,
            // The rest of the previous attempt comes first.
            Some((known, position)) => {
                let more = TranscriptWindow::after(&file(known), position, MAX_RECORDS).ok();
                if let Some(more) = more.filter(|more| more.to > position) {
                    return Some(self.message(known, &more));
                }
                let begins = TranscriptWindow::after(&file(current), 0, MAX_RECORDS).ok()?;
                return Some(self.message(current, &begins));
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
        let before = self.attempt.replace((attempt, window.to));
        let before = before.filter(|(before, _)| *before != attempt);
        json!({
            "topic": self.name,
            "records": {
                "attempt": run::attempt_name(attempt),
                "from": window.from,
                "to": window.to,
                "html": transcript::records(window),
                // The end of the previous attempt, whose records the page must have first.
                "after": before.map(|(attempt, to)| json!({"attempt": run::attempt_name(attempt), "to": to})),
            },
        })
    }
}

/// Returns the iteration and the attempt of the newest transcript.
fn newest_attempt(run_dir: &Path) -> Option<(u32, u32)> {
    let (iteration, attempt, _) = sorted_by_age(transcripts(run_dir).ok()?).pop()?;
    Some((iteration, attempt))
}

/// Returns how to call the program for the project of a run.
pub(crate) fn command(runs: &Runs, row: &RunRow) -> String {
    runs.program().command(runs.project(row).as_ref())
}

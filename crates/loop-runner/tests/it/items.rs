//! Items that a program saves in an iteration: another attempt continues where the last one stopped.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_drivers::AgentConfig;
use agent_duplex::{
    BoxFuture, Connection, Driver, EndReason, Event, Message, Observation, SessionChoice,
    StopReport,
};
use cancellable_sleep::SleepGate;
use loop_runner::{DriverFactory, ItemError, IterationItems, RunControl, Runner, RunnerOptions};
use loop_state::{RedoScope, Request, StopReason};
use rlm_store::{MAX_ITEMS, PhaseSettings, Project, PromptSource, Settings, WorkingTreeLock};
use serde_json::json;
use tokio::sync::{Notify, mpsc};

const DOCUMENTS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// An agent of the program itself: it reads one document after the other, and saves an item for each.
#[derive(Clone, Debug)]
struct Reader {
    items: IterationItems,
    /// The documents that were read, in order; `|` marks the beginning of a turn.
    log: Arc<Mutex<String>>,
    /// The document at which the first turn hangs, if any.
    hangs_at: Option<&'static str>,
    hangs: Arc<Notify>,
}

#[derive(Debug)]
struct ReaderConnection {
    reader: Reader,
    events: Vec<Observation>,
}

impl Driver for Reader {
    fn name(&self) -> &str {
        "reader"
    }

    fn connect(
        &self,
        _: SessionChoice,
    ) -> BoxFuture<'_, Result<Box<dyn Connection>, agent_duplex::Error>> {
        let connection = ReaderConnection {
            reader: self.clone(),
            events: Vec::new(),
        };
        Box::pin(async { Ok(Box::new(connection) as Box<dyn Connection>) })
    }
}

impl Connection for ReaderConnection {
    fn send(&mut self, _: Message) -> BoxFuture<'_, Result<(), agent_duplex::Error>> {
        Box::pin(async {
            let Reader {
                items,
                log,
                hangs_at,
                hangs,
            } = &self.reader;
            log.lock().unwrap().push('|');
            for document in DOCUMENTS {
                if items.all().contains_key(document) {
                    continue;
                }
                let is_first = log.lock().unwrap().matches('|').count() == 1;
                if is_first && *hangs_at == Some(document) {
                    hangs.notify_one();
                    std::future::pending::<()>().await;
                }
                log.lock().unwrap().push_str(document);
                items.save(document, json!({"words": 7})).await.unwrap();
            }
            self.events = vec![Event::TurnCompleted(EndReason::Completed.into()).into()];
            Ok(())
        })
    }

    fn next(&mut self) -> BoxFuture<'_, Option<Observation>> {
        match self.events.pop() {
            Some(event) => Box::pin(async { Some(event) }),
            None => Box::pin(std::future::pending()),
        }
    }

    fn stop(&mut self, _: Duration) -> BoxFuture<'_, StopReport> {
        Box::pin(async { StopReport::without_processes() })
    }
}

fn settings() -> Settings {
    let prompt = PromptSource::Text("Read the documents.".into());
    let agent = AgentConfig::command(vec!["never".into()]);
    let mut phase = PhaseSettings::new("main", prompt, agent);
    phase.limits.max_iterations = Some(2);
    let mut settings = Settings::new("/", vec![phase]);
    settings.limits.sleep = Duration::ZERO;
    settings
}

/// How a process begins to work on a run.
enum Begin {
    Create,
    Resume,
    /// Returns to an iteration.
    At(u32),
}

/// The run `r1` of a directory, with a reader as its agent.
struct ReaderRun {
    runner: Runner,
    control: mpsc::Sender<RunControl>,
    requests: mpsc::Receiver<RunControl>,
    reader: Reader,
}

impl ReaderRun {
    async fn new(
        directory: &Path,
        begin: Begin,
        hangs_at: Option<&'static str>,
        log: &Arc<Mutex<String>>,
    ) -> Self {
        let project = Project::find(directory).unwrap();
        let (run, gate) = ("r1".parse().unwrap(), SleepGate::new());
        let work_tree = WorkingTreeLock::take(&project, &run, &gate).await.unwrap();
        let mut options = RunnerOptions::new(gate);
        if let Begin::At(iteration) = begin {
            options.from_iteration = Some(iteration);
        }
        let begun = match begin {
            Begin::Create => Runner::create(work_tree, settings(), options).await,
            Begin::Resume | Begin::At(_) => Runner::open(work_tree, options).await,
        };
        let (runner, _events) = begun.unwrap();
        let (control, requests) = mpsc::channel(8);
        let reader = Reader {
            items: runner.items(&control),
            log: Arc::clone(log),
            hangs_at,
            hangs: Arc::default(),
        };
        Self {
            runner,
            control,
            requests,
            reader,
        }
    }

    fn start(self) -> tokio::task::JoinHandle<Result<loop_runner::RunOutcome, loop_runner::Error>> {
        let reader = self.reader;
        let factory: DriverFactory =
            Box::new(move |_, _| Ok(Box::new(reader.clone()) as Box<dyn Driver>));
        tokio::spawn(self.runner.run(factory, self.requests))
    }
}

#[tokio::test]
async fn k7c_killed_program_continues_with_the_unread_documents() {
    let (dir, log) = (tempfile::tempdir().unwrap(), Arc::default());
    let run = ReaderRun::new(dir.path(), Begin::Create, Some("d"), &log).await;
    let hangs = Arc::clone(&run.reader.hangs);
    let running = run.start();
    hangs.notified().await;
    // Dropping the future of a run leaves its state as a crash does.
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    assert_eq!(*log.lock().unwrap(), "|abc");

    let run = ReaderRun::new(dir.path(), Begin::Resume, None, &log).await;
    let saved: Vec<String> = run.reader.items.all().keys().cloned().collect();
    assert_eq!(saved, ["a", "b", "c"]);
    let outcome = run.start().await.unwrap().unwrap();
    assert_eq!(outcome.reason, StopReason::AllIterationsRan);
    // The resumed attempt read the other two. The next iteration began without items.
    assert_eq!(*log.lock().unwrap(), "|abc|de|abcde");
}

#[tokio::test]
async fn k7d_iteration_that_a_person_runs_again_has_no_items() {
    let (dir, log) = (tempfile::tempdir().unwrap(), Arc::default());
    let run = ReaderRun::new(dir.path(), Begin::Create, Some("c"), &log).await;
    let (hangs, control) = (Arc::clone(&run.reader.hangs), run.control.clone());
    let running = run.start();
    hangs.notified().await;
    let again = Request::Redo {
        what: RedoScope::Iteration,
    };
    control.send(again.into()).await.unwrap();
    running.await.unwrap().unwrap();
    assert_eq!(*log.lock().unwrap(), "|ab|abcde|abcde");
}

#[tokio::test]
async fn return_to_an_iteration_has_no_items() {
    let (dir, log) = (tempfile::tempdir().unwrap(), Arc::default());
    let run = ReaderRun::new(dir.path(), Begin::Create, Some("c"), &log).await;
    let hangs = Arc::clone(&run.reader.hangs);
    let running = run.start();
    hangs.notified().await;
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());

    let run = ReaderRun::new(dir.path(), Begin::At(1), None, &log).await;
    assert!(run.reader.items.all().is_empty());
    run.start().await.unwrap().unwrap();
    assert_eq!(*log.lock().unwrap(), "|ab|abcde|abcde");
}

#[tokio::test]
async fn item_that_can_not_be_saved_is_an_error_and_nothing_is_lost() {
    let (dir, log) = (tempfile::tempdir().unwrap(), Arc::default());
    let run = ReaderRun::new(dir.path(), Begin::Create, Some("b"), &log).await;
    let (hangs, items) = (Arc::clone(&run.reader.hangs), run.reader.items.clone());
    let running = run.start();
    hangs.notified().await;
    for (key, value, refused) in [
        (String::new(), json!(1), ItemError::Key),
        ("k".repeat(201), json!(1), ItemError::Key),
        (
            "large".into(),
            json!("x".repeat(MAX_ITEMS)),
            ItemError::Full,
        ),
    ] {
        assert_eq!(items.save(key, value).await, Err(refused));
    }
    // The same key replaces its item, so a value of more than half of the limit fits twice.
    for _ in 0..2 {
        let value = json!("x".repeat(MAX_ITEMS * 2 / 3));
        assert_eq!(items.save("large", value).await, Ok(()));
    }
    let keys: Vec<String> = items.all().keys().cloned().collect();
    assert_eq!(keys, ["a", "large"]);
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    let late = items.save("late", json!(1)).await;
    assert_eq!(late, Err(ItemError::Ended));
}

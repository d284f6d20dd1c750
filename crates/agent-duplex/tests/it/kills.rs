//! A conversation whose process is killed again and again.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "the helpers of these tests are tests too, and print results for their parents"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use agent_duplex::{
    BoxFuture, Capabilities, Capability, Connection, Conversation, ConversationOptions, Driver,
    EndReason, Error, Event, Input, Message, Observation, PersistedRecord, Persistence,
    ProcessName, QueuedMessages, RecoveredConversation, SessionChoice, SqlitePersistence,
    StopReport, StopStage,
};
use tempfile::TempDir;

use crate::disks::words;

const FILE: &str = "AGENT_DUPLEX_TEST_TALKS";
const ROUND: &str = "AGENT_DUPLEX_TEST_ROUND";
/// The records that a child acknowledges before they are stored.
const EARLY: &str = "AGENT_DUPLEX_TEST_EARLY";
/// The number of kills.
const KILLS: u64 = 50;

/// An agent that answers each message in a separate turn, and prints the messages that it got.
#[derive(Debug, Clone, Copy)]
struct Echo {
    steered: bool,
}

#[derive(Debug, Default)]
struct Answering {
    said: Vec<Observation>,
    /// The number of yields before it reports something.
    slow: u32,
}

impl Driver for Echo {
    fn name(&self) -> &str {
        "echo"
    }

    fn capabilities(&self) -> Capabilities {
        let can = Capabilities::none().with(Capability::Resume);
        if self.steered {
            can.with(Capability::Steer)
        } else {
            can
        }
    }

    fn connect(&self, session: SessionChoice) -> BoxFuture<'_, Result<Box<dyn Connection>, Error>> {
        let id = match session {
            SessionChoice::Resume(id) => id,
            _ => "session".into(),
        };
        let said = vec![Event::Session { id }.into()];
        Box::pin(async { Ok(Box::new(Answering { said, slow: 0 }) as Box<dyn Connection>) })
    }
}

impl Connection for Answering {
    fn send(&mut self, message: Message) -> BoxFuture<'_, Result<(), Error>> {
        println!("handed {}", message.text.replace("\n\n", " "));
        let turn = [
            Event::TurnStarted {
                inputs: vec![message.id],
            },
            Event::Message {
                text: message.text,
                partial: false,
            },
            Event::TurnCompleted(EndReason::Completed.into()),
        ];
        // `next` takes from the end, so the last one is reported first.
        let turn = turn.into_iter().map(Observation::from).rev();
        self.said.splice(0..0, turn);
        self.slow = 20;
        Box::pin(async { Ok(()) })
    }

    fn next(&mut self) -> BoxFuture<'_, Option<Observation>> {
        Box::pin(async {
            while self.slow > 0 {
                self.slow -= 1;
                tokio::task::yield_now().await;
            }
            match self.said.pop() {
                Some(said) => Some(said),
                None => std::future::pending().await,
            }
        })
    }

    fn interrupt(&mut self, _: QueuedMessages) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn leftovers(&mut self) -> BoxFuture<'_, Vec<ProcessName>> {
        Box::pin(async { Vec::new() })
    }

    fn stop(&mut self, _: Duration) -> BoxFuture<'_, StopReport> {
        Box::pin(async {
            StopReport {
                stage: StopStage::Terminate,
                ended: Vec::new(),
                survivors: Vec::new(),
                proven: true,
            }
        })
    }
}

/// The records that are acknowledged before they are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Early {
    None,
    All,
    Handed,
}

/// A store with a deliberate fault: it acknowledges records, and stores some of them only after more of them have arrived.
#[derive(Debug)]
struct UnsafeStore {
    kept: SqlitePersistence,
    early: Early,
    later: Vec<PersistedRecord>,
}

impl Persistence for UnsafeStore {
    fn recover(&mut self) -> Result<RecoveredConversation, Error> {
        self.kept.recover()
    }

    fn append(&mut self, records: &[PersistedRecord]) -> Result<(), Error> {
        let now = |record: &PersistedRecord| match self.early {
            Early::None => true,
            Early::All => false,
            Early::Handed => matches!(record, PersistedRecord::Accepted { .. }),
        };
        let (mut due, later) = records.iter().cloned().partition::<Vec<_>, _>(now);
        self.later.extend(later);
        if self.later.len() > 16 {
            due.append(&mut self.later);
        }
        self.kept.append(&due)
    }
}

#[test]
#[ignore = "a child process: `round` in kills.rs runs this binary with `kills::a_child_talks --exact --ignored`"]
fn a_child_talks() {
    let (Some(file), Ok(round)) = (env::var_os(FILE), env::var(ROUND)) else {
        return;
    };
    // End a line that the test harness has started.
    println!();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime
        .unwrap()
        .block_on(talk(&PathBuf::from(file), round.parse().unwrap()));
}

/// Continues the conversation; in the last round, until no input waits any more.
async fn talk(file: &Path, round: u64) {
    let kept = SqlitePersistence::open(file, "talk").unwrap();
    let early = match env::var(EARLY).as_deref() {
        Ok("All") => Early::All,
        Ok("Handed") => Early::Handed,
        _ => Early::None,
    };
    let later = Vec::new();
    let persistence = Box::new(UnsafeStore { kept, early, later });
    let driver = Echo {
        steered: round % 2 == 1,
    };
    let options = ConversationOptions::default().with_manual_start();
    let opened = Conversation::open_with_primary(Box::new(driver), options, persistence).await;
    let (conversation, mut primary, recovered) = opened.unwrap();
    for cut in recovered.interrupted {
        println!("interrupted {}", cut.turn);
        for (_, input) in cut.inputs {
            println!("cut {}", input.id);
        }
    }
    for (_, input) in recovered.pending {
        println!("pending {}", input.id);
    }
    let session = recovered
        .session
        .map_or(SessionChoice::Fresh, SessionChoice::Resume);
    conversation.start(session).await.unwrap();
    let reader = tokio::spawn(async move { while primary.next().await.is_some() {} });
    if round > KILLS {
        while !conversation.pending().is_empty()
            || conversation.lifecycle() != agent_duplex::Lifecycle::Ready
        {
            tokio::task::yield_now().await;
        }
        conversation.stop(Duration::ZERO).await;
        reader.await.unwrap();
        return;
    }
    let talkers = (0..3).map(|talker| {
        let conversation = conversation.clone();
        tokio::spawn(async move {
            for number in 0..10_000 {
                say(&conversation, format!("{round}.{talker}.{number}")).await;
            }
        })
    });
    for talker in talkers.collect::<Vec<_>>() {
        talker.await.unwrap();
    }
}

async fn say(conversation: &Conversation, id: String) {
    let mut input = Input::new(id.clone());
    input.id.clone_from(&id);
    let receipt = loop {
        match conversation.accept(input.clone()).await {
            Ok(receipt) => break receipt,
            Err(e) if e.is_full() => tokio::task::yield_now().await,
            Err(e) => panic!("{e}"),
        }
    };
    assert!(receipt.durable && !receipt.duplicate);
    println!("accepted {id}");
    let again = conversation.accept(input).await.unwrap();
    assert!(again.duplicate && again.id == receipt.id);
}

/// The output of the children of all rounds.
#[derive(Default)]
struct Said {
    accepted: BTreeSet<String>,
    handed: Vec<String>,
    interrupted: Vec<String>,
    cut: Vec<String>,
}

impl Said {
    fn note(&mut self, line: &str) {
        match line.split_once(' ') {
            Some(("accepted", id)) => {
                self.accepted.insert(id.into());
            }
            Some(("handed", ids)) => self.handed.extend(ids.split(' ').map(str::to_owned)),
            Some(("interrupted", turn)) => self.interrupted.push(turn.into()),
            Some(("cut", id)) => self.cut.push(id.into()),
            _ => {}
        }
    }
}

/// Runs a child. Kills the child a little later than the acceptance of its input number `after`; without `after`, lets the child run to its end.
fn round(file: &Path, round: u64, early: Early, after: Option<(usize, Duration)>, said: &mut Said) {
    let words = words("kills::a_child_talks");
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .env(FILE, file)
        .env(ROUND, round.to_string())
        .env(EARLY, format!("{early:?}"));
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let before = said.accepted.len();
    let mut killed = false;
    for line in lines {
        // The last line can be incomplete.
        let Ok(line) = line else { break };
        said.note(&line);
        if let Some((accepted, later)) = after
            && !killed
            && said.accepted.len() >= before + accepted
        {
            let until = Instant::now() + later;
            while let Some(left) = until.checked_duration_since(Instant::now()) {
                thread::park_timeout(left);
            }
            child.kill().unwrap();
            killed = true;
        }
    }
    let status = child.wait().unwrap();
    assert!(killed || status.success(), "round {round}: {status}");
}

fn xorshift(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// Returns the state of each input in the file: one entry for each row, with the reason of its turn.
fn kept(file: &Path) -> BTreeMap<String, Vec<Option<String>>> {
    let kept = rusqlite::Connection::open(file).unwrap();
    let mut rows = kept
        .prepare(
            "SELECT input_id, reason FROM input LEFT JOIN turn
             ON turn.conversation = input.conversation AND turn.number = input.turn",
        )
        .unwrap();
    let mut kept: BTreeMap<String, Vec<Option<String>>> = BTreeMap::new();
    let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    for row in rows.unwrap() {
        let (id, reason) = row.unwrap();
        kept.entry(id).or_default().push(reason);
    }
    kept
}

/// Kills the process of a conversation again and again, and returns the faults at the end.
fn killed(kills: u64, early: Early) -> Vec<String> {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("talks");
    let mut said = Said::default();
    let mut seed = 0x9e37_79b9_7f4a_7c15;
    for number in 0..kills {
        let after = usize::try_from(xorshift(&mut seed) % 12).unwrap();
        let later = Duration::from_micros(xorshift(&mut seed) % 4000);
        round(&file, number, early, Some((after, later)), &mut said);
    }
    round(&file, KILLS + 1, Early::None, None, &mut said);
    let kept = kept(&file);
    let mut wrong = Vec::new();
    for id in &said.accepted {
        match kept.get(id).map(Vec::as_slice) {
            Some([reason]) => {
                let handed = said.handed.iter().filter(|handed| *handed == id).count();
                let settled = match reason.as_deref() {
                    Some("completed") => handed == 1,
                    Some("interrupted") => handed <= 1,
                    _ => false,
                };
                if !settled {
                    wrong.push(format!("{id} was delivered {handed} times: {reason:?}"));
                }
            }
            rows => wrong.push(format!("{id} was accepted and is stored as {rows:?}")),
        }
    }
    for id in &said.cut {
        let reasons = kept.get(id).map(Vec::as_slice);
        if reasons != Some(&[Some("interrupted".into())]) {
            wrong.push(format!(
                "{id} was reported as interrupted, but is stored as {reasons:?}"
            ));
        }
    }
    let (handed, interrupted) = (&said.handed, &said.interrupted);
    for (what, all) in [
        ("delivered", handed),
        ("interrupted", interrupted),
        ("reported as interrupted", &said.cut),
    ] {
        let mut once = BTreeSet::new();
        let twice = all.iter().filter(|one| !once.insert(*one));
        wrong.extend(twice.map(|one| format!("{one} was {what} twice")));
    }
    assert!(said.accepted.len() as u64 > kills && !said.handed.is_empty());
    if early == Early::None {
        assert!(!said.interrupted.is_empty(), "no turn was ever interrupted");
        assert!(
            said.cut.len() >= said.interrupted.len(),
            "an interrupted turn had no input"
        );
    }
    wrong
}

#[test]
fn l85b_l100a_kill_neither_loses_nor_repeats_accepted_inputs() {
    assert_eq!(killed(KILLS, Early::None), Vec::<String>::new());
}

/// The control experiment: an acknowledgement before the commit is detected.
#[test]
fn l85b_control_an_early_acknowledgement_loses_accepted_inputs() {
    assert_ne!(killed(10, Early::All), Vec::<String>::new());
}

/// The control experiment: a message that is delivered before its record is stored is delivered twice.
#[test]
fn l85b_control_unrecorded_delivery_is_repeated() {
    let wrong = killed(10, Early::Handed);
    assert!(
        wrong
            .iter()
            .any(|wrong| wrong.ends_with("was delivered twice"))
    );
}

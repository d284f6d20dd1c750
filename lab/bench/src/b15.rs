//! B15: the cost of our own agent for each call of a model, the end of an interrupted turn, the memory of a long session, and the bytes of its saves.

mod client;
mod server;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::harness::{
    Bench, Child, Contender, Outcome, Plan, Progress, Result, Role, Series, Turn, find, in_turn,
    in_turn_beside, paired_ratio,
};
use crate::programs::{resident_kib, written};
use server::Server;

pub(crate) const BENCH: Bench = Bench {
    id: "b15",
    title: "our own agent",
    run,
    measured: Some(client::play),
};

const ID: &str = "b15";
const FLOOR: &str = "bare hyper client";
const MEMORY: &str = "agent, session in memory";
const DISK: &str = "agent, session on disk";
const CALL: &str = "response to next request";
const BYTES: &str = "bytes written for each call";
/// A file system in memory, where a sync costs nothing.
const IN_MEMORY: &str = "/dev/shm";
/// A context window that no session of the bench fills, in tokens.
const LARGE: u64 = 100_000_000;
/// The context window of the long session, in tokens.
const SMALL: u64 = 32_000;
const STOP: Duration = Duration::from_secs(8);
/// Longer than an interrupt takes.
const LIMIT: Duration = Duration::from_secs(60);
/// The bytes of a result before the calls are measured, and while they are.
const RESULT: usize = 4_000;
const SMALL_RESULT: usize = 47;
/// The calls of a turn with a session of its own.
const CALLS_OF_TURN: usize = 10;

/// The length of the first measured request.
type Size = (usize, &'static str);
const SIZES: [Size; 3] = [(10_000, "10 KB"), (100_000, "100 KB"), (400_000, "400 KB")];

fn run(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    calls(plan, outcome)?;
    interrupts(plan, outcome)?;
    memory(plan, outcome)
}

/// A client in a process of its own, and its server.
struct Client {
    child: Child,
    server: Server,
}

impl Client {
    /// Starts the client `kind`. `rest` are its arguments after the address of its server.
    fn start(kind: &str, rest: &[&str]) -> Result<Self> {
        let server = Server::start()?;
        let address = server.address()?.to_string();
        let arguments = [&[ID, kind, &address], rest].concat();
        let child = Child::start(&arguments)?;
        Ok(Self { child, server })
    }

    /// Starts an agent that waits for the answer to its first request, in a turn without end.
    fn agent(kind: &str, dir: &Path, window: u64) -> Result<Self> {
        let mut client = Self::start(kind, &[text(dir)?, &window.to_string()])?;
        client.server.receive()?;
        Ok(client)
    }

    /// Answers with calls until the request has `size` bytes.
    fn grow(&mut self, size: usize) -> Result<()> {
        while self.server.body().len() + RESULT < size {
            self.server.call_nothing(RESULT)?;
            self.server.receive()?;
        }
        Ok(())
    }

    /// Answers with a call. Returns the milliseconds to the next request, and the bytes that the agent wrote to files.
    fn call(&mut self) -> Result<(Option<f64>, Option<f64>)> {
        let before = self.saved();
        let answered = self.server.call_nothing(SMALL_RESULT)?;
        let took = self.server.receive()?.duration_since(answered);
        let bytes = before.zip(self.saved());
        Ok((
            Some(took.as_secs_f64() * 1e3),
            bytes.map(|(before, after)| after - before),
        ))
    }

    /// Returns the bytes that the agent has written so far, without its requests, if the system counts them.
    fn saved(&self) -> Option<f64> {
        Some(written(self.child.id())? - self.server.received as f64)
    }
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| "the path is no text".into())
}

/// Measures the time from the last byte of a response to the first byte of the next request, with histories of several sizes.
fn calls(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    let sizes = &SIZES[..plan.scale.pick(3, 3, 1)];
    let rounds = plan.scale.pick(200, 40, 3);
    let memory = match tempfile::Builder::new()
        .prefix("b15-")
        .tempdir_in(IN_MEMORY)
    {
        Ok(memory) => Some(memory),
        Err(why) => {
            outcome.skip(MEMORY, &why);
            None
        }
    };
    let mut bytes = Vec::new();
    for &(size, label) in sizes {
        let progress = Progress::of(format!("b15 {label}"));
        let mut clients: Vec<(&str, Role, RefCell<Client>)> = Vec::new();
        let mut start = |name, role, root: &Path| -> Result<()> {
            let mut client = Client::agent("turn", &root.join(label), LARGE)?;
            client.grow(size)?;
            clients.push((name, role, RefCell::new(client)));
            Ok(())
        };
        start(DISK, Role::Ours, &plan.scratch.join(ID))?;
        if let Some(memory) = &memory {
            start(MEMORY, Role::Ours, memory.path())?;
        }
        let mut bare = Client::start("bare", &[&size.to_string()])?;
        bare.server.receive()?;
        clients.push((FLOOR, Role::Floor, RefCell::new(bare)));
        let turns = clients.iter().map(|(name, role, client)| {
            Turn::beside(name, *role, move |_| client.borrow_mut().call())
        });
        let (times, written) = in_turn_beside(0..rounds, turns.collect(), &progress)?;
        for (name, _, client) in &clients {
            let connections = client.borrow().server.connections;
            if connections > 1 {
                outcome
                    .notes
                    .push(format!("{name}, {label}: {connections} connections"));
            }
        }
        let series = Series::new(CALL, "ms", times).sized(size as f64, label);
        outcome
            .at_most(
                &format!("{CALL}, {MEMORY}, {label}"),
                series.median(MEMORY),
                1.0,
                "ms",
            )
            .about(series.title(), MEMORY);
        outcome.series.push(series);
        let ours = written.into_iter().filter(|it| it.name == DISK).collect();
        bytes.push(Series::new(BYTES, "bytes", ours).sized(size as f64, label));
    }
    if let [(_, least), .., (_, most)] = sizes {
        let samples = |label| Some(&find(&bytes, BYTES, label)?.get(DISK)?.samples);
        let grown = samples(most).zip(samples(least));
        let grown = grown.and_then(|(most, least)| paired_ratio(most, least));
        outcome
            .at_most(&format!("{BYTES}, {most} over {least}"), grown, 1.1, "×")
            .about(format!("{BYTES}, {most}"), DISK);
    }
    outcome.series.extend(bytes);
    outcome.notes.push(format!(
        "each response is a call of a tool that does nothing; the agent makes three saves between two requests: the answer, the intent, the result; \
         {MEMORY}: the same, in {IN_MEMORY}; each round adds to the history"
    ));
    Ok(())
}

/// Measures the time from an interrupt to the end of its turn.
fn interrupts(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    let rounds = plan.scale.pick(200, 40, 2);
    let dir = |name: &str| -> Result<PathBuf> {
        let dir = plan.scratch.join(ID).join(name);
        fs_err::create_dir_all(&dir)?;
        Ok(dir)
    };
    let text_dir = dir("text")?;
    let mut writing = Client::start("text", &[text(&text_dir)?])?;
    let tool_dir = dir("tool")?;
    let fifo = tool_dir.join("started");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0)?;
    let mut running = Client::start("tool", &[text(&tool_dir)?, text(&fifo)?])?;
    let command = format!("echo > '{}'; exec sleep 1000", fifo.display());
    let command = serde_json::json!({"command": command, "timeout_seconds": 3600});
    let turns = vec![
        Turn::new("in a text", Role::Ours, |_| {
            writing.server.receive()?;
            writing.server.begin_text()?;
            let [took] = writing.child.read_figures(LIMIT)?;
            Ok(Some(took / 1e3))
        }),
        Turn::new("in a tool", Role::Ours, |_| {
            running.server.receive()?;
            running.server.call("bash", &command)?;
            let [took] = running.child.read_figures(LIMIT)?;
            Ok(Some(took / 1e3))
        }),
    ];
    let progress = Progress::of("b15 interrupts");
    let times = in_turn(0..rounds, turns, &progress)?;
    let series = Series::new("interrupt to the turn's end", "ms", times);
    for name in ["in a text", "in a tool"] {
        outcome
            .at_most(
                &format!("interrupt {name}"),
                series.median(name),
                10.0,
                "ms",
            )
            .about(series.title(), name);
    }
    outcome.series.push(series);
    outcome.notes.push(
        "an interrupt includes the save of the partial text or of the call's result; the tool is a `sleep` of bash under its guard".into(),
    );
    Ok(())
}

/// Measures the resident memory over many calls, in one session and in a new session for each turn.
fn memory(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    // After 3,000 calls, the conversation keeps as many events as it ever does: 8 MiB of them, or 10,000.
    let [first, last] = plan.scale.pick([3_000, 10_000], [3_000, 4_000], [10, 30]);
    let labels = plan.scale.pick(
        ["after 3,000 calls", "after 10,000 calls"],
        ["after 3,000 calls", "after 4,000 calls"],
        ["after 10 calls", "after 30 calls"],
    );
    let dir = plan.scratch.join(ID);
    let progress = Progress::of("b15 memory");
    for (quantity, kind, window) in [
        (
            "resident memory, one session that is compacted",
            "turn",
            SMALL,
        ),
        ("resident memory, a session for each turn", "turns", LARGE),
    ] {
        let mut client = Client::agent(kind, &dir.join(kind), window)?;
        let mut seen = Vec::new();
        let mut summaries = 0;
        let mut longest = 0;
        let begun = Instant::now();
        for call in 1..=last {
            progress.show(|| format!("{kind} {call}/{last}"));
            let server = &mut client.server;
            longest = longest.max(server.body().len());
            // The request for a summary has no tools.
            let is_summary = !server.body().windows(8).any(|it| it == b"\"tools\":");
            match kind {
                _ if is_summary => {
                    summaries += 1;
                    server.text("A summary of the work so far.")?
                }
                "turns" if call % CALLS_OF_TURN == 0 => server.text("done")?,
                _ => server.call_nothing(RESULT)?,
            };
            server.receive()?;
            if call == first || call == last {
                let kib = resident_kib(client.child.id()).ok_or("the system reports no memory")?;
                seen.push(kib / 1024.0);
            }
        }
        let took = begun.elapsed().as_secs_f64();
        let [early, late] = seen[..] else {
            return Err("the memory was not measured twice".into());
        };
        let contenders = labels.into_iter().zip([early, late]);
        let contenders = contenders.map(|(label, mib)| Contender::single(label, Role::Ours, mib));
        let series = Series::new(quantity, "MiB", contenders.collect());
        outcome
            .at_most(
                &format!("{quantity}, {} over {}", labels[1], labels[0]),
                Some(late / early),
                1.1,
                "×",
            )
            .about(series.title(), labels[1]);
        outcome.series.push(series);
        outcome.notes.push(format!(
            "{quantity}: {last} calls in {took:.0} s, {summaries} summaries, requests of at most {} KB",
            longest / 1000
        ));
    }
    Ok(())
}

//! B7: how fast the output of an agent is read from its pipe, split into lines, parsed into typed events, and passed to many readers.

mod expected;
mod floor;
mod ours;
mod view;

use expected::Expected;
pub(crate) use ours::claude;

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use crate::agent_lines::AgentLines;
use crate::harness::{
    Bench, Child, Outcome, Plan, Progress, Result, Role, Series, Turn, find, in_turn_beside,
};
use crate::programs::peak_kib;

pub(crate) const BENCH: Bench = Bench {
    id: "b7",
    title: "an agent's lines to typed events",
    run,
    measured: Some(measured),
};

const RAW: &str = "raw read";
const AGENT: &str = "Agent, lines";
const TYPED: &str = "serde_json, typed";
const DRIVER: &str = "claude driver";
const ONE: &str = "conversation, 1 subscriber";
const BROADCAST: &str = "serde_json + broadcast, 99 receivers";
const MANY: &str = "conversation, 100 subscribers, 1 stalled";

/// Name, role, and the argument of the measured process.
type Way = (&'static str, Role, &'static str);
const FRAMING: [Way; 3] = [
    (RAW, Role::Floor, "raw"),
    ("Lines", Role::Ours, "lines"),
    (AGENT, Role::Ours, "agent"),
];
const EVENTS: [Way; 4] = [
    (TYPED, Role::Floor, "typed"),
    ("serde_json, Value", Role::Peer, "value"),
    (DRIVER, Role::Ours, "driver"),
    (ONE, Role::Ours, "one"),
];
const READERS: [Way; 2] = [
    (BROADCAST, Role::Floor, "broadcast"),
    (MANY, Role::Ours, "many"),
];
/// The quantities, each with its contenders and the contenders whose memory the report shows.
const SERIES: [(&str, &[Way], &[&str]); 3] = [
    ("framing", &FRAMING, &[AGENT]),
    ("typed events", &EVENTS, &[DRIVER, ONE]),
    ("events to 100 readers", &READERS, &[MANY]),
];
const LIMIT: Duration = Duration::from_secs(600);

fn run(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    // The larger size is ten times the smaller one, with the same lines repeated.
    let (block, times) = plan
        .scale
        .pick((25_000_000, 4), (6_400_000, 1), (60_000, 1));
    let labels = plan
        .scale
        .pick(["100 MB", "1 GB"], ["6.4 MB", "64 MB"], ["60 KB", "600 KB"]);
    let rounds: [usize; 2] = plan.scale.pick([5, 3], [5, 3], [1, 1]);
    let lines = AgentLines::pinned(block);
    let file = plan.scratch.join("agent-lines");
    fs_err::write(&file, &lines.bytes)?;
    outcome.notes.push(format!(
        "{} lines and {} turns in {:.1} MB, which a child writes again and again; each measurement has its own process",
        lines.lines,
        lines.turns,
        lines.bytes.len() as f64 / 1e6
    ));
    let sizes = [(times, labels[0]), (times * 10, labels[1])];
    for (quantity, ways, watched) in SERIES {
        for ((times, label), rounds) in sizes.into_iter().zip(rounds) {
            let work = Work {
                file: &file,
                lines: &lines,
                times,
            };
            // A hundred readers take a hundred times as long.
            let rounds = if quantity == "events to 100 readers" {
                rounds.div_ceil(3)
            } else {
                rounds
            };
            let progress = Progress::of(format!("b7 {quantity}, {label}"));
            let lost = RefCell::new(Vec::new());
            let turns = ways.iter().map(|(name, role, what)| {
                let (work, lost) = (&work, &lost);
                Turn::beside(name, *role, move |_| {
                    let figures = work.measure(what)?;
                    if figures.dropped > 0.0 {
                        lost.borrow_mut().push(format!(
                            "{name}, {label}: {} readers were dropped",
                            figures.dropped
                        ));
                    }
                    Ok((Some(figures.rate), Some(figures.peak_mib)))
                })
                .within(LIMIT)
            });
            let size = times as f64 * lines.bytes.len() as f64;
            let (rates, mut memory) = in_turn_beside(0..rounds, turns.collect(), &progress)?;
            memory.retain(|contender| watched.contains(&contender.name));
            outcome.series.extend([
                Series::new(quantity, "MB/s", rates).sized(size, label),
                Series::new(peak(quantity), "MiB", memory).sized(size, label),
            ]);
            outcome.notes.append(&mut lost.borrow_mut());
        }
    }
    judge(outcome, labels);
    view::run(plan, &file, outcome)
}

/// Returns the name of the memory series of a quantity.
fn peak(quantity: &str) -> &'static str {
    match quantity {
        "framing" => "peak memory, framing",
        "typed events" => "peak memory, typed events",
        _ => "peak memory, 100 readers",
    }
}

fn judge(outcome: &mut Outcome, [tenth, whole]: [&str; 2]) {
    let series = outcome.series.clone();
    for (quantity, name, floor, limit) in [
        ("framing", AGENT, RAW, 0.75),
        ("typed events", DRIVER, TYPED, 1.0),
        ("typed events", ONE, TYPED, 0.85),
        ("events to 100 readers", MANY, BROADCAST, 0.6),
    ] {
        let over = find(&series, quantity, whole).and_then(|series| series.paired(name, floor));
        let what = format!("{name}, {whole}");
        outcome
            .at_least(&what, over, limit, "× floor")
            .about(format!("{quantity}, {whole}"), name);
    }
    for (quantity, _, watched) in SERIES {
        for name in watched {
            let at = |label| find(&series, peak(quantity), label)?.median(name);
            let grown = at(whole).zip(at(tenth)).map(|(whole, tenth)| whole / tenth);
            outcome
                .at_most(
                    &format!("peak memory, {name}, {whole} over {tenth}"),
                    grown,
                    1.1,
                    "×",
                )
                .about(format!("{}, {whole}", peak(quantity)), name);
        }
    }
}

struct Work<'a> {
    file: &'a Path,
    lines: &'a AgentLines,
    times: usize,
}

struct Figures {
    rate: f64,
    peak_mib: f64,
    dropped: f64,
}

impl Work<'_> {
    /// Lets a separate process read everything.
    fn measure(&self, what: &str) -> Result<Figures> {
        let file = self.file.to_str().ok_or("a path that is not text")?;
        let [times, bytes, lines, turns] = [
            self.times,
            self.times * self.lines.bytes.len(),
            self.times * self.lines.lines,
            self.times * self.lines.turns,
        ]
        .map(|number| number.to_string());
        let mut child = Child::start(&["b7", what, file, &times, &bytes, &lines, &turns])?;
        let [seconds, peak_kib, dropped] = child.read_figures(LIMIT)?;
        Ok(Figures {
            rate: self.times as f64 * self.lines.bytes.len() as f64 / 1e6 / seconds,
            peak_mib: peak_kib / 1024.0,
            dropped,
        })
    }
}

fn measured(arguments: &[&str]) -> Result<()> {
    let [what, file, times, bytes, lines, turns] = arguments else {
        return Err("contender, file and four numbers are expected".into());
    };
    let expected = Expected {
        file: (*file).to_owned(),
        times: (*times).to_owned(),
        bytes: bytes.parse()?,
        lines: lines.parse()?,
        turns: turns.parse()?,
    };
    let read = match *what {
        "raw" => floor::raw(&expected)?,
        "lines" => floor::lines(&expected)?,
        "typed" => floor::typed(&expected)?,
        "value" => floor::value(&expected)?,
        "broadcast" => floor::broadcast(&expected)?,
        "agent" => ours::agent(&expected)?,
        "driver" => ours::driver(&expected)?,
        "one" => ours::conversation(&expected, 1)?,
        "many" => ours::conversation(&expected, 100)?,
        _ => return Err("there is no such contender".into()),
    };
    if read.lines != expected.lines {
        return Err(format!("{} of {} lines were read", read.lines, expected.lines).into());
    }
    println!(
        "{} {} {}",
        read.took.as_secs_f64(),
        peak_kib(std::process::id()).unwrap_or_default(),
        read.dropped
    );
    Ok(())
}

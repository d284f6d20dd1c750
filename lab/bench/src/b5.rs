//! B5: the time and the size of a save, for a transcript that grows by 4 KB with each save.

use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use tempfile::TempDir;

use crate::harness::{
    Bench, Contender, Outcome, Plan, Progress, Result, Role, Sample, Series, Turn, find, in_turn,
    join, paired_ratio,
};
use crate::keep::{APPEND, JSON_GZIP, Keeper, LANGGRAPH, OURS, OVERWRITE, Ours, ROWS, WHOLE, Way};
use crate::programs::{expect_success, written};
use crate::transcript::{DELTA, Delta, Transcript};

pub(crate) const BENCH: Bench = Bench {
    id: "b5",
    title: "save of a transcript, 4 KB each",
    run,
    measured: None,
};

/// Bytes of text in the transcript before the first save.
type Size = (usize, &'static str);
const SIZES: [Size; 4] = [
    (10_000, "10 KB"),
    (1_000_000, "1 MB"),
    (10_000_000, "10 MB"),
    (100_000_000, "100 MB"),
];
/// The ways whose costs are proportional to the change.
const SMALL: [Way; 4] = [OURS, APPEND, OVERWRITE, ROWS];
/// The ways whose costs are proportional to the state, with ours and a floor to compare. They run separately, because they keep the disk busy.
const LARGE: [Way; 5] = [OURS, WHOLE, JSON_GZIP, LANGGRAPH, APPEND];

fn run(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    let sizes = &SIZES[..plan.scale.pick(4, 2, 1)];

    let rounds = plan.scale.pick(200, 40, 3);
    outcome.notes.push(format!(
        "the saves enlarge the state: the state of 10 KB grows to {} KB",
        10 + rounds * DELTA / 1000
    ));
    // Each round contains all sizes, so that the noise of the disk affects all of them.
    let mut rows = Vec::new();
    for size in sizes {
        rows.extend(begin(plan, &SMALL, *size, rounds, outcome)?);
    }
    let quantities = ["save", "bytes per save", "disk use after the saves"];
    let progress = Progress::of("b5 changes");
    let small = measure(rows, rounds, Duration::from_secs(60), quantities, &progress)?;
    judge_small(&small, sizes, outcome);
    outcome.series.extend(small);

    // After this many saves, the room that a journal reserves ahead is as small a share of the bytes as in a long run.
    let rounds = plan.scale.pick(2000, 700, 3);
    let size = plan.scale.pick(SIZES[1], SIZES[1], SIZES[0]);
    let rows = begin(plan, &SMALL, size, rounds, outcome)?;
    let quantities = [
        "save, long run",
        "bytes per save, long run",
        "disk use after a long run",
    ];
    let progress = Progress::of("b5 long run");
    let long = measure(rows, rounds, Duration::from_secs(60), quantities, &progress)?;
    let bytes = find(&long, "bytes per save, long run", size.1)
        .and_then(|bytes| bytes.ratio(OURS.name, ROWS.name, |summary| summary.median));
    outcome
        .at_most("bytes per save, long run", bytes, 0.2, "× SQLite's")
        .about(format!("bytes per save, long run, {}", size.1), OURS.name);
    outcome.series.extend(long);

    let rounds = plan.scale.pick(30, 5, 2);
    let budget = plan.scale.pick(10, 3, 1);
    for size in sizes {
        let rows = begin(plan, &LARGE, *size, rounds, outcome)?;
        let quantities = [
            "save, with peers that write the whole state",
            "bytes per save, with peers that write the whole state",
            "disk use, with peers that write the whole state",
        ];
        let progress = Progress::of(format!("b5 whole states of {}", size.1));
        let budget = Duration::from_secs(budget);
        let large = measure(rows, rounds, budget, quantities, &progress)?;
        if let ([save, bytes, _], "1 MB") = (large.as_slice(), size.1) {
            let sooner = save.ratio(LANGGRAPH.name, OURS.name, |summary| summary.median);
            outcome
                .at_least("LangGraph's time, 1 MB", sooner, 10.0, "× ours")
                .about(save.title(), OURS.name);
            let fewer = bytes.ratio(LANGGRAPH.name, OURS.name, |summary| summary.median);
            outcome
                .at_least("LangGraph's bytes, 1 MB", fewer, 100.0, "× ours")
                .about(bytes.title(), OURS.name);
        }
        outcome.series.extend(large);
    }
    compare_finished_phase(plan, outcome)?;
    outcome.notes.extend([
        "bytes are those passed to `write`".into(),
        format!(
            "{} does not sync, so a power cut can lose its saves",
            JSON_GZIP.name
        ),
    ]);
    Ok(())
}

fn judge_small(small: &[Series], sizes: &[Size], outcome: &mut Outcome) {
    for (_, label) in sizes {
        let save = find(small, "save", label);
        let p10 = |over: &str| save?.ratio(OURS.name, over, |summary| summary.p10);
        outcome
            .at_most(
                &format!("save p10, {label}"),
                p10(APPEND.name),
                1.5,
                "× floor",
            )
            .about(format!("save, {label}"), OURS.name);
        if let Some(ratio) = p10(OVERWRITE.name) {
            outcome.notes.push(format!(
                "save p10, {label}: {ratio:.2} × the preallocated floor"
            ));
        }
    }
    let samples = |label| Some(&find(small, "save", label)?.get(OURS.name)?.samples);
    if let [(_, least), .., (_, most)] = sizes {
        let grown = samples(most)
            .zip(samples(least))
            .and_then(|(most, least)| paired_ratio(most, least));
        outcome
            .at_most(
                &format!("save, {most} over {least}, pairs"),
                grown,
                1.3,
                "×",
            )
            .about(format!("save, {most}"), OURS.name);
    }
}

/// One way to save, with a transcript of one size.
struct Row {
    way: &'static str,
    role: Role,
    size: Size,
    dir: TempDir,
    keeper: Box<dyn Keeper>,
    deltas: Rc<[Delta]>,
    /// The bytes that each save passed to `write`, if the system counts them.
    bytes: Vec<f64>,
}

/// Prepares each way with a state of `size`; skips the peers that fail.
fn begin(
    plan: &Plan,
    ways: &[Way],
    size: Size,
    rounds: usize,
    outcome: &mut Outcome,
) -> Result<Vec<Row>> {
    let mut transcript = Transcript::pinned();
    let base = transcript.deltas(size.0, DELTA);
    let deltas: Rc<[Delta]> = transcript.deltas(rounds * DELTA, DELTA).into();
    let mut rows = Vec::new();
    for way in ways {
        let dir = tempfile::tempdir_in(&plan.scratch)?;
        match (way.begin)(dir.path(), &base) {
            Ok(keeper) => rows.push(Row {
                way: way.name,
                role: way.role,
                size,
                dir,
                keeper,
                deltas: deltas.clone(),
                bytes: Vec::new(),
            }),
            Err(error) if way.role == Role::Peer => outcome.skip(way.name, &error),
            Err(error) => return Err(format!("{}: {error}", way.name).into()),
        }
    }
    Ok(rows)
}

/// Lets each row save in each round. `save`, `bytes` and `disk` are the names of the three series.
fn measure(
    mut rows: Vec<Row>,
    rounds: usize,
    budget: Duration,
    [save, bytes, disk]: [&'static str; 3],
    progress: &Progress,
) -> Result<Vec<Series>> {
    let turns = rows
        .iter_mut()
        .map(|row| Turn::new(row.way, row.role, |round| row.save(round)).within(budget));
    let times = in_turn(0..rounds, turns.collect(), progress)?;
    let mut series: Vec<Series> = Vec::new();
    for (row, times) in rows.into_iter().zip(times) {
        let mean = row.bytes.iter().sum::<f64>() / row.bytes.len() as f64;
        let one = |value: f64| {
            let samples = value.is_finite().then_some(Sample { round: 0, value });
            Contender::of(row.way, row.role, samples.into_iter().collect())
        };
        let used = one(disk_use(row.dir.path())? / 1e6);
        for (quantity, unit, contender) in [
            (save, "ms", times),
            (bytes, "KB", one(mean / 1e3)),
            (disk, "MB", used),
        ] {
            let (size, label) = row.size;
            let later = Series::new(quantity, unit, vec![contender]).sized(size as f64, label);
            join(&mut series, later);
        }
    }
    Ok(series)
}

impl Row {
    fn save(&mut self, round: usize) -> Result<Option<f64>> {
        let before = written(self.keeper.process());
        let took = self.keeper.save(&self.deltas[round])?;
        let after = written(self.keeper.process());
        self.bytes
            .extend(before.zip(after).map(|(before, after)| after - before));
        Ok(Some(took.as_secs_f64() * 1e3))
    }
}

/// Compares the file of the finished phase with `gzip -6` of the same transcript (item C69 of `tests/acceptance.md`).
fn compare_finished_phase(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    let (size, label) = plan.scale.pick(SIZES[2], SIZES[2], SIZES[0]);
    let base = Transcript::pinned().deltas(size, DELTA);
    let dir = tempfile::tempdir_in(&plan.scratch)?;
    let mut ours = Ours::begin(dir.path(), &base)?;
    let last = base.last().ok_or("the transcript is empty")?;
    let sealed = fs_err::metadata(ours.save_phase(&last.head)?)?.len() as f64;
    drop(ours);
    let mut contenders = vec![Contender::single(
        "finished phase",
        Role::Ours,
        sealed / 1e6,
    )];

    let events: Vec<_> = base.iter().flat_map(|delta| &delta.events).collect();
    let [cbor, json] = ["state.cbor", "state.json"].map(|name| dir.path().join(name));
    ciborium::into_writer(&(&last.head, &events), fs_err::File::create(&cbor)?)?;
    serde_json::to_writer(fs_err::File::create(&json)?, &(&last.head, &events))?;
    for (name, file) in [
        ("gzip -6 of its CBOR", &cbor),
        ("gzip -6 of its JSON", &json),
    ] {
        match gzip(file) {
            Ok(bytes) => contenders.push(Contender::single(name, Role::Peer, bytes / 1e6)),
            Err(error) => outcome.skip(name, &error),
        }
    }
    let series = Series::new("transcript as a phase", "MB", contenders).sized(size as f64, label);
    let ratio = series.ratio("finished phase", "gzip -6 of its CBOR", |summary| {
        summary.median
    });
    outcome
        .at_most(
            &format!("transcript as a phase, {label}"),
            ratio,
            1.0,
            "× gzip -6",
        )
        .about(series.title(), "finished phase");
    outcome.series.push(series);
    Ok(())
}

/// Returns the size of `gzip -6` of a file in bytes.
fn gzip(file: &Path) -> Result<f64> {
    let ended = Command::new("gzip")
        .args(["-6", "-c"])
        .stdin(fs_err::File::open(file)?.into_file())
        .output()?;
    expect_success(&ended)?;
    Ok(ended.stdout.len() as f64)
}

fn disk_use(dir: &Path) -> Result<f64> {
    use std::os::unix::fs::MetadataExt;

    let mut bytes = 0.0;
    for entry in fs_err::read_dir(dir)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() {
            disk_use(&entry.path())?
        } else {
            entry.metadata()?.blocks() as f64 * 512.0
        };
    }
    Ok(bytes)
}

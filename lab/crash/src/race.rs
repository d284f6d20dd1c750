//! D0, two writers: the first writer loses its lock because the lock's file was removed, a second writer takes the store over, and the first one
//! wakes up in the middle. Every pair of moments is tried: the first pauses before call i of its save, the second before call j of its opening.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::mpsc::channel;

use checkpoint_store::{Error, Options, PhaseMeta, Writer, reader};

use crate::disk::ROOT;
use crate::outcome::{Level, Outcome};
use crate::reference::{CheckResult, Event, Head, State, broken, text};
use crate::session::{DIR, Session, catching_panics};
use crate::sim_disk::Shared;
use crate::step::Workload;
use crate::{mistake, parallel, workloads};

/// The action of the first writer during which it pauses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Save {
    Append,
    Phase,
    Undo,
}

const SAVES: [(Save, &str); 3] = [
    (Save::Append, "append"),
    (Save::Phase, "phase"),
    (Save::Undo, "undo"),
];

/// One history: the steps before, the action of the first writer, and the moments at which both pause.
#[derive(Debug, Clone)]
pub struct Case {
    before: Workload,
    save: Save,
    first: u64,
    second: u64,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, name) = SAVES[self.save as usize];
        write!(f, "{}@{name}@{}@{}", self.before, self.first, self.second)
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not a case of two writers");
        let parts: Vec<&str> = text.split('@').collect();
        let [before, save, first, second] = parts[..] else {
            return Err(bad());
        };
        Ok(Self {
            before: before.parse()?,
            save: SAVES
                .iter()
                .find(|(_, name)| *name == save)
                .ok_or_else(bad)?
                .0,
            first: first.parse().map_err(|_| bad())?,
            second: second.parse().map_err(|_| bad())?,
        })
    }
}

/// Runs the layer.
pub fn run(level: Level) -> Outcome {
    let mut workloads = workloads::race();
    workloads.truncate(level.of([2, 4, 10, 10]));
    explore(&workloads)
}

/// Tries all pairs of moments after each workload.
pub fn explore(workloads: &[Workload]) -> Outcome {
    let mut outcome = Outcome::default();
    for (one, note) in parallel::map(workloads, one, |(_, note)| note.is_some()) {
        outcome += one;
        if outcome.notes.is_empty() {
            outcome.notes.extend(note);
        }
    }
    outcome
}

fn one(before: &Workload) -> (Outcome, Option<String>) {
    let mut outcome = Outcome::default();
    for (save, _) in SAVES {
        let mut first = 0;
        // A moment after the last call makes no writer pause. This ends the loops.
        loop {
            let (mut second, mut reached_first) = (0, false);
            loop {
                let case = Case {
                    before: before.clone(),
                    save,
                    first,
                    second,
                };
                outcome.tried += 1;
                match catching_panics(|| replay(&case)) {
                    Err(broken) => {
                        outcome.lost += 1;
                        let note = format!(
                            "{}: {}\n  again: cargo xtask crash-test --case race={case}",
                            broken.invariant, broken.what
                        );
                        return (outcome, Some(note));
                    }
                    Ok(reached) => {
                        outcome.acked += 1;
                        reached_first |= reached.0;
                        if !reached.1 {
                            break;
                        }
                    }
                }
                second += 1;
            }
            if !reached_first {
                break;
            }
            first += 1;
        }
    }
    (outcome, None)
}

type Taken = Result<(Writer<Head, Event>, State), Error>;

/// Runs one case; returns whether the first and the second writer reached their moments.
///
/// # Errors
/// If it breaks a promise.
pub fn replay(case: &Case) -> CheckResult<(bool, bool)> {
    let mut session = Session::new(&case.before);
    session.run(&case.before.steps)?;
    let Some((mut writer, reference)) = session.take_writer()? else {
        return broken('-', "the workload ends without a writer");
    };
    let shared = session.shared.clone();
    let (old, tried) = (
        reference.acked().clone(),
        attempt(reference.acked(), case.save),
    );
    // The second writer runs in its own thread, so that each writer can pause in a call.
    let (go, start) = channel::<()>();
    let (pause, paused) = channel::<()>();
    let (resume, resumed) = channel::<()>();
    let second = {
        let (shared, at, sabotage) = (shared.clone(), case.second, mistake::now());
        move || -> (CheckResult<Taken>, bool) {
            mistake::set(sabotage);
            // The first writer may end without a pause; its sender is then dropped.
            start.recv().ok();
            let base = shared.pc().calls().len() as u64;
            let here = pause.clone();
            shared.before(base + at, move || {
                here.send(()).ok();
                resumed.recv().ok();
            });
            let taken = catching_panics(|| take_over(&shared));
            let stood_still = shared.pc().hook.take().is_none();
            pause.send(()).ok();
            (taken, stood_still)
        }
    };
    let (saved, reached_first, taken, reached_second) = std::thread::scope(|scope| {
        let second = scope.spawn(second);
        let base = shared.pc().calls().len() as u64;
        let (begin, reached) = (go.clone(), channel::<()>());
        shared.before(base + case.first, move || {
            reached.0.send(()).ok();
            begin.send(()).ok();
            paused.recv().ok();
        });
        let saved = catching_panics(|| Ok(save(&mut writer, case.save)));
        shared.pc().hook.take_if(|hook| hook.0 == base + case.first);
        let reached_first = reached.1.try_recv().is_ok();
        drop(go);
        drop(resume);
        let (taken, reached_second) = second.join().expect("the thread catches its panics");
        (saved, reached_first, taken, reached_second)
    });
    judge(&shared, writer, &[old, tried], saved?, taken?)?;
    Ok((reached_first, reached_second))
}

fn judge(
    shared: &Shared,
    mut first: Writer<Head, Event>,
    [old, tried]: &[State; 2],
    saved: Result<(), Error>,
    taken: Taken,
) -> CheckResult {
    let (mut second, loaded) = match taken {
        Ok(taken) => taken,
        Err(err) => return broken('L', format!("the second writer cannot open: {err}")),
    };
    if loaded != *old && loaded != *tried {
        return broken('A', format!("the second writer loads {loaded:?}"));
    }
    match saved {
        Ok(()) if loaded != *tried => {
            return broken(
                'F',
                "the first writer acknowledged a save that the second did not load",
            );
        }
        Err(err) if !err.is_fenced() && !err.is_locked() => {
            return broken(
                'F',
                format!("the first writer does not report that it was taken over: {err}"),
            );
        }
        _ => {}
    }
    if first.append(&(7, text(7, 9)), &[]).is_ok() {
        return broken('F', "the first writer continues to save");
    }
    let mut last = loaded.clone();
    for number in [9_000, 9_010] {
        let head = (number, text(number, 9));
        if let Err(err) = second.append(&head, std::slice::from_ref(&head)) {
            return broken('F', format!("the second writer cannot save: {err}"));
        }
        last.head = Some(number);
        last.events.push(number);
    }
    if first
        .save_phase("p", &(7, text(7, 9)), PhaseMeta::default())
        .is_ok()
    {
        return broken('F', "the first writer continues to save phases");
    }
    match reader::load_on::<Head, Event>(shared.directory(DIR), Path::new(DIR)) {
        Ok(found) if State::loaded(&found)? == last => Ok(()),
        Ok(found) => broken(
            'F',
            format!(
                "{last:?} was acknowledged, but {:?} is loaded",
                State::loaded(&found)?
            ),
        ),
        Err(err) => broken('L', err.to_string()),
    }
}

/// Returns the state after the first writer's save.
fn attempt(old: &State, save: Save) -> State {
    let mut state = old.clone();
    match save {
        Save::Append => {
            state.head = Some(8_000);
            state.events.push(8_001);
        }
        Save::Phase => state.head = Some(8_000),
        Save::Undo => {}
    }
    state
}

fn save(writer: &mut Writer<Head, Event>, save: Save) -> Result<(), Error> {
    let head = (8_000, text(8_000, 9));
    match save {
        Save::Append => writer.append(&head, &[(8_001, text(8_001, 30))]).map(drop),
        Save::Phase => writer
            .save_phase("p", &head, PhaseMeta::default())
            .map(drop),
        Save::Undo => writer.truncate_to(writer.seq()).map(drop),
    }
}

/// Opens a second writer while the first one is live: the lock's file is removed.
fn take_over(shared: &Shared) -> CheckResult<Taken> {
    let mut pc = shared.pc();
    if let Some(dir) = pc.disk.lookup(ROOT, DIR) {
        // The lock file may already be gone.
        drop(pc.disk.unlink(dir, "LOCK"));
    }
    drop(pc);
    match Writer::open_on(
        shared.make_directory(DIR),
        Path::new(DIR),
        Options::default(),
    ) {
        Ok((writer, loaded)) => Ok(Ok((writer, State::loaded(&loaded)?))),
        Err(err) => Ok(Err(err)),
    }
}

//! Many live runs: each stand-in has the locks of five and answers on their sockets, so that a thousand runs take two hundred processes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use cancellable_sleep::SleepGate;
use rlm_store::index::IndexEntry;
use rlm_store::journal::Journal;
use rlm_store::{Project, RunId, WorkingTreeLock};

use super::place::{Place, copy_all};
use crate::harness::{
    Child, MEASURED, Outcome, Plan, Process, Progress, Result, Role, Series, Turn, end_with_parent,
    in_turn, one_thread, park, pause,
};
use crate::programs::timed;
use crate::sys::spawn_and_wait;

const PS: &str = "rlm ps --all";
const TRUE: &str = "posix_spawn of `true`";
const SOCKET: &str = "control.sock";
/// The number of runs of one stand-in. `rlm ps` looks at all open files of the process of each run. With five runs, a stand-in has 46 open files; the
/// process of a real run has 35.
const EACH: usize = 5;
const LIMIT: Duration = Duration::from_secs(120);

pub(super) fn ps(place: &Place, plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    let (count, label) = plan.scale.pick((1000, "1,000"), (100, "100"), (3, "3"));
    let progress = Progress::of(format!("b18 {label} live runs"));
    progress.show(|| "making them".into());
    // The stand-in repeats the answer of this run.
    let (_run, _input, _output) =
        Process::piped(place.rlm(&["run", "-n", "1", "--prompt", "x", "--", "sleep", "1000"]))?;
    let template = until_live(place)?;
    let mut stand_ins = Vec::new();
    for first in (0..count).step_by(EACH) {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args([MEASURED, "b18"])
            .args([&place.work(), &template])
            .args([first, count.min(first + EACH)].map(|number| number.to_string()))
            .env_remove("XDG_STATE_HOME")
            .env("HOME", place.dir.join("home"));
        stand_ins.push(Child::spawn(command)?);
    }
    for stand_in in &mut stand_ins {
        stand_in.read_line(LIMIT)?;
    }
    let listed = place
        .rlm(&["ps", "--all", "--json"])
        .stdout(std::process::Stdio::piped())
        .output()?;
    let lines = listed.stdout.split(|byte| *byte == b'\n');
    let listed_runs = lines.filter(|line| !line.is_empty()).count();
    if listed_runs != count + 1 {
        return Err(format!("`rlm ps` lists {listed_runs} of {} runs", count + 1).into());
    }
    let turns = vec![
        Turn::new(PS, Role::Ours, |_| {
            Ok(Some(
                timed(&mut place.rlm(&["ps", "--all"]))?.as_secs_f64() * 1e3,
            ))
        }),
        Turn::new(TRUE, Role::Floor, |_| {
            let begun = std::time::Instant::now();
            spawn_and_wait(&["/bin/true"])?;
            Ok(Some(begun.elapsed().as_secs_f64() * 1e3))
        }),
    ];
    let rounds = plan.scale.pick(20, 5, 1);
    let found = in_turn(0..rounds, turns, &progress)?;
    let series = Series::new("a list of live runs", "ms", found).sized(count as f64, label);
    let median = series.median(PS);
    outcome
        .at_most(&format!("{PS}, {label} live runs"), median, 100.0, "ms")
        .about(series.title(), PS);
    outcome.series.push(series);
    Ok(())
}

/// Waits until the run of this place answers, and returns its directory.
fn until_live(place: &Place) -> Result<std::path::PathBuf> {
    for _ in 0..1000 {
        if let Ok(run) = place.run_dir()
            && UnixStream::connect(run.join(SOCKET)).is_ok()
        {
            return Ok(run);
        }
        pause(Duration::from_millis(10));
    }
    Err("the run does not answer".into())
}

/// Is the stand-in: it makes copies of a run in projects of their own, and holds them, until its input ends.
pub(super) fn measured(arguments: &[&str]) -> Result<()> {
    let [work, template, first, end] = arguments else {
        return Err("a directory, a run and two numbers are expected".into());
    };
    end_with_parent();
    let template = Path::new(template);
    let name = template.file_name().and_then(|name| name.to_str());
    let run: RunId = name.ok_or("a run without a name")?.parse()?;
    let runtime = one_thread()?;
    let gate = SleepGate::new();
    let mut held = Vec::new();
    for number in first.parse::<usize>()?..end.parse()? {
        let project = Path::new(work).join(format!("../live-{number}"));
        fs_err::create_dir_all(&project)?;
        let project = Project::find(&fs_err::canonicalize(&project)?)?;
        let lock = runtime.block_on(WorkingTreeLock::take(&project, &run, &gate))?;
        let run_dir = project.run_dir(&run);
        copy_all(template, &run_dir)?;
        let (journal, _) = Journal::open(&project, &run, false)?;
        let socket = UnixListener::bind(run_dir.join(SOCKET))?;
        let place = IndexEntry::of(&project, &run);
        let template: Arc<Path> = template.join(SOCKET).into();
        std::thread::Builder::new()
            .stack_size(64 << 10)
            .spawn(move || answer(&socket, &template))?;
        held.push((lock, journal, place));
    }
    println!("ready");
    park()
}

/// Answers each client as the run at `template` answers.
fn answer(socket: &UnixListener, template: &Path) {
    let mut answer = Vec::new();
    for client in socket.incoming().flatten() {
        // A client that leaves is no failure of the stand-in.
        let _left = exchange(client, template, &mut answer);
    }
}

fn exchange(client: UnixStream, template: &Path, answer: &mut Vec<u8>) -> std::io::Result<()> {
    let mut query = Vec::new();
    BufReader::new(&client).read_until(b'\n', &mut query)?;
    if answer.is_empty() {
        let mut run = UnixStream::connect(template)?;
        run.write_all(&query)?;
        run.read_to_end(answer)?;
    }
    (&client).write_all(answer)
}

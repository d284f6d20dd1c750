//! B10 in a git repository: the cost of an iteration with `--commit`, compared with a shell loop that also commits.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::b10::{each, saves, syncs};
use crate::harness::{Bench, Outcome, Plan, Progress, Result, Role, Series, Turn, in_turn};
use crate::programs::{command_in, is_in_path, make_place, rlm_or_skip, timed};

pub(crate) const BENCH: Bench = Bench {
    id: "b10-git",
    title: "a loop that commits",
    run,
    measured: None,
};

const OURS: &str = "rlm run --commit";
const FLOOR: &str = "bash, git add, git commit, syncs of our saves";
/// The first ratio that was measured was 2.47 ×; the ratio may grow by a fifth.
const LIMIT: f64 = 2.96;
const QUANTITY: &str = "one iteration with a commit";
/// Changes one file. Its name is relative to the working tree, which is the working directory.
const AGENT: &str = "echo x >> changed.txt";

fn run(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    let Some(rlm) = rlm_or_skip(OURS, outcome) else {
        return Ok(());
    };
    if !is_in_path("git") {
        outcome.skip(OURS, &"git is not in the path");
        return Ok(());
    }
    let (count, label) = plan.scale.pick((100, "100"), (20, "20"), (2, "2"));
    let rounds = plan.scale.pick(7, 2, 1);
    let mut saved = 0.0;
    let turns = vec![
        Turn::new(OURS, Role::Ours, |round| {
            let dir = plan.scratch.join(format!("b10-git-{round}"));
            let (took, saves) = ours(&rlm, &dir, count)?;
            saved = saves;
            Ok(Some(took))
        })
        .within(Duration::from_secs(600)),
        Turn::new(FLOOR, Role::Floor, |round| {
            let dir = plan.scratch.join(format!("b10-git-floor-{round}"));
            Ok(Some(floor(&dir, count)? + syncs(&plan.scratch, count)?))
        }),
    ];
    let found = in_turn(0..rounds, turns, &Progress::of("b10-git"))?;
    let series = Series::new(QUANTITY, "ms", found).sized(count as f64, label);
    let ratio = series.paired(OURS, FLOOR);
    let title = series.title();
    outcome.series.push(series);
    outcome
        .at_most(&format!("{OURS} over {FLOOR}"), ratio, LIMIT, "×")
        .about(title, OURS);
    outcome.notes.push(format!(
        "{saved:.1} saves per iteration, each synced; the agent is `{AGENT}`"
    ));
    Ok(())
}

/// Makes a repository with one commit, and returns a command that runs in it.
fn repository(dir: &Path, program: &Path) -> Result<Command> {
    make_place(dir)?;
    let (home, work) = (dir.join("home"), dir.join("work"));
    let text = "[user]\nname = bench\nemail = bench@localhost\n[init]\ndefaultBranch = main\n";
    fs_err::write(home.join(".gitconfig"), text)?;
    fs_err::write(work.join("changed.txt"), "x\n")?;
    let first: [&[&str]; 3] = [
        &["init", "--quiet"],
        &["add", "."],
        &["commit", "--quiet", "-m", "first"],
    ];
    for arguments in first {
        timed(command_in(dir, "git".as_ref()).args(arguments))?;
    }
    Ok(command_in(dir, program))
}

/// Runs our loop. Returns the milliseconds and the saves for each iteration.
fn ours(rlm: &Path, dir: &Path, count: usize) -> Result<(f64, f64)> {
    let mut command = repository(dir, rlm)?;
    command
        .args(["run", "--sleep", "0", "--prompt", "x", "--commit", "-n"])
        .arg(count.to_string())
        .args(["--", "/bin/sh", "-c", AGENT]);
    let took = timed(&mut command)?;
    let work = dir.join("work");
    expect_commits(&work, count)?;
    let saves = saves(&work).unwrap_or_default() / count as f64;
    fs_err::remove_dir_all(dir)?;
    Ok((each(took, count), saves))
}

/// Runs a minimal loop in bash. Returns the milliseconds for each iteration.
fn floor(dir: &Path, count: usize) -> Result<f64> {
    let mut command = repository(dir, "bash".as_ref())?;
    let body = format!("echo x | /bin/sh -c '{AGENT}'; git add --all; git commit --quiet -m $i");
    let text = format!("i=0; while [ $i -lt {count} ]; do {body} || exit; i=$((i + 1)); done");
    let took = timed(command.args(["-c", &text]))?;
    expect_commits(&dir.join("work"), count)?;
    fs_err::remove_dir_all(dir)?;
    Ok(each(took, count))
}

/// Fails unless each iteration has made its commit.
fn expect_commits(work: &Path, count: usize) -> Result<()> {
    let mut list = Command::new("git");
    let list = list.args(["rev-list", "--count", "HEAD"]).current_dir(work);
    let listed = String::from_utf8(list.output()?.stdout)?;
    let made = listed.trim();
    match made.parse() == Ok(count + 1) {
        true => Ok(()),
        false => Err(format!("{made} commits instead of {}", count + 1).into()),
    }
}

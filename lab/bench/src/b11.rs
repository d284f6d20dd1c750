//! B11: the time from the start of `rlm --version` to its exit, and from the start of `rlm run` to the first byte that its agent reads.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::harness::{Bench, Outcome, Plan, Progress, Result, Role, Series, Turn, in_turn, now};
use crate::programs::{command_in, make_place, rlm_or_skip, timed};
use crate::scripted_agent;
use crate::sys::spawn_and_wait;

pub(crate) const BENCH: Bench = Bench {
    id: "b11",
    title: "start",
    run,
    measured: None,
};

const VERSION: &str = "rlm --version";
const TRUE: &str = "posix_spawn of `true`";
const RUN: &str = "rlm run";
const SCRIPT: &str = "a shell script";
const THERE: &str = "spawn to exit";
const FIRST: &str = "spawn to the first byte at the agent";

fn run(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    let Some(rlm) = rlm_or_skip("rlm", outcome) else {
        return Ok(());
    };
    let rounds = plan.scale.pick(200, 20, 2);
    let turns = vec![
        Turn::new(VERSION, Role::Ours, |_| {
            let took = timed(Command::new(&rlm).arg("--version"))?;
            Ok(Some(took.as_secs_f64() * 1e3))
        }),
        Turn::new(TRUE, Role::Floor, |_| {
            let begun = Instant::now();
            spawn_and_wait(&["/bin/true"])?;
            Ok(Some(begun.elapsed().as_secs_f64() * 1e3))
        }),
    ];
    let found = in_turn(0..rounds, turns, &Progress::of("b11 --version"))?;
    outcome.series.push(Series::new(THERE, "ms", found));
    let rounds = plan.scale.pick(60, 10, 1);
    let stamp = plan.scratch.join("b11-stamp");
    let agent = |stamp: &Path| scripted_agent::words(&["stamp", &stamp.to_string_lossy()]);
    let turns = vec![
        Turn::new(RUN, Role::Ours, |round| {
            let dir = plan.scratch.join(format!("b11-{round}"));
            make_place(&dir)?;
            let mut command = command_in(&dir, &rlm);
            command
                .args(["run", "--prompt", "x", "-n", "1", "--"])
                .args(agent(&stamp)?);
            let took = until_stamped(command, &stamp)?;
            fs_err::remove_dir_all(dir)?;
            Ok(Some(took))
        }),
        Turn::new(SCRIPT, Role::Floor, |_| {
            let mut command = Command::new("sh");
            command
                .args(["-c", "echo x | \"$0\" \"$@\""])
                .args(agent(&stamp)?);
            until_stamped(command, &stamp).map(Some)
        }),
    ];
    let found = in_turn(0..rounds, turns, &Progress::of("b11 run"))?;
    outcome.series.push(Series::new(FIRST, "ms", found));
    for (quantity, name, limit) in [(THERE, VERSION, 5.0), (FIRST, RUN, 20.0)] {
        let series = outcome
            .series
            .iter()
            .find(|series| series.quantity == quantity);
        let median = series.and_then(|series| series.median(name));
        outcome
            .at_most(&format!("{name}, {quantity}"), median, limit, "ms")
            .about(quantity, name);
    }
    Ok(())
}

/// Returns the milliseconds until the agent got its first byte.
fn until_stamped(mut command: Command, stamp: &Path) -> Result<f64> {
    let begun = now();
    timed(command.stdin(Stdio::null()))?;
    let stamped: u64 = fs_err::read_to_string(stamp)?.parse()?;
    fs_err::remove_file(stamp)?;
    Ok(stamped.saturating_sub(begun) as f64 / 1e6)
}

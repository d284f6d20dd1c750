//! `storm-agent DIR LEAST MOST`: an agent that does one line of work in its working tree, and records its start and its end in a directory outside.
//!
//! It works for a time between `LEAST` and `MOST` milliseconds. A lock for each run shows whether two agents of a run work at the same time: the kernel
//! releases it when the agent is dead, however it died.

use std::fs::TryLockError;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use fs_err::{self as fs, OpenOptions};
use rlm_storm::AgentEvent;
use rlm_tests::poll_until;

fn main() -> ExitCode {
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _unheard = writeln!(std::io::stderr(), "storm-agent: {error}");
            ExitCode::FAILURE
        }
    }
}

fn work() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [place, least, most] = arguments.as_slice() else {
        return Err("usage: storm-agent DIR LEAST MOST".into());
    };
    let (place, least, most) = (
        Path::new(place),
        least.parse::<u64>()?,
        most.parse::<u64>()?,
    );
    let run = std::env::var("RLM_RUN_ID")?;
    let iteration: u32 = std::env::var("RLM_ITERATION")?.parse()?;
    let lock = OpenOptions::new()
        .create(true)
        .append(true)
        .open(place.join(format!("{run}.lock")))?;
    let is_alone = match lock.file().try_lock() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(e)) => return Err(e.into()),
    };
    std::io::stdin().read_to_end(&mut Vec::new())?;
    // A number that no other start has.
    let clock = std::time::SystemTime::UNIX_EPOCH.elapsed()?.as_nanos();
    let id = format!("{clock:x}-{}", std::process::id());
    let before = fs::read_to_string("work").unwrap_or_default();
    let last = before.lines().last();
    let parent = last.and_then(|line| line.split_once(' '));
    let record = |event: AgentEvent| {
        let mut log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(place.join("agents.log"))?;
        // One write, so that no other line is in between.
        log.write_all(event.to_string().as_bytes())
    };
    record(AgentEvent::Start {
        run: run.clone(),
        iteration,
        id: id.clone(),
        pid: std::process::id().cast_signed(),
        is_alone,
        parent: parent.map_or_else(|| "-".into(), |(_, id)| id.into()),
        place: std::env::current_dir()?,
    })?;
    let spread = most.saturating_sub(least).max(1);
    let millis = least + u64::try_from(clock % u128::from(spread))?;
    poll_until(Duration::from_millis(millis), || None::<()>);
    let mut work = OpenOptions::new().create(true).append(true).open("work")?;
    work.write_all(format!("{iteration} {id}\n").as_bytes())?;
    record(AgentEvent::End { run, iteration, id })?;
    Ok(())
}

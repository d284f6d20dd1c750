//! The memory, threads and descriptors of a long loop stay constant.

use std::time::Duration;

use rlm_tests::{Effort, poll_until, wait_for};

use crate::LONG;
use crate::idle::memory;
use crate::scene::Scene;

/// The number of iterations of the loop.
const X116_ITERATIONS: Effort = Effort {
    ci: 150,
    nightly: 10_000,
};

/// The tolerated growth of memory in KiB: saves that compact the journal, and new threads.
const MOST_GROWN: u64 = 4096;

/// The resources of a process at one moment.
#[derive(Clone, Copy, Debug)]
struct ResourceSample {
    iteration: usize,
    /// Anonymous memory, in KiB.
    resident: u64,
    threads: usize,
    descriptors: usize,
}

fn sample(pid: i32, iteration: usize) -> Option<ResourceSample> {
    let count = |what: &str| {
        Some(
            fs_err::read_dir(format!("/proc/{pid}/{what}"))
                .ok()?
                .count(),
        )
    };
    let (threads, descriptors) = (count("task")?, count("fd")?);
    Some(ResourceSample {
        iteration,
        resident: memory(pid, "RssAnon"),
        threads,
        descriptors,
    })
}

/// The store on disk grows with the history of the run; nothing else does. The bench b10 measures the time of an iteration.
#[test]
fn x116a_x116b_x116c_long_loop_needs_constant_memory_threads_and_descriptors() {
    let iterations = X116_ITERATIONS.number();
    let wanted = usize::try_from(iterations).unwrap();
    let scene = Scene::new("");
    let count = wanted.to_string();
    let run = [
        "run",
        "--sleep",
        "0",
        "-p",
        "x",
        "-n",
        &count,
        "--json",
        "--",
        "/bin/true",
    ];
    let mut running = scene.rlm(&run).spawn();
    let pid = running.pid();
    let runs = scene.sandbox.repo().join(".rlm/runs");
    let run_dir = wait_for("the directory of the run", LONG, || {
        let mut there = fs_err::read_dir(&runs).ok()?;
        there.next().map(|run| run.unwrap().path())
    });
    let made = || fs_err::read_dir(run_dir.join("transcripts")).map_or(0, Iterator::count);
    let mut looks = Vec::new();
    let deadline = LONG + Duration::from_millis(200) * iterations;
    let over = poll_until(deadline, || {
        // A sample taken while the run ends doesn't count.
        if made() < wanted {
            looks.extend(sample(pid, made()));
        }
        running.has_ended().then_some(())
    });
    over.expect("all iterations within the deadline");
    running.wait(LONG).expect_code(0);
    assert_eq!(made(), wanted, "a transcript for each attempt");
    let (early, late): (Vec<ResourceSample>, Vec<ResourceSample>) = { looks.iter() }
        .filter(|look| look.iteration > wanted / 3)
        .partition(|look| look.iteration < wanted * 2 / 3);
    let most = |looks: &[ResourceSample], of: fn(&ResourceSample) -> usize| {
        looks.iter().map(of).max().unwrap()
    };
    // A busy moment has more threads for a while. A leak has more of them in each sample.
    let least = late.iter().map(|look| look.threads).min().unwrap();
    let threads = [most(&early, |look| look.threads), least];
    let descriptors = [&early, &late].map(|looks| most(looks, |look| look.descriptors));
    // A sample during the start of an agent has a few more.
    assert!(threads[1] <= threads[0] + 2, "threads: {threads:?}");
    assert!(
        descriptors[1] <= descriptors[0] + 8,
        "descriptors: {descriptors:?}"
    );
    let (first, last) = (early[0], late[late.len() - 1]);
    let grown = last.resident.saturating_sub(first.resident);
    println!("{wanted} iterations: {first:?} to {last:?}");
    assert!(grown <= MOST_GROWN, "it grew by {grown} KiB");
    let state = state_size(&run_dir);
    assert!(
        state <= (1 << 20) + 8192 * wanted as u64,
        "{state} bytes of state"
    );
}

/// Returns the size of the run's store in bytes, without the transcripts.
fn state_size(run_dir: &std::path::Path) -> u64 {
    let files = fs_err::read_dir(run_dir).unwrap();
    let metas = files.map(|file| file.unwrap().metadata().unwrap());
    metas
        .filter(|meta| meta.is_file())
        .map(|meta| meta.len())
        .sum()
}

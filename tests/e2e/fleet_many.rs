//! Many runs on a few slots, while workers leave and join.

use rlm_tests::{Effort, wait_for};
use rustix::process::Signal;

use crate::LONG;
use crate::fleet::Fleet;
use crate::scene::crash;

const F9_RUNS: Effort = Effort {
    ci: 12,
    nightly: 300,
};

#[test]
fn f9_each_of_many_runs_ends_while_workers_leave_and_join() {
    let Some(fleet) = Fleet::new("", "20s") else {
        return;
    };
    let runs = F9_RUNS.number() as usize;
    // 6 slots for 12 runs, 30 for 300.
    let slots = (runs / 30).max(2).to_string();
    let command = ["--", "sh", "-c", "echo step >> work"].map(Into::into);
    for run in 0..runs {
        fleet.submit_as(&format!("r{run}"), &["-n", "2"], &command);
    }
    let worker = |name: &str| {
        let worker = fleet.fleet(&["worker", "--name", name, "--slots", &slots]);
        fleet.ready(name, worker)
    };
    let (first, second, third) = (worker("w1"), worker("w2"), worker("w3"));
    let ended = |count: usize| {
        wait_for(format!("the end of {count} runs"), 10 * LONG, || {
            let rows = fleet.rows();
            assert_eq!(rows.len(), runs);
            let ended = rows.iter().filter(|row| row["state"] == "ended").count();
            (ended >= count).then_some(rows)
        })
    };
    ended(runs / 6);
    first.signal(Signal::TERM);
    first.wait(LONG).expect_code(0);
    crash(second);
    let fourth = worker("w4");
    for row in ended(runs) {
        assert_eq!(
            (&row["exit_code"], &row["iteration"]),
            (&0.into(), &2.into()),
            "{row}"
        );
        // The crash and the hand-over cost at most one claim each.
        assert!(row["epoch"].as_u64().unwrap() <= 3, "{row}");
    }
    drop((third, fourth));
}

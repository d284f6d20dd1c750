//! A run that a newer version saved, in a fleet with a worker of this version. Without a server this test skips itself.

use rlm_tests::nats::RawClient;
use serde_json::json;

use crate::LONG;
use crate::fleet::{Fleet, SHORT};

#[test]
fn f15_worker_names_a_run_of_a_newer_version_and_leaves_it() {
    let Some(fleet) = Fleet::new("append work {start}", SHORT) else {
        return;
    };
    let agent = fleet.scene.agent.argv();
    for run in ["newer", "known"] {
        fleet.submit_as(run, &["-n", "1"], &[&["--".into()], &agent[..]].concat());
    }
    // A record as a newer program could write it.
    let record = json!({"v": 2, "kind": {"name": "save", "part": 1}, "epoch": 3}).to_string();
    let length = u32::try_from(record.len()).unwrap().to_le_bytes();
    let head = format!("PUB rlm.run.newer {}\r\n", record.len() + 4);
    let message = [head.as_bytes(), &length, record.as_bytes(), b"\r\n"].concat();
    let mut raw = RawClient::connect(fleet.servers.ports()[0], ("rlm", "s3c@ret"));
    assert_eq!(raw.refusal(message), None);
    let worker = fleet.fleet(&["worker", "--slots", "2"]);
    let mut worker = fleet.ready("w1", worker);
    let newer = "run `newer` needs a newer version of rlm";
    worker.until("the name of the run, twice", LONG, |worker| {
        let refused = worker.stdout().matches(newer).count();
        (refused >= 2).then_some(())
    });
    // The worker still does what it can.
    fleet.fleet(&["wait", "known"]).run(LONG).expect_code(0);
    let refused = fleet.fleet(&["wait", "newer"]).run(LONG).expect_code(1);
    assert!(refused.stderr.contains(newer), "{refused}");
    let rows = fleet.rows();
    assert_eq!(
        (&rows[1]["run"], &rows[1]["state"]),
        (&"newer".into(), &"unknown".into())
    );
    assert_eq!(fleet.scene.start_count(), 1);
    drop(worker);
}

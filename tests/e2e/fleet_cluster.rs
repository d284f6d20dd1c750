//! A fleet on a cluster of three servers that loses some of them. Without a server program these tests skip themselves.

use rlm_tests::wait_for;

use crate::LONG;
use crate::fleet::{Fleet, HANGS};

/// The streams that a run needs.
const STREAMS: [&str; 4] = ["rlm-runs", "rlm-work", "rlm-transcripts", "OBJ_rlm-blobs"];

impl Fleet {
    /// Waits until each of the three servers has all records.
    fn wait_for_replicas(&self) {
        wait_for("three replicas of each stream", LONG, || {
            let is_whole = |stream| matches!(self.servers.leader(stream), Some((_, 2)));
            STREAMS.into_iter().all(is_whole).then_some(())
        });
    }

    fn start_servers(&mut self, servers: &[usize]) {
        for server in servers {
            self.servers.start_again(&self.scene.sandbox, *server);
        }
    }
}

#[test]
fn f5_cluster_that_loses_a_leader_or_its_quorum_changes_no_owner() {
    // Each iteration after the first waits for a file.
    let script = "append work {start}\n@2 await go2\n@3 await go3\n@4 await go4\n@4 touch done";
    let Some(mut fleet) = Fleet::on(3, script, "60s") else {
        return;
    };
    fleet.wait_for_replicas();
    let worker = fleet.worker("w1");
    fleet.submit(&["--until", "test -e done"]);
    fleet.wait_for_start(2);
    let other = fleet.worker("w2");
    let place = fleet.place("w1", "r1.1.");
    let go = |start: usize| fs_err::write(place.join(format!("go{start}")), "").unwrap();
    // The leader of the records, and then that of the queue.
    for (start, stream) in [(2, "rlm-runs"), (3, "rlm-work")] {
        let (leader, _) = fleet.servers.leader(stream).expect("a leader");
        let _killed = fleet.servers.kill(leader);
        // The save and the next iteration wait for the new leader.
        go(start);
        fleet.wait_for_start(start + 1);
        let (new, _) = wait_for("another leader", LONG, || fleet.servers.leader(stream));
        assert_ne!(new, leader);
        fleet.start_servers(&[leader]);
        fleet.wait_for_replicas();
    }
    let fourth = fleet.wait_for_start(4);
    for server in [0, 1] {
        let _killed = fleet.servers.kill(server);
    }
    go(4);
    wait_for("the end of the agent", LONG, || {
        (!fleet.is_alive(&fourth)).then_some(())
    });
    fleet.start_servers(&[0, 1]);
    let (row, code) = fleet.wait();
    assert_eq!((row["worker"].as_str(), code), (Some("w1"), 0), "{row}");
    assert_eq!(row["epoch"], 1);
    // A stream without a leader answers no fetch.
    fleet.wait_for_replicas();
    wait_for("an answer to a fetch", LONG, || {
        let fetched = fleet.fleet(&["fetch", "r1"]).run(LONG);
        (fetched.code() == Some(0)).then_some(())
    });
    assert_eq!(fleet.work(), ["1", "2", "3", "4"]);
    assert_eq!(fleet.scene.start_count(), 4);
    // The transcripts were stored again after each loss.
    wait_for("the transcripts of all iterations", LONG, || {
        let logs = fleet.elsewhere(&["logs", "r1"]).run(LONG);
        let has = |iteration| {
            logs.stdout
                .contains(&format!("iteration {iteration}, attempt 1"))
        };
        (1..=4).all(has).then_some(())
    });
    drop((worker, other));
}

#[test]
fn f5_run_is_claimed_again_after_a_cluster_lost_its_quorum_for_long() {
    let Some(mut fleet) = Fleet::on(3, HANGS, "8s") else {
        return;
    };
    fleet.wait_for_replicas();
    let worker = fleet.worker("w1");
    fleet.submit(&["--until", "test -e done"]);
    let hanging = fleet.wait_for_start(3);
    for server in [0, 1] {
        let _killed = fleet.servers.kill(server);
    }
    // The leader of the queue answers renewals until it notices the loss. Half of the lease after the last answer, the guard ends the agent, and nothing can
    // start another one.
    wait_for("the end of the agent", 3 * LONG, || {
        (!fleet.is_alive(&hanging)).then_some(())
    });
    assert_eq!(fleet.scene.start_count(), 3);
    fleet.start_servers(&[0, 1]);
    let (row, code) = fleet.wait();
    // A claim whose confirmation is lost is repeated.
    assert!(code == 0 && row["epoch"].as_u64() > Some(1), "{row}");
    fleet.wait_for_replicas();
    assert_eq!(fleet.work(), ["1", "2", "4", "5"]);
    fleet.expect_one_agent_at_a_time();
    drop(worker);
}

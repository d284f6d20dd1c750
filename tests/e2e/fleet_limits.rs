//! The limits that keep a run of a fleet from harm for the others: parked runs, bad workers, the budget of the fleet, and pools.

use std::ffi::OsString;
use std::os::unix::fs::symlink;

use rlm_tests::{Rlm, poll_until, wait_for};
use serde_json::Value;

use crate::fleet::{Fleet, SHORT};
use crate::scene::crash;
use crate::{FAKE_AGENT, LONG};

impl Fleet {
    /// Prepares a worker whose agents follow the script of the fake agent in a conversation.
    fn talking(&self, name: &str, arguments: &[&str]) -> Rlm<'_> {
        let [record, script] = self.scene.agent.variables();
        self.fleet(&[&["worker", "--name", name], arguments].concat())
            .env(record.0, record.1)
            .env(script.0, script.1)
    }

    /// Submits a run of a fake agent that has a driver.
    fn submit_driven(&self, run: &str, agent: &str, arguments: &[&str]) {
        let named = ["--agent", agent, "--agent-bin", FAKE_AGENT];
        self.submit_as(run, &[&named, arguments].concat(), &[]);
    }

    fn row_of(&self, run: &str) -> Value {
        let mut rows = self.rows().into_iter();
        rows.find(|row| row["run"] == run).expect("the run")
    }

    /// Waits until this is true of each row.
    fn wait_until_all(&self, what: &str, is_true: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut rows = Vec::new();
        let are_all = poll_until(LONG, || {
            rows = self.rows();
            rows.iter().all(&is_true).then_some(())
        });
        assert!(are_all.is_some(), "timed out waiting for {what}: {rows:#?}");
        rows
    }
}

/// Returns a command as the last arguments of a submit.
fn command(words: &[&str]) -> Vec<OsString> {
    let words = ["--"].iter().chain(words);
    words.map(|word| OsString::from(*word)).collect()
}

#[test]
fn f11_run_that_crashes_three_workers_is_parked_with_the_evidence() {
    let Some(fleet) = Fleet::new("", "5s") else {
        return;
    };
    let pid = fleet.scene.sandbox.path().join("worker.pid");
    // The agent can start before the pid of its worker is in the file. If it obeyed the SIGTERM of its guard, the process of the run could take that
    // for the end of the iteration, before it gets its own SIGTERM.
    let pid_file = pid.display();
    let kill =
        format!("trap '' TERM; until kill -9 $(cat '{pid_file}'); do sleep 0.1; done; sleep 600");
    fleet.submit_as("r1", &["-n", "1"], &command(&["sh", "-c", &kill]));
    for name in ["w1", "w2", "w3"] {
        let mut worker = fleet.worker(name);
        fs_err::write(&pid, worker.pid().to_string()).unwrap();
        wait_for(format!("the crash of {name}"), LONG, || {
            worker.has_ended().then_some(())
        });
    }
    let innocent = fleet.worker("w4");
    let ended = fleet.fleet(&["wait", "r1", "--json"]).run(LONG);
    let ended = ended.expect_code(6);
    assert!(ended.stderr.contains("is parked"), "{ended}");
    let row: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(
        (&row["state"], &row["exit_code"]),
        (&"parked".into(), &6.into())
    );
    let failed = row["failed_claims"].as_array().unwrap();
    let claims: Vec<_> = { failed.iter() }
        .map(|it| [&it["claim"], &it["worker"], &it["cause"]].map(ToString::to_string))
        .collect();
    let claim =
        |nth: &str, worker: &str| [nth.into(), format!("\"{worker}\""), "\"no_answer\"".into()];
    assert_eq!(
        claims,
        [claim("1", "w1"), claim("2", "w2"), claim("3", "w3")]
    );
    let shown = fleet.fleet(&["ps"]).run(LONG).expect_code(0).stdout;
    assert!(shown.contains("\n  claim 3, worker w3, "), "{shown}");
    drop(innocent);
}

#[test]
fn f11_worker_without_git_or_agent_gives_its_run_to_another() {
    let Some(fleet) = Fleet::new("append work {start}", SHORT) else {
        return;
    };
    // A directory with a few programs, but not git.
    let bin = fleet.scene.sandbox.path().join("bin");
    fs_err::create_dir(&bin).unwrap();
    for program in ["sh", "true"] {
        symlink(format!("/bin/{program}"), bin.join(program)).unwrap();
    }
    let agent = fleet.scene.agent.argv();
    let last = [&["--".into()], &agent[..]].concat();
    fleet.submit_as("r1", &["-n", "2"], &last);
    let bad = fleet.fleet(&["worker", "--name", "bad"]);
    let mut bad = fleet.ready("bad", bad.env("PATH", &bin));
    bad.until("two failed starts", LONG, |bad| {
        (bad.stdout().matches("given back").count() >= 2).then_some(())
    });
    let row = fleet.row();
    assert_eq!(
        (&row["state"], &row["failed_claims"][0]["cause"]),
        (&"queued".into(), &"start".into()),
        "{row}"
    );
    let good = fleet.worker("good");
    let (row, code) = fleet.wait();
    assert_eq!((row["worker"].as_str(), code), (Some("good"), 0), "{row}");
    assert_eq!(row["failed_claims"], serde_json::json!([]));
    // Only the machine of the submit has this agent.
    let own = fleet.scene.sandbox.path().join("own");
    fs_err::create_dir(&own).unwrap();
    symlink("/bin/true", own.join("agent-of-one-machine")).unwrap();
    let path = std::env::var("PATH").unwrap();
    let line = [
        "run",
        "--run-id",
        "r2",
        "-n",
        "1",
        "-p",
        "x",
        "--",
        "agent-of-one-machine",
    ];
    let submit = fleet
        .fleet(&line)
        .env("PATH", format!("{}:{path}", own.display()));
    submit.run(LONG).expect_code(0);
    wait_for("the reason", LONG, || {
        let failed = &fleet.row_of("r2")["failed_claims"][0];
        let text = failed["text"].as_str()?;
        text.contains("`agent-of-one-machine`").then_some(())
    });
    assert_ne!(fleet.row_of("r2")["state"], "parked");
    drop((bad, good));
}

/// Each call of the fake agent's model costs one cent, and its tool takes 700 ms.
const CALL: &str = "tool Bash work\ndelay 700\ntool-end\n";
/// The calls of a turn, without the one at its end.
const CALLS_PER_TURN: usize = 6;

fn cost(row: &Value) -> f64 {
    row["usage"]["cost_usd"].as_f64().unwrap_or(0.0)
}

#[test]
fn f7_runs_wait_at_the_budget_of_the_fleet_and_continue_when_it_is_raised() {
    let script = format!("turn ..\n{}say done", CALL.repeat(CALLS_PER_TURN));
    let Some(fleet) = Fleet::new(&script, "20s") else {
        return;
    };
    let set = |limit: &str| {
        let set = fleet.fleet(&["budget", "set", limit, "--per", "day"]);
        set.run(LONG).expect_code(0).stdout
    };
    assert!(set("0.09").contains("0.00 USD of 0.09 USD spent today"));
    let names = ["r1", "r2", "r3"];
    for run in names {
        fleet.submit_driven(run, "claude", &["-n", "1"]);
    }
    let worker = fleet.talking("w1", &["--slots", "3"]);
    let worker = fleet.ready("w1", worker);
    let rows = fleet.wait_until_all("a pause of all runs", |row| row["state"] == "paused");
    let spent: f64 = rows.iter().map(cost).sum();
    // Each agent makes at most one more call.
    assert!((0.09..0.12 + 1e-6).contains(&(spent + 1e-9)), "{spent}");
    assert!(
        rows[0]["reason"]
            .as_str()
            .unwrap()
            .contains("budget of the fleet"),
        "{rows:?}"
    );
    assert_eq!(fleet.scene.start_count(), 3);
    let shown = wait_for(format!("the count of {spent} USD"), LONG, || {
        let show = fleet.fleet(&["budget", "show", "--json"]).run(LONG);
        let shown: Value = serde_json::from_str(&show.expect_code(0).stdout).unwrap();
        let counted = shown["spent_usd"].as_f64().unwrap();
        ((counted - spent).abs() < 1e-9).then_some(shown)
    });
    assert_eq!(
        (&shown["is_spent"], &shown["limit_usd"]),
        (&true.into(), &0.09.into())
    );
    // A new run waits in the queue, although there is a free worker.
    fleet.submit_driven("r4", "claude", &["-n", "1"]);
    let other = fleet.talking("w2", &[]);
    let mut other = fleet.ready("w2", other);
    other.until("its message", LONG, |other| {
        other
            .stdout()
            .contains("this worker takes no run")
            .then_some(())
    });
    assert_eq!(fleet.row_of("r4")["state"], "queued");
    // A person pauses a run that waits already.
    fleet.tell(&["pause", "r1"]);
    set("5");
    let is_paused = |row: &Value| row["run"] == "r1" && row["state"] == "paused";
    let rows = fleet.wait_until_all("the end of the others", |row| {
        row["exit_code"] == 0 || is_paused(row)
    });
    assert_eq!(fleet.row_of("r1")["reason"], "by a person", "{rows:?}");
    fleet.tell(&["resume", "r1"]);
    let rows = fleet.wait_until_all("the end of all runs", |row| row["exit_code"] == 0);
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|row| row["epoch"] == 1), "{rows:?}");
    // No agent was killed: each run has one.
    assert_eq!(fleet.scene.start_count(), 4);
    assert!(
        rows.iter()
            .all(|row| cost(row) >= 0.01 * CALLS_PER_TURN as f64 - 1e-9),
        "{rows:?}"
    );
    drop((worker, other));
}

#[test]
fn f8_rate_limited_run_blocks_only_its_own_pool() {
    let Some(fleet) = Fleet::new("@1 retry 429 3600\n@2.. say well", SHORT) else {
        return;
    };
    let init = [
        "init", "--lease", SHORT, "--pool", "codex", "--pool", "main",
    ];
    fleet.fleet(&init).run(LONG).expect_code(0);
    let pool = ["--pool", "codex", "-n", "1"];
    fleet.submit_driven("r1", "codex", &pool);
    let worker = fleet.talking("w1", &["--pool", "codex", "--pool", "main=2"]);
    let worker = fleet.ready("w1", worker);
    fleet.wait_for_start(1);
    // The only slot of its pool is in use, so this one waits in the queue.
    fleet.submit_driven("r2", "codex", &pool);
    for run in ["r3", "r4", "r5"] {
        fleet.submit_as(run, &["-n", "1"], &command(&["true"]));
    }
    for run in ["r3", "r4", "r5"] {
        fleet.fleet(&["wait", run]).run(LONG).expect_code(0);
    }
    let states = ["r1", "r2"].map(|run| fleet.row_of(run)["state"].clone());
    assert_eq!(states, ["running", "queued"]);
    assert_eq!(fleet.scene.start_count(), 1);
    crash(worker);
    let twice = fleet.fleet(&["worker", "--pool", "main", "--pool", "main=2"]);
    assert!(
        twice
            .run(LONG)
            .expect_code(2)
            .stderr
            .contains("given twice")
    );
    let none = fleet.fleet(&["worker", "--pool", "main=0"]).run(LONG);
    assert!(none.expect_code(2).stderr.contains("1 to 64 slots"));
}

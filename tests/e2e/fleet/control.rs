//! The commands of people for a run of a fleet, from another machine than that of its worker.

use super::*;

/// The first start of the agent waits for the file `go`, and the next ones hang.
const WAITS: &str = "append work {start}\nprint ready\n@1 await go\n@2.. hang";

impl Fleet {
    /// Prepares `rlm ARGUMENTS` on another machine: it has no run, and its own index of live runs.
    pub(crate) fn elsewhere(&self, arguments: &[&str]) -> Rlm<'_> {
        let place = self.scene.sandbox.path().join("elsewhere");
        fs_err::create_dir_all(&place).unwrap();
        let rlm = self.scene.rlm(arguments).dir(&place);
        let rlm = rlm.env("XDG_STATE_HOME", &place).env("HOME", &place);
        rlm.env("RLM_FLEET_NATS", self.servers.address())
    }

    /// Runs a command on another machine, and returns its output.
    pub(crate) fn tell(&self, arguments: &[&str]) -> String {
        let ended = self.elsewhere(arguments).run(LONG);
        ended.expect_code(0).stdout
    }

    /// Lets the waiting agent of a claim continue.
    fn go(&self, worker: &str, claim: &str) {
        fs_err::write(self.place(worker, claim).join("go"), "").unwrap();
    }

    /// Returns the prompts of all starts. An agent records its prompt a moment after its start.
    fn prompts(&self) -> Vec<String> {
        wait_for("the prompts of all starts", LONG, || {
            let starts = self.scene.agent.starts().into_iter();
            let prompts = starts.map(|start| start.stdin.filter(|text| !text.is_empty()));
            prompts.collect::<Option<Vec<_>>>()
        })
    }

    /// Returns the report of the run, as another machine reads it.
    fn report(&self) -> Value {
        serde_json::from_str(&self.tell(&["report", "r1", "--json"])).unwrap()
    }

    fn wait_for_status(&self, what: &str) {
        wait_for(format_args!("the status {what:?}"), LONG, || {
            self.tell(&["status", "r1"]).contains(what).then_some(())
        });
    }
}

#[test]
fn f6_run_is_steered_paused_resumed_and_stopped_from_another_machine() {
    let Some(fleet) = Fleet::new(WAITS, SHORT) else {
        return;
    };
    fleet.submit(&["--until", "test -e done"]);
    let queued = fleet.tell(&["steer", "r1", "use", "tabs"]);
    assert!(queued.contains("recorded; no worker owns it"), "{queued}");
    let worker = fleet.worker("w1");
    fleet.wait_for_start(1);
    // The agent takes no message in its turn, so the next prompt has it.
    let steered = fleet.tell(&["steer", "r1", "mind the docs"]);
    assert!(
        steered.contains("queued: sent after this turn"),
        "{steered}"
    );
    let paused = fleet.tell(&["pause", "r1", "--wait", "0s"]);
    assert!(paused.contains("it will pause"), "{paused}");
    fleet.wait_for_status("will pause");
    fleet.go("w1", "r1.1.");
    fleet.wait_for_status("paused");
    assert_eq!(fleet.scene.start_count(), 1);
    let set = fleet.tell(&["set", "r1", "max-iterations=9"]);
    assert!(set.contains("in effect: iterations: 9"), "{set}");
    let continued = fleet.tell(&["resume", "r1"]);
    assert!(continued.contains("continues"), "{continued}");
    fleet.wait_for_start(2);
    let second = fleet.prompts().remove(1);
    assert!(
        second.contains("use tabs") && second.contains("mind the docs"),
        "{second}"
    );
    assert_eq!(fleet.report()["state"], "running");
    let stopped = fleet.tell(&["stop", "r1"]);
    assert!(stopped.contains("r1: stopped by a person"), "{stopped}");
    assert_eq!(fleet.wait().1, 7);
    let report = fleet.report();
    assert_eq!(report["state"], "stopped");
    assert_eq!(report["attempts"].as_array().unwrap().len(), 2, "{report}");
    let steers = report["steers"].as_array().unwrap().iter();
    let texts: Vec<_> = steers.map(|steer| steer["text"].as_str()).collect();
    assert_eq!(texts, [Some("use tabs"), Some("mind the docs")]);
    let written = fleet.tell(&["report", "r1"]);
    assert!(written.starts_with("rlm-r1.html ("), "{written}");
    let late = fleet.elsewhere(&["steer", "r1", "too late"]).run(LONG);
    let late = late.expect_code(10).stderr;
    assert!(late.contains("rlm fleet resume r1"), "{late}");
    // An unknown name is refused, and so is each without the address of a fleet.
    let unknown = fleet.elsewhere(&["steer", "r2", "x"]).run(LONG);
    assert!(
        unknown
            .expect_code(10)
            .stderr
            .contains("the fleet has no run `r2`")
    );
    let local = fleet
        .elsewhere(&["stop", "r1"])
        .env("RLM_FLEET_NATS", "")
        .run(LONG);
    assert!(!local.expect_code(10).stderr.contains("fleet"));
    drop(worker);
}

#[test]
fn f6_recorded_request_is_applied_once_although_its_worker_is_killed() {
    let script = "append work {start}\nprint ready\nawait go\n@3.. touch done";
    let Some(fleet) = Fleet::new(script, SHORT) else {
        return;
    };
    fleet.submit(&["--until", "test -e done"]);
    let dead = fleet.worker("w1");
    fleet.wait_for_start(1);
    fleet.tell(&["steer", "r1", "say it once", "--wait", "0s"]);
    fleet.tell(&["pause", "r1", "--wait", "0s"]);
    crash(dead);
    // The run has no owner until its lease ends.
    let orphaned = fleet.tell(&["steer", "r1", "and this", "--wait", "0s"]);
    assert!(orphaned.contains("recorded"), "{orphaned}");
    let other = fleet.worker("w2");
    fleet.wait_for_start(2);
    fleet.wait_for_status("will pause");
    fleet.go("w2", "r1.2.");
    // The pause was requested before the crash.
    fleet.wait_for_status("paused");
    assert_eq!(fleet.scene.start_count(), 2);
    fleet.tell(&["resume", "r1"]);
    fleet.wait_for_start(3);
    let prompts = fleet.prompts().join("\n");
    for text in ["say it once", "and this"] {
        assert_eq!(prompts.matches(text).count(), 1, "{text}: {prompts}");
    }
    drop(other);
}

#[test]
fn f6_stop_ends_a_queued_run_and_resume_continues_it() {
    let Some(fleet) = Fleet::new("append work {start}", SHORT) else {
        return;
    };
    fleet.submit(&["-n", "2"]);
    let stopped = fleet.tell(&["stop", "r1"]);
    assert!(stopped.contains("stopped by a person"), "{stopped}");
    let (row, code) = fleet.wait();
    assert_eq!(
        (row["reason"].as_str(), code),
        (Some("stopped by a person"), 7)
    );
    let resumed = fleet.fleet(&["resume", "r1", "max-iterations=3"]).run(LONG);
    assert!(resumed.expect_code(0).stdout.contains("queued"));
    let worker = fleet.worker("w1");
    assert_eq!(fleet.wait().1, 0);
    assert_eq!(fleet.work(), ["1", "2", "3"]);
    let done = fleet
        .fleet(&["resume", "r1"])
        .run(LONG)
        .expect_code(2)
        .stderr;
    assert!(done.contains("has nothing to resume"), "{done}");
    drop(worker);
}

#[test]
fn run_that_ended_at_its_limit_continues_with_a_higher_one() {
    let Some(fleet) = Fleet::new("append work {start}\n@3 touch done", SHORT) else {
        return;
    };
    fleet.submit(&["--until", "test -e done", "-n", "2"]);
    let worker = fleet.worker("w1");
    let (row, code) = fleet.wait();
    assert_eq!(code, 3, "{row}");
    fleet.tell(&["fleet", "resume", "r1", "max-iterations=5"]);
    let (row, code) = fleet.wait();
    assert_eq!((row["iteration"].as_u64(), code), (Some(3), 0), "{row}");
    assert_eq!(fleet.work(), ["1", "2", "3"]);
    drop(worker);
}

#[test]
fn f6_transcripts_are_read_from_another_machine_also_after_the_death_of_a_worker() {
    let Some(fleet) = Fleet::new(WAITS, SHORT) else {
        return;
    };
    fleet.submit(&["-n", "1"]);
    let none = fleet.elsewhere(&["logs", "r1"]).run(LONG).expect_code(10);
    assert!(none.stderr.contains("has no transcript"), "{none}");
    let mut following = fleet.elsewhere(&["logs", "r1", "-f"]).spawn();
    let dead = fleet.worker("w1");
    fleet.wait_for_start(1);
    let mut follow = |what: &str, count: usize| {
        following.until(what, LONG, |it| {
            (it.stdout().matches("ready").count() == count).then_some(())
        });
    };
    follow("the output of the first agent", 1);
    crash(dead);
    let other = fleet.worker("w2");
    fleet.wait_for_start(2);
    follow("the output of the second agent", 2);
    fleet.tell(&["stop", "r1"]);
    let ended = following.wait(LONG).expect_code(0);
    assert!(ended.stderr.contains("stopped by a person"), "{ended}");
    for heading in ["iteration 1, attempt 1", "iteration 1, attempt 2"] {
        assert_eq!(ended.stdout.matches(heading).count(), 1, "{ended}");
    }
    // The server has the same.
    assert_eq!(fleet.tell(&["logs", "r1"]), ended.stdout);
    let last = fleet.tell(&["logs", "r1", "--json", "--tail", "1"]);
    let last: Value = serde_json::from_str(&last).unwrap();
    assert_eq!(
        (&last["iteration"], &last["attempt"]),
        (&1.into(), &2.into())
    );
    let none = fleet
        .elsewhere(&["logs", "r1", "--iteration", "7"])
        .run(LONG);
    let none = none.expect_code(10).stderr;
    assert!(none.contains("no transcript of iteration 7"), "{none}");
    // They leave the fleet with the run, and are removed with it.
    fleet.tell(&["fleet", "export", "r1", "laptop"]);
    let exported = fleet.scene.sandbox.path().join("elsewhere/laptop");
    let local = fleet.elsewhere(&["logs", "r1"]).dir(&exported);
    let local = local.env("RLM_FLEET_NATS", "").run(LONG).expect_code(0);
    assert_eq!(local.stdout, ended.stdout);
    fleet
        .elsewhere(&["fleet", "import", "r1"])
        .dir(&exported)
        .run(LONG)
        .expect_code(0);
    fleet.tell(&["fleet", "remove", "r1"]);
    let streams = fleet.servers.streams().into_iter();
    let mut transcripts = streams.filter(|it| it["name"] == "rlm-transcripts");
    assert_eq!(transcripts.next().unwrap()["state"]["messages"], 0);
    drop(other);
}

#[test]
fn f6_attached_terminal_shows_a_run_on_each_of_its_workers_and_stops_it() {
    let Some(fleet) = Fleet::new(WAITS, SHORT) else {
        return;
    };
    fleet.submit(&["--until", "test -e done"]);
    let (watching, terminal) = fleet.elsewhere(&["attach", "r1"]).spawn_on_terminal();
    terminal.sees("waiting for a worker of run r1", LONG);
    let dead = fleet.worker("w1");
    terminal.sees("attached to run r1", LONG);
    terminal.sees("ready", LONG);
    let lines = fleet.elsewhere(&["attach", "r1", "--json"]).spawn();
    terminal.send("/steer mind the docs\r");
    wait_for("the message", LONG, || {
        fleet
            .tell(&["status", "r1"])
            .contains("not seen: 1")
            .then_some(())
    });
    crash(dead);
    terminal.sees("waiting for the next one", LONG);
    let other = fleet.worker("w2");
    terminal.sees("attempt 2", LONG);
    let second = fleet.prompts().remove(1);
    assert!(second.contains("mind the docs"), "{second}");
    terminal.send("\u{3}");
    terminal.sees("d  detach", LONG);
    terminal.send("d");
    watching.wait(LONG).expect_code(0);
    assert_eq!(fleet.row()["state"], "running");
    let (watching, terminal) = fleet.elsewhere(&["attach", "r1"]).spawn_on_terminal();
    terminal.sees("attached to run r1", LONG);
    terminal.send("\u{3}");
    terminal.sees("x  save and exit", LONG);
    terminal.send("x");
    watching.wait(LONG).expect_code(7);
    terminal.sees("stopped by a person", LONG);
    let lines = lines.wait(LONG).expect_code(7).stdout;
    let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!(last["reason"], "stopped by a person", "{lines}");
    let late = fleet.elsewhere(&["attach", "r1"]).run(LONG).expect_code(10);
    assert!(late.stderr.contains("rlm fleet resume r1"), "{late}");
    drop(other);
}

#[test]
fn drained_worker_hands_its_run_over_and_ends() {
    let Some(fleet) = Fleet::new(HANGS, "60s") else {
        return;
    };
    let first = fleet.worker("w1");
    fleet.submit(&["--until", "test -e done"]);
    let hanging = fleet.wait_for_start(3);
    let other = fleet.worker("w2");
    let none = fleet.elsewhere(&["fleet", "drain", "w3"]).run(LONG);
    assert!(none.expect_code(10).stderr.contains("no worker `w3`"));
    let drained = fleet.tell(&["fleet", "drain", "w1"]);
    assert!(drained.contains("has handed over its runs"), "{drained}");
    first.wait(LONG).expect_code(0);
    assert!(!fleet.is_alive(&hanging));
    fleet.wait_for_start(4);
    let (row, code) = fleet.wait();
    assert_eq!((row["worker"].as_str(), code), (Some("w2"), 0));
    drop(other);
}

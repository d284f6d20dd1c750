//! Runs of a fleet: real workers and a real NATS server on loopback. Without a server these tests skip themselves.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rlm_tests::agent::AgentStart;
use rlm_tests::nats::{self, NatsServers, Proxy, server_program};
use rlm_tests::{Rlm, Running, wait_for};
use rustix::process::Signal;
use serde_json::Value;

use crate::LONG;
use crate::git::subjects;
use crate::scene::{PROMPT, Scene, crash};

mod control;
mod transfer;

/// The shortest lease.
pub(crate) const SHORT: &str = "2s";
const LEASE: Duration = Duration::from_secs(2);

/// Returns the program of the server, and a scene whose user has a name in git; `None` if there is no such program, and then the test is skipped.
#[expect(clippy::print_stdout, reason = "`cargo xtask test` counts this line")]
pub(crate) fn scene_for_server(script: &str) -> Option<(PathBuf, Scene)> {
    let Some(program) = server_program() else {
        println!("skipped: there is no NATS server: cargo xtask tools --install");
        return None;
    };
    let scene = Scene::new(script);
    let identity = "[user]\nname = A. Tester\nemail = tester@localhost\n";
    fs_err::write(scene.sandbox.home().join(".gitconfig"), identity).unwrap();
    Some((program, scene))
}

/// A scene with a server and a fleet.
pub(crate) struct Fleet {
    /// Ends before the sandbox, which waits for all processes.
    pub(crate) servers: NatsServers,
    pub(crate) scene: Scene,
}

impl Fleet {
    /// Returns the working tree of a worker whose name begins with a run and a claim.
    pub(crate) fn place(&self, worker: &str, claim: &str) -> PathBuf {
        let folder = self.scene.sandbox.path().join(worker);
        let places = fs_err::read_dir(folder).unwrap();
        let mut places = places.map(|entry| entry.unwrap());
        let found = places.find(|it| it.file_name().to_string_lossy().starts_with(claim));
        found.unwrap().path()
    }

    /// Starts a server, and creates the fleet; `None` if there is no server program, and then the test is skipped.
    pub(crate) fn new(script: &str, lease: &str) -> Option<Self> {
        Self::on(1, script, lease)
    }

    /// Starts this number of servers, and creates the fleet on all of them.
    pub(crate) fn on(servers: usize, script: &str, lease: &str) -> Option<Self> {
        let (program, scene) = scene_for_server(script)?;
        let replicas = servers.to_string();
        let servers = NatsServers::start(&scene.sandbox, &program, servers);
        let this = Self { servers, scene };
        wait_for("the fleet", LONG, || {
            let init = ["init", "--lease", lease, "--replicas", &replicas];
            let init = this.fleet(&init).run(LONG);
            (init.code() == Some(0)).then_some(())
        });
        Some(this)
    }

    fn start_server(&mut self) {
        self.servers.start_again(&self.scene.sandbox, 0);
    }

    fn kill_server(&mut self) {
        let _killed = self.servers.kill(0);
    }

    /// Prepares `rlm fleet ARGUMENTS`.
    pub(crate) fn fleet(&self, arguments: &[&str]) -> Rlm<'_> {
        self.fleet_at(self.servers.address(), arguments)
    }

    fn fleet_at(&self, address: String, arguments: &[&str]) -> Rlm<'_> {
        let rlm = self.scene.rlm(&[&["fleet"], arguments].concat());
        rlm.env("RLM_FLEET_NATS", address)
    }

    /// Starts a worker, and waits until it is ready.
    pub(crate) fn worker(&self, name: &str) -> Running {
        self.worker_at(self.servers.address(), name)
    }

    fn worker_at(&self, address: String, name: &str) -> Running {
        let worker = self.fleet_at(address, &["worker", "--name", name]);
        self.ready(name, worker)
    }

    /// Starts a prepared worker, and waits until it is ready.
    pub(crate) fn ready(&self, name: &str, worker: Rlm<'_>) -> Running {
        let place = self.scene.sandbox.path().join(name);
        let worker = worker.args(["--place".as_ref(), place.as_os_str()]);
        let mut worker = worker.own_session().spawn();
        worker.until("its first line", LONG, |worker| {
            worker.stdout().contains("is ready").then_some(())
        });
        worker
    }

    /// Submits the run `r1` with the scripted agent.
    pub(crate) fn submit(&self, arguments: &[&str]) {
        let agent = self.scene.agent.argv();
        self.submit_as("r1", arguments, &[&["--".into()], &agent[..]].concat());
    }

    /// Submits a run with these last arguments.
    pub(crate) fn submit_as(&self, run: &str, arguments: &[&str], last: &[OsString]) {
        let line = ["run", "--run-id", run, "--sleep", "0", "--prompt", PROMPT];
        let submit = self.fleet(&[&line, arguments].concat());
        submit.args(last).run(LONG).expect_code(0);
    }

    /// Waits for the end of the run `r1`, and returns its row with the exit code of the command.
    pub(crate) fn wait(&self) -> (Value, i32) {
        let ended = self.fleet(&["wait", "r1", "--json"]).run(3 * LONG);
        let code = ended.code().unwrap();
        (serde_json::from_str(&ended.stdout).unwrap(), code)
    }

    /// Returns the row of the only run.
    pub(crate) fn row(&self) -> Value {
        let mut rows = self.rows();
        assert_eq!(rows.len(), 1);
        rows.remove(0)
    }

    /// Returns the rows of all runs, ordered by name.
    pub(crate) fn rows(&self) -> Vec<Value> {
        let shown = self.fleet(&["ps", "--json"]).run(LONG).expect_code(0);
        let rows = shown.stdout.lines();
        rows.map(|row| serde_json::from_str(row).unwrap()).collect()
    }

    /// Returns the lines that all iterations wrote into the file `work`, as the commits of the fleet have them.
    pub(crate) fn work(&self) -> Vec<String> {
        self.fleet(&["fetch", "r1"]).run(LONG).expect_code(0);
        let text = self.scene.sandbox.git(&["show", "rlm/r1:work"]);
        text.lines().map(ToOwned::to_owned).collect()
    }

    /// Waits until this start of the agent has printed `ready`, which it does after its work.
    pub(crate) fn wait_for_start(&self, count: usize) -> AgentStart {
        self.scene.wait_until_started(count);
        self.scene.agent.starts().remove(count - 1)
    }

    /// Fails if an agent started while another one was alive.
    pub(crate) fn expect_one_agent_at_a_time(&self) {
        let starts = self.scene.agent.starts();
        assert!(starts.len() > 1);
        for start in starts {
            assert!(start.beside.is_empty(), "{start:?}");
        }
    }

    /// Returns whether the process of an agent is alive.
    pub(crate) fn is_alive(&self, start: &AgentStart) -> bool {
        let alive = self.scene.alive();
        alive.iter().any(|process| process.pid == start.pid)
    }
}

/// The numbers of the commits' iterations, as their subjects name them.
fn iterations(fleet: &Fleet) -> Vec<String> {
    let subjects = subjects(&fleet.scene, "rlm/r1");
    subjects[1..].to_vec()
}

/// The work of three iterations. The third start hangs, and the next one completes the third iteration.
pub(crate) const HANGS: &str = "append work {start}\n@3 print ready\n@3 hang\n@5.. touch done";

#[test]
fn f1_run_of_a_fleet_ends_like_a_local_one() {
    let scripts = [
        (
            "append work {start}\n@3 touch done",
            ["--until", "test -e done"],
            0,
        ),
        ("append work {start}", ["-n", "2"], 0),
        ("append work {start}\n@2 exit 3", ["-n", "2"], 1),
    ];
    for (script, arguments, expected) in scripts {
        let Some(fleet) = Fleet::new(script, SHORT) else {
            return;
        };
        fleet.submit(&arguments);
        assert_eq!(fleet.row()["state"], "queued");
        let worker = fleet.worker("w1");
        let (row, code) = fleet.wait();
        crash(worker);
        // The same run on one machine.
        let local = Scene::new(script);
        fs_err::copy(
            fleet.scene.sandbox.home().join(".gitconfig"),
            local.sandbox.home().join(".gitconfig"),
        )
        .unwrap();
        let ended = local
            .run(&[&["--commit"], &arguments[..]].concat())
            .run(LONG);
        let status = local.status();
        assert_eq!((Some(code), code), (ended.code(), expected), "{row}");
        assert_eq!(row["reason"], status["reason"], "{row}\n{status}");
        assert_eq!(row["exit_code"], expected);
        assert_eq!(row["iteration"], status["iteration"]);
        assert_eq!(row["last_check"]["result"], status["last_check"]["result"]);
        let lines = local.sandbox.git(&["show", "HEAD:work"]);
        assert_eq!(fleet.work().join("\n"), lines);
        let own = subjects(&local, "main");
        assert_eq!(iterations(&fleet).len(), own.len() - 1);
    }
}

#[test]
fn f2_run_of_a_killed_worker_continues_on_another() {
    let Some(fleet) = Fleet::new(HANGS, SHORT) else {
        return;
    };
    let dead = fleet.worker("w1");
    fleet.submit(&["--until", "test -e done"]);
    let hanging = fleet.wait_for_start(3);
    let other = fleet.worker("w2");
    assert_eq!(fleet.row()["worker"], "w1");
    let begun = Instant::now();
    crash(dead);
    fleet.wait_for_start(4);
    let took = begun.elapsed();
    assert!(took < LEASE + Duration::from_secs(3), "{took:?}");
    // The guard ended the agent of the dead worker before the other one started.
    assert!(!fleet.is_alive(&hanging));
    let (row, code) = fleet.wait();
    assert_eq!(
        (row["reason"].as_str(), code),
        (Some("done: the check passed"), 0)
    );
    assert_eq!(row["worker"], "w2");
    // Iterations 1 and 2 are there once, and the third, which was in flight, once too.
    assert_eq!(fleet.work(), ["1", "2", "4", "5"]);
    assert_eq!(iterations(&fleet).len(), 4);
    fleet.expect_one_agent_at_a_time();
    drop(other);
}

#[test]
fn f3_frozen_worker_commits_nothing_after_it_wakes() {
    let Some(fleet) = Fleet::new(HANGS, SHORT) else {
        return;
    };
    let frozen = fleet.worker("w1");
    fleet.submit(&["--until", "test -e done"]);
    let hanging = fleet.wait_for_start(3);
    // It takes the run as early as it can, so an agent that is still alive then is seen.
    let other = fleet.worker("w2");
    frozen.signal(Signal::STOP);
    // The guard needs no worker for this.
    wait_for("the end of the frozen worker's agent", LONG, || {
        (!fleet.is_alive(&hanging)).then_some(())
    });
    fleet.wait_for_start(4);
    let (row, code) = fleet.wait();
    assert_eq!((row["worker"].as_str(), code), (Some("w2"), 0));
    let mut frozen = frozen;
    frozen.signal(Signal::CONT);
    frozen.until("the loss of the lease", LONG, |frozen| {
        frozen.stdout().contains("the lease is lost").then_some(())
    });
    assert_eq!(fleet.row(), row);
    assert_eq!(fleet.work(), ["1", "2", "4", "5"]);
    fleet.expect_one_agent_at_a_time();
    drop((frozen, other));
}

#[test]
fn f4_terminated_worker_hands_its_run_over() {
    let Some(fleet) = Fleet::new(HANGS, "60s") else {
        return;
    };
    let first = fleet.worker("w1");
    fleet.submit(&["--until", "test -e done"]);
    let hanging = fleet.wait_for_start(3);
    let other = fleet.worker("w2");
    let begun = Instant::now();
    first.signal(Signal::TERM);
    first.wait(LONG).expect_code(0);
    assert!(begun.elapsed() < LONG / 2, "{:?}", begun.elapsed());
    assert!(!fleet.is_alive(&hanging));
    // Without a hand-over, the other worker would wait for a minute.
    fleet.wait_for_start(4);
    let (row, code) = fleet.wait();
    assert_eq!((row["worker"].as_str(), code), (Some("w2"), 0));
    assert_eq!(fleet.work(), ["1", "2", "4", "5"]);
    fleet.expect_one_agent_at_a_time();
    drop(other);
}

#[test]
fn f5_server_that_comes_back_changes_no_owner() {
    let Some(mut fleet) = Fleet::new(
        "append work {start}\n@2 print ready\n@2 await go\n@3 touch done",
        "20s",
    ) else {
        return;
    };
    let worker = fleet.worker("w1");
    fleet.submit(&["--until", "test -e done"]);
    fleet.wait_for_start(2);
    let other = fleet.worker("w2");
    fleet.kill_server();
    let begun = Instant::now();
    // The iteration ends while the server is away, so its save waits.
    let go = fleet.place("w1", "r1.1.").join("go");
    fs_err::write(go, "").unwrap();
    wait_for("three seconds without a server", LONG, || {
        (begun.elapsed() > Duration::from_secs(3)).then_some(())
    });
    fleet.start_server();
    wait_for("the server", LONG, || {
        let ps = fleet.fleet(&["ps"]).run(LONG);
        (ps.code() == Some(0)).then_some(())
    });
    let (row, code) = fleet.wait();
    assert_eq!((row["worker"].as_str(), code), (Some("w1"), 0));
    assert_eq!(row["epoch"], 1);
    assert_eq!(fleet.scene.start_count(), 3);
    drop((worker, other));
}

#[test]
fn f12_same_run_submitted_twice_is_one_run() {
    let Some(fleet) = Fleet::new("append work {start}", SHORT) else {
        return;
    };
    fleet.submit(&["-n", "2"]);
    let line = [
        "run", "--run-id", "r1", "--sleep", "0", "--prompt", PROMPT, "-n", "2", "--",
    ];
    let again = fleet.fleet(&line).args(fleet.scene.agent.argv()).run(LONG);
    assert!(again.expect_code(9).stderr.contains("already has a run"));
    let workers = [fleet.worker("w1"), fleet.worker("w2")];
    assert_eq!(fleet.wait().1, 0);
    assert_eq!(fleet.scene.start_count(), 2);
    assert_eq!(fleet.work(), ["1", "2"]);
    drop(workers);
}

#[test]
fn f14_cut_off_worker_ends_its_agent_before_another_begins() {
    let Some(fleet) = Fleet::new(HANGS, "4s") else {
        return;
    };
    let proxy = Proxy::start(fleet.servers.ports()[0]);
    let cut_off = fleet.worker_at(nats::address([proxy.port()]), "w1");
    fleet.submit(&["--until", "test -e done"]);
    let hanging = fleet.wait_for_start(3);
    let other = fleet.worker("w2");
    proxy.cut();
    wait_for("the end of the agent", LONG, || {
        (!fleet.is_alive(&hanging)).then_some(())
    });
    // No other worker had the run then.
    assert_eq!(fleet.scene.start_count(), 3);
    assert_eq!(fleet.row()["worker"], "w1");
    fleet.wait_for_start(4);
    let (row, code) = fleet.wait();
    assert_eq!((row["worker"].as_str(), code), (Some("w2"), 0));
    assert_eq!(fleet.work(), ["1", "2", "4", "5"]);
    fleet.expect_one_agent_at_a_time();
    drop((cut_off, other));
}

#[test]
fn stop_by_a_person_ends_the_run_in_the_fleet() {
    let Some(fleet) = Fleet::new("append work {start}\n@2 print ready\n@2 hang", SHORT) else {
        return;
    };
    let worker = fleet.worker("w1");
    fleet.submit(&["-n", "5"]);
    fleet.wait_for_start(2);
    let place = fleet.place("w1", "r1.1.");
    let stop = fleet.scene.rlm(&["stop"]).dir(&place).run(LONG);
    stop.expect_code(0);
    let other = fleet.worker("w2");
    let (row, code) = fleet.wait();
    assert_eq!(
        (row["reason"].as_str(), code),
        (Some("stopped by a person"), 7)
    );
    // Longer than a takeover needs.
    let begun = Instant::now();
    wait_for("a lease without a takeover", LONG, || {
        (begun.elapsed() > 2 * LEASE).then_some(())
    });
    assert_eq!(fleet.scene.start_count(), 2);
    drop((worker, other));
}

#[test]
fn submit_of_uncommitted_files_is_refused_without_a_server() {
    let scene = Scene::new("");
    fs_err::write(scene.file("new"), "").unwrap();
    let words = [
        "fleet",
        "run",
        "-n",
        "1",
        "-p",
        "x",
        "--nats",
        "127.0.0.1:1",
    ];
    let submit = || scene.rlm(&words).args(["--", "true"]).run(LONG);
    let refused = submit().expect_code(2).stderr;
    assert!(refused.contains("commit its files"), "{refused}");
    fs_err::remove_file(scene.file("new")).unwrap();
    let unreachable = submit().expect_code(1).stderr;
    assert!(
        unreachable.contains("can't connect") && unreachable.contains("--run-id "),
        "{unreachable}"
    );
}

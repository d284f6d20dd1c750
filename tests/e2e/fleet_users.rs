//! The users of `deploy/nats.conf`, TLS, and the secrets of a fleet: a real server loads the very file that users get. Without a server these tests skip
//! themselves.

use std::path::{Path, PathBuf};

use rlm_tests::nats::{NatsServers, RawClient};
use rlm_tests::{Ended, Rlm, wait_for};

use crate::LONG;
use crate::fleet::scene_for_server;
use crate::scene::{PROMPT, Scene};

type User = (&'static str, &'static str);

const OPERATOR: User = ("operator", "pOperatorSecret1");
const SUBMITTER: User = ("submitter", "pSubmitterSecret2");
const VIEWER: User = ("viewer", "pViewerSecret3");
const WORKER: User = ("worker", "pWorkerSecret4");
const PASSWORDS: [(&str, &str); 4] = [
    ("FLEET_OPERATOR_PASSWORD", OPERATOR.1),
    ("FLEET_SUBMITTER_PASSWORD", SUBMITTER.1),
    ("FLEET_VIEWER_PASSWORD", VIEWER.1),
    ("FLEET_WORKER_PASSWORD", WORKER.1),
];

/// Returns the shipped configuration of a server, with a directory of this test for its streams.
fn shipped(scene: &Scene) -> String {
    let place = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/nats.conf");
    let text = fs_err::read_to_string(place).unwrap();
    let store = scene.sandbox.path().join("nats");
    text.replace("/var/lib/nats", store.to_str().unwrap())
}

/// A server with the shipped configuration, and a scene.
struct Fleet {
    /// Ends before the sandbox, which waits for all processes.
    servers: NatsServers,
    scene: Scene,
    scheme: &'static str,
    authority: Option<PathBuf>,
}

impl Fleet {
    /// Starts the server with a configuration, and the authority of its certificate; `None` if there is no server program, and then the test is skipped.
    fn new(
        script: &str,
        scheme: &'static str,
        config: impl FnOnce(&Scene) -> (String, Option<PathBuf>),
    ) -> Option<Self> {
        let (program, scene) = scene_for_server(script)?;
        let (text, authority) = config(&scene);
        let config = scene.sandbox.path().join("nats.conf");
        fs_err::write(&config, text).unwrap();
        let servers = NatsServers::start_configured(&scene.sandbox, &program, &config, &PASSWORDS);
        wait_for("the server", LONG, || servers.is_ready().then_some(()));
        Some(Self {
            servers,
            scene,
            scheme,
            authority,
        })
    }

    /// Prepares `rlm ARGUMENTS` as a user. The commands of a local run are on another machine than the worker: it has no run, and its own index of live runs.
    fn rlm(&self, (user, password): User, arguments: &[&str]) -> Rlm<'_> {
        let (scheme, port) = (self.scheme, self.servers.ports()[0]);
        let address = format!("{scheme}://{user}:{password}@127.0.0.1:{port}");
        let rlm = self.scene.rlm(arguments).env("RLM_FLEET_NATS", address);
        let place = self.scene.sandbox.path().join("elsewhere");
        fs_err::create_dir_all(&place).unwrap();
        let rlm = match arguments[0] {
            "fleet" => rlm,
            _ => rlm
                .dir(&place)
                .env("XDG_STATE_HOME", &place)
                .env("HOME", &place),
        };
        match &self.authority {
            Some(authority) => rlm.env("RLM_FLEET_TLS_CA", authority),
            None => rlm,
        }
    }

    /// Prepares `rlm fleet ARGUMENTS` as a user.
    fn fleet(&self, user: User, arguments: &[&str]) -> Rlm<'_> {
        self.rlm(user, &[&["fleet"], arguments].concat())
    }

    /// Runs `rlm ARGUMENTS` as a user, and returns its output.
    #[track_caller]
    fn expect(&self, user: User, arguments: &[&str]) -> String {
        self.rlm(user, arguments).run(LONG).expect_code(0).stdout
    }

    fn run(&self, user: User, run: &str) -> Ended {
        let line = ["run", "--run-id", run, "--sleep", "0", "--prompt", PROMPT];
        let line = self
            .fleet(user, &line)
            .args(["--until", "test -e done", "--"]);
        line.args(self.scene.agent.argv()).run(LONG)
    }

    fn worker(&self, user: User) -> Rlm<'_> {
        let place = self.scene.sandbox.path().join("w1");
        let words = ["worker", "--name", "w1", "--place", place.to_str().unwrap()];
        self.fleet(user, &words).own_session()
    }

    /// Returns the working tree of the only claim of the worker.
    fn place(&self) -> PathBuf {
        let places = fs_err::read_dir(self.scene.sandbox.path().join("w1")).unwrap();
        let places = places.map(|entry| entry.unwrap().path());
        let mut places = places.filter(|place| place.is_dir());
        places.next().expect("a working tree")
    }
}

/// Makes a private authority and a certificate for the server, and the shipped configuration with its TLS lines. Returns the configuration and the
/// certificate of the authority.
fn with_tls(scene: &Scene) -> (String, Option<PathBuf>) {
    let key = || rcgen::KeyPair::generate().unwrap();
    let (authority_key, server_key) = (key(), key());
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap();
    let issuer = rcgen::Issuer::from_params(&params, &authority_key);
    let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&server_key, &issuer).unwrap();
    let place = scene.sandbox.path();
    let [ca, cert, key] = ["ca.pem", "server.pem", "server.key"].map(|name| place.join(name));
    fs_err::write(&ca, authority.pem()).unwrap();
    fs_err::write(&cert, certificate.pem()).unwrap();
    fs_err::write(&key, server_key.serialize_pem()).unwrap();
    let text = shipped(scene);
    let begin = text.find("#tls {").expect("the TLS lines");
    let end = begin + text[begin..].find("#}").expect("their end") + 2;
    let tls = text[begin..end].replace('#', "");
    let tls = tls.replace("/etc/nats/server.pem", cert.to_str().unwrap());
    let tls = tls.replace("/etc/nats/server.key", key.to_str().unwrap());
    let text = [&text[..begin], &tls, &text[end..]].concat();
    (text, Some(ca))
}

/// Returns the files below a directory whose bytes contain a text.
fn files_with(place: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs_err::read_dir(place).unwrap() {
        let (path, kind) = entry
            .map(|it| (it.path(), it.file_type().unwrap()))
            .unwrap();
        if kind.is_dir() {
            found.extend(files_with(&path, text));
        } else if kind.is_file() {
            let bytes = fs_err::read(&path).unwrap_or_default();
            let is_in = bytes.windows(text.len()).any(|it| it == text.as_bytes());
            found.extend(is_in.then_some(path));
        }
    }
    found
}

#[test]
fn f13a_f13c_f13d_each_user_does_its_work_over_tls_and_no_password_is_stored() {
    // The agent gets no address of the fleet.
    let script = "append work [{RLM_FLEET_NATS}]\nprint ready\n@1 await go\n@2.. touch done";
    let Some(mut fleet) = Fleet::new(script, "tls", with_tls) else {
        return;
    };
    let created = fleet.expect(OPERATOR, &["fleet", "init", "--lease", "2s"]);
    assert!(
        created.lines().all(|it| it.ends_with(": created")),
        "{created}"
    );
    let changed = fleet.expect(
        OPERATOR,
        &[
            "fleet", "init", "--lease", "3s", "--pool", "main", "--pool", "big",
        ],
    );
    for line in [
        "stream rlm-runs: unchanged",
        "consumer pool-main: changed",
        "consumer pool-big: created",
    ] {
        assert!(changed.contains(line), "{changed}");
    }
    fleet.run(SUBMITTER, "r1").expect_code(0);
    let listed = fleet.expect(VIEWER, &["fleet", "ps"]);
    assert!(listed.starts_with("r1  queued"), "{listed}");
    let worker = fleet.worker(WORKER).spawn();
    fleet.scene.wait_until_started(1);
    let logs = fleet.rlm(VIEWER, &["logs", "r1", "-f"]).spawn();
    let shown = fleet.expect(SUBMITTER, &["steer", "r1", "use tabs"]);
    assert!(shown.contains("queued: sent after this turn"), "{shown}");
    fleet.expect(SUBMITTER, &["pause", "r1", "--wait", "0s"]);
    let shown = fleet.expect(SUBMITTER, &["set", "r1", "max-iterations=9"]);
    assert!(shown.contains("in effect: iterations: 9"), "{shown}");
    let shown = fleet.expect(VIEWER, &["status", "r1"]);
    assert!(shown.contains("will pause"), "{shown}");
    fs_err::write(fleet.place().join("go"), "").unwrap();
    wait_for("the pause", LONG, || {
        fleet
            .expect(VIEWER, &["status", "r1"])
            .contains("paused")
            .then_some(())
    });
    fleet.expect(SUBMITTER, &["resume", "r1"]);
    fleet.expect(VIEWER, &["fleet", "wait", "r1"]);
    let events = logs.wait(LONG).expect_code(0);
    assert!(
        events.stdout.contains("iteration 2") && events.stderr.contains("ended"),
        "{events}"
    );
    fleet.expect(SUBMITTER, &["fleet", "fetch", "r1"]);
    let work = fleet.scene.sandbox.git(&["show", "rlm/r1:work"]);
    assert_eq!(work, "[]\n[]");
    let laptop = fleet.scene.sandbox.path().join("laptop");
    fleet.expect(
        SUBMITTER,
        &["fleet", "export", "r1", laptop.to_str().unwrap()],
    );
    // An import that is refused can be repeated by another user.
    let import = |user| fleet.fleet(user, &["import", "r1"]).dir(&laptop).run(LONG);
    expect_refused(&import(VIEWER), "");
    import(SUBMITTER).expect_code(0);
    fleet.expect(OPERATOR, &["fleet", "budget", "set", "5"]);
    let budget = fleet.expect(VIEWER, &["fleet", "budget", "show"]);
    assert!(budget.contains("of 5.00 USD spent in total"), "{budget}");
    fleet.expect(OPERATOR, &["fleet", "drain", "w1"]);
    worker.wait(LONG).expect_code(0);
    fleet.expect(OPERATOR, &["fleet", "remove", "r1"]);
    // The objects of the removed run are stored again.
    fleet.run(SUBMITTER, "r1").expect_code(0);
    fleet.expect(SUBMITTER, &["stop", "r1"]);
    fleet.expect(SUBMITTER, &["fleet", "resume", "r1"]);
    // The server refused only the import of the viewer.
    let refused = fleet.servers.log("Permissions Violation");
    let of_viewer = |line: &String| line.contains("user:viewer");
    assert!(
        !refused.is_empty() && refused.iter().all(of_viewer),
        "{refused:#?}"
    );
    // An authority that rlm does not know, and a file that is none.
    let authority = fleet.authority.take().unwrap();
    let unknown = fleet.fleet(VIEWER, &["ps"]).run(LONG).expect_code(1).stderr;
    assert!(
        unknown.contains("is not trusted") && unknown.contains("--tls-ca FILE"),
        "{unknown}"
    );
    let key = authority.with_file_name("server.key");
    let refused = fleet.fleet(VIEWER, &["ps", "--tls-ca", key.to_str().unwrap()]);
    let refused = refused.run(LONG).expect_code(2).stderr;
    assert!(
        refused.contains("server.key") && refused.contains("no certificate"),
        "{refused}"
    );
    fleet.authority = Some(authority);
    let wrong = fleet
        .fleet(("operator", "wrong"), &["ps"])
        .run(LONG)
        .expect_code(1);
    assert!(wrong.stderr.contains("authorization violation"), "{wrong}");
    let place = fleet.scene.sandbox.path();
    // The log of the server has each subject and message, and its store has all records: the search finds what is there.
    for known in ["rlm.ctl.r1", "use tabs"] {
        assert!(!files_with(place, known).is_empty(), "{known}");
    }
    for (_, password) in PASSWORDS {
        let found = files_with(place, password);
        assert!(found.is_empty(), "{password} is in {found:?}");
    }
}

#[track_caller]
fn expect_refused(ended: &Ended, subject: &str) {
    let words = ["the server refuses this to the user", "ermissions", subject];
    let missing: Vec<&&str> = words
        .iter()
        .filter(|it| !ended.stderr.contains(**it))
        .collect();
    assert!(
        missing.is_empty() && ended.code() == Some(1),
        "{missing:?} not in: {ended}"
    );
    assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
    assert!(
        ended.stdout.is_empty() || ended.stdout.contains("is ready"),
        "{ended}"
    );
}

#[test]
fn f13b_f13d_wrong_user_is_refused_and_changes_nothing() {
    let Some(mut fleet) = Fleet::new("", "nats", |scene| (shipped(scene), None)) else {
        return;
    };
    let none = fleet.servers.streams();
    for user in [VIEWER, WORKER, SUBMITTER] {
        let init = fleet.fleet(user, &["init"]).run(LONG);
        expect_refused(&init, "$JS.API.STREAM.");
    }
    assert_eq!(fleet.servers.streams(), none);
    fleet.expect(OPERATOR, &["fleet", "init", "--lease", "2s"]);
    // One run waits for a worker, and one has ended.
    for run in ["queued", "ended"] {
        fleet.run(SUBMITTER, run).expect_code(0);
    }
    fleet.expect(SUBMITTER, &["stop", "ended"]);
    let before = fleet.servers.streams();
    let place = fleet.scene.sandbox.path().join("exported");
    let place = place.to_str().unwrap();
    let commands: [(&[User], &[&str], &str); 13] = [
        (
            &[VIEWER, WORKER],
            &["steer", "queued", "x"],
            "rlm.req.queued",
        ),
        (&[VIEWER, WORKER], &["pause", "queued"], "rlm.req.queued"),
        (
            &[VIEWER, WORKER],
            &["interrupt", "queued"],
            "rlm.req.queued",
        ),
        (
            &[VIEWER, WORKER],
            &["set", "queued", "max-iterations=2"],
            "rlm.req.queued",
        ),
        (&[VIEWER], &["stop", "queued"], "rlm.run.queued"),
        (&[VIEWER, WORKER], &["fleet", "resume", "ended"], ""),
        (
            &[VIEWER],
            &["fleet", "export", "queued", place],
            "rlm.run.queued",
        ),
        (&[VIEWER], &["fleet", "fetch", "ended"], "OBJ_rlm-blobs"),
        (
            &[VIEWER, WORKER, SUBMITTER],
            &["fleet", "remove", "ended"],
            "rlm-runs",
        ),
        (
            &[VIEWER, WORKER, SUBMITTER],
            &["fleet", "budget", "set", "1"],
            "rlm.settings.budget",
        ),
        (
            &[VIEWER, WORKER, SUBMITTER],
            &["fleet", "drain", "w1"],
            "rlm.worker.w1",
        ),
        (&[VIEWER, SUBMITTER, OPERATOR], &["fleet", "worker"], ""),
        (&[WORKER], &["fleet", "ps"], "$JS.API.STREAM.INFO.rlm-runs"),
    ];
    for (users, command, subject) in commands {
        for user in users {
            println!("{} {command:?}", user.0);
            expect_refused(&fleet.rlm(*user, command).run(LONG), subject);
            assert_eq!(fleet.servers.streams(), before, "{} {command:?}", user.0);
        }
    }
    for user in [VIEWER, WORKER] {
        expect_refused(&fleet.run(user, "other"), "");
    }
    let init = fleet.fleet(SUBMITTER, &["init", "--lease", "9s"]).run(LONG);
    expect_refused(&init, "$JS.API.");
    assert_eq!(fleet.servers.streams(), before);
    expect_raw_refusals(fleet.servers.ports()[0]);
    assert_eq!(fleet.servers.streams(), before);
    // An address with tls:// refuses a server without TLS, before it sends the password. So does an authority.
    let logins = |fleet: &Fleet| fleet.servers.log("\"user\":\"viewer\"").len();
    let before = logins(&fleet);
    assert!(before > 0);
    let (_, authority) = with_tls(&fleet.scene);
    for (scheme, authority) in [("tls", None), ("nats", authority)] {
        (fleet.scheme, fleet.authority) = (scheme, authority);
        let refused = fleet.fleet(VIEWER, &["ps"]).run(LONG).expect_code(1);
        assert!(refused.stderr.contains("can't connect"), "{refused}");
        assert_eq!(logins(&fleet), before);
    }
}

/// Lists of subjects.
type Subjects<'a> = &'a [&'a [&'a str]];

/// Sends what no command of rlm sends, as each user.
fn expect_raw_refusals(port: u16) {
    let all = [
        "$SYS.REQ.SERVER.PING",
        "other.subject",
        "_INBOX.operator.x",
        "rlm.ctl",
        "rlm",
    ];
    let removals = [
        "$JS.API.STREAM.DELETE.rlm-runs",
        "$JS.API.STREAM.PURGE.rlm-runs",
        "$JS.API.STREAM.PURGE.OBJ_rlm-blobs",
        "$JS.API.STREAM.MSG.DELETE.rlm-runs",
        "$JS.API.STREAM.UPDATE.rlm-runs",
        "$JS.API.STREAM.CREATE.other",
        "$JS.API.STREAM.LIST",
        "$JS.API.CONSUMER.DELETE.rlm-work.pool-main",
        "$JS.API.CONSUMER.CREATE.rlm-runs.spy",
        "$JS.API.CONSUMER.CREATE.OBJ_rlm-blobs",
        "$JS.API.CONSUMER.CREATE.rlm-transcripts",
        "rlm.settings.budget",
        "rlm.worker.w1",
    ];
    let taking = [
        "$JS.API.CONSUMER.MSG.NEXT.rlm-work.pool-main",
        "$JS.ACK.rlm-work.x",
        "rlm.ctl.r1",
        "rlm.spent.total",
        "rlm.reply.x",
    ];
    let queueing = ["rlm.work.main.r4", "rlm.req.r1"];
    let writing = ["rlm.run.r1", "$O.rlm-blobs.M.x"];
    let users: [(User, Subjects<'_>, &[&str]); 4] = [
        (
            WORKER,
            &[&all, &removals, &queueing],
            &[
                "rlm.run.*",
                "rlm.work.>",
                "rlm.reply.*",
                "_INBOX.submitter.x",
            ],
        ),
        (
            SUBMITTER,
            &[&all, &removals, &taking],
            &["rlm.run.*", "rlm.ctl.*", "rlm.live.*", "_INBOX.worker.x"],
        ),
        (
            VIEWER,
            &[&all, &removals, &taking, &queueing, &writing],
            &["rlm.run.*", "rlm.ctl.*", "_INBOX.worker.x"],
        ),
        (
            OPERATOR,
            &[&all[..2], &taking],
            &["rlm.ctl.*", "_INBOX.worker.x"],
        ),
    ];
    for (user, publish, subscribe) in users {
        let mut raw = RawClient::connect(port, user);
        for subject in publish.concat() {
            let refused = raw.refusal(format!("PUB {subject} 0\r\n\r\n"));
            assert!(
                refused.is_some_and(|it| it.contains(subject)),
                "{user:?} {subject}"
            );
        }
        for subject in subscribe.iter().chain(&[">", "$JS.API.>"]) {
            let refused = raw.refusal(format!("SUB {subject} 1\r\n"));
            assert!(
                refused.is_some_and(|it| it.contains(subject)),
                "{user:?} {subject}"
            );
        }
        // The control of this test: an allowed operation is not refused.
        assert_eq!(raw.refusal(format!("SUB _INBOX.{}.* 2\r\n", user.0)), None);
    }
}

#[test]
fn f13e_shipped_unit_of_a_worker_is_valid() {
    let unit = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../deploy/rlm-fleet-worker.service"
    );
    let verify = std::process::Command::new("systemd-analyze")
        .args(["verify", unit])
        .output();
    let Ok(verify) = verify else {
        println!("skipped: there is no systemd-analyze");
        return;
    };
    let text = String::from_utf8_lossy(&verify.stderr);
    assert!(verify.status.success() && text.is_empty(), "{text}");
    // Its command is one that rlm accepts, and a wrong address ends it with 1, after which systemd starts it again.
    let unit = fs_err::read_to_string(unit).unwrap();
    let mut lines = unit.lines();
    let line = lines.find_map(|it| it.strip_prefix("ExecStart=/usr/bin/env rlm "));
    let words: Vec<&str> = line.unwrap().split(' ').collect();
    let scene = Scene::new("");
    let rlm = scene.rlm(&words).env("RLM_FLEET_NATS", "127.0.0.1:1");
    let refused = rlm.run(LONG).expect_code(1);
    assert!(refused.stderr.contains("can't connect"), "{refused}");
}

//! Notifications by the desktop and by webhooks: each is acknowledged, or shown as failed.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::{Arc, Mutex};

use fs_err as fs;
use rlm_tests::wait_for;
use rustix::process::Signal;
use serde_json::Value;

use crate::LONG;
use crate::desktop::Bus;
use crate::scene::{Scene, expect_in_order, json, stop};

/// The programs that can send a notification to a desktop.
const SENDERS: [&str; 2] = ["busctl", "gdbus"];
/// A part of each address and of each token, which must appear nowhere.
const SECRET: &str = "5ecret";

/// The answer of a webhook to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// It responds with this status.
    Status(u16),
    /// It closes the connection without a response.
    Close,
    /// It never responds.
    Silence,
}

/// A webhook on the loopback device. Its thread ends with the test.
struct Webhook {
    port: u16,
    /// Each request: the head and the JSON.
    requests: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Webhook {
    /// Starts a server that gives these answers in turn, and the last one to all later requests.
    fn start(answers: &[Answer]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::<Mutex<Vec<_>>>::default();
        let (answers, seen) = (answers.to_vec(), Arc::clone(&requests));
        std::thread::spawn(move || {
            let mut silent = Vec::new();
            for (number, stream) in listener.incoming().enumerate() {
                let mut stream = stream.unwrap();
                let answer = answers[number.min(answers.len() - 1)];
                if let Some(request) = request(&mut stream) {
                    seen.lock().unwrap().push(request);
                }
                match answer {
                    // The client may be gone.
                    Answer::Status(status) => drop(write!(
                        stream,
                        "HTTP/1.1 {status} X\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"
                    )),
                    Answer::Close => {}
                    Answer::Silence => silent.push(stream),
                }
            }
        });
        Self { port, requests }
    }

    /// Writes the user's own file with this webhook.
    fn configure(&self, scene: &Scene, more: &str) {
        let port = self.port;
        configure(
            scene,
            &format!("[[webhook]]\nurl = 'http://127.0.0.1:{port}/{SECRET}'\n{more}"),
        );
    }

    fn requests(&self) -> Vec<(String, Value)> {
        self.requests.lock().unwrap().clone()
    }
}

/// Writes the user's own file.
fn configure(scene: &Scene, text: &str) {
    let place = scene.sandbox.home().join(".config/rlm");
    fs::create_dir_all(&place).unwrap();
    fs::write(place.join("config.toml"), text).unwrap();
}

/// Reads the head and the JSON of a request.
fn request(stream: &mut TcpStream) -> Option<(String, Value)> {
    stream.set_read_timeout(Some(LONG)).unwrap();
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n")
            && let Ok(value) = serde_json::from_str(body)
        {
            return Some((head.to_owned(), value));
        }
        match stream.read(&mut piece) {
            Ok(read) if read > 0 => bytes.extend_from_slice(&piece[..read]),
            _ => return None,
        }
    }
}

/// Returns the notifications in `rlm status --json`: event, channel, tries, whether it was acknowledged, and the answer.
fn recorded(scene: &Scene) -> Vec<(String, String, u64, bool, String)> {
    let status = scene.status();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all = status["notifications"].as_array().unwrap().iter();
    all.map(|it| {
        let tries = it["tries"].as_u64().unwrap();
        let delivered = it["delivered"].as_bool().unwrap();
        let (event, channel) = (text(&it["event"]), text(&it["channel"]));
        (event, channel, tries, delivered, text(&it["answer"]))
    })
    .collect()
}

/// Returns the events of notifications in `rlm report --json`.
fn reported(scene: &Scene) -> Vec<(String, String)> {
    let report = scene.rlm(&["report", "--json"]).run(LONG).expect_code(0);
    let report = json(report.stdout.lines().next().unwrap());
    let events = report["events"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    events
        .map(|it| (text(&it["what"]), text(&it["detail"])))
        .filter(|(what, _)| what.starts_with("notif"))
        .collect()
}

/// Returns a search path with the programs of a run, and of [`SENDERS`] only this one; `None` if it is not installed.
fn path_with(scene: &Scene, sender: &str) -> Option<String> {
    let place = scene.sandbox.path().join(sender);
    fs::create_dir_all(&place).unwrap();
    for name in ["sh", "git", "cat", sender] {
        let found = ["/usr/bin", "/bin", "/usr/local/bin"].map(|dir| Path::new(dir).join(name));
        let program = found.iter().find(|path| path.exists())?;
        symlink(program, place.join(name)).unwrap();
    }
    Some(place.display().to_string())
}

#[test]
fn v13a_desktop_notification_is_acknowledged_by_an_id() {
    for sender in SENDERS {
        let scene = Scene::new("print turn {start}");
        let Some(bus) = Bus::start(scene.sandbox.path()) else {
            return println!("skipped: dbus-daemon is missing");
        };
        let Some(path) = path_with(&scene, sender) else {
            println!("skipped: {sender} is missing");
            continue;
        };
        let desktop = bus.desktop(0);
        let title = "--fix <b>it's</b>\\";
        let run = ["--once", "--notify", "desktop"];
        let run = scene.run(&[&run[..], &[&format!("--title={title}")]].concat());
        let run = run.env("DBUS_SESSION_BUS_ADDRESS", &bus.address);
        let run = run.env("RLM_VIEW_URL", "http://localhost:7/");
        run.env("PATH", path).run(LONG).expect_code(0);
        let shown = desktop.shown();
        assert_eq!(shown.len(), 1, "{sender}: {shown:?}");
        assert_eq!(shown[0].title, format!("{title}: done"), "{sender}");
        let id = scene.run_id();
        let lines: Vec<&str> = shown[0].body.lines().collect();
        assert_eq!(lines.len(), 3, "{sender}: {lines:?}");
        assert!(lines[0].starts_with("finished"), "{lines:?}");
        assert!(
            lines[1].starts_with(&format!("run {id}, iteration 1")),
            "{lines:?}"
        );
        let page = format!("http://localhost:7/runs/{id}-");
        assert!(lines[2].starts_with(&page), "{lines:?}");
        let done = ("done".into(), "desktop".into(), 1, true, "id 1".into());
        assert_eq!(recorded(&scene), [done], "{sender}");
        let notified = "`done` by desktop, acknowledged: id 1".to_owned();
        assert_eq!(reported(&scene), [("notified".to_owned(), notified)]);
        scene.expect_nothing_alive();
    }
}

#[test]
fn v13b_refused_desktop_notification_is_tried_again() {
    let scene = Scene::new("print turn {start}");
    let Some(bus) = Bus::start(scene.sandbox.path()) else {
        return println!("skipped: dbus-daemon is missing");
    };
    if !SENDERS
        .iter()
        .any(|it| Path::new("/usr/bin").join(it).exists())
    {
        return println!("skipped: busctl and gdbus are missing");
    }
    let desktop = bus.desktop(1);
    let run = scene.run(&["--once", "--notify", "desktop"]);
    let run = run.env("DBUS_SESSION_BUS_ADDRESS", &bus.address);
    run.run(LONG).expect_code(0);
    assert_eq!(desktop.shown().len(), 1);
    let done = ("done".into(), "desktop".into(), 2, true, "id 1".into());
    assert_eq!(recorded(&scene), [done]);
}

#[test]
fn v13c_desktop_without_a_server_is_shown_as_failed() {
    let scene = Scene::new("print turn {start}");
    let run = scene.run(&["--once", "--notify", "desktop"]);
    let nowhere = format!("unix:path={}/no-bus", scene.sandbox.path().display());
    let ended = run.env("DBUS_SESSION_BUS_ADDRESS", nowhere);
    let ended = ended.run(LONG).expect_code(0);
    let lines = [
        "waiting for the last notifications",
        "the notification of `done` by desktop failed",
    ];
    expect_in_order(&ended.stdout, &lines);
    let all = recorded(&scene);
    let [(event, channel, _, delivered, _)] = &all[..] else {
        panic!("{all:?}")
    };
    let place = (event.as_str(), channel.as_str(), *delivered);
    assert_eq!(place, ("done", "desktop", false));
    let status = scene.rlm(&["status"]).run(LONG).expect_code(0);
    let line = [
        "notify  `done` by desktop, not acknowledged",
        "rlm doctor --notify",
    ];
    expect_in_order(&status.stdout, &line);
    let reported = reported(&scene);
    assert_eq!(reported[0].0, "notify_failed", "{reported:?}");
}

#[test]
fn v13d_webhook_that_fails_twice_gets_the_notification() {
    let answers = [Answer::Status(500), Answer::Close, Answer::Status(204)];
    let server = Webhook::start(&answers);
    let scene = Scene::new("print turn {start}");
    server.configure(&scene, "token-variable = 'HOOK_TOKEN'\n");
    let run = scene.run(&["--once", "--notify", "webhook", "--title", "fix it"]);
    let run = run.env("HOOK_TOKEN", SECRET);
    run.run(LONG).expect_code(0);
    let done = ("done".into(), "webhook".into(), 3, true, "HTTP 204".into());
    assert_eq!(recorded(&scene), [done]);
    let requests = server.requests();
    assert_eq!(requests.len(), 3, "{requests:?}");
    let (head, json) = &requests[2];
    assert!(
        head.starts_with(&format!("POST /{SECRET} HTTP/1.1")),
        "{head}"
    );
    let bearer = format!("authorization: bearer {SECRET}");
    assert!(head.to_lowercase().contains(&bearer), "{head}");
    assert_eq!(json["title"], "fix it: done");
    assert_eq!(
        (&json["event"], &json["exit_code"]),
        (&"done".into(), &0.into())
    );
    let notified = "`done` by webhook, acknowledged after 3 tries: HTTP 204".to_owned();
    assert_eq!(reported(&scene), [("notified".to_owned(), notified)]);
    let status = scene.rlm(&["status"]).run(LONG).expect_code(0);
    assert!(!status.stdout.contains("notify "), "{status}");
}

#[test]
fn v13e_silent_webhook_delays_no_run_and_no_stop_and_is_shown_as_failed() {
    let server = Webhook::start(&[Answer::Silence]);
    let scene = Scene::new("print turn {start}\n@4 print ready\n@4 hang");
    server.configure(&scene, "");
    let on = "started,iteration,stopped";
    let run = ["-n", "5", "--notify", "webhook", "--notify-on", on];
    let running = scene.ready(&run);
    // Three iterations are complete while the first notification waits for its answer.
    assert_eq!(server.requests().len(), 1);
    assert_eq!(recorded(&scene), []);
    let ended = stop(running, Signal::TERM);
    let warning = "the notification of `started` by webhook failed";
    expect_in_order(&ended.stdout, &[warning, "all processes ended"]);
    let all = recorded(&scene);
    let [(event, _, 1, false, why)] = &all[..] else {
        panic!("{all:?}")
    };
    assert_eq!(event, "started");
    assert_eq!(why, "the run ended before it was acknowledged");
    // Three iterations and the end of the run.
    assert_eq!(scene.status()["notifications_dropped"], 4);
    let status = scene.rlm(&["status"]).run(LONG).expect_code(0);
    let lines = [
        "notify  4 notifications not sent",
        "notify  `started` by webhook, not acknowledged",
    ];
    expect_in_order(&status.stdout, &lines);
    scene.expect_nothing_alive();
}

#[test]
fn v13f_address_and_token_of_a_webhook_appear_nowhere() {
    let answers = [Answer::Status(404)];
    let server = Webhook::start(&answers);
    let scene = Scene::new("print ready\nhang");
    server.configure(&scene, "token-variable = 'HOOK_TOKEN'\n");
    let on = "started,stopped";
    let run = ["--once", "--notify", "webhook", "--notify-on", on];
    let run = scene.run(&run).env("HOOK_TOKEN", SECRET);
    let running = crate::scene::until_ready(run);
    wait_for("the first request", LONG, || {
        (!server.requests().is_empty()).then_some(())
    });
    for process in scene.alive() {
        let line = fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        assert!(!line.contains(SECRET), "{line}");
    }
    let stopped = stop(running, Signal::TERM);
    let mut texts = vec![stopped.to_string()];
    for command in [
        &["status"][..],
        &["status", "--json"],
        &["logs"],
        &["logs", "--json"],
        &["report", "--json"],
        &["report", "-o", "-"],
        &["config", "show"],
        &["config", "show", "--json"],
        &[
            "run",
            "--dry-run",
            "-p",
            "x",
            "--notify",
            "webhook",
            "--",
            "true",
        ],
        &["doctor", "--notify"],
    ] {
        let ended = scene.rlm(command).env("HOOK_TOKEN", SECRET).run(LONG);
        texts.push(format!("{command:?} {ended}"));
    }
    for text in &texts {
        assert!(!text.contains(SECRET), "{text}");
        assert!(!text.contains("127.0.0.1"), "{text}");
    }
    let mut places = vec![scene.file(".rlm")];
    let mut files = 0;
    while let Some(place) = places.pop() {
        for entry in fs::read_dir(&place).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => places.push(path),
                false => {
                    files += 1;
                    let bytes = fs::read(&path).unwrap_or_default();
                    let has_secret = bytes
                        .windows(SECRET.len())
                        .any(|it| it == SECRET.as_bytes());
                    assert!(!has_secret, "{}", path.display());
                }
            }
        }
    }
    assert!(files > 2, "the files of the run were read");
}

#[test]
fn v13g_project_can_name_no_webhook() {
    let scene = Scene::new("print turn {start}");
    let webhook = format!("notify = ['webhook']\n[[webhook]]\nurl = 'http://127.0.0.1/{SECRET}'\n");
    fs::write(scene.file("rlm.toml"), &webhook).unwrap();
    let refused = scene.run(&["--once"]).run(LONG).expect_code(2);
    let why = "`webhook` is allowed only in your own file";
    assert!(refused.stderr.contains(why), "{refused}");
    assert!(!refused.stderr.contains(SECRET), "{refused}");
    assert_eq!(refused.stderr.lines().count(), 1, "{refused}");
    // A channel without its webhook is an error, too: nothing would be sent.
    fs::write(scene.file("rlm.toml"), "notify = ['webhook']\n").unwrap();
    let refused = scene.run(&["--once"]).run(LONG).expect_code(2);
    assert!(refused.stderr.contains("[[webhook]]"), "{refused}");
    configure(
        &scene,
        "[[webhook]]\nurl = 'https://localhost/'\ntoken-variable = 'HOOK_TOKEN'\n",
    );
    let refused = scene.run(&["--once"]).run(LONG).expect_code(2);
    let why = "the variable `HOOK_TOKEN` has no token";
    assert!(refused.stderr.contains(why), "{refused}");
    assert_eq!(scene.start_count(), 0);
}

#[test]
fn v13h_doctor_tests_each_channel_and_reports_its_acknowledgement() {
    let server = Webhook::start(&[Answer::Status(200), Answer::Status(403)]);
    let scene = Scene::new("print turn {start}");
    server.configure(&scene, "");
    let own = fs::read_to_string(scene.sandbox.home().join(".config/rlm/config.toml")).unwrap();
    let notify = "notify = ['webhook', 'command:cat > tested', 'command:exit 3']\n";
    configure(&scene, &format!("{notify}{own}"));
    let channels = |code| {
        let ended = scene.rlm(&["doctor", "--notify", "--json"]).run(LONG);
        let findings = json(ended.expect_code(code).stdout.trim());
        let channels = findings["notifications"].as_array().unwrap().iter();
        channels
            .map(|it| {
                let [channel, health, detail] = ["channel", "health", "detail"]
                    .map(|name| it[name].as_str().unwrap().to_owned());
                format!("{channel}: {health}: {detail}")
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(
        channels(1),
        [
            "webhook: ok: acknowledged: HTTP 200",
            "command 1: ok: acknowledged: exit code 0",
            "command 2: problem: not acknowledged: exit status 3",
        ]
    );
    let tested = fs::read_to_string(scene.file("tested")).unwrap();
    assert_eq!(json(tested.trim())["event"], "test");
    let refused =
        "webhook: problem: not acknowledged: the server responded HTTP 403: check its key";
    assert_eq!(channels(1)[0], refused);
    // A command that only the project names doesn't run.
    configure(&scene, "");
    fs::remove_file(scene.file("tested")).unwrap();
    fs::write(
        scene.file("rlm.toml"),
        "notify = ['command:touch tested']\n",
    )
    .unwrap();
    let unrun = channels(0);
    assert!(
        unrun[0].starts_with("command: warning: only rlm.toml"),
        "{unrun:?}"
    );
    assert!(!scene.file("tested").exists());
    fs::remove_file(scene.file("rlm.toml")).unwrap();
    let none = scene.rlm(&["doctor", "--notify"]).run(LONG).expect_code(2);
    assert!(none.stderr.contains("no channel is configured"), "{none}");
}

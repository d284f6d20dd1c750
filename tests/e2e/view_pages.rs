//! The pages of `rlm view`, as an HTTP client sees them: what they show is true, and their buttons act.

use std::path::Path;

use rlm_tests::http::{EventStream, HttpRequest, HttpResponse};
use rlm_tests::{Effort, Rlm, Running, seed, wait_for};
use rustix::process::Signal;
use serde_json::Value;

use crate::scene::{PROMPT, Scene, crash, says, stop, text};
use crate::steering::Random;
use crate::{FAKE_AGENT, LONG};

/// The number of lines, and of cut connections, of the run whose transcript a page follows.
const V5_LINES: Effort = Effort {
    ci: 20_000,
    nightly: 100_000,
};
const V5_CUTS: Effort = Effort {
    ci: 25,
    nightly: 100,
};
/// The number of killed runs.
const V6_KILLS: Effort = Effort {
    ci: 6,
    nightly: 1000,
};

/// A server, and a logged-in browser.
#[derive(Debug)]
pub(crate) struct Browser {
    pub(crate) server: Option<Running>,
    pub(crate) port: u16,
    pub(crate) host: String,
    pub(crate) cookie: String,
}

/// Returns the host, the port and the path of a link.
pub(crate) fn parts_of(link: &str) -> (String, u16, String) {
    let rest = link.trim().strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let port = host.split_once(':').unwrap().1.parse().unwrap();
    (host.to_owned(), port, format!("/{path}"))
}

impl Browser {
    /// Starts a server, and logs in.
    pub(crate) fn new(scene: &Scene, arguments: &[&str]) -> Self {
        let view = [&["view", "--no-open"], arguments].concat();
        Self::start(scene.rlm(&view))
    }

    pub(crate) fn start(view: Rlm<'_>) -> Self {
        let mut server = view.spawn();
        let link = server.until("link", LONG, |it| {
            let stdout = it.stdout();
            Some(stdout.strip_suffix('\n')?.to_owned())
        });
        Self {
            server: Some(server),
            ..Self::log_in(&link)
        }
    }

    /// Logs in at a server of another command.
    pub(crate) fn log_in(link: &str) -> Self {
        let (host, port, path) = parts_of(link);
        let mut this = Self {
            server: None,
            port,
            host,
            cookie: String::new(),
        };
        let login = this.get(&path);
        assert_eq!((login.status, login.header("location")), (303, Some("/")));
        let cookie = login.header("set-cookie").unwrap();
        assert!(
            cookie.ends_with("; Path=/; HttpOnly; SameSite=Lax"),
            "{cookie}"
        );
        this.cookie = cookie.split(';').next().unwrap().to_owned();
        this
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> HttpRequest {
        let request = HttpRequest::new(self.port, method, path).header("host", &self.host);
        match self.cookie.as_str() {
            "" => request,
            cookie => request.header("cookie", cookie),
        }
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> HttpResponse {
        self.request("GET", path).send().unwrap()
    }

    /// Returns a page that must exist.
    #[track_caller]
    pub(crate) fn page(&self, path: &str) -> String {
        let page = self.get(path);
        assert_eq!(page.status, 200, "{path}: {}", page.body);
        page.body
    }

    /// Returns the secret of the forms.
    pub(crate) fn form_secret(&self) -> String {
        let page = self.page("/inbox");
        let secret = page.split("<meta name=\"csrf\" content=\"").nth(1).unwrap();
        secret.split('"').next().unwrap().to_owned()
    }

    /// Returns the key of a run in addresses.
    pub(crate) fn key(&self, run: &str) -> String {
        wait_for(format_args!("{run} in the list"), LONG, || {
            let page = self.page("/");
            let at = page.find(&format!("/runs/{run}-"))?;
            let key = &page[at + "/runs/".len()..];
            Some(key[..key.find('"')?].to_owned())
        })
    }

    /// Returns the request of a form.
    fn form(&self, path: &str, action: &str, fields: &[(&str, &str)]) -> HttpRequest {
        let secret = self.form_secret();
        let mut body = format!("csrf={secret}&action={action}");
        for (name, value) in fields {
            let value: String = value.bytes().map(|byte| format!("%{byte:02x}")).collect();
            body += &format!("&{name}={value}");
        }
        let request = self.request("POST", path);
        let request = request.header("origin", &format!("http://{}", self.host));
        request.body("application/x-www-form-urlencoded", body)
    }

    /// Sends a form, as the script of the page does, and returns the result and its text.
    #[track_caller]
    pub(crate) fn act(&self, run: &str, action: &str, fields: &[(&str, &str)]) -> (String, String) {
        let path = format!("/runs/{}/act", self.key(run));
        let request = self.form(&path, action, fields);
        let answer = request.header("accept", "application/json").send().unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        let answer = answer.json();
        (text(&answer["result"]), text(&answer["text"]))
    }

    /// Opens the stream of changes of a page.
    pub(crate) fn events(&self, topic: &str) -> EventStream {
        let request = self.request("GET", &format!("/events?topic={topic}"));
        request.events().unwrap()
    }
}

/// Waits for an event of a stream, and returns it.
#[track_caller]
pub(crate) fn wait_for_event(
    events: &mut EventStream,
    what: &str,
    mut is_it: impl FnMut(&Value) -> bool,
) -> Value {
    // The end of the connection ends the wait.
    events
        .find(|event| is_it(event))
        .unwrap_or_else(|| panic!("the stream ended without {what}"))
}

/// Returns the text of a part in an event.
pub(crate) fn part<'a>(event: &'a Value, id: &str) -> &'a str {
    event["parts"][id].as_str().unwrap_or_default()
}

#[test]
fn v1_list_has_the_runs_of_all_projects_live_ones_first() {
    let scene = Scene::new("print ready\n@4 print up\n@4 hang\n@5 print up\n@5 hang");
    let other = |name: &str| {
        let folder = scene.sandbox.path().join(name);
        fs_err::create_dir(&folder).unwrap();
        folder
    };
    let (second, third) = (other("second"), other("third"));
    let repo = scene.sandbox.repo();
    let once = |folder: &Path, title: &str| {
        let run = scene.run(&["--once", "--title", title]).dir(folder);
        run.run(LONG).expect_code(0);
    };
    once(&repo, "first ended");
    once(&second, "second ended");
    once(&third, "third ended");
    let live = |folder: &Path, title: &str| {
        let mut run = scene.run(&["--once", "--title", title]).dir(folder).spawn();
        says(&mut run, "up");
        run
    };
    let running = [live(&second, "fourth live"), live(&third, "fifth live")];
    let browser = Browser::new(&scene, &[]);
    let page = browser.page("/");
    let at = |title: &str| {
        page.find(title)
            .unwrap_or_else(|| panic!("{title}: {page}"))
    };
    let order = [
        "fifth live",
        "fourth live",
        "third ended",
        "second ended",
        "first ended",
    ]
    .map(at);
    assert!(order.is_sorted(), "{order:?}");
    assert!(
        page.contains("<b>2</b> live") && page.contains("<b>5</b> runs"),
        "{page}"
    );
    let found = browser.page("/?q=second+LIVE");
    assert!(
        found.contains("fourth live") && !found.contains("fifth live"),
        "{found}"
    );
    let waiting = browser.page("/?show=ended");
    assert!(
        !waiting.contains("fourth live") && waiting.contains("first ended"),
        "{waiting}"
    );
    for run in running {
        stop(run, Signal::INT);
    }
}

#[test]
fn v2_run_is_steered_paused_continued_and_stopped_from_its_page() {
    let scene = Scene::new(
        "say ready\ntool Bash make\nexpect-steer\ntool-end made\nsay so\nawait go\nturn",
    );
    let mut running = scene.claude(&["-n", "5"]).spawn();
    says(&mut running, "ready");
    let browser = Browser::new(&scene, &[]);
    let run = scene.run_id();
    let mut events = browser.events(&format!("run:{}", browser.key(&run)));
    wait_for_event(&mut events, "the running turn", |event| {
        part(event, "run-head").contains("the agent works")
    });
    let (result, answer) = browser.act(&run, "steer", &[("text", "use tabs & <b>")]);
    assert_eq!(result, "done", "{answer}");
    scene.wait_until_received("use tabs & <b>");
    wait_for_event(&mut events, "the steer in the transcript", |event| {
        let html = event["records"]["html"].as_str().unwrap_or_default();
        html.contains("use tabs &amp; &lt;b&gt;")
    });
    assert_eq!(browser.act(&run, "pause", &[]).0, "done");
    fs_err::write(scene.file("go"), "").unwrap();
    wait_for_event(&mut events, "the pause", |event| {
        part(event, "run-head").contains(">paused<")
    });
    assert_eq!(scene.status()["state"], "paused");
    assert_eq!(browser.act(&run, "continue", &[]).0, "done");
    wait_for_event(&mut events, "the next turn", |event| {
        part(event, "run-head").contains(">running<")
    });
    let (result, question) = browser.act(&run, "stop", &[]);
    assert_eq!(result, "confirm", "{question}");
    assert!(!running.has_ended());
    let (result, answer) = browser.act(&run, "stop", &[("confirmed", "yes")]);
    assert_eq!(result, "done", "{answer}");
    running.wait(LONG).expect_code(7);
    wait_for_event(&mut events, "the end", |event| {
        part(event, "run-head").contains(">stopped<")
    });
    assert_eq!(scene.status()["state"], "stopped");
}

#[test]
fn v2_run_is_started_from_the_page() {
    let scene = Scene::new("say so\nturn");
    let settings = format!("agent-bin = {FAKE_AGENT:?}\nsleep = 0\n");
    fs_err::write(scene.file("rlm.toml"), settings).unwrap();
    // The page offers the projects that have a run.
    scene.claude(&["--once"]).run(LONG).expect_code(0);
    let first = scene.run_id();
    let browser = Browser::start(scene.talking(&["view", "--no-open"]));
    let form = browser.page("/new");
    let root = scene.sandbox.repo().display().to_string();
    assert!(
        form.contains(&format!("<option value=\"{root}\"")),
        "{form}"
    );
    let prompt = "it's a <b> task\r\nwith two lines";
    let fields = [
        ("project", root.as_str()),
        ("agent", "claude"),
        ("title", "from the page"),
        ("iterations", "2"),
        ("prompt", prompt),
    ];
    let send = |action: &str, fields: &[(&str, &str)]| {
        browser.form("/new", action, fields).send().unwrap()
    };
    // The command that the page shows works as it is printed.
    let shown = send("show", &fields);
    assert_eq!(shown.status, 200);
    let command = shown.body.split("<pre>").nth(1).unwrap();
    let command = command.split("</pre>").next().unwrap().trim();
    let command = command
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&");
    assert!(
        command.contains("--title='from the page'") || command.contains("'--title=from the page'"),
        "{command}"
    );
    assert_eq!(scene.statuses().len(), 1, "nothing was started");
    let started = send("start", &fields);
    assert_eq!(started.status, 303, "{started:?}");
    let to = started.header("location").unwrap().to_owned();
    let run = wait_for("the end of the run", LONG, || {
        let runs = scene.statuses();
        let run = runs.iter().find(|it| it["run"] != first.as_str())?;
        (run["iterations_complete"] == 2).then(|| text(&run["run"]))
    });
    assert!(to.starts_with(&format!("/runs/{run}-")), "{to}");
    assert!(browser.page(&to).contains("from the page"));
    let received = scene.received_messages();
    assert!(
        received
            .last()
            .unwrap()
            .starts_with("it's a <b> task\nwith two lines"),
        "{received:?}"
    );
    // A refused run keeps what the person typed.
    let fields = [
        ("project", root.as_str()),
        ("iterations", "many"),
        ("prompt", "kept"),
    ];
    let refused = send("start", &fields);
    assert_eq!(refused.status, 200);
    assert!(
        refused.body.contains("kept</textarea>") && refused.body.contains("many"),
        "{}",
        refused.body
    );
    assert!(refused.body.contains("role=\"alert\""), "{}", refused.body);
    let elsewhere = send("start", &[("project", "/"), ("prompt", "x")]);
    assert!(
        elsewhere.body.contains("has no run any more"),
        "{}",
        elsewhere.body
    );
}

#[test]
fn v2_stopped_run_is_resumed_from_its_page() {
    let scene = Scene::new("say ready\n@1 await never\nturn");
    let mut running = scene.claude(&["-n", "2"]).spawn();
    says(&mut running, "ready");
    stop(running, Signal::INT);
    // The server starts the agent, so it needs the variables of the scripted agent.
    let browser = Browser::start(scene.talking(&["view", "--no-open"]));
    let run = scene.run_id();
    let (result, answer) = browser.act(&run, "resume", &[]);
    assert_eq!(result, "done", "{answer}");
    wait_for("the end of the run", LONG, || {
        (scene.status()["iterations_complete"] == 2).then_some(())
    });
    let (result, answer) = browser.act(&run, "resume", &[]);
    assert_eq!(result, "rejected", "{answer}");
}

#[test]
fn v3_permission_request_is_answered_from_the_inbox() {
    let scene = Scene::new("say ready\nawait go\nask Bash touch made\nask Bash touch unmade\nturn");
    let mut running = scene.claude(&["--once", "--permissions", "ask"]).spawn();
    says(&mut running, "ready");
    let browser = Browser::new(&scene, &[]);
    let run = scene.run_id();
    let mut events = browser.events("inbox");
    // The run asks only if it knows that a person is there.
    wait_for("the attached page", LONG, || {
        (scene.status()["attended"] == true).then_some(())
    });
    fs_err::write(scene.file("go"), "").unwrap();
    let id = format!("entry-{}", browser.key(&run));
    let ask = wait_for_event(&mut events, "the request", |event| {
        part(event, &id).contains("touch made")
    });
    let request = |event: &Value| {
        let html = part(event, &id);
        let id = html.split("name=\"id\" value=\"").nth(1).unwrap();
        id.split('"').next().unwrap().to_owned()
    };
    let (result, answer) = browser.act(&run, "allow", &[("id", &request(&ask))]);
    assert_eq!(result, "done", "{answer}");
    let ask = wait_for_event(&mut events, "the second request", |event| {
        part(event, &id).contains("touch unmade")
    });
    assert!(browser.page("/").contains("<b>1</b> waiting for you"));
    let no = [("id", request(&ask)), ("text", "not now".to_owned())];
    let no = no.each_ref().map(|(name, value)| (*name, value.as_str()));
    assert_eq!(browser.act(&run, "deny", &no).0, "done");
    running.wait(LONG).expect_code(0);
    assert!(scene.file("made").exists() && !scene.file("unmade").exists());
    let answers = scene.agent.answers();
    let behaviors: Vec<_> = answers.iter().map(|it| it.behavior.as_str()).collect();
    assert_eq!(behaviors, ["allow", "deny"]);
    assert!(answers[1].message.contains("not now"), "{answers:?}");
}

#[test]
fn v4_phase_is_revised_and_approved_from_the_inbox() {
    let scene = Scene::new("await go\nprint ready");
    let phase = |name: &str| {
        format!("[[phase]]\nname = '{name}'\nprompt = 'Do the {name}.'\nmax-iterations = 1\n")
    };
    let settings = format!("sleep = 0\n{}{}", phase("plan"), phase("build"));
    fs_err::write(scene.file("rlm.toml"), settings).unwrap();
    let running = scene.run_bare(&["--autonomy", "checkpoint"]).spawn();
    let browser = Browser::new(&scene, &[]);
    let run = wait_for("the run", LONG, || {
        text(&scene.statuses().first()?["run"]).into()
    });
    let mut events = browser.events("inbox");
    // The run asks only if it knows that a person is there.
    wait_for("the attached page", LONG, || {
        (scene.status()["attended"] == true).then_some(())
    });
    fs_err::write(scene.file("go"), "").unwrap();
    let id = format!("entry-{}", browser.key(&run));
    let review = |event: &Value| part(event, &id).contains("waits for your approval");
    wait_for_event(&mut events, "the review", review);
    let (result, answer) = browser.act(&run, "revise", &[("text", "shorter & <b>")]);
    assert_eq!(result, "done", "{answer}");
    wait_for("the revision", LONG, || {
        let prompts = scene.prompts();
        prompts.get(1)?.contains("shorter & <b>").then_some(())
    });
    // The entry of the second review can be the same as that of the first, so the stream possibly has no event.
    wait_for("the second review", LONG, || {
        (scene.status()["review"] == "phase").then_some(())
    });
    assert!(browser.page("/inbox").contains("waits for your approval"));
    let (result, answer) = browser.act(&run, "approve", &[]);
    assert_eq!(result, "done", "{answer}");
    running.wait(LONG).expect_code(0);
    let prompts = scene.prompts();
    assert!(prompts[2].ends_with("Do the build."), "{prompts:?}");
}

#[test]
fn v6_page_shows_what_status_says_after_each_kill() {
    let scene = Scene::new("print ready\nhang");
    let browser = Browser::new(&scene, &[]);
    let mut random = Random(seed() | 1);
    for kill in 0..V6_KILLS.number() {
        let name = format!("r{kill}");
        let mut running = scene.run(&["--once", "--run-id", &name]).spawn();
        says(&mut running, "ready");
        if random.below(2) == 0 {
            browser.key(&name);
        }
        crash(running);
        scene.rlm(&["stop", "--force", &name]).run(LONG);
        let status = scene.rlm(&["status", &name, "--json"]).run(LONG).stdout;
        let status: Value = serde_json::from_str(status.trim()).unwrap();
        let shown = format!(">{}<", text(&status["state"]));
        let path = format!("/runs/{}", browser.key(&name));
        wait_for(shown.clone(), LONG, || {
            let page = browser.page(&path);
            (page.contains(&shown) && !page.contains(">running<")).then_some(())
        });
    }
}

/// A page that follows a transcript: the algorithm of `page.js`.
struct Follower<'a> {
    browser: &'a Browser,
    key: String,
    position: u64,
    html: String,
}

impl Follower<'_> {
    fn take(&mut self, event: &Value) {
        let records = &event["records"];
        let (Some(from), Some(to)) = (records["from"].as_u64(), records["to"].as_u64()) else {
            return;
        };
        if from == self.position {
            self.html += records["html"].as_str().unwrap();
            self.position = to;
        }
        while self.position < to {
            let path = format!(
                "/runs/{}/records?attempt=1-1&after={}",
                self.key, self.position
            );
            let more = self.browser.get(&path).json();
            self.html += more["html"].as_str().unwrap();
            let position = more["to"].as_u64().unwrap();
            assert!(
                position > self.position,
                "{event} at {}: {more}",
                self.position
            );
            self.position = position;
        }
    }
}

#[test]
fn v5_cut_connections_lose_no_record_and_repeat_none() {
    let lines = V5_LINES.number();
    let scene = Scene::new("");
    // The lines take long enough for all cuts. On a busy machine, the last cuts come after the last line, so the run waits for them.
    let (cuts, step) = (V5_CUTS.number(), lines / V5_CUTS.number() / 10);
    let script = format!(
        "cat >/dev/null; echo ready; until test -e go; do sleep 0.01; done; \
         for n in $(seq 1 {step} {lines}); do seq -f 'line %.0f.' $n $((n + {step} - 1)); sleep 0.01; done; \
         until test -e last; do sleep 0.01; done; echo finished"
    );
    let run = [
        "run", "--once", "--prompt", PROMPT, "--", "sh", "-c", &script,
    ];
    let mut running = scene.rlm(&run).spawn();
    says(&mut running, "ready");
    let browser = Browser::new(&scene, &[]);
    let key = browser.key(&scene.run_id());
    let topic = format!("run:{key}");
    let mut page = Follower {
        browser: &browser,
        key,
        position: 0,
        html: String::new(),
    };
    let mut random = Random(seed() | 1);
    fs_err::write(scene.file("go"), "").unwrap();
    for _ in 0..cuts {
        for event in browser.events(&topic).take(random.below(6)) {
            page.take(&event);
        }
    }
    fs_err::write(scene.file("last"), "").unwrap();
    for event in browser.events(&topic) {
        page.take(&event);
        if page.html.contains("finished") {
            break;
        }
    }
    running.wait(LONG).expect_code(0);
    let shown = page.html.split("line ").skip(1);
    let shown = shown.filter_map(|it| it.split('.').next()?.parse::<u32>().ok());
    let shown: Vec<u32> = shown.collect();
    let wrong = shown.iter().zip(1..).find(|(shown, line)| **shown != *line);
    assert_eq!((wrong, shown.len()), (None, lines as usize));
}

#[test]
fn v14_removed_and_damaged_runs_are_named_and_never_an_error_of_the_server() {
    let scene = Scene::new("print ready");
    for name in ["gone", "damaged", "whole"] {
        scene
            .run(&["--once", "--run-id", name])
            .run(LONG)
            .expect_code(0);
    }
    let browser = Browser::new(&scene, &[]);
    let key = |name: &str| browser.key(name);
    let (gone, damaged, whole) = (key("gone"), key("damaged"), key("whole"));
    let runs = scene.file(".rlm/runs");
    fs_err::remove_dir_all(runs.join("gone")).unwrap();
    for entry in fs_err::read_dir(runs.join("damaged")).unwrap().flatten() {
        if entry.path().is_file() {
            fs_err::write(entry.path(), "garbage").unwrap();
        }
    }
    let page = wait_for("the change", LONG, || {
        let page = browser.page("/");
        (!page.contains(&gone) && page.contains(">damaged<")).then_some(page)
    });
    assert!(page.contains(&whole), "{page}");
    assert_eq!(browser.get(&format!("/runs/{gone}")).status, 404);
    for path in ["", "/report"] {
        let shown = browser.get(&format!("/runs/{damaged}{path}"));
        assert_eq!(shown.status, 200, "{}", shown.body);
    }
    assert!(
        browser
            .page(&format!("/runs/{whole}/report"))
            .contains("How it ended")
    );
    // The whole state disappears, for example with a removed project.
    fs_err::remove_dir_all(scene.file(".rlm")).unwrap();
    wait_for("the empty list", LONG, || {
        browser.page("/").contains("No run yet").then_some(())
    });
}

#[test]
fn v15_killed_server_affects_no_run_and_ends_all_sessions() {
    let scene = Scene::new("print ready\nhang");
    let running = scene.ready(&["--once"]);
    let browser = Browser::new(&scene, &[]);
    let _events = browser.events("list:show=all");
    browser.server.as_ref().unwrap().signal(Signal::KILL);
    let cookie = browser.cookie.clone();
    drop(browser);
    let again = Browser::new(&scene, &[]);
    assert!(again.page("/").contains(">running<"));
    let old = HttpRequest::new(again.port, "GET", "/").header("host", &again.host);
    assert_eq!(old.header("cookie", &cookie).send().unwrap().status, 401);
    assert_eq!(scene.status()["state"], "running");
    stop(running, Signal::INT);
}

#[test]
fn v19_read_only_page_can_change_nothing() {
    let scene = Scene::new("print ready\nhang");
    let running = scene.ready(&["--once"]);
    let browser = Browser::new(&scene, &["--read-only"]);
    let run = scene.run_id();
    let page = browser.page(&format!("/runs/{}", browser.key(&run)));
    assert!(
        page.contains("read only") && !page.contains("name=\"action\""),
        "{page}"
    );
    let body = format!("csrf={}&action=stop&confirmed=yes", browser.form_secret());
    let path = format!("/runs/{}/act", browser.key(&run));
    let post = browser
        .request("POST", &path)
        .header("origin", &format!("http://{}", browser.host));
    let refused = post
        .body("application/x-www-form-urlencoded", body)
        .send()
        .unwrap();
    assert_eq!(refused.status, 403, "{refused:?}");
    assert_eq!(browser.get("/new").status, 403);
    let start = browser.form("/new", "start", &[("prompt", "x")]);
    assert_eq!(start.send().unwrap().status, 403);
    // Another link of this server allows no more.
    let link = scene.rlm(&["view", "pair"]).run(LONG).expect_code(0).stdout;
    let paired = Browser::log_in(&link);
    assert!(paired.page("/").contains("read only"));
    assert_eq!(scene.status()["state"], "running");
    stop(running, Signal::INT);
}

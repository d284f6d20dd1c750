//! The pages of `rlm view` in a real browser: headless Chromium. `cargo xtask browser` runs these tests.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rlm_tests::browser::Chromium;
use rlm_tests::{poll_until, seed, wait_for};
use rustix::process::Signal;

use crate::LONG;
use crate::scene::{PROMPT, Scene, says, stop};
use crate::steering::Random;
use crate::view_pages::{Browser, parts_of};
use crate::view_run::{changed, lines_in, with_three_attempts, write_long_transcript};

/// The number of times that the connections of the browser are cut.
const CUTS: u32 = 100;
const TABS: usize = 10;
/// A script that returns the titles of attempts, and the ends of attempts, in a transcript.
const TITLES: &str =
    "return [...document.querySelectorAll('#records .end')].map((it) => it.textContent)";

/// Starts a server, and a browser that is logged in.
fn open(scene: &Scene) -> (Browser, Chromium) {
    let browser = Browser::new(scene, &[]);
    let link = scene.rlm(&["view", "pair"]).run(LONG).expect_code(0).stdout;
    let chromium = Chromium::start(&scene.sandbox, None);
    chromium.open(link.trim());
    (browser, chromium)
}

/// Opens the page of the only run.
fn open_run(scene: &Scene, browser: &Browser, chromium: &Chromium) -> String {
    let key = browser.key(&scene.run_id());
    let url = format!("http://{}/runs/{key}", browser.host);
    chromium.open(&url);
    url
}

/// Returns a file for a picture, which a person can look at.
fn picture(name: &str) -> PathBuf {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/browser"));
    fs_err::create_dir_all(&folder).unwrap();
    folder.join(format!("{name}.png"))
}

fn expect_no_errors(chromium: &Chromium) {
    let console = chromium.console();
    assert!(console.is_empty(), "{console:#?}");
}

#[test]
#[ignore = "needs a browser: `cargo xtask browser` runs it"]
fn v2_run_is_steered_paused_continued_and_stopped_in_a_browser() {
    let scene = Scene::new(
        "say ready\ntool Bash make\nexpect-steer\ntool-end made\nsay so\nawait go\nturn",
    );
    let mut running = scene.claude(&["-n", "5"]).spawn();
    says(&mut running, "ready");
    let (browser, chromium) = open(&scene);
    chromium.sees("#rows", "Do the next step");
    open_run(&scene, &browser, &chromium);
    chromium.sees("#run-head", "the agent works");
    chromium.sees("#records", "ready");
    chromium.type_into("#steer-text", "use tabs & <b>");
    chromium.click("#run-steer button.main");
    scene.wait_until_received("use tabs & <b>");
    chromium.sees("#records", "use tabs & <b>");
    let text = || chromium.script("return document.querySelector('#steer-text').value");
    wait_for("the empty field", LONG, || (text() == "").then_some(()));
    chromium.click("#run-actions button[value=pause]");
    chromium.sees("#run-head", "it will pause");
    fs_err::write(scene.file("go"), "").unwrap();
    chromium.sees("#run-head .state", "paused");
    assert_eq!(scene.status()["state"], "paused");
    chromium.click("#run-actions button[value=continue]");
    chromium.sees("#run-head .state", "running");
    chromium.sees("#attempt", "Iteration 2");
    chromium.click("#run-actions button[value=stop]");
    chromium.sees("dialog", "is interrupted");
    chromium.click("dialog button[value=no]");
    assert!(!running.has_ended());
    chromium.click("#run-actions button[value=stop]");
    chromium.click("dialog button[value=yes]");
    running.wait(LONG).expect_code(7);
    chromium.sees("#run-head .state", "stopped");
    assert_eq!(scene.status()["state"], "stopped");
    expect_no_errors(&chromium);
}

#[test]
#[ignore = "needs a browser: `cargo xtask browser` runs it"]
fn limit_is_set_and_a_command_is_copied_in_a_browser() {
    let scene = Scene::new("say ready\nawait go\nturn");
    let mut running = scene.claude(&["-n", "1"]).spawn();
    says(&mut running, "ready");
    let (browser, chromium) = open(&scene);
    open_run(&scene, &browser, &chromium);
    chromium.sees("#run-head", "the agent works");
    chromium.click("#run-more summary");
    chromium.script("document.querySelector('#run-more select').value = 'max-iterations'");
    chromium.type_into("#run-more input[name=value]", "2");
    chromium.click("#run-more button[value=set]");
    chromium.sees("dialog", "max-iterations");
    chromium.click("dialog button[value=yes]");
    chromium.sees("#run-head", "1 of 2");
    assert_eq!(scene.status()["max_iterations"], 2);
    // The limit stays selected although the part was replaced; the value was sent.
    let fields = "const form = document.querySelector('#run-more form'); return [form.key.value, form.value.value]";
    wait_for("the sent form", LONG, || {
        let fields = chromium.script(fields);
        (fields == serde_json::json!(["max-iterations", ""])).then_some(())
    });
    chromium.click("#run-commands summary");
    chromium.click("#run-commands li:first-child .copy");
    // A headless browser may refuse the clipboard.
    wait_for("the result", LONG, || {
        let toast = chromium.text("#toast");
        (toast.contains("Copied") || toast.contains("select the text")).then_some(())
    });
    fs_err::write(scene.file("go"), "").unwrap();
    running.wait(LONG).expect_code(0);
    assert_eq!(scene.status()["iterations_complete"], 2);
    expect_no_errors(&chromium);
}

#[test]
#[ignore = "needs a browser: `cargo xtask browser` runs it"]
fn v2_run_is_started_in_a_browser_and_a_second_press_does_nothing() {
    let scene = Scene::new("print ready");
    let settings = format!("sleep = 0\ncommand = {:?}\n", scene.agent.argv());
    fs_err::write(scene.file("rlm.toml"), settings).unwrap();
    scene.run(&["-n", "1"]).run(LONG).expect_code(0);
    let (browser, chromium) = open(&scene);
    chromium.open(&format!("http://{}/new", browser.host));
    chromium.type_into("#prompt", "the task of the page");
    chromium.type_into("#iterations", "1");
    fs_err::write(picture("new"), chromium.screenshot()).unwrap();
    // The next press comes after the events of the first one.
    let press = "const done = arguments[0], start = document.querySelector('form.new button[value=start]'); \
                 start.click(); setTimeout(() => done(start.disabled));";
    assert_eq!(chromium.script_async(press), true);
    chromium.sees("#run-head", "the task of the page");
    wait_for("the end of the run", LONG, || {
        let runs = scene.statuses();
        let ended = runs.iter().filter(|it| it["iterations_complete"] == 1);
        (ended.count() == 2).then_some(())
    });
    expect_no_errors(&chromium);
}

#[test]
#[ignore = "needs a browser: `cargo xtask browser` runs it"]
fn v3_permission_request_is_allowed_in_the_inbox_of_a_browser() {
    let scene = Scene::new("say ready\nawait go\nask Bash touch made\nturn");
    let mut running = scene.claude(&["--once", "--permissions", "ask"]).spawn();
    says(&mut running, "ready");
    let (browser, chromium) = open(&scene);
    chromium.open(&format!("http://{}/inbox", browser.host));
    wait_for("the attached page", LONG, || {
        (scene.status()["attended"] == true).then_some(())
    });
    fs_err::write(scene.file("go"), "").unwrap();
    chromium.sees("#rows", "touch made");
    chromium.sees("#waiting", "1");
    chromium.click("#rows button[value=allow]");
    running.wait(LONG).expect_code(0);
    assert!(scene.file("made").exists());
    let rows = || chromium.text("#rows");
    wait_for("the empty inbox", LONG, || rows().is_empty().then_some(()));
    expect_no_errors(&chromium);
}

/// Forwards connections to a port, and can cut all of them, and refuse new ones.
#[derive(Clone)]
struct Proxy {
    port: u16,
    open: Arc<Mutex<Vec<TcpStream>>>,
    refuses: Arc<AtomicBool>,
}

impl Proxy {
    fn new(to: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let this = Self {
            port: listener.local_addr().unwrap().port(),
            open: Arc::default(),
            refuses: Arc::default(),
        };
        let proxy = this.clone();
        std::thread::spawn(move || {
            for from in listener.incoming().flatten() {
                if proxy.refuses.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(to) = TcpStream::connect((Ipv4Addr::LOCALHOST, to)) else {
                    return;
                };
                let both = [from.try_clone().unwrap(), to.try_clone().unwrap()];
                proxy.open.lock().unwrap().extend(both);
                for (mut source, mut sink) in [
                    (from.try_clone().unwrap(), to.try_clone().unwrap()),
                    (to, from),
                ] {
                    std::thread::spawn(move || {
                        let mut buffer = [0; 16384];
                        while let Ok(count @ 1..) = source.read(&mut buffer) {
                            if sink.write_all(&buffer[..count]).is_err() {
                                break;
                            }
                        }
                        let _closed = sink.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        this
    }

    fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _closed = stream.shutdown(Shutdown::Both);
        }
    }
}

#[test]
#[ignore = "needs a browser: `cargo xtask browser` runs it"]
fn v5_ten_tabs_have_each_record_once_although_the_connection_is_cut() {
    let scene = Scene::new("");
    let script = "cat >/dev/null; echo ready; until test -e go; do sleep 0.01; done; \
         for n in $(seq 1 2500); do echo \"line $n.\"; sleep 0.008; done; echo finished";
    let run = [
        "run", "--once", "--prompt", PROMPT, "--", "sh", "-c", script,
    ];
    let mut running = scene.rlm(&run).spawn();
    says(&mut running, "ready");
    let browser = Browser::new(&scene, &[]);
    let link = scene.rlm(&["view", "pair"]).run(LONG).expect_code(0).stdout;
    let proxy = Proxy::new(browser.port);
    let (_, port, _) = parts_of(&link);
    let chromium = Chromium::start(&scene.sandbox, Some((port, proxy.port)));
    chromium.open(link.trim());
    let key = browser.key(&scene.run_id());
    let url = format!("http://{}/runs/{key}", browser.host);
    let tabs: Vec<String> = (0..TABS)
        .map(|_| {
            let tab = chromium.new_tab();
            chromium.open(&url);
            tab
        })
        .collect();
    fs_err::write(scene.file("go"), "").unwrap();
    let mut random = Random(seed() | 1);
    for _ in 0..CUTS {
        let pause = Duration::from_millis(random.below(200) as u64);
        assert!(poll_until(pause, || None::<()>).is_none());
        proxy.cut();
    }
    running.wait(LONG * 3).expect_code(0);
    for tab in tabs {
        chromium.switch_to(&tab);
        chromium.sees("#records", "finished");
        let text = chromium.script("return document.querySelector('#records').textContent");
        let text = text.as_str().unwrap();
        let lines = text.split("line ").skip(1);
        let lines: Vec<u32> = lines
            .filter_map(|it| it.split('.').next()?.parse().ok())
            .collect();
        let wrong = lines
            .iter()
            .zip(1..)
            .find(|(line, expected)| *line != expected);
        assert_eq!((wrong, lines.len()), (None, 2500));
    }
}

#[test]
#[ignore = "needs a browser: `cargo xtask browser` runs it"]
fn v5_page_that_connects_again_has_the_attempts_that_it_missed() {
    let scene = Scene::new("");
    let script = "cat >/dev/null; n=$(cat printed || echo 0); if test $n = 0; then echo ready; until test -e go; do sleep 0.01; done; fi; \
         seq -f 'line %.0f.' $((n + 1)) $((n + 9)); echo $((n + 9)) >printed; \
         if test $n = 27; then until test -e last; do sleep 0.01; done; fi";
    let run = ["run", "-n", "4", "--sleep", "0", "--prompt", PROMPT];
    let of = ["--", "sh", "-c", script];
    let mut running = scene.rlm(&[&run[..], &of].concat()).spawn();
    says(&mut running, "ready");
    let browser = Browser::new(&scene, &[]);
    let link = scene.rlm(&["view", "pair"]).run(LONG).expect_code(0).stdout;
    let proxy = Proxy::new(browser.port);
    let (_, port, _) = parts_of(&link);
    let chromium = Chromium::start(&scene.sandbox, Some((port, proxy.port)));
    chromium.open(link.trim());
    open_run(&scene, &browser, &chromium);
    chromium.sees("#records", "ready");
    proxy.refuses.store(true, Ordering::SeqCst);
    proxy.cut();
    fs_err::write(scene.file("go"), "").unwrap();
    // The server knows that three attempts began since then.
    let list = || browser.page("/");
    wait_for("the last iteration", LONG, || {
        list().contains("4 of 4").then_some(())
    });
    proxy.refuses.store(false, Ordering::SeqCst);
    chromium.sees("#records", "line 36.");
    let text = chromium.script("return document.querySelector('#records').textContent");
    let lines = lines_in(text.as_str().unwrap());
    assert!(lines.iter().copied().eq(1..=36), "{lines:?}");
    let titles = chromium.script(TITLES).to_string();
    for name in ["Iteration 2", "Iteration 3", "Iteration 4"] {
        assert_eq!(titles.matches(&format!("{name:?}")).count(), 1, "{titles}");
    }
    assert_eq!(chromium.text("#attempt"), "Iteration 4");
    fs_err::write(scene.file("last"), "").unwrap();
    running.wait(LONG).expect_code(0);
}

#[test]
#[ignore = "needs a browser: `cargo xtask browser` runs it"]
fn v16_browser_has_a_bounded_window_of_a_transcript_of_100_mb() {
    let scene = Scene::new("print ready");
    let run = scene.run(&["--once", "--run-id", "r1"]);
    run.run(LONG).expect_code(0);
    let last = write_long_transcript(&scene, "r1");
    let (browser, chromium) = open(&scene);
    open_run(&scene, &browser, &chromium);
    chromium.sees("#records", &format!("line {last}."));
    let paint = chromium
        .script("return performance.getEntriesByName('first-contentful-paint')[0].startTime");
    assert!(paint.as_f64().unwrap() < 10_000.0, "{paint} ms");
    let records = || {
        let found = chromium.script(
            "const it = document.querySelector('#records'); return [it.textContent, it.childElementCount]",
        );
        let lines = lines_in(found[0].as_str().unwrap());
        assert!(
            lines.windows(2).all(|two| two[1] == two[0] + 1),
            "{lines:?}"
        );
        assert!(found[1].as_u64().unwrap() <= 6000, "{found}");
        lines
    };
    let mut shown = records();
    assert_eq!(shown.last(), Some(&last));
    let mut scroll = |place: &str, moved: &dyn Fn(&[u64], &[u64]) -> bool| {
        chromium.script(&format!(
            "document.querySelector('#records').scrollTop = {place}"
        ));
        shown = wait_for("other records", LONG, || {
            Some(records()).filter(|now| moved(&shown, now))
        });
    };
    for _ in 0..15 {
        scroll("0", &|before, now| now[0] < before[0]);
    }
    // The end left the window; scrolling down brings it back.
    let ends_later = |before: &[u64], now: &[u64]| now.last() > before.last();
    for _ in 0..3 {
        scroll("1e9", &ends_later);
    }
    let is_at_end = |_: &[u64], now: &[u64]| now.last() == Some(&last);
    chromium.script("document.querySelector('#newest').click()");
    scroll("1e9", &is_at_end);
    expect_no_errors(&chromium);
}

#[test]
#[ignore = "needs a browser: `cargo xtask browser` runs it"]
fn transcript_of_an_older_attempt_scrolls_on_to_the_newest_one_in_a_browser() {
    let scene = with_three_attempts();
    let (browser, chromium) = open(&scene);
    let key = browser.key("r1");
    let url = format!("http://{}/runs/{key}?attempt=1-1", browser.host);
    chromium.open(&url);
    chromium.sees("#records", "line 300.");
    let scroll = || chromium.script("document.querySelector('#records').scrollTop = 1e9");
    wait_for("the last record", LONG, || {
        scroll();
        let text = chromium.script("return document.querySelector('#records').textContent");
        let lines = lines_in(text.as_str().unwrap());
        assert!(
            lines.iter().copied().eq(1..=lines.len() as u64),
            "{lines:?}"
        );
        (lines.len() == 900).then_some(())
    });
    let titles = chromium.script(TITLES).to_string();
    for name in ["Iteration 2", "Iteration 3"] {
        assert_eq!(titles.matches(&format!("{name:?}")).count(), 1, "{titles}");
    }
    // The page follows the run again, and its heading still names the attempt of its address.
    let is_hidden = || chromium.script("return document.querySelector('#newest').hidden");
    wait_for("the end", LONG, || {
        // The last records may have come after the last scroll.
        scroll();
        (is_hidden() == true).then_some(())
    });
    assert_eq!(chromium.text("#attempt"), "Iteration 1");
    expect_no_errors(&chromium);
}

#[test]
#[ignore = "needs a browser: `cargo xtask browser` runs it"]
fn transcript_of_the_newest_attempt_scrolls_back_to_the_first_one_in_a_browser() {
    let scene = with_three_attempts();
    let (browser, chromium) = open(&scene);
    open_run(&scene, &browser, &chromium);
    chromium.sees("#records", "line 900.");
    wait_for("the first record", LONG, || {
        // A scroll to the same place is no event.
        let scroll =
            "const it = document.querySelector('#records'); it.scrollTop = 1; it.scrollTop = 0";
        chromium.script(scroll);
        let text = chromium.script("return document.querySelector('#records').textContent");
        let lines = lines_in(text.as_str().unwrap());
        let from = 901 - lines.len() as u64;
        assert!(lines.iter().copied().eq(from..=900), "{lines:?}");
        (from == 1).then_some(())
    });
    let titles = chromium.script(TITLES).to_string();
    let at = ["Iteration 2", "Iteration 3"].map(|it| titles.find(it));
    assert!(at[0].is_some() && at[0] < at[1], "{titles}");
    let is_hidden = || chromium.script("return document.querySelector('#earlier').hidden");
    wait_for("the beginning", LONG, || {
        (is_hidden() == true).then_some(())
    });
    expect_no_errors(&chromium);
}

#[test]
#[ignore = "needs a browser: `cargo xtask browser` runs it"]
fn v9_hostile_output_executes_nothing() {
    let hostile = r#"<script>window.hit=1</script> <img src=x onerror="window.hit=1"> "><svg onload=window.hit=1> </pre></div><b id=hit> javascript:window.hit=1"#;
    let scene = Scene::new(&format!(
        "say {hostile}\nsay ready\ntool Bash {hostile}\ntool-end {hostile}\nawait go\nturn"
    ));
    let title = "<img src=x onerror=\"window.hit=1\"> <b id=hit> window.hit \u{202e}";
    let mut running = scene.claude(&["--once", "--title", title]).spawn();
    says(&mut running, "ready");
    let (browser, chromium) = open(&scene);
    let check = || {
        let found = chromium.script(
            "return [window.hit ?? null, document.querySelectorAll('main script, main img, #records svg, #hit').length]",
        );
        assert_eq!(found, serde_json::json!([null, 0]));
    };
    chromium.sees("#rows", "window.hit");
    check();
    let url = open_run(&scene, &browser, &chromium);
    chromium.sees("#records", "javascript:window.hit");
    check();
    chromium.open(&format!("{url}/report"));
    // The report shows an attempt only after a click.
    let text = chromium.script("return document.querySelector('main').textContent");
    assert!(text.as_str().unwrap().contains("javascript:window.hit"));
    check();
    expect_no_errors(&chromium);
    stop(running, Signal::INT);
}

#[test]
#[ignore = "needs a browser: `cargo xtask browser` runs it"]
fn v12a_v12b_v12d_pages_fit_a_phone_in_both_schemes_and_work_with_the_keyboard() {
    let scene = Scene::new(
        "say I look at the tests of the parser first.\nsay ready\ntool Bash cargo test --workspace\ntool-end 3 passed\nawait go\nask Bash rm -r target\nturn",
    );
    let mut running = scene
        .claude(&[
            "-n",
            "5",
            "--permissions",
            "ask",
            "--title",
            "Make the tests of the parser pass",
        ])
        .spawn();
    let (browser, chromium) = open(&scene);
    says(&mut running, "ready");
    chromium.sees("#rows", "Make the tests");
    wait_for("the attached page", LONG, || {
        (scene.status()["attended"] == true).then_some(())
    });
    fs_err::write(scene.file("go"), "").unwrap();
    chromium.sees("#rows .state", "needs permission");
    let key = browser.key(&scene.run_id());
    for (page, path) in [
        ("runs", "/".to_owned()),
        ("inbox", "/inbox".to_owned()),
        ("run", format!("/runs/{key}")),
        ("report", format!("/runs/{key}/report")),
    ] {
        expect_fit(&browser, &chromium, page, &path);
    }
    // With the keyboard only: from the list to the run, and a message to its agent.
    chromium.open(&format!("http://{}/", browser.host));
    chromium.press("j");
    chromium.press("\u{E007}");
    chromium.sees("#run-head", "Make the tests");
    wait_for("the script of the page", LONG, || {
        (chromium.script("return document.readyState") == "complete").then_some(())
    });
    chromium.press("/");
    chromium.press("hello");
    let focused =
        chromium.script("return [document.activeElement.id, document.activeElement.value]");
    assert_eq!(focused, serde_json::json!(["steer-text", "hello"]));
    expect_no_errors(&chromium);
    stop(running, Signal::INT);
}

/// Expects that a page fits a phone and a wide window, in both schemes, and takes pictures of it.
fn expect_fit(browser: &Browser, chromium: &Chromium, page: &str, path: &str) {
    for (look, width, height, is_dark) in [
        ("phone", 360, 740, false),
        ("phone-dark", 360, 740, true),
        ("wide", 1280, 800, false),
        ("wide-dark", 1280, 800, true),
    ] {
        chromium.emulate(width, height, is_dark);
        chromium.open(&format!("http://{}{path}", browser.host));
        let scroll = chromium.script("return document.documentElement.scrollWidth");
        assert!(
            scroll.as_u64().unwrap() <= u64::from(width),
            "{page} {look}: {scroll}"
        );
        fs_err::write(picture(&format!("{page}-{look}")), chromium.screenshot()).unwrap();
    }
    accessibility(chromium, page);
}

#[test]
#[ignore = "needs a browser: `cargo xtask browser` runs it"]
fn v12a_v12d_views_of_a_run_fit_a_phone_in_both_schemes() {
    let scene = changed(&["--commit"]);
    let (browser, chromium) = open(&scene);
    let key = browser.key("r1");
    for (page, path) in [
        ("ended", String::new()),
        ("changes", "/changes".to_owned()),
        ("figures", "/figures".to_owned()),
    ] {
        expect_fit(&browser, &chromium, page, &format!("/runs/{key}{path}"));
    }
    // The inbox resumes a run that ended at a limit.
    let limited = ["--until", "test -e never", "--no-first-check", "-n", "1"];
    scene.run(&limited).run(LONG).expect_code(3);
    chromium.open(&format!("http://{}/inbox", browser.host));
    chromium.sees("#rows", "Resume with this limit");
    expect_fit(&browser, &chromium, "inbox-limit", "/inbox");
    // The table and the forms are folded, and fit too.
    for (page, path) in [("ended-open", ""), ("figures-open", "/figures")] {
        chromium.emulate(360, 740, false);
        chromium.open(&format!("http://{}/runs/{key}{path}", browser.host));
        chromium.script("document.querySelectorAll('details').forEach((it) => { it.open = true; }); scrollTo(0, 1e6)");
        let scroll = chromium.script("return document.documentElement.scrollWidth");
        assert!(scroll.as_u64().unwrap() <= 360, "{page}: {scroll}");
        fs_err::write(picture(page), chromium.screenshot()).unwrap();
        accessibility(&chromium, page);
    }
    expect_no_errors(&chromium);
}

/// Checks a page with axe-core, if `cargo xtask browser` found it.
fn accessibility(chromium: &Chromium, page: &str) {
    let Some(axe) = std::env::var_os("RLM_TEST_AXE") else {
        return;
    };
    let axe = fs_err::read_to_string(PathBuf::from(axe)).unwrap();
    let found = chromium.script_async(&format!(
        "{axe}; const done = arguments[arguments.length - 1]; axe.run(document, {{resultTypes: ['violations']}}).then((it) => \
         done(it.violations.map((v) => `${{v.impact}} ${{v.id}}: ${{v.nodes.map((n) => n.target).join(' ')}}`)))"
    ));
    let found = found.as_array().cloned().unwrap_or_default();
    let is_serious = |it: &serde_json::Value| {
        let text = it.as_str().unwrap_or_default();
        text.starts_with("serious") || text.starts_with("critical")
    };
    let serious: Vec<_> = found.iter().filter(|it| is_serious(it)).collect();
    assert!(serious.is_empty(), "{page}: {serious:#?}");
}

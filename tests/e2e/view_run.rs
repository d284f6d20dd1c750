//! The views of one run in `rlm view`: the changes of its iterations, its costs, its long transcript, and the actions that need a form.

use std::io::{BufWriter, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt;

use rlm_tests::http::HttpRequest;
use rlm_tests::wait_for;
use serde_json::Value;

use crate::LONG;
use crate::git::know_who;
use crate::scene::{PROMPT, Scene, expect_in_order, json, says, text};
use crate::view_pages::{Browser, part, wait_for_event};

/// The second iteration changes one file of each kind.
const CHANGES: &str = r#"cat >/dev/null
if test ! -e first.txt; then echo one >first.txt; exit; fi
seq 1 30000 >huge.txt
head -c 3000 /dev/zero >picture.bin
mv old.txt new.txt
rm gone.txt
echo three >>kept.txt
echo '<script>alert(1)</script>' >"$(printf 'x <b>"\342\200\256\n fake +1 -0')"
"#;

/// Returns a scene with a run of two iterations.
pub(crate) fn changed(options: &[&str]) -> Scene {
    let scene = Scene::new("");
    know_who(&scene);
    let old = (1..40).map(|n| format!("line {n}\n")).collect::<String>();
    for (name, text) in [
        ("old.txt", old.as_str()),
        ("gone.txt", "a\nb\n"),
        ("kept.txt", "one\ntwo\n"),
        (".gitattributes", "*.txt diff=hostile\n"),
    ] {
        fs_err::write(scene.file(name), text).unwrap();
    }
    scene.sandbox.git(&["add", "--all"]);
    scene
        .sandbox
        .git(&["commit", "--quiet", "--message", "before"]);
    // Each program leaves a trace.
    let trace = format!("touch {}", scene.sandbox.path().join("trace").display());
    for key in [
        "diff.external",
        "diff.hostile.command",
        "diff.hostile.textconv",
        "core.pager",
        "core.fsmonitor",
    ] {
        scene.sandbox.git(&["config", key, &trace]);
    }
    let run = [
        &["run", "-n", "2", "--sleep", "0", "--prompt", PROMPT],
        options,
        &["--run-id", "r1", "--", "sh", "-c", CHANGES],
    ];
    scene.rlm(&run.concat()).run(LONG).expect_code(0);
    scene
}

fn expect_second_iteration(page: &str) {
    expect_in_order(
        page,
        &[
            "Iteration 2",
            ">gone.txt<",
            "−2",
            "huge.txt",
            "the patch is too long; new, 169 kB",
            "kept.txt",
            "<span class=\"add\">+three\n</span>",
            "old.txt → new.txt",
            "picture.bin",
            "not text; new, 3 kB",
            "x &lt;b&gt;&quot;\\u{202e}? fake +1 -0",
            "+&lt;script&gt;alert(1)&lt;/script&gt;",
        ],
    );
    assert!(!page.contains("first.txt"), "{page}");
    for hostile in ["<script>", "<b>\"", "\u{202e}"] {
        assert!(!page.contains(hostile), "{hostile}: {page}");
    }
}

#[test]
fn v7a_v7c_each_iteration_shows_its_changes_with_and_without_commits() {
    for options in [&[][..], &["--commit"]] {
        let scene = changed(options);
        let browser = Browser::new(&scene, &[]);
        let path = format!("/runs/{}/changes", browser.key("r1"));
        let page = browser.page(&path);
        expect_second_iteration(&page);
        assert!(page.contains("logs r1 --iteration 2"), "{page}");
        let first = browser.page(&format!("{path}?attempt=1-1"));
        expect_in_order(&first, &["Iteration 1", "first.txt", "+one"]);
        assert!(!first.contains("kept.txt"), "{first}");
        assert!(!scene.sandbox.path().join("trace").exists());
    }
}

/// Removes the record of the changes from the transcript of an attempt.
fn remove_record(scene: &Scene) {
    let transcript = scene.file(".rlm/runs/r1/transcripts/2-1.ndjson");
    let text = fs_err::read_to_string(&transcript).unwrap();
    let lines = text.lines().filter(|line| !line.contains("\"changes\""));
    let shorter: String = lines.map(|line| format!("{line}\n")).collect();
    assert_ne!(shorter, text);
    fs_err::write(&transcript, shorter).unwrap();
}

#[test]
fn v7b_v7c_commit_replaces_a_lost_record_and_a_lost_repository_is_named() {
    let scene = changed(&["--commit"]);
    remove_record(&scene);
    let browser = Browser::new(&scene, &[]);
    let path = format!("/runs/{}/changes", browser.key("r1"));
    let page = browser.page(&path);
    expect_second_iteration(&page);
    assert!(page.contains("git -C "), "{page}");
    let clean = ["clean", "r1", "--transcripts", "--yes"];
    scene.rlm(&clean).run(LONG).expect_code(0);
    expect_second_iteration(&browser.page(&path));
    let first = browser.page(&format!("{path}?attempt=1-1"));
    expect_in_order(&first, &["Iteration 1", "first.txt", "+one"]);
    assert!(!scene.sandbox.path().join("trace").exists());
    fs_err::rename(scene.file(".git"), scene.file("elsewhere")).unwrap();
    let page = browser.page(&path);
    assert!(page.contains("git can't show the commit"), "{page}");
}

#[test]
fn v7b_git_that_hangs_is_named() {
    let scene = changed(&["--commit"]);
    remove_record(&scene);
    let folder = scene.sandbox.path().join("bin");
    fs_err::create_dir(&folder).unwrap();
    let git = folder.join("git");
    fs_err::write(&git, "#!/bin/sh\nexec sleep 1000\n").unwrap();
    fs_err::set_permissions(&git, PermissionsExt::from_mode(0o755)).unwrap();
    let paths = std::env::var("PATH").unwrap();
    let path = format!("{}:{paths}", folder.display());
    let view = scene.rlm(&["view", "--no-open"]).env("PATH", &path);
    let browser = Browser::start(view);
    let page = browser.page(&format!("/runs/{}/changes", browser.key("r1")));
    assert!(page.contains("git did not respond within 2s"), "{page}");
    drop(browser);
    scene.wait_until_nothing_is_alive();
}

#[test]
fn v7b_iteration_without_a_record_or_a_commit_says_so() {
    let scene = changed(&[]);
    remove_record(&scene);
    let browser = Browser::new(&scene, &[]);
    let page = browser.page(&format!("/runs/{}/changes", browser.key("r1")));
    assert!(page.contains("did not compare the files"), "{page}");
}

/// Returns the values of the cells of a row: cost, input tokens, output tokens, time, wait.
fn values(row: &str) -> Vec<u64> {
    let values = row.split("<data value=\"").skip(1);
    values
        .map(|it| it.split('"').next().unwrap().parse().unwrap())
        .collect()
}

/// Returns the milliseconds between two points in time.
fn between(from: &Value, to: &Value) -> u64 {
    let at = |value: &Value| text(value).parse::<jiff::Timestamp>().unwrap();
    u64::try_from(at(to).as_millisecond() - at(from).as_millisecond()).unwrap()
}

#[test]
fn v17_plots_and_figures_are_those_of_the_report() {
    let scene = Scene::new("say ready\nawait go\nsay one\n@2 say two\n@3 say three\nturn");
    let mut running = scene.claude(&["-n", "3"]).spawn();
    says(&mut running, "ready");
    let browser = Browser::new(&scene, &[]);
    let run = scene.run_id();
    assert_eq!(browser.act(&run, "pause", &[]).0, "done");
    fs_err::write(scene.file("go"), "").unwrap();
    wait_for("the pause", LONG, || {
        (scene.status()["state"] == "paused").then_some(())
    });
    assert_eq!(browser.act(&run, "continue", &[]).0, "done");
    running.wait(LONG).expect_code(0);

    let page = browser.page(&format!("/runs/{}/figures", browser.key(&run)));
    let report = scene.rlm(&["report", &run, "--json"]).run(LONG);
    let report = json(report.expect_code(0).stdout.trim());
    let table = page.split("<table class=\"values\">").nth(1).unwrap();
    let rows: Vec<_> = table.split("<tr>").skip(2).map(values).collect();
    let waits = report["waits"].as_array().unwrap().iter();
    let waits = waits.filter(|wait| wait["for"] != "sleep");
    let waited: Vec<_> = waits
        .map(|wait| between(&wait["began_at"], &wait["ended_at"]))
        .collect();
    assert_eq!(waited.len(), 1, "{report}");
    let attempts = report["attempts"].as_array().unwrap();
    assert_eq!(rows.len(), attempts.len() + 1, "{table}");
    let figures = attempts.iter().enumerate().map(|(at, attempt)| {
        let usage = &attempt["usage"];
        let cost = usage["cost_usd"].as_f64().unwrap() * 1e6;
        vec![
            cost.round() as u64,
            usage["input_tokens"].as_u64().unwrap(),
            usage["output_tokens"].as_u64().unwrap(),
            between(&attempt["began_at"], &attempt["ended_at"]),
            if at == 0 { waited[0] } else { 0 },
        ]
    });
    let figures: Vec<Vec<u64>> = figures.collect();
    assert_eq!(rows[..3], figures);
    let sums: Vec<u64> = (0..5)
        .map(|at| figures.iter().map(|row| row[at]).sum())
        .collect();
    assert_eq!(rows[3], sums);
    let status = scene.status();
    let cost = status["cost_usd"].as_f64().unwrap() * 1e6;
    assert_eq!(
        [Some(cost.round() as u64), status["input_tokens"].as_u64()],
        [Some(sums[0]), Some(sums[1])]
    );

    // The height of each column is its part of the longest one.
    let (_, plot) = page.split_once("Time of each attempt").unwrap();
    let (plot, _) = plot.split_once("</svg>").unwrap();
    let heights = plot.split("<rect ").skip(1).map(|rect| {
        let height = rect.split("height=\"").nth(1).unwrap();
        height.split('"').next().unwrap().parse::<f64>().unwrap()
    });
    let longest = figures.iter().map(|row| row[3]).max().unwrap();
    for (height, row) in heights.zip(&figures) {
        let expected = row[3] as f64 / longest as f64 * 100.0;
        assert!((height - expected.max(1.0)).abs() < 0.1, "{height} {row:?}");
    }
    assert!(plot.contains("<title>Iteration 3: "), "{plot}");
    assert!(!page.contains("<script>"), "{page}");
}

/// Returns the topic of the stream that a page opens.
fn topic(page: &str) -> String {
    let topic = page
        .split("<meta name=\"topic\" content=\"")
        .nth(1)
        .unwrap();
    topic.split('"').next().unwrap().to_owned()
}

#[test]
fn views_that_stay_the_same_report_newer_data() {
    let scene = Scene::new("say ready\nawait go\nsay one\nturn");
    let mut running = scene.claude(&["-n", "1"]).spawn();
    says(&mut running, "ready");
    let browser = Browser::new(&scene, &[]);
    let path = format!("/runs/{}", browser.key(&scene.run_id()));
    let views = ["changes", "figures", "report"].map(|view| format!("{path}/{view}"));
    let mut streams = views.each_ref().map(|view| {
        let page = browser.page(view);
        assert!(
            page.contains("id=\"newer\"") && !page.contains("newer data"),
            "{page}"
        );
        (view, browser.events(&topic(&page)))
    });
    fs_err::write(scene.file("go"), "").unwrap();
    for (view, events) in &mut streams {
        let link = format!("<a href=\"{view}\">");
        wait_for_event(events, "newer data", |event| {
            part(event, "newer").contains(&link)
        });
    }
    running.wait(LONG).expect_code(0);
    wait_for("the end on the page", LONG, || {
        browser.page(&path).contains(">done<").then_some(())
    });
    for view in views {
        let mut events = browser.events(&topic(&browser.page(&view)));
        let first = wait_for_event(&mut events, "the part", |event| {
            !part(event, "newer").is_empty()
        });
        assert!(!part(&first, "newer").contains("<a "), "{view}: {first}");
    }
}

/// The size of a long transcript, in bytes.
const V16_BYTES: usize = 100 << 20;
/// The memory that its pages may add to the server, in kB: far less than the transcript.
const V16_MEMORY: u64 = 64 << 10;

/// Replaces the transcript of a run by one of 100 MB, and returns the number of its lines.
pub(crate) fn write_long_transcript(scene: &Scene, run: &str) -> u64 {
    let path = format!(".rlm/runs/{run}/transcripts/1-1.ndjson");
    let file = fs_err::File::create(scene.file(&path)).unwrap();
    let mut file = BufWriter::new(file);
    let filler = "x".repeat(200);
    let (mut written, mut lines) = (0, 0);
    while written < V16_BYTES {
        lines += 1;
        let record = format!(
            "{{\"at\":1795000000000,\"kind\":\"stdout\",\"text\":\"line {lines}. {filler}\"}}\n"
        );
        file.write_all(record.as_bytes()).unwrap();
        written += record.len();
    }
    file.flush().unwrap();
    lines
}

/// Returns the numbers of the lines in HTML.
pub(crate) fn lines_in(html: &str) -> Vec<u64> {
    let lines = html.split("line ").skip(1);
    let number = |it: &str| it.split_once('.')?.0.parse().ok();
    lines.filter_map(number).collect()
}

#[test]
#[cfg(target_os = "linux")]
fn v16_transcript_of_100_mb_opens_at_its_end_and_scrolls_back() {
    let scene = Scene::new("print ready");
    let run = scene.run(&["--once", "--run-id", "r1"]);
    run.run(LONG).expect_code(0);
    let last = write_long_transcript(&scene, "r1");
    let browser = Browser::new(&scene, &[]);
    let path = format!("/runs/{}", browser.key("r1"));
    browser.page("/");
    let pid = browser.server.as_ref().unwrap().pid();
    let peak = || {
        let status = fs_err::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:"));
        let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
        kilobytes.parse::<u64>().unwrap()
    };
    let before = peak();
    let page = browser.page(&path);
    assert!(page.len() < 1 << 20, "{}", page.len());
    let mut shown = lines_in(&page);
    assert_eq!(shown.last(), Some(&last));
    let from = page.split("data-from=\"").nth(1).unwrap();
    let mut from: u64 = from.split('"').next().unwrap().parse().unwrap();
    for _ in 0..10 {
        let query = format!("{path}/records?attempt=1-1&before={from}");
        let more = browser.get(&query).json();
        shown.splice(0..0, lines_in(more["html"].as_str().unwrap()));
        from = more["from"].as_u64().unwrap();
    }
    assert!(shown.len() > 5000, "{}", shown.len());
    assert!(shown.iter().copied().eq(shown[0]..=last));
    let start = browser.get(&format!("{path}/records?attempt=1-1&after=0"));
    let start = lines_in(start.json()["html"].as_str().unwrap());
    assert!(start.iter().copied().eq(1..=start.len() as u64));
    // Many pages at once, each with its stream.
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let topic = format!("run:{}", browser.key("r1"));
                assert!(browser.events(&topic).take(2).count() == 2);
                assert!(browser.page(&path).contains(&format!("line {last}.")));
            });
        }
    });
    let added = peak() - before;
    assert!(added < V16_MEMORY, "{added} kB");
}

/// Returns a scene with a run of three iterations. Together they print the lines 1 to 900.
pub(crate) fn with_three_attempts() -> Scene {
    let scene = Scene::new("");
    let script = "cat >/dev/null; n=$(cat printed || echo 0); seq -f 'line %.0f.' $((n + 1)) $((n + 300)); echo $((n + 300)) >printed";
    let run = ["run", "-n", "3", "--sleep", "0", "--prompt", PROMPT];
    let of = ["--run-id", "r1", "--", "sh", "-c", script];
    let run = scene.rlm(&[&run[..], &of].concat()).run(LONG);
    run.expect_code(0);
    scene
}

#[test]
fn records_at_the_ends_of_an_attempt_name_the_attempts_beside_it() {
    let scene = with_three_attempts();
    let browser = Browser::new(&scene, &[]);
    let path = format!("/runs/{}/records", browser.key("r1"));
    let (mut attempt, mut position) = ("1-1".to_owned(), 0);
    let (mut attempts, mut lines) = (vec![attempt.clone()], Vec::new());
    loop {
        let query = format!("{path}?attempt={attempt}&after={position}");
        let more = browser.get(&query).json();
        lines.extend(lines_in(more["html"].as_str().unwrap()));
        let to = more["to"].as_u64().unwrap();
        if to > position {
            assert_eq!(more["next"], Value::Null, "{more}");
            position = to;
            continue;
        }
        match &more["next"] {
            Value::Null => break,
            next => (attempt, position) = (text(next), 0),
        }
        attempts.push(attempt.clone());
    }
    assert_eq!(attempts, ["1-1", "2-1", "3-1"]);
    assert!(lines.iter().copied().eq(1..=900), "{lines:?}");
    // And backwards.
    let before = |attempt: &str| {
        let more = browser.get(&format!("{path}?attempt={attempt}")).json();
        assert_eq!(more["from"], 0, "{more}");
        more["previous"].clone()
    };
    assert_eq!(before("3-1"), "2-1");
    assert_eq!(before("2-1"), "1-1");
    assert_eq!(before("1-1"), Value::Null);
    let last = format!("{path}?attempt=2-1&before={position}");
    assert_eq!(browser.get(&last).json()["previous"], "1-1");
}

#[test]
fn limit_of_a_live_run_is_set_from_its_page() {
    let scene = Scene::new("say ready\nawait go\nturn");
    let mut running = scene.claude(&["-n", "1"]).spawn();
    says(&mut running, "ready");
    let browser = Browser::new(&scene, &[]);
    let run = scene.run_id();
    let page = browser.page(&format!("/runs/{}", browser.key(&run)));
    assert!(page.contains("<option value=\"max-iterations\">"), "{page}");
    let set = |key: &str, value: &str, confirmed: &str| {
        let fields = [("key", key), ("value", value), ("confirmed", confirmed)];
        browser.act(&run, "set", &fields)
    };
    let (result, question) = set("max-iterations", "2", "");
    assert_eq!(result, "confirm", "{question}");
    assert_eq!(scene.status()["max_iterations"], 1);
    let (result, answer) = set("max-iterations", "2", "yes");
    assert_eq!(result, "done", "{answer}");
    assert!(answer.contains("iterations: 2"), "{answer}");
    assert_eq!(scene.status()["max_iterations"], 2);
    for (key, value) in [
        ("max-iterations", "many"),
        ("until", "true"),
        ("max-cost", ""),
    ] {
        let (result, answer) = set(key, value, "yes");
        assert_eq!(result, "rejected", "{key}: {answer}");
    }
    fs_err::write(scene.file("go"), "").unwrap();
    running.wait(LONG).expect_code(0);
    assert_eq!(scene.status()["iterations_complete"], 2);
}

#[test]
fn run_at_its_limit_is_resumed_with_a_higher_one_from_the_inbox() {
    let scene = Scene::new("say one\nturn");
    let run = ["-n", "1", "--until", "test -e never", "--no-first-check"];
    scene.claude(&run).run(LONG).expect_code(3);
    // The server starts the agent, so it needs the variables of the scripted agent.
    let browser = Browser::start(scene.talking(&["view", "--no-open"]));
    let run = scene.run_id();
    browser.key(&run);
    let inbox = browser.page("/inbox");
    for form in [
        "<option value=\"max-iterations\" selected>",
        "name=\"action\" value=\"resume-with\"",
    ] {
        assert!(inbox.contains(form), "{form}: {inbox}");
    }
    let fields = [("key", "max-iterations"), ("value", "3")];
    let (result, answer) = browser.act(&run, "resume-with", &fields);
    assert_eq!(result, "done", "{answer}");
    wait_for("the end of the run", LONG, || {
        let status = scene.status();
        (status["iterations_complete"] == 3 && status["state"] == "ended").then_some(())
    });
}

#[test]
fn run_is_forked_from_its_page() {
    let scene = changed(&["--commit"]);
    let browser = Browser::new(&scene, &[]);
    let (result, answer) = browser.act("r1", "fork", &[("at", "1")]);
    assert_eq!(result, "done", "{answer}");
    assert!(
        answer.contains("continues after iteration 1 of r1"),
        "{answer}"
    );
    let forks = scene.statuses().into_iter();
    let forks: Vec<_> = forks.filter(|it| it["forked_from"] == "r1").collect();
    assert_eq!(forks.len(), 1);
    assert_eq!(forks[0]["forked_at"], 1);
    let (result, answer) = browser.act("r1", "fork", &[("at", "9")]);
    assert_eq!(result, "rejected", "{answer}");
}

/// Sends the form that downloads a run.
fn export(browser: &Browser, run: &str, fields: &str) -> HttpRequest {
    let request = browser.request("POST", &format!("/runs/{}/export", browser.key(run)));
    let request = request.header("origin", &format!("http://{}", browser.host));
    request.body("application/x-www-form-urlencoded", fields.to_owned())
}

/// Returns the bytes of a response in chunks.
fn download(request: HttpRequest) -> Vec<u8> {
    let mut from = request.header("connection", "close").open().unwrap();
    let mut all = Vec::new();
    from.read_to_end(&mut all).unwrap();
    let at = all.windows(4).position(|it| it == b"\r\n\r\n").unwrap();
    let (head, mut rest) = (String::from_utf8_lossy(&all[..at]), &all[at + 4..]);
    assert!(
        head.contains("attachment; filename=\"rlm-r1.tar.zst\""),
        "{head}"
    );
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|it| it == b"\r\n").unwrap();
        let size = std::str::from_utf8(&rest[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return body;
        }
        body.extend(&rest[end + 2..][..size]);
        rest = &rest[end + 2 + size + 2..];
    }
}

#[test]
fn copy_of_a_run_is_downloaded_from_its_page() {
    let scene = changed(&["--commit"]);
    let browser = Browser::new(&scene, &[]);
    let secret = browser.form_secret();
    let refused = export(&browser, "r1", "csrf=").send().unwrap();
    assert_eq!(refused.status, 403, "{refused:?}");
    let archive = download(export(&browser, "r1", &format!("csrf={secret}")));
    let file = scene.sandbox.path().join("copy.tar.zst");
    fs_err::write(&file, archive).unwrap();
    let elsewhere = scene.sandbox.path().join("elsewhere");
    fs_err::create_dir(&elsewhere).unwrap();
    let import = ["checkpoints", "import", file.to_str().unwrap()];
    scene.rlm(&import).dir(&elsewhere).run(LONG).expect_code(0);
    // The run stays here.
    assert_eq!(scene.status()["state"], "ended");
    fs_err::write(scene.file("kept.txt"), "changed\n").unwrap();
    let refused = export(&browser, "r1", &format!("csrf={secret}"));
    let refused = refused.send().unwrap();
    assert_eq!(refused.status, 200, "{refused:?}");
    assert!(refused.body.contains("--allow-dirty"), "{}", refused.body);
    let dirty = format!("csrf={secret}&dirty=yes");
    assert!(!download(export(&browser, "r1", &dirty)).is_empty());
    let reader = Browser::log_in(
        &scene
            .rlm(&["view", "pair", "--read-only"])
            .run(LONG)
            .expect_code(0)
            .stdout,
    );
    let secret = reader.form_secret();
    let refused = export(&reader, "r1", &format!("csrf={secret}"));
    assert_eq!(refused.send().unwrap().status, 403);
    drop(browser);
    scene.wait_until_nothing_is_alive();
}

#[test]
fn cancelled_download_leaves_nothing_behind_and_the_run_can_continue() {
    let scene = changed(&["--commit"]);
    // The archive is larger than the buffers of a connection.
    let random = fs_err::File::open("/dev/urandom").unwrap();
    let mut transcript = fs_err::File::create(scene.file(".rlm/runs/r1/transcripts/1-1.ndjson"));
    std::io::copy(&mut random.take(32 << 20), transcript.as_mut().unwrap()).unwrap();
    let browser = Browser::new(&scene, &[]);
    let secret = browser.form_secret();
    let copies = || {
        let entries = fs_err::read_dir(scene.file(".rlm")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name());
        names
            .filter(|name| name.to_string_lossy().starts_with("incoming-"))
            .count()
    };
    let export = || export(&browser, "r1", &format!("csrf={secret}")).open();
    // Once while the archive is written, and once while it is sent.
    for is_sent in [false, true] {
        let mut from = export().unwrap();
        match is_sent {
            true => from.read_exact(&mut [0; 1 << 20]).unwrap(),
            false => wait_for("the copy", LONG, || (copies() == 1).then_some(())),
        }
        assert_eq!(copies(), 1);
        drop(from);
        wait_for("the end of the export", LONG, || {
            (copies() == 0).then_some(())
        });
    }
    let resume = ["resume", "r1", "-n", "1", "--sleep", "0"];
    scene.rlm(&resume).run(LONG).expect_code(0);
    drop(browser);
    scene.wait_until_nothing_is_alive();
}

/// Returns the text of HTML.
fn plain(html: &str) -> String {
    let mut text = String::new();
    for part in html.split('<') {
        text += part.split_once('>').map_or(part, |(_, text)| text);
    }
    let text = text.replace("&lt;", "<").replace("&gt;", ">");
    text.replace("&quot;", "\"").replace("&amp;", "&")
}

/// Returns a fact at the top of the page of a run.
#[track_caller]
fn fact(page: &str, name: &str) -> String {
    let fact = page.split(&format!("<dt>{name}</dt>")).nth(1);
    let fact = fact.unwrap_or_else(|| panic!("{name}: {page}"));
    plain(fact.split("</dd>").next().unwrap())
}

#[test]
fn v18_what_the_pages_show_is_in_the_json_of_the_commands() {
    let scene = Scene::new("say ready\nawait go\nask Bash touch made\nsay so & <b>\nturn");
    let run = [
        "-n",
        "5",
        "--until",
        "test -e made",
        "--no-first-check",
        "--permissions",
        "ask",
        "--title",
        "Make <it>",
    ];
    let mut running = scene.claude(&run).spawn();
    says(&mut running, "ready");
    let browser = Browser::new(&scene, &[]);
    let run = scene.run_id();
    let path = format!("/runs/{}", browser.key(&run));
    let _present = browser.events("inbox");
    wait_for("the attached page", LONG, || {
        (scene.status()["attended"] == true).then_some(())
    });
    fs_err::write(scene.file("go"), "").unwrap();
    let ps = || json(scene.rlm(&["ps", "--json"]).run(LONG).stdout.trim());
    let ask = wait_for("the request", LONG, || {
        let ask = ps()["permission_requests"].get(0).map(text);
        ask.filter(|_| browser.page("/inbox").contains("touch made"))
    });
    let (tool, summary) = ask.split_once(": ").unwrap();
    let (live, status) = (ps(), scene.status());
    let inbox = plain(&browser.page("/inbox"));
    let (title, id) = (text(&live["title"]), text(&live["run"]));
    for shown in [tool, summary, &title, &id] {
        assert!(inbox.contains(shown), "{shown}: {inbox}");
    }
    let page = browser.page(&path);
    let iteration = format!("{} of {}", status["iteration"], status["max_iterations"]);
    assert_eq!(fact(&page, "Iteration"), iteration);
    assert_eq!(fact(&page, "Agent"), text(&status["agent"]));
    assert_eq!(fact(&page, "Project"), text(&live["project"]));
    // The page counts the time since then by itself.
    assert!(text(&status["now"]).contains(", for "), "{status}");
    assert!(!plain(&page).contains(", for "), "{page}");
    let list = plain(&browser.page("/"));
    for shown in [title, id, iteration] {
        assert!(list.contains(&shown), "{shown}: {list}");
    }
    assert_eq!(
        [&status["state"], &live["state"]],
        ["running"; 2],
        "{status}"
    );

    let inbox = browser.page("/inbox");
    let id = inbox.split("name=\"id\" value=\"").nth(1).unwrap();
    let id = id.split('"').next().unwrap();
    assert_eq!(browser.act(&run, "allow", &[("id", id)]).0, "done");
    running.wait(LONG).expect_code(0);
    let status = scene.status();
    let page = wait_for("the end on the page", LONG, || {
        let page = browser.page(&path);
        page.contains(">done<").then_some(page)
    });
    assert_eq!(status["state"], "ended");
    let shown = plain(&page);
    for text in [&status["title"], &status["reason"]] {
        assert!(shown.contains(text.as_str().unwrap()), "{text}: {shown}");
    }
    assert_eq!(fact(&page, "Last iteration"), text(&status["last_outcome"]));
    let check = fact(&page, "Last check");
    assert!(check.contains(status["last_check"]["outcome"].as_str().unwrap()));
    let cost = format!("{:.2}", status["cost_usd"].as_f64().unwrap());
    assert!(fact(&page, "Cost").contains(&cost), "{cost}: {page}");
    let logs = scene.rlm(&["logs", &run, "--json"]).run(LONG).stdout;
    let records: Vec<_> = logs.lines().map(json).collect();
    for kind in ["prompt", "message", "result", "changes"] {
        let mut of_kind = records.iter().filter(|it| it["kind"] == kind).peekable();
        assert!(of_kind.peek().is_some(), "{kind}: {logs}");
        for record in of_kind {
            let text = record["text"].as_str().unwrap();
            let line = text.lines().next().unwrap_or_default();
            assert!(shown.contains(line), "{line}: {shown}");
        }
    }
    let changes = records.iter().find(|it| it["kind"] == "changes").unwrap();
    let files = changes["text"].as_str().unwrap();
    let first = files.lines().next().unwrap().split(' ').next().unwrap();
    assert!(browser.page(&format!("{path}/changes")).contains(first));
}

//! Every agent behaves as one: the same run against each of them, and a run that goes from one to another.

use rlm_tests::agent::Taken;
use rlm_tests::{Rlm, wait_for};
use rustix::process::Signal;
use serde_json::Value;

use crate::scene::{PROMPT, Scene, crash, events, expect_in_order, says, stop, text};
use crate::{FAKE_AGENT, LONG};

/// Those with a driver besides Claude Code.
const OTHERS: [&str; 4] = ["codex", "gemini", "opencode", "acp"];

impl Scene {
    /// `rlm run --sleep 0 --prompt … --agent AGENT ARGUMENTS`, and the agent is the fake one.
    fn driven(&self, agent: &str, arguments: &[&str]) -> Rlm<'_> {
        let run = ["run", "--sleep", "0", "--prompt", PROMPT];
        self.as_agent(agent, &[&run, arguments].concat())
    }

    /// `rlm ARGUMENTS --agent AGENT --agent-bin …`
    fn as_agent(&self, agent: &str, arguments: &[&str]) -> Rlm<'_> {
        let named = ["--agent", agent, "--agent-bin", FAKE_AGENT];
        let rlm = self.talking(&[arguments, &named].concat());
        match agent {
            // What makes it speak is for whoever names such an agent to say.
            "acp" => rlm.args(["--", "--acp"]),
            _ => rlm,
        }
    }

    /// What was said with the first request of this kind.
    #[track_caller]
    fn request(&self, kinds: [&str; 2]) -> Value {
        let controls = self.agent.controls().into_iter();
        let mut requests = controls.filter(|control| kinds.contains(&control.subtype.as_str()));
        requests.next().expect("such a request").request
    }
}

const OPENED: [&str; 2] = ["thread/start", "session/new"];

#[test]
fn s01_every_agent_makes_the_planned_iterations() {
    for agent in OTHERS {
        let scene = Scene::new("turn ..\necho");
        let ended = scene.driven(agent, &["-n", "3", "--model", "m-7"]);
        let ended = ended.run(LONG).expect_code(0);
        let name = if agent == "acp" { "acp agent " } else { agent };
        expect_in_order(
            &ended.stdout,
            &["agent   ", name, "(m-7)", "iteration 3 complete"],
        );
        assert_eq!(scene.told(), [PROMPT; 3], "{agent}: {ended}");
        let sessions: Vec<_> = scene
            .agent
            .messages()
            .into_iter()
            .map(|m| m.session)
            .collect();
        assert!(
            sessions[0] != sessions[1],
            "{agent}: each has a session of its own"
        );
        let status = scene.status();
        assert_eq!(status["session"], *sessions[2], "{agent}");
        assert_eq!(status["output_tokens"], 3, "{agent}");
        scene.expect_nothing_alive();
    }
}

#[test]
fn s05_every_agent_is_interrupted_when_its_turn_takes_too_long_or_it_is_silent() {
    for agent in OTHERS {
        for limit in ["--iteration-timeout", "--idle-timeout"] {
            let scene = Scene::new("@1 say ready\n@1 hang\n@2 touch done");
            let ended = scene.driven(agent, &[limit, "1s", "--until", "test -e done"]);
            let ended = ended.run(LONG).expect_code(0);
            expect_in_order(
                &ended.stdout,
                &["ready", "failed", "iteration 2 ", "done: "],
            );
            let asked = scene.request(["turn/interrupt", "session/cancel"]);
            assert!(asked.is_object(), "{agent}: {ended}");
            scene.expect_nothing_alive();
        }
    }
}

#[test]
fn x114_an_agent_that_does_not_go_when_it_is_done_holds_nothing_up() {
    for agent in ["codex", "acp"] {
        let scene = Scene::new("deaf eof\nturn ..\nsay well");
        let ended = scene.driven(agent, &["-n", "1"]).run(LONG).expect_code(0);
        assert!(
            ended.stdout.contains("iteration 1 complete"),
            "{agent}: {ended}"
        );
        scene.expect_nothing_alive();
    }
}

#[test]
fn x124_every_agent_may_what_its_run_allows() {
    // Codex runs commands in its sandbox, where it may edit; it asks nothing then.
    for (agent, permissions, made, denied) in [
        ("codex", "ask", false, 1),
        ("codex", "edits", true, 0),
        ("codex", "all", true, 0),
        ("codex", "deny", false, 0),
        ("acp", "ask", false, 1),
        ("acp", "edits", false, 1),
        ("acp", "all", true, 0),
        ("acp", "deny", false, 1),
    ] {
        let scene = Scene::new("ask Bash touch made");
        let ended = scene.driven(agent, &["--once", "--permissions", permissions]);
        let ended = ended.run(LONG).expect_code(0);
        let place = format!("{agent} {permissions}: {ended}");
        assert_eq!(scene.file("made").exists(), made, "{place}");
        let status = scene.status();
        assert_eq!(status["denied"], denied, "{place}");
        assert_eq!(status["permissions"], permissions, "{place}");
    }
}

#[test]
fn x107_a_limit_is_waited_for_and_is_no_failure() {
    for agent in OTHERS {
        let scene = Scene::new("retry 429 3600\nturn\nsay never");
        let mut running = scene.driven(agent, &["--once", "--json"]).spawn();
        running.until("a wait", LONG, |running| {
            running.stdout().contains("\"waiting\"").then_some(())
        });
        let ended = stop(running, Signal::TERM);
        let waits = events(&ended.stdout).into_iter();
        let wait = waits
            .rev()
            .find(|event| event["event"] == "waiting")
            .unwrap();
        let until = text(&wait["until"]);
        let status = scene.status();
        assert_eq!(
            (&status["cuts"], &status["last_outcome"]),
            (&1.into(), &Value::Null)
        );
        let at = text(&status["saved_at"]);
        // Who says when it is over is believed; others are asked again soon.
        let hour = |time: &str| time[11..13].parse::<u32>().unwrap();
        let later = (hour(&until) + 24 - hour(&at)) % 24;
        assert_eq!(later >= 1, agent == "codex", "{agent}: {at} {until}");
        scene.expect_nothing_alive();
    }
}

#[test]
fn x109_who_can_not_be_steered_can_be_interrupted_for_a_word() {
    let scene = Scene::new("say ready\nhang\nturn ..\necho");
    let mut running = scene.driven("acp", &["--once"]).spawn();
    says(&mut running, "ready");
    let said = scene.rlm(&["steer", "--now", "mind the docs"]);
    said.run(LONG).expect_code(0);
    let ended = running.wait(LONG).expect_code(0);
    let told = scene.told();
    assert_eq!(told.len(), 2, "{ended}");
    assert!(told[1].contains("mind the docs"), "{told:?}");
    let sessions: Vec<_> = scene
        .agent
        .messages()
        .into_iter()
        .map(|m| m.session)
        .collect();
    assert_eq!(sessions[0], sessions[1]);
}

#[test]
fn x109_codex_takes_a_word_into_its_turn() {
    let scene = Scene::new("say ready\nexpect-steer\nsay heard");
    let mut running = scene.driven("codex", &["--once"]).spawn();
    says(&mut running, "ready");
    scene
        .rlm(&["steer", "mind the docs"])
        .run(LONG)
        .expect_code(0);
    let ended = running.wait(LONG).expect_code(0);
    assert!(ended.stdout.contains("heard"), "{ended}");
    assert_eq!(scene.agent.messages()[1].taken, Some(Taken::Folded(1)));
}

#[test]
fn l95_every_agent_is_handed_its_mcp_servers() {
    let file = "[mcp-servers.docs]\ncommand = 'docs-mcp'\nenv = { TOKEN = '${TOKEN}' }\n";
    for agent in ["codex", "acp"] {
        let scene = Scene::new("say well");
        fs_err::write(scene.file("rlm.toml"), file).unwrap();
        let run = scene
            .driven(agent, &["--once", "--json"])
            .env("TOKEN", "s3cret");
        let ended = run.run(LONG).expect_code(0);
        let opened = scene.request(OPENED).to_string();
        assert!(
            opened.contains("docs-mcp") && opened.contains("s3cret"),
            "{opened}"
        );
        assert!(!ended.stdout.contains("s3cret"), "{ended}");
    }
}

#[test]
fn x117_what_an_agent_can_not_take_is_refused_before_a_run_is_made() {
    let sse = "[mcp-servers.a]\ntype = 'sse'\nurl = 'http://localhost:1/s3cret'\n";
    let cases: [(&str, &str, &[&str]); 8] = [
        (
            "codex",
            "[codex]\nefort = 'high'\n",
            &["rlm.toml`, line 2", "`efort`"],
        ),
        (
            "codex",
            "[codex]\nenv = { 'A=B' = 's3cret' }\n",
            &["[codex]", "A=B"],
        ),
        (
            "codex",
            "[codex]\nconfig = { sandbox_mode = 's3cret' }\n",
            &["[codex]", "`sandbox_mode`"],
        ),
        ("codex", sse, &["`a`", "SSE"]),
        (
            "gemini",
            "[gemini]\nenv = { 'A=B' = 's3cret' }\n",
            &["[gemini]", "A=B"],
        ),
        (
            "opencode",
            "[opencode]\nmodel = 's3cret'\n",
            &["rlm.toml`, line 2", "`model`"],
        ),
        (
            "acp",
            "[acp]\nenv-allow = 's3cret'\n",
            &["rlm.toml`, line 2"],
        ),
        (
            "acp",
            "[acp]\nenv = { 'A=B' = 's3cret' }\n",
            &["[acp]", "A=B"],
        ),
    ];
    for (agent, file, says) in cases {
        let scene = Scene::new("say never");
        fs_err::write(scene.file("rlm.toml"), file).unwrap();
        let ended = scene.driven(agent, &["--once"]).run(LONG).expect_code(2);
        assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
        for word in says {
            assert!(ended.stderr.contains(word), "{word}: {ended}");
        }
        assert!(!ended.stderr.contains("s3cret"), "{ended}");
        assert!(!scene.file(".rlm").exists() && scene.start_count() == 0);
    }
    let scene = Scene::new("say never");
    let ended = scene.rlm(&["run", "-p", PROMPT, "--once", "--agent", "acp"]);
    let ended = ended.run(LONG).expect_code(2);
    assert!(ended.stderr.contains("--agent-bin PATH"), "{ended}");
    let yolo = scene.driven("codex", &["--once"]).args(["--", "--yolo"]);
    let ended = yolo.run(LONG).expect_code(2);
    assert!(ended.stderr.contains("--permissions"), "{ended}");
}

#[test]
fn the_program_of_an_acp_agent_may_stand_in_the_file() {
    let scene = Scene::new("echo");
    let file = format!("agent = 'acp'\n[acp]\nprogram = ['{FAKE_AGENT}', '--acp']\n");
    fs_err::write(scene.file("rlm.toml"), file).unwrap();
    let run = scene.talking(&["run", "-p", PROMPT, "--once"]);
    run.run(LONG).expect_code(0);
    assert_eq!(scene.told(), [PROMPT]);
}

#[test]
fn j53_every_agent_goes_on_in_its_session_after_a_crash() {
    for agent in OTHERS {
        // A minute in which it was made is one in which Gemini can't be loaded again.
        if agent == "gemini" {
            continue;
        }
        let scene = Scene::new("@1 say ready\n@1 hang\n@2 recall");
        let run = ["-n", "1", "--session", "continue"];
        let mut running = scene.driven(agent, &run).spawn();
        says(&mut running, "ready");
        scene.wait_until_recorded("ready");
        crash(running);
        let ended = scene.talking(&["resume"]).run(LONG).expect_code(0);
        assert!(
            ended.stdout.contains(", in its session "),
            "{agent}: {ended}"
        );
        assert!(ended.stdout.contains(PROMPT), "{agent} remembers: {ended}");
        let told = scene.told();
        assert!(
            !told[1].contains(PROMPT),
            "{agent} is not told again: {told:?}"
        );
    }
}

/// A run that was stopped in the first turn of this agent's, in one session, after a word that it did not take.
fn stopped(scene: &Scene, agent: &str) {
    let run = ["-n", "2", "--session", "continue"];
    let mut running = scene.driven(agent, &run).spawn();
    says(&mut running, "ready");
    stop(running, Signal::TERM);
}

#[test]
fn another_agent_goes_on_without_the_session_and_says_so_everywhere() {
    let scene = Scene::new("@1 say ready\n@1 hang\n@2.. turn ..\n@2.. recall");
    stopped(&scene, "claude");
    let first = scene.agent.messages()[0].session.clone();

    let ended = scene
        .as_agent("codex", &["resume"])
        .run(LONG)
        .expect_code(0);
    expect_in_order(
        &ended.stdout,
        &[
            "resuming run",
            "codex goes on for claude, whose conversation",
            &first,
            "does not get",
        ],
    );
    assert!(!ended.stdout.contains("in its session"), "{ended}");
    let messages = scene.agent.messages();
    let [_, second, third] = &messages[..] else {
        panic!("{messages:?}")
    };
    assert!(second.session != first && second.session == third.session);
    expect_in_order(&second.text, &["another agent (claude)", "was cut", PROMPT]);
    assert_eq!(third.text, PROMPT, "it is told once");

    let status = scene.status();
    assert_eq!(status["agent_before"], "claude, up to attempt 1");
    let shown = scene.rlm(&["status"]).run(LONG);
    expect_in_order(&shown.stdout, &["agent   codex", "before  claude"]);
    let id = scene.run_id();
    let shown = scene.rlm(&["checkpoints", "show", &id]).run(LONG);
    let words = [
        "\"handover\"",
        "\"from\": \"claude\"",
        "\"predecessor\":\"claude\"",
    ];
    expect_in_order(&shown.stdout, &words);
    let logs = scene.rlm(&["logs", "--json"]).run(LONG);
    assert!(logs.stdout.contains("codex goes on for claude"), "{logs}");
}

#[test]
fn what_was_said_and_not_done_is_told_to_the_next_agent() {
    let scene = Scene::new("@1 say ready\n@1 hang\n@2.. turn ..\n@2.. say well");
    let mut running = scene
        .driven("codex", &["--once", "--session", "continue"])
        .spawn();
    says(&mut running, "ready");
    scene
        .rlm(&["steer", "mind the docs"])
        .run(LONG)
        .expect_code(0);
    crash(running);
    scene.as_agent("acp", &["resume"]).run(LONG).expect_code(0);
    let told = scene.told().pop().unwrap();
    expect_in_order(&told, &["another agent (codex)", "mind the docs", PROMPT]);
}

#[test]
fn a_change_that_fails_leaves_the_run_as_it_was() {
    let scene = Scene::new("@1 say ready\n@1 hang\n@2.. turn ..\n@2.. say well");
    stopped(&scene, "claude");
    let before = scene.status();
    for (arguments, says) in [
        (
            &["resume", "--agent", "codex"][..],
            "`codex` was not found on PATH",
        ),
        (&["resume", "--agent", "command"], "no command"),
        (&["resume", "--agent", "acp"], "which agent?"),
    ] {
        let ended = scene.talking(arguments).run(LONG).expect_code(2);
        assert!(ended.stderr.contains(says), "{ended}");
    }
    assert_eq!(scene.status()["agent"], before["agent"]);
    let ended = scene.talking(&["resume"]).run(LONG).expect_code(0);
    assert!(ended.stdout.contains("in its session"), "{ended}");
}

#[test]
fn a_run_that_waits_keeps_its_agent() {
    let scene = Scene::new("say ready\nhang");
    let mut running = scene.driven("codex", &["--once"]).spawn();
    says(&mut running, "ready");
    scene.rlm(&["interrupt"]).run(LONG).expect_code(0);
    wait_for("the run to wait", LONG, || {
        (scene.status()["state"] == "paused").then_some(())
    });
    let id = scene.run_id();
    let ended = scene
        .as_agent("claude", &["resume", &id])
        .run(LONG)
        .expect_code(2);
    assert!(ended.stderr.contains("goes on as it is"), "{ended}");
    stop(running, Signal::TERM);
}

//! All agents behave alike: the same run with each of them.

use std::os::unix::fs::symlink;

use rlm_tests::Rlm;
use rlm_tests::agent::MessageState;
use rustix::process::Signal;
use serde_json::Value;

use crate::scene::{PROMPT, Scene, crash, events, expect_in_order, says, stop, text};
use crate::{FAKE_AGENT, LONG};

/// The agents with a driver, without Claude Code.
const OTHERS: [&str; 4] = ["codex", "gemini", "opencode", "acp"];

impl Scene {
    /// Prepares `rlm run --sleep 0 --prompt … --agent AGENT ARGUMENTS` with the fake agent.
    pub(crate) fn driven(&self, agent: &str, arguments: &[&str]) -> Rlm<'_> {
        let run = ["run", "--sleep", "0", "--prompt", PROMPT];
        self.as_agent(agent, &[&run, arguments].concat())
    }

    /// Prepares `rlm ARGUMENTS --agent AGENT --agent-bin …`.
    pub(crate) fn as_agent(&self, agent: &str, arguments: &[&str]) -> Rlm<'_> {
        let named = ["--agent", agent, "--agent-bin", FAKE_AGENT];
        let rlm = self.talking(&[arguments, &named].concat());
        match agent {
            // For a generic ACP agent the user gives the argument that starts the protocol.
            "acp" => rlm.args(["--", "--acp"]),
            _ => rlm,
        }
    }

    /// Returns the first request of this kind.
    #[track_caller]
    fn request(&self, kinds: [&str; 2]) -> Value {
        let controls = self.agent.controls().into_iter();
        let mut requests = controls.filter(|control| kinds.contains(&control.subtype.as_str()));
        requests.next().expect("such a request").request
    }
}

const OPENED: [&str; 2] = ["thread/start", "session/new"];

#[test]
fn every_agent_runs_the_planned_iterations() {
    for agent in OTHERS {
        let scene = Scene::new("turn ..\necho");
        let ended = scene.driven(agent, &["-n", "3", "--model", "m-7"]);
        let ended = ended.run(LONG).expect_code(0);
        let name = if agent == "acp" { "acp agent " } else { agent };
        expect_in_order(
            &ended.stdout,
            &["agent   ", name, "(m-7)", "iteration 3 complete"],
        );
        assert_eq!(scene.received_messages(), [PROMPT; 3], "{agent}: {ended}");
        let sessions: Vec<_> = scene
            .agent
            .messages()
            .into_iter()
            .map(|m| m.session)
            .collect();
        assert!(
            sessions[0] != sessions[1],
            "{agent}: each has its own session"
        );
        let status = scene.status();
        assert_eq!(status["session"], *sessions[2], "{agent}");
        assert_eq!(status["output_tokens"], 3, "{agent}");
        scene.expect_nothing_alive();
    }
}

#[test]
fn s5a_s5b_every_agent_is_interrupted_at_turn_and_idle_timeouts() {
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
fn x114a_agent_that_does_not_exit_after_its_turn_delays_nothing() {
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
fn x124f_every_agent_has_the_permissions_of_its_run() {
    // Codex runs commands in its sandbox. If the sandbox permits edits, Codex requests no permission.
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
fn x107a_x107e_rate_limit_is_awaited_and_is_no_failure() {
    for agent in OTHERS {
        let scene = Scene::new("retry 429 3600\nturn\nsay never");
        let mut running = scene.driven(agent, &["--once", "--json"]).spawn();
        running.until("a wait", LONG, |running| {
            running.stdout().contains("\"waiting\"").then_some(())
        });
        let ended = stop(running, Signal::TERM);
        let waits = events(&ended.stdout).into_iter();
        let waiting = waits
            .rev()
            .find(|event| event["event"] == "waiting")
            .unwrap();
        let until = text(&waiting["until"]);
        let status = scene.status();
        assert_eq!(
            (&status["unfinished_attempts"], &status["last_outcome"]),
            (&1.into(), &Value::Null)
        );
        let at = text(&status["saved_at"]);
        // `rlm` uses the reset time that an agent reports, and retries the other agents soon.
        let time = |text: &str| text.parse::<jiff::Timestamp>().unwrap();
        let wait = time(&until).duration_since(time(&at));
        assert_eq!(wait.as_mins() >= 30, agent == "codex", "{agent}: {wait:?}");
        scene.expect_nothing_alive();
    }
}

#[test]
fn x107g_unawaited_rate_limit_has_its_own_exit_code() {
    let scene = Scene::new("retry 429 3600");
    let ended = scene.driven("codex", &["--once", "--wait-on-limit", "0"]);
    let ended = ended.run(LONG).expect_code(5);
    assert!(ended.stdout.contains("rate limit"), "{ended}");
    assert_eq!(scene.status()["last_outcome"], Value::Null);
}

#[test]
fn x109d_unsteerable_agent_is_interrupted_for_steer() {
    let scene = Scene::new("say ready\nhang\nturn ..\necho");
    let mut running = scene.driven("acp", &["--once"]).spawn();
    says(&mut running, "ready");
    let said = scene.rlm(&["steer", "--now", "mind the docs"]);
    said.run(LONG).expect_code(0);
    let ended = running.wait(LONG).expect_code(0);
    let told = scene.received_messages();
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
fn x109a_x109b_unsteerable_agent_gets_steer_after_turn() {
    let scene = Scene::new("say ready\nawait go\nturn ..\necho");
    let mut running = scene.driven("acp", &["--once"]).spawn();
    says(&mut running, "ready");
    let said = scene.rlm(&["steer", "mind the docs"]).run(LONG);
    assert!(said.stdout.contains("sent after this turn"), "{said}");
    fs_err::write(scene.file("go"), "").unwrap();
    let ended = running.wait(LONG).expect_code(0);
    expect_in_order(
        &ended.stdout,
        &["steer 1: ", "seen by the agent", "iteration 1 complete"],
    );
    assert_eq!(
        (scene.received_messages().len(), scene.start_count()),
        (2, 1),
        "{ended}"
    );
}

#[test]
fn x109a_codex_takes_a_steer_into_its_turn() {
    let scene = Scene::new("say ready\nexpect-steer\nsay heard");
    let mut running = scene.driven("codex", &["--once"]).spawn();
    says(&mut running, "ready");
    scene
        .rlm(&["steer", "mind the docs"])
        .run(LONG)
        .expect_code(0);
    let ended = running.wait(LONG).expect_code(0);
    assert!(ended.stdout.contains("heard"), "{ended}");
    assert_eq!(
        scene.agent.messages()[1].taken,
        Some(MessageState::Folded(1))
    );
}

#[test]
fn l95a_every_agent_gets_its_mcp_servers() {
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
fn x117a_x117i_unsupported_options_are_refused_before_the_run() {
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
fn s24d_single_installed_agent_is_used_and_several_need_a_choice() {
    let scene = Scene::new("echo");
    let folder = scene.sandbox.path().join("programs");
    fs_err::create_dir(&folder).unwrap();
    let path = format!("{}:/usr/bin:/bin", folder.display());
    let run = || {
        scene
            .talking(&["run", "-p", PROMPT, "--once"])
            .env("PATH", &path)
    };
    let ended = run().run(LONG).expect_code(2);
    assert!(
        ended
            .stderr
            .contains("none of claude, codex, gemini, opencode"),
        "{ended}"
    );
    symlink(FAKE_AGENT, folder.join("opencode")).unwrap();
    let ended = run().run(LONG).expect_code(0);
    assert!(ended.stdout.contains("agent   opencode: "), "{ended}");
    symlink(FAKE_AGENT, folder.join("codex")).unwrap();
    let ended = run().run(LONG).expect_code(2);
    assert!(
        ended
            .stderr
            .contains("(codex, opencode): choose one with --agent codex"),
        "{ended}"
    );
    assert_eq!(ended.stderr.lines().count(), 1);
    fs_err::write(scene.file("rlm.toml"), "agent = 'codex'\nmodel = 'm-7'\n").unwrap();
    let ended = run().run(LONG).expect_code(0);
    assert!(ended.stdout.contains("agent   codex (m-7): "), "{ended}");
    // The model in the file applies only to the agent in the file.
    let ended = run().args(["--agent", "opencode"]).run(LONG).expect_code(0);
    assert!(ended.stdout.contains("agent   opencode: "), "{ended}");
    assert_eq!(scene.start_count(), 3);
}

#[test]
fn l97f_every_agent_has_the_environment_of_its_section() {
    for agent in OTHERS {
        let scene = Scene::new("run echo $WORD$OTHER > word");
        let allowed = "'FAKE_AGENT_RECORD', 'FAKE_AGENT_SCRIPT'";
        let file = format!("[{agent}]\nenv = {{ WORD = 'well' }}\nenv-allow = [{allowed}]\n");
        fs_err::write(scene.file("rlm.toml"), file).unwrap();
        let run = scene.driven(agent, &["--once", "--permissions", "all"]);
        let ended = run.env("OTHER", "not").run(LONG).expect_code(0);
        let word = fs_err::read_to_string(scene.file("word")).unwrap();
        assert_eq!(word, "well\n", "{agent}: {ended}");
    }
}

#[test]
fn settings_file_sets_the_program_of_an_acp_agent() {
    let scene = Scene::new("echo");
    let file = format!("agent = 'acp'\n[acp]\nprogram = ['{FAKE_AGENT}', '--acp']\n");
    fs_err::write(scene.file("rlm.toml"), file).unwrap();
    let run = scene.talking(&["run", "-p", PROMPT, "--once"]);
    run.run(LONG).expect_code(0);
    assert_eq!(scene.received_messages(), [PROMPT]);
}

#[test]
fn every_agent_continues_its_session_after_a_crash() {
    for agent in OTHERS {
        let scene = Scene::new("@1 say ready\n@1 hang\n@2 recall");
        let run = ["-n", "1", "--session", "continue"];
        let mut running = scene.driven(agent, &run).spawn();
        says(&mut running, "ready");
        scene.wait_until_recorded("ready");
        crash(running);
        let ended = scene.talking(&["resume"]).run(LONG).expect_code(0);
        assert!(ended.stdout.contains(", in session "), "{agent}: {ended}");
        assert!(ended.stdout.contains(PROMPT), "{agent} remembers: {ended}");
        let told = scene.received_messages();
        assert!(
            !told[1].contains(PROMPT),
            "{agent} gets no message twice: {told:?}"
        );
    }
}

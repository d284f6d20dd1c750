//! `rlm doctor`, with stand-ins that answer like the real programs.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use rlm_tests::{Ended, Rlm, Sandbox, wait_for};
use rustix::process::Signal;
use serde_json::Value;

use crate::scene::{Scene, crash};
use crate::{LONG, RLM};

/// A program has ten seconds to print its version, and the whole command has fifteen.
const BOUND: Duration = Duration::from_secs(60);
const SECRET: &str = "5318008-5318008";

const CLAUDE: &str = r#"pwd > "$HOME/claude.pwd"
case "$*" in
--version) echo "${CLAUDE_VERSION:-2.1.329} (Claude Code)";;
"auth status")
    if [ -n "$ANTHROPIC_API_KEY" ]; then
        echo '{"loggedIn": true, "authMethod": "api_key", "apiProvider": "firstParty"}'
    else
        echo '{"loggedIn": false, "authMethod": "none", "apiProvider": "firstParty"}'
        exit 1
    fi;;
*) echo "$*" >> "$HOME/prompts";;
esac"#;

const CODEX: &str = r#"case "$*" in
--version) echo codex-cli 0.169.0;;
"app-server -c analytics.enabled=false")
    while read -r line; do case "$line" in
        *'"initialize"'*) echo '{"id":1,"result":{"userAgent":"x"}}';;
        *'"account/read"'*)
            echo '{"method":"configWarning","params":{}}'
            echo '{"id":2,"result":{"account":{"type":"chatgpt","email":"5318008-5318008"},"requiresOpenaiAuth":true}}';;
    esac; done;;
*) echo "$*" >> "$HOME/prompts";;
esac"#;

const GEMINI: &str = r#"case "$*" in
"--acp --allowed-mcp-server-names none -e none")
    while read -r line; do case "$line" in
        *'"initialize"'*) echo '{"jsonrpc":"2.0","id":1,"result":{"agentInfo":{"version":"0.61.0"}}}';;
        *'"session/new"'*) echo '{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"Gemini API key is missing"}}';;
    esac; done;;
*) echo "$*" >> "$HOME/prompts";;
esac"#;

const OPENCODE: &str = r#"case "$*" in
--version) echo 1.18.33;;
"auth list") printf '\033[90mCredentials\n0 credentials\n';;
*) echo "$*" >> "$HOME/prompts";;
esac"#;

const ADAPTER: &str = r#"case "$*" in
"")
    while read -r line; do case "$line" in
        *'"initialize"'*) echo '{"jsonrpc":"2.0","id":1,"result":{"agentInfo":{"version":"0.49.0"}}}';;
    esac; done;;
"--cli auth status") echo '{"loggedIn": true, "authMethod": "oauth_token", "apiProvider": "firstParty"}';;
*) echo "$*" >> "$HOME/prompts";;
esac"#;

const ALL: [(&str, &str); 5] = [
    ("claude", CLAUDE),
    ("codex", CODEX),
    ("gemini", GEMINI),
    ("opencode", OPENCODE),
    ("claude-agent-acp", ADAPTER),
];

fn install(sandbox: &Sandbox, place: &str, programs: &[(&str, &str)]) {
    let folder = sandbox.path().join(place);
    fs_err::create_dir_all(&folder).unwrap();
    for (name, script) in programs {
        let path = folder.join(name);
        fs_err::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs_err::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// Prepares `rlm doctor ARGUMENTS`, with the programs of these directories first on the PATH.
fn doctor<'a>(sandbox: &'a Sandbox, places: &[&str], arguments: &[&str]) -> Rlm<'a> {
    let own = places.iter().map(|place| match place.starts_with('.') {
        true => (*place).to_owned(),
        false => sandbox.path().join(place).display().to_string(),
    });
    let environment = sandbox.environment().into_iter();
    let path = { environment.filter(|(name, _)| name == "PATH") }.map(|(_, path)| path);
    let path: Vec<String> = own.chain(path).collect();
    let rlm = sandbox.rlm(RLM).args(["doctor"]).args(arguments);
    rlm.env("PATH", path.join(":"))
}

fn object(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {ended}"))
}

#[track_caller]
fn agent<'a>(findings: &'a Value, name: &str) -> &'a Value {
    let mut agents = findings["agents"].as_array().unwrap().iter();
    agents.find(|agent| agent["agent"] == name).unwrap()
}

#[track_caller]
fn check<'a>(findings: &'a Value, name: &str) -> &'a Value {
    let mut checks = findings["machine"].as_array().unwrap().iter();
    checks.find(|check| check["check"] == name).unwrap()
}

/// Returns the state of each agent.
fn states(findings: &Value) -> Vec<String> {
    let agents = findings["agents"].as_array().unwrap().iter();
    let state = |a: &Value| {
        let words = ["agent", "health", "version", "logged_in", "login"];
        let words = words.map(|key| a[key].as_str().unwrap_or("-").to_owned());
        words.join(" ")
    };
    agents.map(state).collect()
}

#[test]
fn doctor_queries_each_agent_outside_the_project_without_a_prompt() {
    let sandbox = Sandbox::new();
    install(&sandbox, "bin", &ALL);
    let ended = doctor(&sandbox, &["bin"], &["--json"])
        .run(BOUND)
        .expect_code(0);
    let findings = object(&ended);
    assert_eq!(
        states(&findings),
        [
            "claude problem 2.1.329 no -",
            "codex ok 0.169.0 yes chatgpt",
            "gemini problem 0.61.0 no -",
            "opencode warning 1.18.33 unknown no credentials: only some models work; log in: opencode auth login",
            "acp ok 0.49.0 yes oauth_token",
        ]
    );
    assert_eq!(check(&findings, "guard")["health"], "ok", "{ended}");
    let pwd = fs_err::read_to_string(sandbox.home().join("claude.pwd")).unwrap();
    assert_eq!(pwd, "/\n");
    assert!(!sandbox.home().join("prompts").exists());
    assert!(
        !sandbox.repo().join(".rlm").exists(),
        "`doctor` creates no state directory"
    );
    assert_eq!(sandbox.survivors().scan(), []);
    // The versions that `doctor` shows as tested are those of the live checks.
    let versions = rlm_tests::live::versions();
    assert_eq!(versions.len(), findings["agents"].as_array().unwrap().len());
    for (program, version) in versions {
        let name = if program == "claude-agent-acp" {
            "acp"
        } else {
            program
        };
        assert_eq!(agent(&findings, name)["tested_version"], version);
    }
}

#[test]
fn doctor_does_not_query_an_agent_that_could_treat_it_as_a_prompt() {
    let sandbox = Sandbox::new();
    install(&sandbox, "bin", &[("claude", CLAUDE), ("codex", CLAUDE)]);
    let old = doctor(&sandbox, &["bin"], &["--json"]).env("CLAUDE_VERSION", "2.0.9");
    let findings = object(&old.run(BOUND).expect_code(0));
    assert_eq!(
        states(&findings)[..2],
        [
            "claude warning 2.0.9 unknown only Claude Code 2.1.79 and later can report it",
            "codex warning 2.0.9 unknown the program is not Codex",
        ]
    );
    assert!(!sandbox.home().join("prompts").exists());
}

#[test]
fn exit_code_of_doctor_covers_named_or_selected_agents() {
    let sandbox = Sandbox::new();
    install(&sandbox, "bin", &[("claude", CLAUDE), ("codex", CODEX)]);
    let code = |arguments: &[&str], chosen: &[&str], code: i32| {
        let ended = doctor(&sandbox, &["bin"], &[arguments, &["--json"]].concat());
        let findings = object(&ended.run(BOUND).expect_code(code));
        assert_eq!(findings["chosen"], serde_json::json!(chosen));
        findings
    };
    code(&["codex"], &["codex"], 0);
    code(&["codex", "claude"], &["codex", "claude"], 1);
    let missing = code(&["gemini"], &["gemini"], 1);
    assert_eq!(states(&missing), ["gemini absent - unknown -"]);
    assert_eq!(
        agent(&missing, "gemini")["notes"][0],
        "npm install -g @google/gemini-cli"
    );
    code(&[], &[], 0);
    let settings = sandbox.repo().join("rlm.toml");
    fs_err::write(&settings, "agent = \"claude\"\n").unwrap();
    code(&[], &["claude"], 1);
    fs_err::write(
        &settings,
        "agent = \"claude\"\nclaude = { env = { ANTHROPIC_API_KEY = \"x\" } }\n",
    )
    .unwrap();
    let in_file = code(&[], &["claude"], 0);
    assert_eq!(
        agent(&in_file, "claude")["variables"][0],
        "ANTHROPIC_API_KEY"
    );
    let elsewhere = doctor(&sandbox, &["bin"], &[]).env("RLM_AGENT", "gemini");
    elsewhere.run(BOUND).expect_code(1);
    let nobody = doctor(&sandbox, &["bin"], &[]).env("RLM_AGENT", "nobody");
    let nobody = nobody.run(BOUND).expect_code(2);
    assert!(nobody.stderr.contains("RLM_AGENT"), "{nobody}");
}

#[test]
fn hanging_command_is_ended_with_its_tree() {
    let sandbox = Sandbox::new();
    let hangs = "(setsid sleep 600 &)\ntrap '' TERM INT HUP\nwhile :; do sleep 600; done";
    install(&sandbox, "bin", &[("claude", hangs)]);
    let ended = doctor(&sandbox, &["bin"], &["claude"])
        .run(BOUND)
        .expect_code(1);
    assert!(ended.stdout.contains("no response within 10 s"), "{ended}");
    assert_eq!(sandbox.survivors().scan(), []);
}

#[test]
fn press_ends_doctor_with_all_its_processes() {
    let sandbox = Sandbox::new();
    let hangs = "(setsid sleep 600 &)\ntrap '' TERM INT HUP\necho > \"$HOME/begun\"\nwhile :; do sleep 600; done";
    install(&sandbox, "bin", &[("claude", hangs)]);
    let mut running = doctor(&sandbox, &["bin"], &["claude"]).spawn();
    running.until("an agent", LONG, |_| {
        sandbox.home().join("begun").exists().then_some(())
    });
    running.signal(Signal::INT);
    running.wait(LONG).expect_signal(Signal::INT);
    wait_for("the end of all", LONG, || {
        sandbox.survivors().scan().is_empty().then_some(())
    });
}

#[test]
fn broken_or_mislabeled_program_is_reported() {
    let sandbox = Sandbox::new();
    let broken = "echo >&2; echo 'Error: native binary not installed.' >&2; exit 1";
    install(
        &sandbox,
        "bin",
        &[
            ("claude", broken),
            ("gemini", broken),
            ("opencode", "exit 0"),
        ],
    );
    let ended = doctor(&sandbox, &["bin"], &["--json"])
        .run(BOUND)
        .expect_code(0);
    let findings = object(&ended);
    for name in ["claude", "gemini"] {
        assert_eq!(
            agent(&findings, name)["notes"][0],
            "`--version` failed: exit status 1: Error: native binary not installed."
        );
    }
    assert_eq!(
        agent(&findings, "opencode")["login"],
        "unexpected output of `auth list`"
    );
}

#[test]
fn doctor_shows_no_values_of_variables_or_accounts() {
    let sandbox = Sandbox::new();
    install(&sandbox, "bin", &ALL);
    fs_err::write(
        sandbox.repo().join("rlm.toml"),
        format!("gemini = {{ env = {{ GOOGLE_API_KEY = \"{SECRET}\" }} }}\n"),
    )
    .unwrap();
    for arguments in [&["--json"][..], &[]] {
        let doctor = doctor(&sandbox, &["bin"], arguments);
        let ended = doctor
            .env("ANTHROPIC_API_KEY", SECRET)
            .run(BOUND)
            .expect_code(0);
        assert!(!format!("{ended}").contains(SECRET), "{ended}");
        if arguments.is_empty() {
            assert!(ended.stdout.contains("ready: claude, codex"), "{ended}");
        } else {
            let findings = object(&ended);
            assert_eq!(
                agent(&findings, "claude")["variables"][0],
                "ANTHROPIC_API_KEY"
            );
            assert_eq!(agent(&findings, "gemini")["variables"][0], "GOOGLE_API_KEY");
        }
    }
}

#[test]
fn shadowing_programs_on_path_are_reported() {
    let sandbox = Sandbox::new();
    install(&sandbox, "repo/tools", &[("codex", CODEX)]);
    install(&sandbox, "one", &[("claude", CLAUDE)]);
    install(&sandbox, "two", &[("claude", CLAUDE)]);
    std::os::unix::fs::symlink(sandbox.path().join("one"), sandbox.path().join("same")).unwrap();
    let places = ["./tools", "one", "same", "two"];
    let ended = doctor(&sandbox, &places, &["--json"])
        .run(BOUND)
        .expect_code(0);
    let findings = object(&ended);
    let two = sandbox.path().join("two/claude").display().to_string();
    assert_eq!(
        agent(&findings, "claude")["shadowed"],
        serde_json::json!([two])
    );
    assert_eq!(agent(&findings, "codex")["version"], "0.169.0");
    assert_eq!(check(&findings, "PATH")["health"], "warning");
}

#[test]
fn agent_from_rlm_toml_is_shown_with_its_arguments() {
    let sandbox = Sandbox::new();
    let own = ADAPTER
        .replace("\"\")", "\"serve --stdio\")")
        .replace("0.49.0", "7.0.1");
    install(&sandbox, "repo/tools", &[("own-agent", &own)]);
    let settings = sandbox.repo().join("rlm.toml");
    let text =
        "agent = \"acp\"\nacp = { program = [\"tools/own-agent\", \"serve\", \"--stdio\"] }\n";
    fs_err::write(&settings, text).unwrap();
    let trusted = ["--json", "--run-project-agent"];
    let findings = object(&doctor(&sandbox, &[], &trusted).run(BOUND).expect_code(0));
    let acp = agent(&findings, "acp");
    assert_eq!(
        (&acp["version"], &acp["tested_version"]),
        (&"7.0.1".into(), &Value::Null)
    );
    fs_err::write(&settings, "command = [\"no-such-program\"]\n").unwrap();
    let findings = object(&doctor(&sandbox, &[], &["--json"]).run(BOUND).expect_code(1));
    assert_eq!(findings["chosen"][0], "command");
    assert_eq!(agent(&findings, "command")["health"], "absent");
}

#[test]
fn doctor_reports_project_errors_and_crashed_runs() {
    let scene = Scene::new("print ready\nhang");
    let repo = scene.sandbox.repo();
    crash(scene.ready(&["--run-id", "died", "--until", "false"]));
    scene.wait_until_nothing_is_alive();
    fs_err::create_dir_all(repo.join(".rlm/runs/broken/transcripts")).unwrap();
    let doctor = || doctor(&scene.sandbox, &[], &["--json"]);
    let findings = object(&doctor().run(BOUND).expect_code(0));
    let runs = check(&findings, "runs");
    let detail = runs["detail"].as_str().unwrap();
    assert_eq!(runs["health"], "warning");
    assert!(
        detail.contains("rlm resume died") && detail.contains("damaged: broken"),
        "{detail}"
    );
    fs_err::write(repo.join("rlm.toml"), "agentt = \"claude\"\n").unwrap();
    let findings = object(&doctor().run(BOUND).expect_code(1));
    let settings = check(&findings, "settings");
    assert_eq!(settings["health"], "problem");
    assert!(
        settings["detail"].as_str().unwrap().contains("line 1"),
        "{settings}"
    );
    fs_err::remove_dir_all(repo.join(".rlm")).unwrap();
    fs_err::write(repo.join(".rlm"), "").unwrap();
    let findings = object(&doctor().run(BOUND).expect_code(1));
    assert_eq!(check(&findings, "state")["health"], "problem");
}

#[test]
fn colours_are_only_for_terminals_that_support_them() {
    let sandbox = Sandbox::new();
    for (plain, coloured) in [(None, true), (Some("1"), false)] {
        let mut doctor = doctor(&sandbox, &[], &[]);
        if let Some(plain) = plain {
            doctor = doctor.env("NO_COLOR", plain);
        }
        let (running, terminal) = doctor.spawn_on_terminal();
        running.wait(LONG).expect_code(0);
        // The last line, after all text that may have a colour.
        terminal.wait_text("no agent is ready", 0, LONG);
        let text = terminal.text();
        assert_eq!(text.contains("\u{1b}[3"), coloured, "{text:?}");
    }
}

/// Returns the code blocks of a language on a page.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let begin = format!("```{language}\n");
    let parts = page.split(&*begin).skip(1);
    parts
        .filter_map(|part| part.split("\n```").next())
        .collect()
}

#[test]
fn pages_about_agents_match_the_code() {
    let sandbox = Sandbox::new();
    install(&sandbox, "bin", &ALL);
    install(&sandbox, "bin", &[("my-agent", "exit 0")]);
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/agents");
    let versions = rlm_tests::live::versions();
    let (mut sections, mut lines) = (0, 0);
    for name in ["claude", "codex", "gemini", "opencode", "acp", "command"] {
        let page = fs_err::read_to_string(folder.join(format!("{name}.md"))).unwrap();
        let program = if name == "acp" {
            "claude-agent-acp"
        } else {
            name
        };
        if let Some((_, version)) = versions.iter().find(|(of, _)| *of == program) {
            assert!(
                page.lines().take(3).any(|line| line.contains(version)),
                "{name}: {version}"
            );
        }
        for section in blocks(&page, "toml") {
            fs_err::write(sandbox.repo().join("rlm.toml"), section).unwrap();
            let ended = doctor(&sandbox, &["bin"], &["--json", "--run-project-agent"]).run(BOUND);
            let findings = object(&ended);
            assert_eq!(
                check(&findings, "settings")["health"],
                "ok",
                "{name}: {ended}"
            );
            assert_eq!(findings["chosen"][0], name);
            let refused = agent(&findings, name)["notes"].to_string();
            assert!(!refused.contains("rlm.toml"), "{name}: {refused}");
            sections += 1;
        }
        fs_err::remove_file(sandbox.repo().join("rlm.toml")).unwrap();
        // A valid command line fails only at its directory.
        for block in blocks(&page, "sh") {
            for line in block.lines().filter_map(|line| line.strip_prefix("rlm ")) {
                let script = format!("{RLM} -C /nowhere {line}");
                let ended = sandbox.rlm("/bin/sh").args(["-c", &script]).run(LONG);
                assert!(ended.stderr.contains("/nowhere"), "{name}: {line}: {ended}");
                lines += 1;
            }
        }
    }
    assert_eq!((sections, lines), (6, 16));
}

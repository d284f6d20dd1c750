//! The agent of rlm itself, `--agent api`, against the scripted model server.

use std::time::Duration;

use rlm_tests::model::FakeModel;
use rlm_tests::{Ended, Rlm, Sandbox, wait_for};
use rustix::process::Signal;
use serde_json::Value;

use crate::{LONG, RLM};

/// The dialects, with the address below which each one is.
pub(crate) const DIALECTS: [(&str, &str); 3] =
    [("messages", ""), ("responses", "/v1"), ("chat", "/v1")];
pub(crate) const KEY: &str = "sk-of-the-test-0123456789";

/// A project with a failing test, and replies that lead to its fix.
pub(crate) const LIBRARY: &str = "pub fn double(n: u32) -> u32 {\n    n + n + 1\n}\n\n#[test]\nfn doubles() {\n    assert_eq!(double(2), 4);\n}\n";

/// Returns the command that runs the test, with the compiler of this build.
pub(crate) fn check() -> String {
    let rustc = std::path::Path::new(env!("CARGO")).with_file_name("rustc");
    format!(
        "{} --edition 2024 --test -o t lib.rs && ./t -q && rm t",
        rustc.display()
    )
}

pub(crate) struct Scene {
    pub(crate) sandbox: Sandbox,
    pub(crate) model: FakeModel,
}

impl Scene {
    /// Makes a sandbox whose user has chosen the scripted server.
    pub(crate) fn new(dialect: (&str, &str)) -> Self {
        Self::with(dialect, FakeModel::start(""))
    }

    /// As [`new`](Self::new), with this server.
    pub(crate) fn with((dialect, path): (&str, &str), model: FakeModel) -> Self {
        let sandbox = Sandbox::new();
        let settings = format!(
            "[api-server]\ndialect = \"{dialect}\"\nbase-url = \"{}{path}\"\nkey-env = \"MY_KEY\"\n",
            model.url()
        );
        let place = sandbox.home().join(".config/rlm");
        fs_err::create_dir_all(&place).unwrap();
        fs_err::write(place.join("config.toml"), settings).unwrap();
        Self { sandbox, model }
    }

    pub(crate) fn rlm(&self, arguments: &[&str]) -> Rlm<'_> {
        { self.sandbox.rlm(RLM) }.env("MY_KEY", KEY).args(arguments)
    }

    /// Prepares `rlm run --agent api` with everything permitted.
    pub(crate) fn run(&self, prompt: &str, arguments: &[&str]) -> Rlm<'_> {
        let run = [
            "run",
            "--agent",
            "api",
            "--model",
            "a-model",
            "--permissions",
            "all",
            "--sleep",
            "0",
            "--prompt",
            prompt,
        ];
        self.rlm(&[&run, arguments].concat())
    }

    pub(crate) fn events(ended: &Ended) -> Vec<Value> {
        let lines = ended.stdout.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

#[test]
fn a1_task_of_four_calls_ends_with_evidence_over_each_dialect() {
    let check = check();
    let prompt = format!(
        r#"Fix the test. [[tool grep {{"pattern":"fn double"}}]] [[tool read {{"path":"lib.rs"}}]]
        [[tool edit {{"path":"lib.rs","old":"n + n + 1","new":"n + n"}}]] [[tool bash {{"command":"{check}"}}]]
        [[text The test passes now.]]"#
    );
    let mut seen: Option<(String, Vec<String>)> = None;
    for dialect in DIALECTS {
        let scene = Scene::new(dialect);
        fs_err::write(scene.sandbox.repo().join("lib.rs"), LIBRARY).unwrap();
        let ended = scene
            .run(&prompt, &["--until", &check, "-n", "2", "--json"])
            .run(LONG)
            .expect_code(0);
        let events = Scene::events(&ended);
        let evidence = events
            .iter()
            .rev()
            .find_map(|event| event["evidence"].as_str());
        assert_eq!(evidence, Some("check"), "{ended}");
        let tools = events.iter().filter_map(|event| event["tool"].as_str());
        let tools: Vec<String> = tools.map(str::to_owned).collect();
        let library = fs_err::read_to_string(scene.sandbox.repo().join("lib.rs")).unwrap();
        assert!(library.contains("    n + n\n"), "{library}");
        let requests = scene.model.requests();
        assert_eq!(requests.len(), 5, "{}: four calls and the end", dialect.0);
        match &seen {
            Some(first) => assert_eq!(*first, (library, tools), "{}", dialect.0),
            None => seen = Some((library, tools)),
        }
    }
}

#[test]
fn a14_key_is_in_no_file_argument_or_output_of_a_tool() {
    let scene = Scene::new(DIALECTS[2]);
    let look = "env; cat /proc/self/environ /proc/self/cmdline /proc/$PPID/cmdline";
    let prompt = format!(r#"Look. [[tool bash {{"command":"{look}"}}]]"#);
    let run = scene.run(&prompt, &["--once", "--json"]);
    let ended = run.env("GITHUB_TOKEN", KEY).run(LONG).expect_code(0);
    assert!(
        !ended.stdout.contains(KEY) && !ended.stderr.contains(KEY),
        "{ended}"
    );
    let report = scene.rlm(&["report", "--output", "report.html"]);
    drop(report.run(LONG).expect_code(0));
    for file in files(scene.sandbox.path()) {
        let bytes = fs_err::read(&file).unwrap();
        let has_key = bytes.windows(KEY.len()).any(|part| part == KEY.as_bytes());
        assert!(!has_key, "{}", file.display());
    }
    let request = scene.model.requests().pop().unwrap();
    let shown = format!("{:?}", request.items);
    assert!(shown.contains("PATH=") && !shown.contains(KEY), "{shown}");
}

#[test]
fn a14_no_process_shows_the_key_in_proc() {
    let scene = Scene::new(DIALECTS[2]);
    let id = std::process::id();
    let key = format!("sk-{id}-of-a-process");
    // Counts the processes that show the key, and those that show another variable. The patterns match neither themselves nor the prompt.
    let count = |start: &str, files: &str| {
        format!("$(grep -las '{start}-{id}-o[f]-a-process' {files} | wc -l)")
    };
    let look = format!(
        "echo key:{}: plain:{}:",
        count("sk", "/proc/[0-9]*/environ /proc/[0-9]*/cmdline"),
        count("plain", "/proc/[0-9]*/environ")
    );
    let prompt = format!(r#"Look. [[tool bash {{"command":"{look}"}}]]"#);
    let check = "eval \"$LOOK\" > counts; env > variables; true";
    let run = scene.run(&prompt, &["--until", check, "-n", "1"]);
    let run = run.env("MY_KEY", &key).env("LOOK", &look);
    let run = run.env("PLAIN", format!("plain-{id}-of-a-process"));
    drop(run.run(LONG).expect_code(0));
    let [counts, variables] = ["counts", "variables"]
        .map(|name| fs_err::read_to_string(scene.sandbox.repo().join(name)).unwrap());
    let request = scene.model.requests().pop().unwrap();
    let told = format!("{:?}", request.items);
    for (name, text) in [("tool", told), ("check", counts)] {
        assert!(text.contains("key:0:"), "the {name} sees it: {text}");
        assert!(!text.contains("plain:0:"), "the {name} can look: {text}");
    }
    assert!(!variables.contains(&key), "{variables}");
}

/// A resume checks an unfinished iteration before its agent starts.
#[test]
fn a14_first_check_of_a_resume_has_no_key() {
    let scene = Scene::new(DIALECTS[2]);
    // The parent of the shell is its guard.
    let command = "touch killed; kill -9 $(cut -d' ' -f4 /proc/$PPID/stat)";
    let prompt = format!(r#"Go. [[tool bash {{"command":"{command}"}}]] [[text never]]"#);
    let check = "env > variables; test -e killed";
    let run = scene.run(&prompt, &["--until", check, "-n", "2"]);
    drop(run.run(LONG).expect_signal(Signal::KILL));
    drop(
        scene
            .rlm(&["resume", "--no-input"])
            .run(LONG)
            .expect_code(0),
    );
    let variables = fs_err::read_to_string(scene.sandbox.repo().join("variables")).unwrap();
    assert!(
        variables.contains("PATH=") && !variables.contains(KEY),
        "{variables}"
    );
    assert_eq!(scene.model.requests().len(), 1, "the check came first");
}

#[test]
fn a14_agent_of_another_phase_inherits_the_key_and_its_check_does_not() {
    let scene = Scene::new(DIALECTS[2]);
    let print = |file: &str| format!("echo \"key:$MY_KEY:\" > {file}");
    let phases = format!(
        "[[phase]]\nname = 'own'\nprompt = 'Go.'\nagent = 'api'\nmodel = 'a-model'\nmax-iterations = 1\n\
         [[phase]]\nname = 'other'\nprompt = 'Go.'\ncommand = ['sh', '-c', '{}']\nmax-iterations = 1\nuntil = '{}; test -e other'\n",
        print("other"),
        print("check")
    );
    fs_err::write(scene.sandbox.repo().join("rlm.toml"), phases).unwrap();
    let run = scene.rlm(&["run", "--sleep", "0"]);
    drop(run.run(LONG).expect_code(0));
    for (file, key) in [("other", KEY), ("check", "")] {
        let printed = fs_err::read_to_string(scene.sandbox.repo().join(file)).unwrap();
        assert_eq!(printed, format!("key:{key}:\n"), "{file}");
    }
    assert_eq!(scene.model.requests().len(), 1);
}

#[test]
fn a14_variable_that_the_user_names_for_the_tools_is_kept_although_it_looks_secret() {
    let scene = Scene::new(DIALECTS[2]);
    fs_err::write(
        scene.sandbox.repo().join("rlm.toml"),
        "[api]\nenv = { MY_TOKEN = \"for-the-tools\", MY_KEY = \"not-for-them\" }\n",
    )
    .unwrap();
    let look = "echo token:$MY_TOKEN: other:$OTHER_TOKEN: key:$MY_KEY:";
    let prompt = format!(r#"Look. [[tool bash {{"command":"{look}"}}]]"#);
    let run = scene.run(&prompt, &["--once"]);
    drop(
        run.env("OTHER_TOKEN", "of-the-user")
            .run(LONG)
            .expect_code(0),
    );
    let request = scene.model.requests().pop().unwrap();
    let told = format!("{:?}", request.items);
    assert!(
        told.contains("token:for-the-tools: other:: key::"),
        "{told}"
    );
}

fn files(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut all = Vec::new();
    for entry in fs_err::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => all.extend(files(&entry.path())),
            kind if kind.is_file() => all.push(entry.path()),
            _ => {}
        }
    }
    all
}

#[test]
fn a14_project_can_not_choose_the_server() {
    let scene = Scene::new(DIALECTS[2]);
    let project = scene.sandbox.repo().join("rlm.toml");
    fs_err::write(
        project,
        "[api-server]\nbase-url = \"http://127.0.0.1:9/v1\"\n",
    )
    .unwrap();
    let ended = scene.run("Go.", &["--once"]).run(LONG).expect_code(2);
    assert!(
        ended
            .stderr
            .contains("line 1: `api-server` is allowed only in your own file"),
        "{ended}"
    );
    assert!(scene.model.requests().is_empty());
}

#[test]
fn a4_stop_ends_the_tree_of_a_tool() {
    let scene = Scene::new(DIALECTS[2]);
    let prompt = r#"Go. [[tool bash {"command":"setsid sleep 600 & (trap '' TERM; touch ready; sleep 600)"}]]"#;
    let run = scene.run(prompt, &["--once"]).spawn();
    let ready = scene.sandbox.repo().join("ready");
    wait_for("the tool", LONG, || ready.exists().then_some(()));
    run.signal(Signal::INT);
    let ended = run.wait(Duration::from_secs(80)).expect_signal(Signal::INT);
    assert!(ended.stdout.contains("all processes ended"), "{ended}");
    let left = scene.sandbox.survivors().scan();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a10_budget_of_money_needs_prices_and_ends_the_run() {
    let scene = Scene::new(DIALECTS[2]);
    let prompt = r#"Go. [[tool bash {"command":"echo 1"}]] [[tool bash {"command":"echo 2"}]] [[tool bash {"command":"echo 3"}]]"#;
    let budget = ["--max-cost", "0.01", "-n", "3"];
    let refused = scene.run(prompt, &budget).run(LONG).expect_code(2);
    let what = "--max-cost can't be enforced: api (a-model) doesn't report its cost";
    assert!(refused.stderr.contains(what), "{refused}");
    assert!(scene.model.requests().is_empty());

    let config = scene.sandbox.home().join(".config/rlm/config.toml");
    let settings = fs_err::read_to_string(&config).unwrap();
    let prices = "prices = { input = \"10.00\", output = \"10.00\" }\n";
    fs_err::write(&config, settings + prices).unwrap();
    let ended = scene.run(prompt, &budget).run(LONG);
    assert!(ended.stdout.contains("cost"), "{ended}");
    assert_eq!(ended.code(), Some(4), "{ended}");
    // A call of this server costs about a cent, so the first or the second one uses the budget up.
    assert!(scene.model.requests().len() <= 2, "{ended}");
}

#[test]
fn a22_missing_model_key_or_server_is_one_line() {
    let scene = Scene::new(DIALECTS[2]);
    let config = scene.sandbox.home().join(".config/rlm/config.toml");
    for (settings, arguments, what) in [
        (
            "[api-server]\nbase-url = \"http://127.0.0.1:9/v1\"\n",
            vec![],
            "no model is named; choose one with --model",
        ),
        (
            "",
            vec!["--model", "m"],
            "no model server is named; set ANTHROPIC_API_KEY or OPENAI_API_KEY",
        ),
        (
            "[api-server]\nbase-url = \"gopher://x\"\n",
            vec!["--model", "m"],
            "is no http or https address",
        ),
        (
            "[api-server]\nbase-url = \"http://127.0.0.1:9\"\nkey-env = \"ABSENT\"\n",
            vec!["--model", "m"],
            "the variable ABSENT with the key is not set",
        ),
        (
            "[api-server]\nprices = { input = \"3\" }\nbase-url = \"http://127.0.0.1:9\"\n",
            vec!["--model", "m"],
            "the prices in [api-server]: `output` is missing",
        ),
    ] {
        fs_err::write(&config, settings).unwrap();
        let run = ["run", "--agent", "api", "--once", "--prompt", "Go."];
        let ended = scene.rlm(&run).args(&arguments).run(LONG).expect_code(2);
        assert!(
            ended.stderr.contains(what) && ended.stderr.lines().count() == 1,
            "{what}: {ended}"
        );
    }
}

#[test]
fn a18_agent_passes_the_checks_of_the_other_agents() {
    let checks: Vec<_> = rlm_tests::live::checks_of_own_agent().collect();
    assert!(checks.len() >= 10);
    let programs = std::path::Path::new(RLM).with_file_name("");
    let waiting = std::sync::Mutex::new(checks.into_iter());
    let work = || {
        loop {
            let next = waiting.lock().unwrap().next();
            let Some((name, check)) = next else {
                return;
            };
            let found = check(RLM.as_ref(), &programs);
            assert!(!found.is_empty(), "{name}");
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(work);
        }
    });
}

#[test]
fn a15_tool_of_an_mcp_server_is_called_and_its_processes_end_with_the_run() {
    let scene = Scene::new(DIALECTS[0]);
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../crates/agent-api/tests/agent/mcp.sh"
    );
    let server = |mode: &str| {
        let log = scene.sandbox.repo().join(mode);
        format!(
            "[mcp-servers.{mode}]\ncommand = \"bash\"\nargs = [{script:?}, \"{mode}\", {log:?}]\n"
        )
    };
    let given = "env = { GIVEN_TOKEN = \"${MY_TOKEN}\" }\n";
    let settings = format!(
        "{}{given}{}[api]\nmcp-timeout = 20\n",
        server("family"),
        server("dies")
    );
    fs_err::write(scene.sandbox.repo().join("rlm.toml"), settings).unwrap();
    let prompt = "Greet. [[tool mcp__family__greet {}]] [[tool bash {\"command\":\"env\"}]] [[text greeted]]";
    let run = scene.run(prompt, &["--once", "--json"]);
    let ended = run.env("MY_TOKEN", "tok-given").run(LONG).expect_code(0);
    let events = Scene::events(&ended);
    let called = { events.iter() }.any(|event| event["tool"] == "mcp__family__greet");
    assert!(called, "{ended}");
    let dead = "the MCP server `dies` has ended (exit status 3); its standard error ends with: reading its settings / no such database";
    assert!(ended.stdout.contains(dead), "{ended}");
    let requests = scene.model.requests();
    let shown = format!("{:?}", requests.last().unwrap().items);
    assert!(shown.contains("hello from family"), "{shown}");
    let env = fs_err::read_to_string(scene.sandbox.repo().join("family.env")).unwrap();
    assert!(env.contains("GIVEN_TOKEN=tok-given"), "{env}");
    // Neither the key of the model server nor a variable for another server is inherited.
    assert!(!env.contains(KEY) && !env.contains("MY_TOKEN"), "{env}");
    assert!(!shown.contains("tok-given"), "{shown}");
    let left = scene.sandbox.survivors().scan();
    assert!(left.is_empty(), "{left:?}");
}

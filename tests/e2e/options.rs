//! The agent's settings in rlm.toml: its options, its MCP servers, its timeouts, its sessions.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rlm_tests::{Running, poll_until};
use rustix::process::Signal;
use serde_json::Value;

use crate::scene::{PROMPT, Scene, expect_in_order, json, says, stop, text};
use crate::{FAKE_AGENT, LONG};

const TOML: &str = r#"
mcp-config = "servers.json"

[mcp-servers.tracker]
type = "stdio"
command = "tracker-mcp"
args = ["--key=s3cret-literal"]
env = { TOKEN = "${TRACKER_TOKEN}" }

[mcp-servers.docs]
type = "http"
url = "http://localhost:1/mcp"
headers = { Authorization = "Bearer ${TRACKER_TOKEN}" }

[claude]
tools = ["Bash", "Edit"]
allowed-tools = ["Bash(git log:*)"]
disallowed-tools = ["WebFetch"]
max-turns = 7
setting-sources = ["project"]
fallback-model = "small"
effort = "high"
append-system-prompt = "be s3cret-brief"
add-dirs = ["lib"]
strict-mcp = true
env = { OWN = "s3cret-own" }
env-allow = ["FAKE_AGENT_*", "RLM_*"]
settings = { env = { DEEP = "s3cret-deep" } }
"#;

const FILE: &str = r#"{"mcpServers": {"docs": {"command": "replaced"}, "first": {"type": "sse", "url": "http://localhost:1/sse"}}}"#;

fn with_options(script: &str) -> Scene {
    let scene = Scene::new(script);
    fs_err::write(scene.file("rlm.toml"), TOML).unwrap();
    fs_err::write(scene.file("servers.json"), FILE).unwrap();
    scene
}

/// Returns the arguments of the last start, and the files that they name, by their flags.
fn files(scene: &Scene) -> Vec<(String, PathBuf)> {
    let argv = scene.agent.starts().pop().unwrap().argv;
    let pairs = argv.iter().filter_map(|word| word.split_once('='));
    let files =
        pairs.filter(|(_, value)| Path::new(value).is_absolute() && value.contains("scratch"));
    files
        .map(|(flag, path)| (flag.to_owned(), path.into()))
        .collect()
}

fn begin(scene: &Scene, arguments: &[&str]) -> Running {
    let run = scene.claude(arguments).env("TRACKER_TOKEN", "s3cret-token");
    let mut running = run.env("STRANGE", "1").spawn();
    says(&mut running, "ready");
    running
}

#[test]
fn l97a_l97b_l97c_l97d_l97e_l97f_options_reach_the_agent() {
    let scene = with_options("say ready\nturn");
    let run = scene.claude(&["--once", "--model", "big"]);
    let run = run.env("TRACKER_TOKEN", "s3cret-token").env("STRANGE", "1");
    run.run(LONG).expect_code(0);
    let start = scene.agent.starts().pop().unwrap();
    let chosen = start
        .argv
        .iter()
        .skip_while(|word| *word != "--permission-mode");
    let root = scene.file("").display().to_string();
    let shown = chosen.map(|word| match word.split_once('=') {
        Some((flag, value)) if value.contains("/scratch/") => format!("{flag}=FILE"),
        _ => word.replace(&root, "ROOT/"),
    });
    insta::assert_snapshot!(shown.collect::<Vec<_>>().join("\n"), @r"
    --permission-mode
    acceptEdits
    --model=big
    --fallback-model=small
    --effort=high
    --max-turns=7
    --tools=Bash,Edit
    --allowedTools=Bash(git log:*)
    --disallowedTools=WebFetch
    --setting-sources=project
    --add-dir=ROOT/lib
    --settings=FILE
    --append-system-prompt-file=FILE
    --strict-mcp-config
    --mcp-config=FILE
    ");
    assert_eq!(start.env["OWN"], "s3cret-own");
    assert_eq!(start.env["PWD"], start.cwd);
    assert!(start.env.contains_key("HOME") && !start.env.contains_key("STRANGE"));
}

#[test]
fn l95a_l95b_l95e_l95f_mcp_servers_reach_the_agent_in_order_by_private_file() {
    let scene = with_options("say ready\nhang");
    let running = begin(&scene, &["--once"]);
    let files_then = files(&scene);
    let path = |flag: &str| {
        &files_then
            .iter()
            .find(|(known, _)| known == flag)
            .unwrap()
            .1
    };
    let servers = fs_err::read_to_string(path("--mcp-config")).unwrap();
    insta::assert_snapshot!(servers, @r#"{"mcpServers":{"docs":{"type":"http","url":"http://localhost:1/mcp","headers":{"Authorization":"Bearer s3cret-token"}},"first":{"type":"sse","url":"http://localhost:1/sse"},"tracker":{"type":"stdio","command":"tracker-mcp","args":["--key=s3cret-literal"],"env":{"TOKEN":"s3cret-token"}}}}"#);
    let settings = json(&fs_err::read_to_string(path("--settings")).unwrap());
    assert_eq!(settings["disableAllHooks"], true);
    assert_eq!(settings["env"]["DEEP"], "s3cret-deep");
    let prompt = fs_err::read_to_string(path("--append-system-prompt-file")).unwrap();
    assert_eq!(prompt, "be s3cret-brief");
    for (flag, path) in &files_then {
        let mode = fs_err::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{flag}");
    }
    stop(running, Signal::INT);
    assert!(
        files_then.iter().all(|(_, path)| !path.exists()),
        "removed with the agent"
    );
}

#[test]
fn l95g_the_files_of_a_killed_run_are_removed_by_the_next() {
    let scene = with_options("@1 say ready\n@1 hang\n@2 say well");
    let running = begin(&scene, &["--once"]);
    let left = files(&scene);
    assert_eq!(left.len(), 3, "{left:?}");
    stop(running, Signal::KILL);
    scene.wait_until_nothing_is_alive();
    assert!(
        left.iter().all(|(_, path)| path.exists()),
        "no process could remove them"
    );
    let resume = scene
        .talking(&["resume"])
        .env("TRACKER_TOKEN", "s3cret-token");
    resume.run(LONG).expect_code(0);
    assert!(left.iter().all(|(_, path)| !path.exists()));
}

/// Returns all files below a directory, without the private files of agents.
fn state(directory: &Path) -> Vec<PathBuf> {
    let entries = fs_err::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let below = |path: PathBuf| match path.is_dir() && !path.ends_with("scratch") {
        true => state(&path),
        false => vec![path],
    };
    entries.flat_map(below).collect()
}

#[test]
fn x118b_x118c_no_secret_is_in_process_list_or_output() {
    let scene = with_options("say ready\nhang");
    let running = begin(&scene, &["--once", "--json"]);
    let alive = scene.alive();
    assert!(alive.len() >= 3, "rlm, the guard and the agent: {alive:?}");
    for process in alive {
        // A git process in the list may have ended meanwhile.
        let line = fs_err::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        assert!(!line.contains("s3cret"), "{line}");
    }
    let run = scene.run_id();
    let mut shown = vec![running.stdout()];
    for arguments in [
        &["status"][..],
        &["status", "--json"],
        &["logs"],
        &["logs", "--json"],
        &["checkpoints", "list", "--json"],
        &["checkpoints", "show", &run],
        &["checkpoints", "show", &run, "--json"],
        &["checkpoints", "verify", "--json"],
    ] {
        let ended = scene.rlm(arguments).run(LONG).expect_code(0);
        shown.push(format!("{}{}", ended.stdout, ended.stderr));
    }
    let ended = stop(running, Signal::INT);
    shown.push(ended.stderr);
    for text in &shown {
        assert!(
            !text.contains("s3cret-own") && !text.contains("s3cret-token"),
            "{text}"
        );
        assert!(
            !text.contains("s3cret-literal") && !text.contains("s3cret-deep"),
            "{text}"
        );
    }
    assert!(
        shown[0].contains("TOKEN") && shown[7].contains("Authorization"),
        "names are shown"
    );
    // The state of a run contains the name of a variable, not its value. Only the owner can read a value in rlm.toml.
    let kept = state(&scene.file(".rlm"));
    for path in kept.iter().filter(|path| path.is_file()) {
        let bytes = fs_err::read(path).unwrap();
        assert!(
            !String::from_utf8_lossy(&bytes).contains("s3cret-token"),
            "{}",
            path.display()
        );
    }
    let is_state = |path: &&PathBuf| path.extension().is_some_and(|e| e == "ckj" || e == "ckpt");
    let modes = kept
        .iter()
        .filter(is_state)
        .map(|path| fs_err::metadata(path).unwrap().permissions().mode() & 0o077);
    let modes: Vec<u32> = modes.collect();
    assert!(
        !modes.is_empty() && modes.iter().all(|mode| *mode == 0),
        "{modes:?}"
    );
}

#[test]
fn x117a_x118e_error_in_a_table_names_its_line_without_its_value() {
    let scene = Scene::new("say ready");
    let mistakes = [
        (
            "\n[claude]\ntols = 1\n",
            "line 3: unknown key `tols`; did you mean `tools`?",
        ),
        (
            "[claude]\ntools = \"s3cret\"\n",
            "line 2: `tools`: invalid type: string, expected a sequence",
        ),
        (
            "[claude]\nenv = { A = 5318008 }\n",
            "line 2: `A`: invalid type: integer, expected a string",
        ),
        (
            "[mcp-servers.a]\ncommand = \"x\"\nheaders = \"s3cret\"\n",
            "invalid type: string, expected a map",
        ),
        (
            "[mcp-servers.a]\ncommand = \"x\"\ntoken = \"s3cret\"\n",
            "unknown key `token`",
        ),
        (
            "[mcp-servers.a]\nurl = \"s3cret\"\n",
            "must begin with http",
        ),
        (
            "[mcp-servers.\"a b\"]\ncommand = \"x\"\n",
            "not an MCP server name",
        ),
        ("mcp-config = \"none.json\"\n", "none.json` doesn't exist"),
        (
            "[mcp-servers.a]\ncommand = \"${NO_SUCH_VARIABLE}\"\n",
            "`NO_SUCH_VARIABLE`",
        ),
    ];
    for (toml, says) in mistakes {
        fs_err::write(scene.file("rlm.toml"), toml).unwrap();
        let ended = scene.claude(&["--once"]).run(LONG).expect_code(2);
        assert!(ended.stderr.contains(says), "{toml}: {ended}");
        assert!(
            !ended.stderr.contains("s3cret") && !ended.stderr.contains("5318008"),
            "{ended}"
        );
        assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
    }
    assert!(!scene.file(".rlm").exists() && scene.start_count() == 0);
}

#[test]
fn x133b_x133c_mcp_servers_for_a_command_agent_are_refused_before_the_run() {
    let scene = Scene::new("print hi");
    for server in [
        "type = \"stdio\"\ncommand = \"x\"",
        "type = \"http\"\nurl = \"http://localhost:1\"",
        "type = \"sse\"\nurl = \"http://localhost:1\"",
    ] {
        let toml = format!("[mcp-servers.a]\n{server}\n");
        fs_err::write(scene.file("rlm.toml"), &toml).unwrap();
        let ended = scene.run(&["--once"]).run(LONG).expect_code(2);
        let says = "the command agent can't take MCP servers";
        assert!(ended.stderr.contains(says), "{ended}");
        assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
        assert_eq!((scene.start_count(), scene.statuses().len()), (0, 0));
        // A driver that supports these options passes them on.
        let claude = Scene::new("say ready");
        fs_err::write(claude.file("rlm.toml"), toml).unwrap();
        claude.claude(&["--once"]).run(LONG).expect_code(0);
        assert!(
            files(&claude)
                .iter()
                .any(|(flag, _)| flag == "--mcp-config")
        );
    }
}

#[test]
fn options_of_one_agent_mean_nothing_to_another() {
    let scene = Scene::new("print hi");
    fs_err::write(scene.file("rlm.toml"), "[claude]\ntools = [\"Bash\"]\n").unwrap();
    scene.run(&["--once"]).run(LONG).expect_code(0);
    assert_eq!(scene.start_count(), 1);
}

#[test]
fn p49b_s5b_a_silent_agent_is_reported_before_it_is_ended() {
    let scene = Scene::new("say ready\nhang");
    let limits = ["--idle-timeout", "3", "--max-failures", "1", "--once"];
    let ended = scene.claude(&limits).run(LONG * 2).expect_code(1);
    let words = [
        "ready",
        "no output from the agent for",
        "limit 3s",
        "no output for 3s",
    ];
    expect_in_order(&ended.stdout, &words);
    assert_eq!(
        ended.stdout.matches("no output from the agent for").count(),
        1,
        "{ended}"
    );
    scene.expect_nothing_alive();
}

#[test]
fn p49a_open_connection_is_no_activity_and_announced_wait_is_no_silence() {
    let alive = r#"event {"type":"keep_alive"}"#;
    let beats = format!("{alive}\ndelay 700\n").repeat(30);
    let scene = Scene::new(&format!("say ready\n{beats}say too late"));
    let limits = ["--idle-timeout", "3", "--max-failures", "1", "--once"];
    let ended = scene.claude(&limits).run(LONG * 2).expect_code(1);
    assert!(ended.stdout.contains("no output for 3s"), "{ended}");
    assert!(!ended.stdout.contains("too late"), "{ended}");

    let scene = Scene::new("retry 529 1 5000\nsay well");
    let ended = scene.claude(&limits).run(LONG * 2).expect_code(0);
    assert!(ended.stdout.contains("well"), "{ended}");
    assert!(
        !ended.stdout.contains("no output from the agent for"),
        "{ended}"
    );
}

/// Returns the directory of this user's session locks.
fn locks(scene: &Scene) -> PathBuf {
    let environment = scene.sandbox.environment();
    let (_, place) = { environment.iter() }
        .find(|(name, _)| name == "XDG_STATE_HOME")
        .unwrap();
    Path::new(place).join("rlm/sessions")
}

#[test]
fn p46_session_stays_locked_while_its_agent_lives() {
    // The agent outlives rlm. A lock that ended with rlm would be free too early.
    let scene = Scene::new("ignore TERM\nsay ready\nhang");
    let mut running = scene.claude(&["--once"]).spawn();
    says(&mut running, "ready");
    let session = text(&scene.status()["session"]);
    let path = locks(&scene).join(format!("{session}.lock"));
    let holder: Value = json(&fs_err::read_to_string(&path).unwrap());
    assert_eq!(holder["pid"], running.pid());
    let is_locked = || {
        let file = fs_err::File::open(&path).unwrap();
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err()
    };
    assert!(is_locked());
    let mode = fs_err::metadata(locks(&scene))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
    running.signal(Signal::KILL);
    running.wait(LONG).expect_signal(Signal::KILL);
    assert!(poll_until(LONG, || (!is_locked()).then_some(())).is_some());
    assert_eq!(scene.tree_alive(), 0, "it was held until nothing was left");
    assert!(scene.received_messages()[0].contains(PROMPT));
}

#[test]
fn p46_unusable_lock_directory_does_not_block_a_run() {
    let scene = Scene::new("say well");
    fs_err::create_dir_all(locks(&scene)).unwrap();
    let all = std::fs::Permissions::from_mode(0o777);
    fs_err::set_permissions(locks(&scene), all).unwrap();
    scene.claude(&["--once"]).run(LONG).expect_code(0);
    assert_eq!(fs_err::read_dir(locks(&scene)).unwrap().count(), 0);
}

#[test]
fn x117d_zero_duration_is_refused_before_the_run() {
    let scene = Scene::new("print no");
    for option in [
        "--max-duration",
        "--iteration-timeout",
        "--idle-timeout",
        "--check-timeout",
    ] {
        let ended = scene.run(&["--once", option, "0"]).run(LONG).expect_code(2);
        let says = format!("{} of 0 allows nothing", &option[2..]);
        assert!(ended.stderr.contains(&says), "{ended}");
    }
    assert_eq!(scene.start_count(), 0);
}

#[test]
fn x133a_the_file_or_the_option_names_the_agents_program() {
    let scene = Scene::new("say ready");
    let file = format!("agent = 'claude'\nagent-bin = '{FAKE_AGENT}'\n");
    fs_err::write(scene.file("rlm.toml"), file).unwrap();
    let run = ["run", "-p", PROMPT, "--sleep", "0", "--once"];
    scene.talking(&run).run(LONG).expect_code(0);
    let other = [&run[..], &["--agent-bin", "./other"]].concat();
    let refused = scene.talking(&other).run(LONG).expect_code(2);
    assert!(
        refused.stderr.contains("/other` doesn't exist"),
        "{refused}"
    );
    std::os::unix::fs::symlink(FAKE_AGENT, scene.file("other")).unwrap();
    fs_err::write(
        scene.file("rlm.toml"),
        "agent = 'claude'\nagent-bin = './none'\n",
    )
    .unwrap();
    scene.talking(&other).run(LONG).expect_code(0);
    assert_eq!(scene.start_count(), 2);
}

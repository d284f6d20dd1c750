//! Tests of the options of an agent: their arguments and files, the permissions of these files, and the time when the driver removes them.

use super::start::{RECORDED, recorded};
use super::*;
use crate::reading::made;
use agent_drivers::claude::ClaudeOptions;
use agent_drivers::mcp::{McpServer, McpServers};
use agent_drivers::{Redacted, SessionInUse, SessionLocks};
use agent_duplex::{
    Capability, Conversation, ConversationEvent, ConversationOptions, Error, Lifecycle, StopStage,
};
use agent_subprocess::{ProcessId, ProcessStat};
use rustix::fs::FlockOperation;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

/// Copies the private files from the arguments, and lists them with their modes.
const FILES: &str = r#"
for word in "$@"; do case $word in
  --*=*/scratch/*) flag=${word%%=*}; path=${word#*=}; cp "$path" "copy$flag"; stat -c '%a %n' "$path" >> modes ;;
esac; done
"#;

fn servers() -> McpServers {
    let mut servers = McpServers::default();
    let tracker = McpServer::stdio("tracker-mcp")
        .arg("--verbose")
        .env("TOKEN", "${TRACKER_TOKEN}");
    let docs = McpServer::http("http://localhost:1/mcp")
        .header("Authorization", "Bearer ${TRACKER_TOKEN}");
    servers.insert("tracker", tracker).unwrap();
    servers.insert("docs", docs).unwrap();
    servers
        .insert("old", McpServer::sse("http://localhost:1/sse"))
        .unwrap();
    servers
}

fn with_secrets(scene: &Scene, functions: &str) -> ClaudeDriver {
    driver(scene, &format!("{RECORDED}{FILES}{functions}"))
        .mcp_servers(servers())
        .options(secrets())
}

fn secrets() -> ClaudeOptions {
    ClaudeOptions {
        env: Redacted([("TRACKER_TOKEN".into(), "s3cret-token".into())].into()),
        system_prompt: Some("be s3cret-brief".into()),
        append_system_prompt: Some("and s3cret-kind".into()),
        settings: serde_json::from_str(r#"{"env": {"KEY": "s3cret-key"}}"#).unwrap(),
        ..ClaudeOptions::default()
    }
}

fn texts<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(Into::into).into()
}

fn files_left(scene: &Scene) -> usize {
    std::fs::read_dir(scene.path("scratch")).map_or(0, Iterator::count)
}

#[tokio::test]
async fn l95d_l97a_l97c_l97d_l97e_l97g_p31a_every_option_is_a_separate_argument() {
    let scene = Scene::new();
    let driver = with_secrets(&scene, "")
        .model("m")
        .options(ClaudeOptions {
            fallback_model: Some("f".into()),
            effort: Some("high".into()),
            max_turns: 3.try_into().ok(),
            tools: Some(texts(["Bash", "Edit"])),
            allowed_tools: texts(["Bash(git log:*)"]),
            disallowed_tools: texts(["WebFetch", "Bash(rm *)"]),
            setting_sources: Some(texts(["project", "local"])),
            add_dirs: ["../other", "-odd dir"].map(Into::into).into(),
            strict_mcp: true,
            ..secrets()
        })
        .args(vec!["--betas=x".into()]);
    drop(open(&driver, SessionChoice::Fresh).await.unwrap());
    let (argv, _) = recorded(&scene);
    assert!(argv.iter().all(|word| !word.contains("s3cret")), "{argv:?}");
    let chosen = argv.iter().skip_while(|word| !word.starts_with("--model"));
    insta::assert_snapshot!(chosen.cloned().collect::<Vec<_>>().join("\n"), @r"
    --model=m
    --fallback-model=f
    --effort=high
    --max-turns=3
    --tools=Bash,Edit
    --allowedTools=Bash(git log:*)
    --disallowedTools=WebFetch,Bash(rm *)
    --setting-sources=project,local
    --add-dir=../other
    --add-dir=-odd dir
    --settings=FILE.json
    --system-prompt-file=FILE.md
    --append-system-prompt-file=FILE.md
    --strict-mcp-config
    --mcp-config=FILE.json
    --betas=x
    ");
}

#[tokio::test]
async fn l95a_l95e_l95f_mcp_servers_pass_by_private_file_removed_with_the_agent() {
    let scene = Scene::new();
    let driver = with_secrets(&scene, "on_user() { exit 0; }");
    assert!(driver.capabilities().has(Capability::Mcp));
    let mut connection = open(&driver, SessionChoice::Fresh).await.unwrap();
    let read = |name: &str| std::fs::read_to_string(scene.path(name)).unwrap();
    insta::assert_snapshot!(read("copy--mcp-config"), @r#"{"mcpServers":{"tracker":{"type":"stdio","command":"tracker-mcp","args":["--verbose"],"env":{"TOKEN":"s3cret-token"}},"docs":{"type":"http","url":"http://localhost:1/mcp","headers":{"Authorization":"Bearer s3cret-token"}},"old":{"type":"sse","url":"http://localhost:1/sse"}}}"#);
    insta::assert_snapshot!(read("copy--settings"), @r#"{"disableAllHooks":true,"env":{"KEY":"s3cret-key"}}"#);
    assert_eq!(read("copy--system-prompt-file"), "be s3cret-brief");
    assert_eq!(read("copy--append-system-prompt-file"), "and s3cret-kind");
    let modes = read("modes");
    assert_eq!(modes.lines().count(), 4);
    assert!(
        modes.lines().all(|line| line.starts_with("600 ")),
        "{modes}"
    );
    let scratch = std::fs::metadata(scene.path("scratch")).unwrap();
    assert_eq!(scratch.permissions().mode() & 0o777, 0o700);
    assert_eq!(files_left(&scene), 4);
    // The files are removed when the agent exits,
    connection.send(Message::new("go")).await.unwrap();
    turn(&mut *connection).await;
    assert_eq!(files_left(&scene), 0);
    // and also at a stop, at a drop, and if the start failed.
    for stopped in [true, false] {
        let mut connection = open(&driver, SessionChoice::Fresh).await.unwrap();
        assert_eq!(files_left(&scene), 4);
        if stopped {
            connection.stop(DEADLINE).await;
        } else {
            drop(connection);
        }
        assert_eq!(files_left(&scene), 0);
    }
    let missing_program = ClaudeDriver::new(vec!["no-such-agent".into()], context(&scene));
    let missing_program = missing_program.options(secrets());
    open(&missing_program, SessionChoice::Fresh)
        .await
        .unwrap_err();
    assert_eq!(files_left(&scene), 0);
}

#[tokio::test]
async fn p31b_p32c_x118b_x118c_no_secret_is_in_arguments_or_output() {
    let scene = Scene::new();
    let driver = with_secrets(&scene, "");
    let mut connection = open(&driver, SessionChoice::Fresh).await.unwrap();
    let begin = next(&mut *connection).await.unwrap();
    let Event::Started { pid } = begin.events[0] else {
        panic!("{begin:?}")
    };
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    let shown = [
        String::from_utf8_lossy(&line).into_owned(),
        format!("{driver:?}"),
        format!("{connection:?}"),
    ];
    assert!(shown[0].contains("--mcp-config="));
    assert!(
        shown.iter().all(|text| !text.contains("s3cret")),
        "{shown:#?}"
    );
    // The variables of the context belong to the caller and can be secret too.
    assert!(!shown[1].contains("hello"), "{}", shown[1]);
    drop(connection.stop(DEADLINE).await);

    let missing = driver.mcp_servers({
        let mut servers = servers();
        let more = McpServer::stdio("x").arg("s3cret=${NO_SUCH_VARIABLE}");
        servers.insert("more", more).unwrap();
        servers
    });
    let error = open(&missing, SessionChoice::Fresh).await.unwrap_err();
    assert!(
        error.is_start_failure() && !error.to_string().contains("s3cret"),
        "{error}"
    );
    let source = std::error::Error::source(&error).unwrap();
    let source = source.downcast_ref::<agent_drivers::mcp::Error>().unwrap();
    assert_eq!(source.missing_variable(), Some("NO_SUCH_VARIABLE"));
    scene.assert_no_process_left();
}

#[tokio::test]
async fn p32a_p32b_agent_inherits_allowed_and_required_variables() {
    // The agent inherits the variables of the test process, so the test runs in its own process.
    if !crate::scene::is_own_process(
        "claude::options::p32a_p32b_agent_inherits_allowed_and_required_variables",
    ) {
        return;
    }
    let scene = Scene::new();
    let script = format!("{AGENT}{RECORDED}{LOOP}");
    let program = ["sh", "-c", &script, "sh"].map(OsString::from);
    let host = [
        "-i",
        "PATH=/usr/bin:/bin",
        "HOME=/h",
        "LC_ALL=C",
        "ANTHROPIC_API_KEY=k",
        "HTTPS_PROXY=p",
        "all_proxy=p",
        "NODE_EXTRA_CA_CERTS=c",
        "SSL_CERT_FILE=c",
        "CARGO_X=1",
        "AWS_REGION=here",
        "AWS_KEY=s3cret",
        "CLAUDECODE=1",
        "CLAUDE_CONFIG_DIR=/c",
        "OTHER=1",
    ];
    for pair in host.into_iter().skip(1) {
        let (name, value) = pair.split_once('=').unwrap();
        set(name, value);
    }
    let driver = ClaudeDriver::new(program.into(), context(&scene)).options(ClaudeOptions {
        env_allow: Some(texts(["CARGO_*", "AWS_REGION"])),
        env: Redacted([("MINE".into(), "1".into())].into()),
        ..ClaudeOptions::default()
    });
    drop(open(&driver, SessionChoice::Fresh).await.unwrap());
    let (_, env) = recorded(&scene);
    let names: Vec<&str> = env
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, _)| name)
        .collect();
    for name in [
        "PATH",
        "HOME",
        "LC_ALL",
        "ANTHROPIC_API_KEY",
        "HTTPS_PROXY",
        "all_proxy",
        "NODE_EXTRA_CA_CERTS",
        "SSL_CERT_FILE",
        "CARGO_X",
        "AWS_REGION",
        "CLAUDE_CONFIG_DIR",
        "MINE",
        "GREETING",
        "PWD",
        crate::scene::VARIABLE,
    ] {
        assert!(names.contains(&name), "{name} is missing: {env}");
    }
    for name in ["AWS_KEY", "OTHER", "CLAUDECODE"] {
        assert!(
            !names.contains(&name),
            "{name} must not be inherited: {env}"
        );
    }
    let cwd = scene.directory.path().canonicalize().unwrap();
    assert!(env.contains(&format!("PWD={}\n", cwd.display())), "{env}");
}

#[expect(
    unsafe_code,
    reason = "only one thread of this separate process reads the environment"
)]
fn set(name: &str, value: &str) {
    // SAFETY: no other thread reads or writes the environment at this time.
    unsafe { std::env::set_var(name, value) };
}

#[tokio::test]
async fn l99a_fork_begins_with_the_old_session_and_has_its_own_id() {
    let scene = Scene::new();
    let driver = driver(&scene, "printf '%s\\n' \"$@\" > words");
    assert!(driver.capabilities().has(Capability::Fork));
    let session = SessionChoice::Fork("old".to_owned());
    let mut connection = open(&driver, session).await.unwrap();
    let begin = next(&mut *connection).await.unwrap();
    let [_, Event::Session { id }] = &begin.events[..] else {
        panic!("{begin:?}")
    };
    assert!(id.parse::<uuid::Uuid>().is_ok(), "{id}");
    let words = std::fs::read_to_string(scene.path("words")).unwrap();
    let forked = format!("--resume=old\n--fork-session\n--session-id={id}\n");
    assert!(words.contains(&forked), "{words}");
}

/// Returns the holder's record from an error.
fn held(error: &Error) -> &SessionInUse {
    assert!(error.is_session_in_use(), "{error}");
    std::error::Error::source(error)
        .unwrap()
        .downcast_ref()
        .unwrap()
}

/// Opens a connection as a conversation does: the guard of the previous agent is perhaps about to release the session.
async fn open_released(driver: &ClaudeDriver, session: &str) -> Box<dyn Connection> {
    let begun = std::time::Instant::now();
    loop {
        match open(driver, SessionChoice::Resume(session.to_owned())).await {
            Err(e) if e.is_releasing() && begun.elapsed() < DEADLINE => {
                std::thread::park_timeout(Duration::from_millis(5));
            }
            opened => return opened.unwrap(),
        }
    }
}

#[tokio::test]
async fn p46_session_has_one_agent_at_a_time() {
    let scene = Scene::new();
    let locks = || SessionLocks::new(scene.path("sessions"));
    let script =
        "on_user() { begin; setsid sleep 622 >/dev/null 2>&1 & result completed; exit 0; }";
    let ours = driver(&scene, script).session_locks(locks());
    let mut first = open(&ours, SessionChoice::Resume("some id".to_owned()))
        .await
        .unwrap();
    // A separate lock table stands for another process.
    let other_process = driver(&scene, script).session_locks(locks());
    for driver in [&ours, &other_process] {
        let session = SessionChoice::Resume("some id".to_owned());
        let begun = std::time::Instant::now();
        let error = driver.connect(session).await.unwrap_err();
        assert!(begun.elapsed() < DEADLINE);
        assert_eq!(held(&error).pid, Some(std::process::id()));
        assert!(
            held(&error).since.is_some() && error.to_string().contains("some id"),
            "{error}"
        );
        drop(open_released(driver, "another").await);
    }
    // The leftovers of the agent keep other processes out of the session, but not the next agent of this process.
    first.send(Message::new("go")).await.unwrap();
    turn(&mut *first).await;
    rest(&mut *first).await;
    scene.wait_for_program("sleep", "622");
    let session = || SessionChoice::Resume("some id".to_owned());
    let mut second = open(&ours, session()).await.unwrap();
    assert!(
        held(&other_process.connect(session()).await.unwrap_err())
            .pid
            .is_some()
    );
    drop(second.stop(DEADLINE).await);
    drop(first.stop(DEADLINE).await);
    drop((first, second));
    let mut third = open_released(&other_process, "some id").await;
    drop(third.stop(DEADLINE).await);
    scene.assert_no_process_left();
}

/// Locks a session as another process does, and names `holder` as the process that took the lock.
fn lock_session(scene: &Scene, session: &str, holder: ProcessId) -> std::fs::File {
    let directory = scene.path("sessions");
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join(format!("{session}.lock"));
    let file = std::fs::File::create(&path).unwrap();
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    let mut record = serde_json::to_value(holder).unwrap();
    record["since"] = 0.into();
    std::fs::write(&path, record.to_string()).unwrap();
    file
}

/// Begins to start an agent in a locked session, and waits until the agent has tried the lock.
async fn start_locked(scene: &Scene, session: &str) -> (Conversation, impl Future<Output = ()>) {
    let driver = driver(scene, "").session_locks(SessionLocks::new(scene.path("sessions")));
    let options = ConversationOptions::default().with_manual_start();
    let (conversation, mut primary) = Conversation::with_primary(Box::new(driver), options);
    let session = SessionChoice::Resume(session.to_owned());
    let starting = {
        let conversation = conversation.clone();
        tokio::spawn(async move { conversation.start(session).await })
    };
    let is_starting = |what: &ConversationEvent| {
        matches!(what, ConversationEvent::Lifecycle(Lifecycle::Starting))
    };
    while !is_starting(&primary.next().await.unwrap().event) {}
    let started = async move { starting.await.unwrap().unwrap() };
    (conversation, started)
}

#[tokio::test]
async fn p46_reading_a_lock_blocks_no_agent() {
    let scene = Scene::new();
    // Another process takes the lock for a moment while it removes old files. The file names a live process as its earlier holder.
    let parent = rustix::process::getppid().unwrap().as_raw_pid();
    let parent = ProcessStat::read(parent.unsigned_abs()).unwrap().process;
    let lock = lock_session(&scene, "one", parent);
    let (conversation, started) = start_locked(&scene, "one").await;
    drop(lock);
    timeout(DEADLINE, started).await.unwrap();
    drop(conversation.stop(DEADLINE).await);
    scene.assert_no_process_left();
}

#[tokio::test]
async fn p46_a_stop_ends_the_wait_for_a_session_and_reports_that_nothing_ran() {
    let scene = Scene::new();
    // The holder is dead; its leftovers hold the lock.
    let dead = ProcessId {
        start_time: 1,
        ..ProcessId::current()
    };
    let _lock = lock_session(&scene, "one", dead);
    let (conversation, _started) = start_locked(&scene, "one").await;
    let begun = std::time::Instant::now();
    let report = conversation.stop(Duration::from_secs(8)).await;
    assert!(report.proven, "{report}");
    assert!(begun.elapsed() < Duration::from_secs(1), "{report}");
    assert_eq!(report.stage, StopStage::AlreadyEnded);
}

#[tokio::test]
async fn model_changes_when_the_agent_confirms_it() {
    let scene = Scene::new();
    let script = r#"
on_other() { case $line in
  *'"model":"good"'*) ok ;;
  *'"model":"bad"'*) say '{"type":"control_response","response":{"subtype":"error","request_id":"'"$(field request_id)"'","error":"no model bad"}}' ;;
  *'"model":"last"'*) exit 3 ;;
esac; }"#;
    let driver = driver(&scene, script).request_timeouts(DEADLINE, Duration::from_millis(300));
    assert!(driver.capabilities().has(Capability::Model));
    let mut connection = open(&driver, SessionChoice::Fresh).await.unwrap();
    change(&mut *connection, "good").await.unwrap();
    let error = change(&mut *connection, "bad").await.unwrap_err();
    assert!(
        error.is_refused() && error.to_string().contains("no model bad"),
        "{error}"
    );
    let error = change(&mut *connection, "slow").await.unwrap_err();
    assert!(
        error.is_refused() && error.to_string().contains("no answer within"),
        "{error}"
    );
    connection.send(Message::new("go")).await.unwrap();
    assert_eq!(turn(&mut *connection).await.1.reason, EndReason::Completed);
    let error = change(&mut *connection, "last").await.unwrap_err();
    assert!(error.is_gone(), "{error}");
}

async fn change(connection: &mut dyn Connection, model: &str) -> Result<(), Error> {
    let asked = connection.set_model(Some(model.to_owned())).await;
    made(connection, asked?).await
}

#[tokio::test]
async fn p16c_missing_answer_is_reported_and_turn_continues() {
    let scene = Scene::new();
    let script = "on_initialize() { :; }";
    let driver = driver(&scene, script).request_timeouts(Duration::from_millis(200), DEADLINE);
    let mut connection = open(&driver, SessionChoice::Fresh).await.unwrap();
    let is_told = |e: &Event| matches!(e, Event::Warning(text) if text.contains("did not answer the initialization"));
    until(&mut *connection, is_told).await;
    connection.send(Message::new("go")).await.unwrap();
    assert_eq!(turn(&mut *connection).await.1.reason, EndReason::Completed);
}

#[tokio::test]
async fn stop_names_and_ends_background_tasks_and_close_leaves_them() {
    for stopped in [true, false] {
        let scene = Scene::new();
        let script = r#"
on_user() { begin; say '{"type":"system","subtype":"background_tasks_changed","tasks":[{"task_id":"b7"}]}'; result completed; }
on_other() { printf '%s\n' "$line" >> heard; }
on_end() { echo end >> heard; ok; exit 0; }"#;
        let mut connection = connect(&scene, script).await;
        connection.send(Message::new("go")).await.unwrap();
        turn(&mut *connection).await;
        if stopped {
            drop(connection.stop(DEADLINE).await);
        } else {
            connection.close().await;
        }
        let heard = std::fs::read_to_string(scene.path("heard")).unwrap();
        let lines: Vec<&str> = heard.lines().collect();
        assert_eq!(lines.last(), Some(&"end"));
        let named = lines[0].contains("stop_task") && lines[0].contains("b7");
        assert_eq!(named, stopped, "{heard}");
    }
}

#[tokio::test]
async fn p49a_p13b_keep_alive_is_not_reported() {
    let scene = Scene::new();
    let script = r#"on_user() { begin; say '{"type":"keep_alive"}'; say '{"type":"tomorrow"}'; result completed; }"#;
    let mut connection = connect(&scene, script).await;
    connection.send(Message::new("go")).await.unwrap();
    let mut lines = Vec::new();
    while let Some(seen) = next(&mut *connection).await {
        lines.extend(
            seen.raw
                .map(|(_, line)| String::from_utf8_lossy(&line.bytes).into_owned()),
        );
        if seen
            .events
            .iter()
            .any(|e| matches!(e, Event::TurnCompleted(_)))
        {
            break;
        }
    }
    assert!(lines.iter().any(|line| line.contains("tomorrow")));
    assert!(
        !lines.iter().any(|line| line.contains("keep_alive")),
        "{lines:?}"
    );
}

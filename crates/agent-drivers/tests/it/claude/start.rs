//! Tests of the start: the agent's arguments and environment, and failures.

use super::*;
use agent_duplex::Permissions;

/// Records the arguments and the environment of the agent.
pub(super) const RECORDED: &str = r#"
for word in "$@"; do printf '%s\n' "$word"; done > argv
env > env
"#;

/// Returns the arguments and the environment, without the parts that differ each time.
pub(super) fn recorded(scene: &Scene) -> (Vec<String>, String) {
    let read = |name| std::fs::read_to_string(scene.path(name)).unwrap();
    let scratch = scene.path("scratch");
    let same = |word: &str| match word.split_once('=') {
        Some(("--session-id", _)) => "--session-id=ID".to_owned(),
        Some((flag, path)) if path.starts_with(scratch.to_str().unwrap()) => {
            let extension = path.rsplit('.').next().unwrap();
            format!("{flag}=FILE.{extension}")
        }
        _ => word.to_owned(),
    };
    let argv = read("argv").lines().map(same).collect();
    (argv, read("env"))
}

#[tokio::test]
async fn p31c_l97b_l97c_l97f_l97g_options_become_arguments_and_variables() {
    let scene = Scene::new();
    let extra = [
        "--tools",
        "Bash Edit; $(touch shell)",
        "--max-turns=3",
        "--setting-sources=",
    ];
    let driver = driver(&scene, RECORDED)
        .model("-m odd")
        .permissions(Permissions::Ask)
        .args(extra.map(OsString::from).into());
    drop(open(&driver, SessionChoice::Fresh).await.unwrap());
    let (argv, env) = recorded(&scene);
    insta::assert_snapshot!(argv.join(" | "), @"-p | --input-format | stream-json | --output-format | stream-json | --verbose | --include-partial-messages | --replay-user-messages | --session-id=ID | --permission-prompt-tool | stdio | --permission-mode | default | --model=-m odd | --settings=FILE.json | --tools | Bash Edit; $(touch shell) | --max-turns=3 | --setting-sources=");
    assert!(env.contains("GREETING=hello\n"));
    assert!(!scene.path("shell").exists());
}

#[tokio::test]
async fn l97b_permissions_map_to_the_flags_of_the_agent() {
    let mut shown = Vec::new();
    for permissions in [
        Permissions::Ask,
        Permissions::Edits,
        Permissions::Deny,
        Permissions::All,
    ] {
        let scene = Scene::new();
        let driver = driver(&scene, RECORDED).permissions(permissions);
        let session = SessionChoice::Resume("some-id".to_owned());
        let mut connection = open(&driver, session).await.unwrap();
        let (argv, _) = recorded(&scene);
        shown.push(format!(
            "{permissions:?}: {}",
            argv[argv.len() - 4..].join(" ")
        ));
        assert!(argv.contains(&"--resume=some-id".to_owned()), "{argv:?}");
        let all = connection.set_permissions(Permissions::All).await;
        assert_eq!(all.is_ok(), permissions == Permissions::All);
    }
    insta::assert_snapshot!(shown.join("\n"), @r"
    Ask: stdio --permission-mode default --settings=FILE.json
    Edits: stdio --permission-mode acceptEdits --settings=FILE.json
    Deny: stdio --permission-mode default --settings=FILE.json
    All: --permission-prompt-tool stdio --dangerously-skip-permissions --settings=FILE.json
    ");
}

#[tokio::test]
async fn l97b_extra_arguments_cannot_set_permissions() {
    let scene = Scene::new();
    for arg in [
        "--dangerously-skip-permissions",
        "--allow-dangerously-skip-permissions",
        "--permission-mode",
        "--permission-mode=bypassPermissions",
        "--permission-prompt-tool=mcp__x__y",
        "--permission-prompts=none",
        "--dangerously-skip-permissions=true",
    ] {
        let extra = ["--max-turns=3", arg].map(OsString::from);
        let driver = driver(&scene, RECORDED).args(extra.into());
        let error = open(&driver, SessionChoice::Fresh).await.unwrap_err();
        let flag = arg.split('=').next().unwrap();
        let says = format!("the driver sets `{flag}` itself: use --permissions instead");
        assert!(
            error.is_start_failure() && error.to_string().contains(&says),
            "{error}"
        );
    }
    assert!(!scene.path("argv").exists(), "no agent may be started");
}

#[tokio::test]
async fn l97f_p32b_agent_does_not_inherit_nesting_variables() {
    let scene = Scene::new();
    let mut context = context(&scene);
    context.env.push(("CLAUDECODE".into(), "1".into()));
    let script = format!("{AGENT}{RECORDED}{LOOP}");
    let program = ["sh", "-c", &script, "sh"].map(OsString::from);
    let driver = ClaudeDriver::new(program.into(), context);
    drop(open(&driver, SessionChoice::Fresh).await.unwrap());
    assert!(!recorded(&scene).1.contains("CLAUDECODE"));
}

#[tokio::test]
async fn l94a_l94b_l94c_replaced_session_is_reported_and_reused_id_refused() {
    let scene = Scene::new();
    let script = r#"begin() { say '{"type":"system","subtype":"init","session_id":"other"}'; say '{"type":"system","subtype":"status","status":"requesting"}'; }"#;
    let mut connection = connect(&scene, script).await;
    connection.send(Message::new("hello")).await.unwrap();
    let (events, _) = turn(&mut *connection).await;
    let sessions: Vec<&Event> = events
        .iter()
        .filter(|e| matches!(e, Event::Session { .. } | Event::Warning(_)))
        .collect();
    let [
        Event::Session { id: ours },
        Event::Warning(warning),
        Event::Session { id },
    ] = sessions[..]
    else {
        panic!("{events:?}");
    };
    assert!(warning.contains(ours) && warning.contains("other") && id == "other");

    for arg in ["--session-id=x", "--resume", "-c", "--input-format=text"] {
        let driver = driver(&scene, "").args(vec![arg.into()]);
        let error = open(&driver, SessionChoice::Fresh).await.unwrap_err();
        assert!(
            error.is_start_failure() && error.to_string().contains(arg.split('=').next().unwrap()),
            "{error}"
        );
    }
}

#[tokio::test]
async fn start_failure_gives_a_hint() {
    let stderr = [
        "--dangerously-skip-permissions cannot be used with root/sudo privileges for security reasons",
        "error: unknown option '--frobnicate'",
        "Error: Session ID 0 is already in use.",
        "a stack trace",
        "",
    ];
    let mut shown = Vec::new();
    for stderr in stderr {
        let scene = Scene::new();
        let script = format!("printf '%s\\n' \"{stderr}\" >&2; exit 1");
        let connected = open(&raw(&scene, &script), SessionChoice::Fresh).await;
        let error = connected.unwrap_err();
        assert!(error.is_start_failure());
        shown.push(error.to_string());
        crate::scene::wait_for("the end", || scene.find().is_empty());
    }
    let scene = Scene::new();
    for program in [vec![], vec!["no-such-agent".into()]] {
        let driver = ClaudeDriver::new(program, context(&scene));
        let error = open(&driver, SessionChoice::Fresh).await.unwrap_err();
        assert!(error.is_start_failure());
        shown.push(error.to_string());
    }
    insta::assert_snapshot!(shown.join("\n"), @r"
    the agent refuses to run with all permissions as root: run as another user, or set IS_SANDBOX=1 in a container
    the agent reports: unknown option '--frobnicate'; fix the agent's extra arguments, or update the agent
    the agent reports: Session ID 0 is already in use; start a fresh session, or resume that one
    `sh` exited immediately (exit status 1): a stack trace; run it by hand to see why
    `sh` exited immediately (exit status 1); run it by hand to see why
    no agent given: name the program to run
    `no-such-agent` was not found on PATH: install it, or name it by its full path
    ");
}

#[tokio::test]
async fn p43b_p45_missing_session_ends_the_first_turn() {
    let scene = Scene::new();
    let script = r#"
echo '{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["No conversation found with session ID: x"]}'
echo 'No conversation found with session ID: x' >&2; exit 1"#;
    let session = SessionChoice::Resume("x".to_owned());
    let mut connection = open(&raw(&scene, script), session).await.unwrap();
    let message = Message::new("hello");
    connection.send(message.clone()).await.unwrap();
    let (events, end) = turn(&mut *connection).await;
    assert!(events.contains(&Event::TurnStarted {
        inputs: vec![message.id]
    }));
    assert_eq!(end.reason, EndReason::SessionNotFound);
    assert!(end.detail.contains("start a fresh session"), "{end:?}");
}

#[tokio::test]
async fn agent_without_init_message_gets_its_first_message() {
    let scene = Scene::new();
    let mut connection = connect(&scene, "on_initialize() { :; }").await;
    connection.send(Message::new("hello")).await.unwrap();
    assert_eq!(turn(&mut *connection).await.1.reason, EndReason::Completed);
}

#[tokio::test]
async fn dropping_the_start_ends_the_agent() {
    let scene = Scene::new();
    let driver = raw(&scene, "sleep 618");
    let connect = open(&driver, SessionChoice::Fresh);
    let dropped = timeout(std::time::Duration::from_millis(300), connect).await;
    assert!(dropped.is_err());
    crate::scene::wait_for("the end", || scene.find().is_empty());
}

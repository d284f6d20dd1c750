//! Tests of the `acp` driver that need a real process, with a scripted agent. Tests that need only lines are next to the protocol.

use crate::reading::{made, next, turn, until};
use crate::scene::{DEADLINE, Scene};
use agent_drivers::acp::{AcpDriver, AcpPreset};
use agent_drivers::{AgentConfig, AgentOptions, SessionLocks};
use agent_duplex::{
    Connection, Conversation, ConversationOptions, Decision, Driver as _, EndReason, Error, Event,
    ExitStatus, Input, Message, Permissions, QueuedMessages, SessionChoice, StopStage, ToolOutcome,
};
use agent_subprocess::ProcessContext;
use std::ffi::OsString;
use std::time::Duration;
use tokio::time::timeout;

mod gemini;
mod options;

/// Shell functions that answer each request in the usual way. A test overrides some of them.
const AGENT: &str = r#"
say() { printf '%s\n' "$1"; }
id() { printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p'; }
ok() { say '{"jsonrpc":"2.0","id":'"$(id)"',"result":'"$1"'}'; }
fail() { say '{"jsonrpc":"2.0","id":'"$(id)"',"error":{"code":'$1',"message":"'"$2"'"}}'; }
update() { say '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":'"$1"'}}'; }
chunk() { update '{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"'"$1"'"}}'; }
tool() { update '{"sessionUpdate":"tool_call","toolCallId":"t1","title":"make","kind":"execute","status":"'$1'"}'; }
on_initialize() { ok '{"protocolVersion":1,"agentCapabilities":{"loadSession":true,"sessionCapabilities":{"close":{}}},"agentInfo":{"name":"fake","version":"1"}}'; }
on_new() { ok '{"sessionId":"s1"}'; }
on_load() { chunk old; ok null; chunk older; }
on_prompt() { chunk "answer of $$"; ok '{"stopReason":"end_turn"}'; }
on_cancel() { say '{"jsonrpc":"2.0","id":'$prompt',"result":{"stopReason":"cancelled"}}'; }
on_close() { ok '{}'; }
on_other() { :; }
"#;

const LOOP: &str = r#"
while IFS= read -r line; do case $line in
  *'"method":"initialize"'*) on_initialize ;;
  *'"method":"session/new"'*) on_new ;;
  *'"method":"session/load"'*) on_load ;;
  *'"method":"session/prompt"'*) prompt=$(id); on_prompt ;;
  *'"method":"session/cancel"'*) on_cancel ;;
  *'"method":"session/close"'*) on_close ;;
  *) on_other ;;
esac; done
"#;

/// An agent whose turns run until they are interrupted.
const ENDLESS: &str = "on_prompt() { chunk \"half of $$\"; tool in_progress; }";

fn context(scene: &Scene) -> ProcessContext {
    ProcessContext {
        marker: Some(scene.marker.clone()),
        ..ProcessContext::new(scene.directory.path(), scene.path("scratch"))
    }
}

fn raw(scene: &Scene, script: &str) -> AcpDriver {
    let program = ["sh", "-c", script, "sh"].map(OsString::from);
    AcpDriver::new(program.into(), context(scene))
}

/// Makes a driver for a scripted agent; `functions` override its usual answers.
fn driver(scene: &Scene, functions: &str) -> AcpDriver {
    raw(scene, &format!("{AGENT}{functions}{LOOP}"))
}

async fn open(driver: &AcpDriver, session: SessionChoice) -> Result<Box<dyn Connection>, Error> {
    let mut connection = driver.connect(session).await?;
    timeout(DEADLINE, connection.ready())
        .await
        .expect("the agent must be ready before the deadline")?;
    Ok(connection)
}

async fn connect(scene: &Scene, functions: &str) -> Box<dyn Connection> {
    open(&driver(scene, functions), SessionChoice::Fresh)
        .await
        .unwrap()
}

async fn refusal(driver: &AcpDriver, session: SessionChoice) -> Error {
    open(driver, session).await.map(drop).unwrap_err()
}

fn is_tool(event: &Event) -> bool {
    matches!(event, Event::ToolStarted { .. })
}

fn said(events: &[Event]) -> Vec<(String, bool)> {
    let messages = events.iter().filter_map(|event| match event {
        Event::Message { text, partial } => Some((text.clone(), *partial)),
        _ => None,
    });
    messages.collect()
}

#[tokio::test]
async fn p27_one_process_runs_many_turns_of_one_session() {
    let scene = Scene::new();
    let mut connection = connect(&scene, "").await;
    let mut answers = Vec::new();
    for turns in 0..3 {
        let message = Message::new("hello");
        connection.send(message.clone()).await.unwrap();
        let (events, end) = turn(&mut *connection).await;
        let session = Event::Session {
            id: "s1".to_owned(),
        };
        assert_eq!(events.contains(&session), turns == 0, "{events:?}");
        let inputs = vec![message.id];
        assert!(events.contains(&Event::TurnStarted { inputs }));
        assert_eq!(end.reason, EndReason::Completed);
        answers.extend(said(&events));
    }
    assert!(
        answers.len() == 3 && answers.iter().all(|answer| *answer == answers[0]),
        "{answers:?}"
    );
    drop(connection.stop(DEADLINE).await);
    scene.assert_no_process_left();
}

#[tokio::test]
async fn p21b_p22_p25a_l89a_l89b_an_interrupt_ends_the_turn_and_the_process_continues() {
    let scene = Scene::new();
    let mut connection = connect(&scene, ENDLESS).await;
    let mut halves = Vec::new();
    for _ in 0..2 {
        connection.send(Message::new("go on")).await.unwrap();
        let mut events = until(&mut *connection, is_tool).await;
        // The driver sends one message at a time, because some agents end the first turn for a second one.
        let error = connection.send(Message::new("more")).await.unwrap_err();
        assert!(error.is_unsupported(), "{error}");
        connection.interrupt(QueuedMessages::Keep).await.unwrap();
        connection.interrupt(QueuedMessages::Keep).await.unwrap();
        let (more, end) = turn(&mut *connection).await;
        events.extend(more);
        assert_eq!(end.reason, EndReason::Interrupted);
        let is_cut = |event: &Event| {
            matches!(
                event,
                Event::ToolFinished {
                    outcome: ToolOutcome::Interrupted,
                    ..
                }
            )
        };
        assert!(events.iter().any(is_cut), "{events:?}");
        halves.extend(said(&events));
    }
    assert!(
        halves.len() == 2 && halves[0] == halves[1],
        "the process must be the same: {halves:?}"
    );
    // No turn runs, so the interrupt does nothing.
    connection.interrupt(QueuedMessages::Keep).await.unwrap();
    let report = connection.stop(DEADLINE).await;
    assert!(report.proven && report.survivors.is_empty());
    scene.assert_no_process_left();
}

#[tokio::test]
async fn p23a_ignored_interrupt_is_repeated_and_then_signalled() {
    let scene = Scene::new();
    // The agent loses the first interrupt, because it comes too early.
    let second = "asked=0; on_cancel() { asked=$((asked + 1)); [ $asked = 1 ] || say '{\"id\":'$prompt',\"result\":{\"stopReason\":\"end_turn\"}}'; }";
    for (functions, exit) in [
        (second, None),
        ("on_cancel() { :; }", Some(ExitStatus::Signal(2))),
        // A program whose only thread is blocked ignores SIGINT in this way.
        (
            "trap '' INT; on_cancel() { :; }",
            Some(ExitStatus::Signal(9)),
        ),
    ] {
        let mut connection = connect(&scene, &format!("{ENDLESS}\n{functions}")).await;
        connection.send(Message::new("go on")).await.unwrap();
        until(&mut *connection, is_tool).await;
        connection.interrupt(QueuedMessages::Keep).await.unwrap();
        let (_, end) = turn(&mut *connection).await;
        assert_eq!((end.reason, end.exit), (EndReason::Interrupted, exit));
        drop(connection.stop(DEADLINE).await);
    }
    scene.assert_no_process_left();
}

#[tokio::test]
async fn l91a_l91b_l91c_truncated_output_with_exit_code_0_is_no_success() {
    let scene = Scene::new();
    let cut = r#"on_prompt() { chunk half; printf '{"jsonrpc":"2.0","id":3,"result":{"stopRea'; echo oh >&2; exit 0; }"#;
    let mut connection = connect(&scene, cut).await;
    connection.send(Message::new("go on")).await.unwrap();
    let (events, end) = turn(&mut *connection).await;
    assert_eq!(
        (end.reason, end.exit),
        (EndReason::Died, Some(ExitStatus::Code(0)))
    );
    assert_eq!(end.output_tail.trim(), "oh");
    assert_eq!(said(&events), [("half".to_owned(), true)]);
    assert!(
        connection
            .send(Message::new("more"))
            .await
            .unwrap_err()
            .is_gone()
    );
    drop(connection.stop(DEADLINE).await);
}

#[tokio::test]
async fn p29_l92a_a_session_is_resumed_and_its_history_is_not_reported() {
    let scene = Scene::new();
    let mut connection = open(&driver(&scene, ""), SessionChoice::Resume("s1".to_owned()))
        .await
        .unwrap();
    connection.send(Message::new("go on")).await.unwrap();
    let (events, end) = turn(&mut *connection).await;
    assert_eq!(end.reason, EndReason::Completed);
    let told = said(&events);
    assert!(
        told.len() == 1 && told[0].0.starts_with("answer of"),
        "{told:?}"
    );
    drop(connection.stop(DEADLINE).await);
}

#[tokio::test]
async fn p45_missing_session_fails_the_turn_and_ends_the_agent() {
    let scene = Scene::new();
    let cases = [
        (
            "on_load() { fail -32603 'No previous sessions found'; }",
            EndReason::SessionNotFound,
        ),
        (
            "on_load() { fail -32000 'Authentication required'; }",
            EndReason::NotLoggedIn,
        ),
    ];
    for (functions, reason) in cases {
        let driver = driver(&scene, functions);
        let mut connection = open(&driver, SessionChoice::Resume("s0".to_owned()))
            .await
            .unwrap();
        connection.send(Message::new("go on")).await.unwrap();
        let (_, end) = turn(&mut *connection).await;
        assert_eq!(end.reason, reason);
        // The next message gets another agent. This one ends because its input was closed.
        let exited = Event::Exited(ExitStatus::Code(0));
        until(&mut *connection, |event| *event == exited).await;
        assert!(next(&mut *connection).await.is_none());
        drop(connection.stop(DEADLINE).await);
    }
    scene.assert_no_process_left();
}

#[tokio::test]
async fn p48_unusable_agent_is_refused_at_its_start() {
    let scene = Scene::new();
    let fresh = || SessionChoice::Fresh;
    let error = refusal(
        &raw(&scene, "echo 'unknown option --acp' >&2; exit 3"),
        fresh(),
    )
    .await;
    assert!(
        error.is_start_failure() && error.to_string().contains("unknown option"),
        "{error}"
    );
    let silent = raw(&scene, "read -r line; read -r line");
    let moment = Duration::from_millis(50);
    let error = refusal(&silent.request_timeouts(moment, moment), fresh()).await;
    assert!(
        error.is_start_failure() && error.to_string().contains("did not answer"),
        "{error}"
    );
    let error = refusal(&driver(&scene, ""), SessionChoice::Fork("s1".to_owned())).await;
    assert!(error.is_unsupported(), "{error}");
    let error = refusal(&driver(&scene, "").model("big"), fresh()).await;
    assert!(error.is_unsupported(), "{error}");
    let error = refusal(
        &driver(&scene, "on_new() { fail -32603 'disk full'; }"),
        fresh(),
    )
    .await;
    assert!(
        error.is_start_failure() && error.to_string().contains("disk full"),
        "{error}"
    );
    let gone = AcpDriver::new(vec!["/no/such/agent".into()], context(&scene));
    assert!(refusal(&gone, fresh()).await.is_start_failure());
    let none = AcpDriver::new(Vec::new(), context(&scene));
    assert!(refusal(&none, fresh()).await.is_start_failure());
}

#[tokio::test]
async fn x124f_requests_are_answered_by_person_or_policy() {
    let scene = Scene::new();
    let asks = r#"
on_prompt() { say '{"jsonrpc":"2.0","id":"q","method":"session/request_permission","params":{"sessionId":"s1","toolCall":{"toolCallId":"t1","title":"make","kind":"execute"},"options":[{"optionId":"yes","kind":"allow_once"},{"optionId":"no","kind":"reject_once"}]}}'; }
on_other() { case $line in *'"q"'*) chunk "$(printf '%s' "$line" | sed -n 's/.*"optionId":"\([a-z]*\)".*/\1/p')"; say '{"id":'$prompt',"result":{"stopReason":"end_turn"}}' ;; esac; }
"#;
    for (permissions, allow, answer) in [
        (Permissions::Edits, true, "yes"),
        (Permissions::Edits, false, "no"),
        (Permissions::All, false, "yes"),
    ] {
        let driver = driver(&scene, asks).permissions(permissions);
        let mut connection = open(&driver, SessionChoice::Fresh).await.unwrap();
        connection.send(Message::new("go on")).await.unwrap();
        let mut events = Vec::new();
        if permissions != Permissions::All {
            events = until(&mut *connection, |event| {
                matches!(event, Event::PermissionRequested(_))
            })
            .await;
            let message = "no".to_owned();
            let decision = match allow {
                true => Decision::Allow,
                false => Decision::Deny { message },
            };
            connection.answer("\"q\"", decision.clone()).await.unwrap();
            // The second answer is ignored.
            connection.answer("\"q\"", decision).await.unwrap();
        }
        let (more, end) = turn(&mut *connection).await;
        events.extend(more);
        assert_eq!(end.reason, EndReason::Completed);
        assert_eq!(said(&events), [(answer.to_owned(), false)]);
        drop(connection.stop(DEADLINE).await);
    }
}

#[tokio::test]
async fn x124f_turn_that_the_agent_cancels_after_a_denial_is_complete() {
    let scene = Scene::new();
    let asks = r#"
on_prompt() { tool pending; say '{"jsonrpc":"2.0","id":"q","method":"session/request_permission","params":{"sessionId":"s1","toolCall":{"toolCallId":"t1"},"options":[{"optionId":"yes","kind":"allow_once"},{"optionId":"no","kind":"reject_once"}]}}'; }
on_other() { case $line in *'"q"'*) say '{"id":'$prompt',"result":{"stopReason":"cancelled"}}' ;; esac; }
"#;
    let driver = driver(&scene, asks).permissions(Permissions::Ask);
    let mut connection = open(&driver, SessionChoice::Fresh).await.unwrap();
    connection.send(Message::new("go on")).await.unwrap();
    let asked = |event: &Event| matches!(event, Event::PermissionRequested(_));
    until(&mut *connection, asked).await;
    let message = "no".to_owned();
    let answer = connection.answer("\"q\"", Decision::Deny { message });
    answer.await.unwrap();
    let (events, end) = turn(&mut *connection).await;
    assert_eq!(end.reason, EndReason::Completed, "{events:?}");
    drop(connection.stop(DEADLINE).await);
    scene.assert_no_process_left();
}

#[tokio::test]
async fn x124f_agent_without_permission_modes_is_reported() {
    let scene = Scene::new();
    let modes = r#"
on_new() { ok '{"sessionId":"s1","modes":{"currentModeId":"yolo","availableModes":[{"id":"yolo"},{"id":"default"}]}}'; }
on_other() { case $line in *set_mode*) fail -32603 'not now' ;; esac; }
"#;
    let driver = driver(&scene, modes).permissions(Permissions::All);
    let mut connection = open(&driver, SessionChoice::Fresh).await.unwrap();
    let deny = connection.set_permissions(Permissions::Deny).await;
    let error = made(&mut *connection, deny.unwrap()).await.unwrap_err();
    assert!(error.is_refused(), "{error}");
    assert!(error.to_string().contains("not now"), "{error}");
    let all = connection.set_permissions(Permissions::All).await;
    made(&mut *connection, all.unwrap()).await.unwrap();
    drop(connection.stop(DEADLINE).await);
}

#[tokio::test]
async fn l90a_close_asks_the_agent_first_and_then_escalates() {
    let scene = Scene::new();
    let closes = "on_close() { ok '{}'; : > closed; }";
    let deaf = "trap '' TERM; on_close() { :; }; trap : EXIT";
    let forever = "while :; do sleep 600; done";
    for (functions, after) in [
        (closes, ""),
        ("", "while :; do sleep 600; done"),
        (deaf, forever),
    ] {
        let driver = raw(&scene, &format!("{AGENT}{functions}{LOOP}{after}"));
        let mut connection = open(&driver, SessionChoice::Fresh).await.unwrap();
        timeout(DEADLINE, connection.close()).await.unwrap();
        until(&mut *connection, |event| matches!(event, Event::Exited(_))).await;
        assert!(
            connection
                .send(Message::new("more"))
                .await
                .unwrap_err()
                .is_gone()
        );
        drop(connection.stop(DEADLINE).await);
    }
    assert!(
        scene.path("closed").exists(),
        "the agent must get the request to close its session"
    );
    scene.assert_no_process_left();
}

#[tokio::test]
async fn l90a_l90e_a_stop_during_a_turn_interrupts_first_and_leaves_no_process() {
    let scene = Scene::new();
    let busy = "on_prompt() { setsid sleep 600 >/dev/null 2>&1 & chunk half; tool in_progress; }";
    let mut connection = connect(&scene, busy).await;
    connection.send(Message::new("go on")).await.unwrap();
    let mut events = until(&mut *connection, is_tool).await;
    let report = connection.stop(DEADLINE).await;
    assert!(report.proven && report.survivors.is_empty(), "{report:?}");
    assert!(report.stage >= StopStage::CloseInput);
    let (more, end) = turn(&mut *connection).await;
    events.extend(more);
    assert_eq!(end.reason, EndReason::Interrupted);
    assert_eq!(said(&events), [("half".to_owned(), false)]);
    let is_cut = |event: &Event| {
        matches!(
            event,
            Event::ToolFinished {
                outcome: ToolOutcome::Interrupted,
                ..
            }
        )
    };
    assert!(events.iter().any(is_cut), "{events:?}");
    scene.assert_no_process_left();
}

#[tokio::test]
async fn large_lines_pass_in_both_directions() {
    let scene = Scene::new();
    let echo = r#"on_prompt() { chunk "${#line}"; head -c 10000000 /dev/zero | tr '\0' x > big; chunk "$(cat big)"; ok '{"stopReason":"end_turn"}'; }"#;
    let mut connection = connect(&scene, echo).await;
    let text = "y".repeat(1 << 20);
    connection.send(Message::new(text.clone())).await.unwrap();
    let (events, end) = turn(&mut *connection).await;
    assert_eq!(end.reason, EndReason::Completed);
    let lengths: Vec<usize> = said(&events).iter().map(|(text, _)| text.len()).collect();
    assert_eq!(lengths[1..], [10_000_000]);
    let whole: usize = said(&events)[0].0.parse().unwrap();
    assert!(whole > text.len());
    drop(connection.stop(DEADLINE).await);
}

#[tokio::test]
async fn p46_a_session_is_written_by_one_agent_at_a_time() {
    let scene = Scene::new();
    let locks = |directory: &str| SessionLocks::new(scene.path(directory));
    let driver = driver(&scene, "").session_locks(locks("locks"));
    let mut first = open(&driver, SessionChoice::Fresh).await.unwrap();
    let error = refusal(&driver, SessionChoice::Resume("s1".to_owned())).await;
    assert!(error.is_session_in_use(), "{error}");
    drop(first.stop(DEADLINE).await);
    let mut second = open(&driver, SessionChoice::Resume("s1".to_owned()))
        .await
        .unwrap();
    drop(second.stop(DEADLINE).await);
}

#[tokio::test]
async fn image_is_sent_only_to_an_agent_that_announced_images() {
    for takes_images in [true, false] {
        let scene = Scene::new();
        let functions = format!(
            r#"on_initialize() {{ ok '{{"protocolVersion":1,"agentCapabilities":{{"promptCapabilities":{{"image":{takes_images}}}}}}}'; }}
on_prompt() {{ printf '%s\n' "$line" >> heard; chunk answer; ok '{{"stopReason":"end_turn"}}'; }}"#
        );
        let driver = Box::new(driver(&scene, &functions));
        let conversation = Conversation::new(driver, ConversationOptions::default());
        let message = scene.message_with_image("What is it?");
        let mut input = Input::new(&*message.text);
        input.parts = message.parts;
        let asked = timeout(DEADLINE, conversation.ask(input)).await.unwrap();
        if takes_images {
            assert_eq!(asked.unwrap().text, "answer");
        } else {
            let error = asked.unwrap_err();
            assert!(error.is_unsupported(), "{error}");
        }
        // A link needs no capability.
        let file = Input::new("Read it.").with_file(scene.path("image.png"));
        let answer = timeout(DEADLINE, conversation.ask(file)).await.unwrap();
        assert_eq!(answer.unwrap().text, "answer");
        let heard = std::fs::read_to_string(scene.path("heard")).unwrap();
        assert_eq!(heard.contains("iVBORw0KGgo"), takes_images);
        assert!(heard.contains(r#""type":"resource_link""#), "{heard}");
        conversation.stop(DEADLINE).await;
        scene.assert_no_process_left();
    }
}

#[test]
fn agents_are_equal_by_preset_or_program() {
    let agent = |preset, program: &str| {
        let options = Box::default();
        let options = AgentOptions::Acp { preset, options };
        AgentConfig::new(options, vec![program.into()])
    };
    let (one, two) = (agent(AcpPreset::Other, "a"), agent(AcpPreset::Other, "b"));
    assert!(one.is_same(&one) && !one.is_same(&two));
    let (old, new) = (agent(AcpPreset::Gemini, "a"), agent(AcpPreset::Gemini, "b"));
    assert!(old.is_same(&new) && !old.is_same(&one));
    assert!(!agent(AcpPreset::Claude, "a").is_same(&one));
}

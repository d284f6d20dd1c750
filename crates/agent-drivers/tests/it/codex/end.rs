//! Tests of the end of an agent: between turns, in a turn, and by itself.

use super::*;
use agent_duplex::{ExitStatus, StopStage};

#[tokio::test]
async fn p38a_input_is_closed_when_the_turn_has_ended() {
    let scene = Scene::new();
    let functions = r#"
    work() { delta half; }
    on_interrupt() { echo interrupt >> log; ok; timeout 0.5 cat && echo early >> log; completed interrupted; echo completed >> log; }
    on_end() { echo end >> log; }"#;
    let mut agent = connect(&scene, functions).await;
    agent.send(Message::new("work")).await.unwrap();
    until(&mut *agent, |event| matches!(event, Event::TextDelta(_))).await;
    agent.close().await;
    let events = rest(&mut *agent).await;
    let log = std::fs::read_to_string(scene.path("log")).unwrap();
    assert_eq!(log, "interrupt\ncompleted\nend\n");
    assert_eq!(events.last(), Some(&Event::Exited(ExitStatus::Code(0))));
    let ends = events
        .iter()
        .filter(|event| matches!(event, Event::TurnCompleted(_)));
    assert_eq!(ends.count(), 1);
    let gone = agent.send(Message::new("more")).await.unwrap_err();
    assert!(gone.is_gone());
    assert_eq!(agent.stop(DEADLINE).await.stage, StopStage::AlreadyEnded);
    scene.assert_no_process_left();
}

#[tokio::test]
async fn x101k_stop_keeps_the_text_and_names_ended_processes() {
    let scene = Scene::new();
    let functions = "work() { quiet setsid sleep 651; tool; delta half; }";
    let mut agent = connect(&scene, functions).await;
    agent.send(Message::new("work")).await.unwrap();
    until(&mut *agent, |event| matches!(event, Event::TextDelta(_))).await;
    scene.wait_for_program("sleep", "651");
    let report = agent.stop(DEADLINE).await;
    assert!(report.proven && report.survivors.is_empty(), "{report:?}");
    assert!(
        report.ended.iter().any(|process| process.name == "sleep"),
        "{report:?}"
    );
    assert_eq!(agent.stop(DEADLINE).await, report);
    let events = rest(&mut *agent).await;
    let words = Event::Message {
        text: "half".to_owned(),
        partial: true,
    };
    assert!(events.contains(&words), "{events:?}");
    let ends: Vec<EndReason> = { events.iter() }
        .filter_map(|event| match event {
            Event::TurnCompleted(end) => Some(end.reason),
            _ => None,
        })
        .collect();
    assert_eq!(ends, [EndReason::Interrupted]);
    scene.assert_no_process_left();
}

#[tokio::test]
async fn l91a_l91b_l91c_a_death_in_a_turn_is_never_a_success() {
    let scene = Scene::new();
    let functions = "work() { tool; delta half; echo 'so it goes' >&2; exit 0; }";
    let mut agent = connect(&scene, functions).await;
    agent.send(Message::new("work")).await.unwrap();
    let (events, end) = turn(&mut *agent).await;
    assert_eq!(
        (end.reason, end.exit),
        (EndReason::Died, Some(ExitStatus::Code(0)))
    );
    assert!(end.output_tail.contains("so it goes"), "{end:?}");
    let cut = |event: &Event| matches!(event, Event::ToolFinished { .. });
    assert_eq!(events.iter().filter(|event| cut(event)).count(), 1);
    agent.stop(DEADLINE).await;
    scene.assert_no_process_left();
}

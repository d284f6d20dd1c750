//! Both ends of an attached viewer's connection: the events and views, slow viewers, and the limit of their number.

use super::*;
use crate::control::attached::attach;

#[tokio::test]
async fn run_is_attended_while_a_viewer_is_attached() {
    let mut run = Run::new(false);
    let dir = run.dir.path().to_owned();
    let attended = |request: Option<QueuedRequest>| match request {
        Some(QueuedRequest {
            control: RunControl::Attended(attended),
            ..
        }) => attended,
        other => panic!("{other:?}"),
    };
    let attach_viewer = |attended| {
        let dir = dir.clone();
        spawn_blocking(move || attach(&dir, attended, Timestamp::default()).unwrap())
    };
    let nobody = attach_viewer(false).await.unwrap();
    let first = attach_viewer(true).await.unwrap();
    let second = attach_viewer(true).await.unwrap();
    assert!(attended(run.requests.recv().await));
    drop((nobody, first));
    drop(second);
    assert!(!attended(run.requests.recv().await));
    assert!(run.requests.is_empty());
}

/// Waits for a condition that another thread makes true.
async fn until(is_so: impl Fn() -> bool) {
    tokio::time::timeout(LONG, async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the condition becomes true");
}

#[tokio::test]
async fn viewer_gets_recent_events_status_and_end() {
    let mut run = Run::new(true);
    let push_warning = |text: &str| {
        run.recent
            .push(Timestamp::from_millis(5), &RunEvent::Warning(text.into()))
    };
    push_warning("before");
    let dir = run.dir.path().to_owned();
    let attaching = spawn_blocking(move || attach(&dir, false, Timestamp::default()).unwrap());
    let mut attached = attaching.await.unwrap();
    let mut events = attached.events().unwrap();
    assert!(attached.events().is_none(), "there is one reader");
    push_warning("after");
    run.happens(MachineInput::Requested(Request::Pause {
        reason: None,
        after: PauseAfter::Iteration,
    }));
    let view = attached.view();
    until(|| view.borrow().head.pausing).await;
    assert!(view.borrow().agent.steerable);
    run.recent.push(
        Timestamp::from_millis(6),
        &RunEvent::Update(RunUpdate::Pausing),
    );
    drop(run.requests);
    run.socket.close(over()).await;
    let mut received = Vec::new();
    while let Some((at, event)) = events.recv().await {
        received.push(format!("{} {event:?}", at.as_millis()));
    }
    assert_eq!(
        received,
        [
            "5 Warning(\"before\")",
            "5 Warning(\"after\")",
            "6 Update(Pausing)"
        ]
    );
    let ended = spawn_blocking(move || attached.wait_for_end())
        .await
        .unwrap();
    assert_eq!(ended, Some(over()));
}

#[tokio::test]
async fn slow_viewer_blocks_no_other_and_gets_missed_count() {
    let run = Run::new(false);
    let mut silent = UnixStream::connect(socket_path::socket(run.dir.path()))
        .await
        .unwrap();
    let asked = protocol::line(&ControlQuery::Attach { attended: false });
    silent.write_all(&asked).await.unwrap();
    let line = "x".repeat(10_000);
    for _ in 0..20_000 {
        // Send far more than the socket and the buffer hold; the run never waits.
        run.recent
            .push(Timestamp::from_millis(5), &RunEvent::Warning(line.clone()));
        tokio::task::yield_now().await;
    }
    let mut first = run.connects(ControlQuery::Status).await;
    let received = spawn_blocking(move || first.next(LONG).unwrap());
    assert!(matches!(received.await.unwrap(), Some(Response::Status(_))));
    run.socket.close(over()).await;
    let mut text = String::new();
    // The read fails if the run dropped the viewer before the viewer had read everything.
    let _cut = silent.read_to_string(&mut text).await;
    assert!(text.contains("missed"), "{} bytes", text.len());
}

#[tokio::test]
async fn viewers_are_limited_and_a_detach_frees_a_slot() {
    let run = Run::new(false);
    let path = run.dir.path().to_owned();
    let attach_viewer = || {
        let dir = path.clone();
        spawn_blocking(move || attach(&dir, false, Timestamp::default()))
    };
    let mut watchers = Vec::new();
    for _ in 0..8 {
        watchers.push(attach_viewer().await.unwrap().unwrap());
    }
    let refused = attach_viewer().await.unwrap().unwrap_err().to_string();
    assert!(refused.contains("too many"), "{refused}");
    drop(watchers);
    let mut room = attach_viewer().await.unwrap();
    while room.is_err() {
        tokio::task::yield_now().await;
        room = attach_viewer().await.unwrap();
    }
}

/// The view of such a run was once too long for a line, so the viewer got an error about an invalid response.
#[tokio::test]
async fn run_with_many_messages_can_be_viewed() {
    let mut run = Run::new(true);
    let text = "\u{1}".repeat(loop_state::MAX_STEER_BYTES / 100);
    for _ in 0..99 {
        let text = text.clone();
        run.happens(MachineInput::Requested(Request::Steer { text, now: false }));
    }
    let dir = run.dir.path().to_owned();
    let attaching = spawn_blocking(move || attach(&dir, false, Timestamp::default()));
    let attached = attaching.await.unwrap().unwrap();
    assert_eq!(attached.view().borrow().head.steers.len(), 99);
}

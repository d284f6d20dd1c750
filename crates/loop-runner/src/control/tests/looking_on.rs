//! Both ends of an attached viewer's connection: the events and views, slow viewers, and the limit of their number.

use super::*;
use crate::control::attach;

#[tokio::test]
async fn the_run_is_attended_while_a_person_looks_on() {
    let mut run = Run::new(false);
    let dir = run.dir.path().to_owned();
    let attended = |wish: Option<Wish>| match wish {
        Some(Wish {
            what: Control::Attended(attended),
            ..
        }) => attended,
        other => panic!("{other:?}"),
    };
    let look = |attended| {
        let dir = dir.clone();
        spawn_blocking(move || attach(&dir, attended).unwrap())
    };
    let nobody = look(false).await.unwrap();
    let first = look(true).await.unwrap();
    let second = look(true).await.unwrap();
    assert!(attended(run.wishes.recv().await));
    drop((nobody, first));
    drop(second);
    assert!(!attended(run.wishes.recv().await));
    assert!(run.wishes.is_empty());
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
async fn who_looks_on_sees_the_last_news_how_it_stands_and_the_end() {
    let mut run = Run::new(true);
    let tell = |text: &str| run.recent.push(Timestamp(5), &News::Warning(text.into()));
    tell("before");
    let dir = run.dir.path().to_owned();
    let looked = spawn_blocking(move || attach(&dir, false).unwrap());
    let mut attached = looked.await.unwrap();
    let mut news = attached.news().unwrap();
    assert!(attached.news().is_none(), "there is one reader");
    tell("after");
    run.happens(Happening::Requested(Request::Pause {
        reason: None,
        after: PauseAfter::Iteration,
    }));
    let view = attached.view();
    until(|| view.borrow().head.pausing).await;
    assert!(view.borrow().agent.steerable);
    run.recent.push(Timestamp(6), &News::Run(Notice::Pausing));
    drop(run.wishes);
    run.socket.close(over()).await;
    let mut told = Vec::new();
    while let Some((at, news)) = news.recv().await {
        told.push(format!("{} {news:?}", at.0));
    }
    assert_eq!(
        told,
        [
            "5 Warning(\"before\")",
            "5 Warning(\"after\")",
            "6 Run(Pausing)"
        ]
    );
    let ended = spawn_blocking(move || attached.ended()).await.unwrap();
    assert_eq!(ended, Some(over()));
}

#[tokio::test]
async fn who_does_not_read_holds_nobody_up_and_is_told_what_is_missing() {
    let run = Run::new(false);
    let mut silent = UnixStream::connect(place::socket(run.dir.path()))
        .await
        .unwrap();
    let asked = protocol::line(&Query::Attach { attended: false });
    silent.write_all(&asked).await.unwrap();
    let line = "x".repeat(10_000);
    for _ in 0..20_000 {
        // Send far more than sockets and rings hold; the run never waits.
        run.recent.push(Timestamp(5), &News::Warning(line.clone()));
        tokio::task::yield_now().await;
    }
    let mut first = run.connects(Query::Status).await;
    let told = spawn_blocking(move || first.next(LONG).unwrap());
    assert!(matches!(told.await.unwrap(), Some(Answer::Status(_))));
    run.socket.close(over()).await;
    let mut text = String::new();
    // The run dropped the viewer, or the viewer had more to read than it took.
    let _cut = silent.read_to_string(&mut text).await;
    assert!(text.contains("missed"), "{} bytes", text.len());
}

#[tokio::test]
async fn only_so_many_look_on_and_who_leaves_makes_room() {
    let run = Run::new(false);
    let path = run.dir.path().to_owned();
    let look = || {
        let dir = path.clone();
        spawn_blocking(move || attach(&dir, false))
    };
    let mut watchers = Vec::new();
    for _ in 0..8 {
        watchers.push(look().await.unwrap().unwrap());
    }
    let refused = look().await.unwrap().unwrap_err().to_string();
    assert!(refused.contains("too many"), "{refused}");
    drop(watchers);
    let mut room = look().await.unwrap();
    while room.is_err() {
        tokio::task::yield_now().await;
        room = look().await.unwrap();
    }
}

/// The first line of such a run was never sent, and the viewer got an error about an invalid response.
#[tokio::test]
async fn a_run_that_was_told_a_lot_is_looked_at_all_the_same() {
    let mut run = Run::new(true);
    let text = "\u{1}".repeat(loop_state::MAX_STEER_BYTES / 100);
    for _ in 0..99 {
        let text = text.clone();
        run.happens(Happening::Requested(Request::Steer { text, now: false }));
    }
    let dir = run.dir.path().to_owned();
    let looked = spawn_blocking(move || attach(&dir, false));
    let attached = looked.await.unwrap().unwrap();
    assert_eq!(attached.view().borrow().head.steers.len(), 99);
}

//! Records and answers as a newer program would write them, in one fleet with this program.

use futures_core::Stream as _;
use serde_json::{Value, json};

use super::runs::{claim, decide_as, open, run, submit};
use super::server::Server;
use crate::RecordKind;
use crate::nats::*;

/// Publishes a record of the run as a program does that knows other fields.
async fn publish(fleet: &Fleet, json: &Value) {
    let json = serde_json::to_vec(json).unwrap();
    let length = u32::try_from(json.len()).unwrap().to_le_bytes();
    let bytes = [&length[..], &json, b"a body"].concat();
    let subject = fleet.names.run(&run()).unwrap();
    let sent = fleet.context.publish(subject, bytes.into()).await.unwrap();
    sent.await.unwrap();
}

#[tokio::test]
async fn f15_run_of_a_newer_version_is_refused_by_name_and_left() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    submit(&fleet).await;
    publish(
        &fleet,
        &json!({"v": 2, "id": [7], "kind": {"new": 1}, "epoch": 4}),
    )
    .await;
    let expect_newer = |refused: Error| {
        let text = refused.to_string();
        let is_named = text.contains("run `r1` needs a newer version of rlm");
        assert!(refused.is_newer() && is_named, "{text}");
    };
    let before = fleet.last(&run()).await.unwrap();
    // Each delivery is refused, and the next worker gets the run again.
    for _ in 0..2 {
        expect_newer(decide_as(&fleet, "older").await.unwrap_err());
    }
    expect_newer(fleet.wait(&run()).await.unwrap_err());
    expect_newer(fleet.code(&run()).await.unwrap_err());
    expect_newer(fleet.resume(&run(), &[]).await.unwrap_err());
    expect_newer(fleet.export(&run(), "here").await.unwrap_err());
    expect_newer(fleet.remove(&run()).await.unwrap_err());
    let stopped = fleet.stop_queued(&run()).await.unwrap();
    assert!(matches!(stopped, QueuedStop::NotQueued(_)), "{stopped:?}");
    let rows = fleet.runs().await.unwrap();
    assert_eq!(rows[0].state(), "unknown");
    // Nothing of the run was changed.
    assert_eq!(rows[0].last.facts, before.facts);
    assert_eq!(
        (before.facts.kind, before.facts.epoch),
        (RecordKind::Unknown, 4)
    );
}

#[tokio::test]
async fn f15_unknown_fields_change_no_decision() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    let head = submit(&fleet).await;
    let id = format!("{:032x}", 9);
    let release = json!({
        "v": 1, "id": id, "kind": "release", "epoch": 3, "stalled": 1, "pool": "main",
        "colour": "red", "owner": {"kind": "park", "v": 9},
        "summary": {"phase": "main", "phases": [1, 2], "iteration": "many"},
    });
    publish(&fleet, &release).await;
    let rows = fleet.runs().await.unwrap();
    assert_eq!((rows[0].state(), &rows[0].last.summary), ("queued", &None));
    let claimed = claim(&fleet).await;
    assert_eq!(claimed.epoch(), 4);
    let opened = open(&server, &claimed).await;
    assert_eq!(opened.head.run, head.run);
}

#[tokio::test]
async fn f15_owner_that_answers_in_a_newer_form_keeps_its_run() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    submit(&fleet).await;
    let id = format!("{:032x}", 9);
    let owned =
        json!({"v": 1, "id": id, "kind": "claim", "epoch": 1, "stalled": 1, "pool": "main"});
    publish(&fleet, &owned).await;
    let client = fleet.client.clone();
    let subject = fleet.names.control(&run()).unwrap();
    let mut probes = Box::pin(client.subscribe(subject).await.unwrap());
    client.flush().await.unwrap();
    let owner = tokio::spawn(async move {
        while let Some(probe) = std::future::poll_fn(|cx| probes.as_mut().poll_next(cx)).await {
            let answer = r#"{"v":2,"alive":{"epoch":1}}"#;
            let sent = client.publish(probe.reply.unwrap(), answer.into()).await;
            sent.unwrap();
        }
    });
    let decision = decide_as(&fleet, "older").await.unwrap();
    assert!(matches!(decision, ClaimDecision::LeftAlone), "{decision:?}");
    owner.abort();
}

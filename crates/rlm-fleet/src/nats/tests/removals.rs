//! The removal of runs that have ended.

use std::time::Duration;

use loop_state::StopReason;

use super::runs::{claim, ended, new_run, open, pool, run};
use super::server::Server;
use crate::nats::*;

#[tokio::test]
async fn removal_frees_the_name_and_keeps_what_other_runs_use() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    let code = Some(("c1".to_owned(), b"the bundle of both runs".to_vec()));
    let other = "r2".parse().unwrap();
    let (_, first) = new_run().await;
    let second = NewRun {
        run: other,
        pool: "main".parse().unwrap(),
        base: b"another base".to_vec(),
        code: code.clone(),
        summary: first.summary.clone(),
    };
    let first = NewRun {
        code: code.clone(),
        ..first
    };
    fleet.submit(first).await.unwrap();
    let claimed = claim(&fleet).await;
    let refused = fleet.remove(&run()).await.unwrap_err();
    assert!(refused.is_usage(), "{refused}");
    let mut opened = open(&server, &claimed).await;
    opened.head.machine.end = Some(ended(&StopReason::AllIterationsRan));
    opened.journal.save(&opened.head).await.unwrap();
    fleet.submit(second).await.unwrap();
    let stop = br#"{"v":1,"program":"rlm 1","request":"stop"}"#.to_vec();
    let stop = fleet.record_request(&run(), stop, Duration::ZERO).await;
    assert!(stop.unwrap().number > 0);
    let removed = fleet.remove(&run()).await.unwrap();
    // The base, the claim, the end, and the removal; the object of the base.
    assert!(removed.records >= 4, "{removed:?}");
    assert_eq!(removed.objects, 1);
    assert!(fleet.last(&run()).await.unwrap_err().is_not_found());
    let rows = fleet.runs().await.unwrap();
    assert_eq!(rows.len(), 1);
    let kept = fleet.code(&rows[0].run).await.unwrap().unwrap();
    assert_eq!(kept.bundles, [code.clone().unwrap().1]);
    // The process of the removed run can't save any more.
    opened.head.pause_reason = Some("late".into());
    assert!(opened.journal.save(&opened.head).await.is_err());
    drop((opened, claimed));
    let again = fleet.remove(&run()).await.unwrap_err();
    assert!(again.is_not_found(), "{again}");
    let (head, new) = new_run().await;
    assert_eq!(fleet.submit(new).await.unwrap(), Submitted::New);
    let mut claims = Vec::new();
    while claims.is_empty() {
        let Some(delivery) = fleet.pull(&pool()).await.unwrap() else {
            continue;
        };
        let is_own = *delivery.run() == run();
        let decision = delivery.decide("worker").await.unwrap();
        if let ClaimDecision::Claimed(claimed) = decision
            && is_own
        {
            claims.push(claimed);
        }
    }
    // A request to the removed run is none to the new one.
    assert!(!claims[0].has_stop(0, 0).await.unwrap());
    let opened = open(&server, &claims[0]).await;
    assert_eq!(opened.head, head);
}

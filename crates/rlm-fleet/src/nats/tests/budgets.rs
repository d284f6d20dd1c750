//! The budget of a fleet on a real server.

use super::runs::run;
use super::server::Server;
use crate::BudgetState;
use crate::nats::{Budget, BudgetPeriod};

#[tokio::test]
async fn cost_of_all_workers_is_counted_once() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    let (none, state) = fleet.budget().await.unwrap();
    assert_eq!((none, state), Default::default());
    let other = server.connect().await;
    for number in 1..=3 {
        fleet.add_spent(&run(), 1, number, 10).await.unwrap();
        // The answer can be lost, and the worker adds again.
        fleet.add_spent(&run(), 1, number, 10).await.unwrap();
        other.add_spent(&run(), 2, number, 100).await.unwrap();
    }
    for per in [BudgetPeriod::Day, BudgetPeriod::Total] {
        let limit = Some(330);
        let budget = Budget { limit, per };
        fleet.set_budget(budget).await.unwrap();
        let (read, state) = other.budget().await.unwrap();
        let expected = BudgetState { limit, spent: 330 };
        assert_eq!((read, state), (budget, expected));
        assert!(state.is_spent());
    }
    fleet.set_budget(Budget::default()).await.unwrap();
    assert!(!other.budget().await.unwrap().1.is_spent());
}

#[tokio::test]
async fn fleet_of_an_older_version_has_no_budget() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    for stream in [fleet.names.settings(), fleet.names.spent()] {
        fleet.context.delete_stream(stream).await.unwrap();
    }
    let refused = fleet.set_budget(Budget::default()).await.unwrap_err();
    assert!(refused.is_usage(), "{refused}");
    assert!(fleet.budget().await.is_err());
    assert!(fleet.add_spent(&run(), 1, 1, 10).await.is_err());
}

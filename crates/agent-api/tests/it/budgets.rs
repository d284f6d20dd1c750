//! Limits of tokens and money, and repeated calls.

use agent_api::{Budget, ErrorKind, Exceeded, Prices, RepeatGuard, Repetition, Usage};
use proptest::prelude::*;

use crate::support::call;

const PRICES: Prices = Prices {
    input: 3_000_000,
    cached_input: 300_000,
    cache_write: 3_750_000,
    output: 15_000_000,
};

fn usage(input: u64, output: u64) -> Usage {
    Usage {
        input_tokens: input,
        output_tokens: output,
        ..Usage::default()
    }
}

#[test]
fn tokens_are_limited_before_and_during_a_call() {
    let mut budget = Budget::new(Some(1_000), None, None).unwrap();
    budget.check_start(500).unwrap();
    budget.check(&usage(500, 500)).unwrap();
    assert_eq!(
        budget.check(&usage(500, 501)),
        Err(Exceeded::Tokens { limit: 1_000 })
    );
    budget.spend(&usage(500, 300));
    assert_eq!(
        budget.check_start(200),
        Err(Exceeded::Tokens { limit: 1_000 })
    );
    budget.check_start(199).unwrap();
    budget.spend(&usage(150, 60));
    assert!(budget.check_start(0).is_err());
    assert_eq!(
        (budget.spent(), budget.spent_microusd()),
        (usage(650, 360), None)
    );
}

#[test]
fn money_is_limited_with_prices() {
    let error = Budget::new(None, Some(1), None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Settings);
    let mut budget = Budget::new(None, Some(10_000), Some(PRICES)).unwrap();
    // 1,000 input tokens cost 3,000 millionths; 467 output tokens cost 7,005.
    budget.check(&usage(1_000, 466)).unwrap();
    let exceeded = budget.check(&usage(1_000, 467)).unwrap_err();
    assert_eq!(
        exceeded,
        Exceeded::Cost {
            limit_microusd: 10_000
        }
    );
    assert_eq!(exceeded.to_string(), "the budget of $0.01 is used up");
    budget.spend(&usage(1_000, 466));
    assert_eq!(budget.spent_microusd(), Some(9_990));
    assert!(budget.check_start(0).is_err());
    let saved = serde_json::to_string(&budget).unwrap();
    assert_eq!(serde_json::from_str::<Budget>(&saved).unwrap(), budget);
}

#[test]
fn messages_of_budgets_round_up() {
    let text = |limit_microusd| Exceeded::Cost { limit_microusd }.to_string();
    assert_eq!(text(2_500_000), "the budget of $2.50 is used up");
    assert_eq!(text(1), "the budget of $0.01 is used up");
    assert_eq!(text(999_999), "the budget of $1.00 is used up");
    assert_eq!(
        Exceeded::Tokens { limit: 5 }.to_string(),
        "the budget of 5 tokens is used up"
    );
}

#[test]
fn another_call_begins_the_count_again() {
    let mut guard = RepeatGuard::new();
    let same = call("1", "bash", r#"{"command":"ls"}"#);
    let other_id = call("2", "bash", r#"{"command":"ls"}"#);
    let other = call("3", "bash", r#"{"command":"ls "}"#);
    let tool = call("4", "read", r#"{"command":"ls"}"#);
    assert_eq!(guard.record(&same), Repetition::Harmless);
    assert_eq!(guard.record(&other_id), Repetition::Harmless);
    assert_eq!(guard.record(&same), Repetition::Warn(3));
    assert_eq!(guard.record(&other), Repetition::Harmless);
    assert_eq!(guard.record(&tool), Repetition::Harmless);
    let repeated: Vec<_> = (0..6).map(|_| guard.record(&same)).collect();
    let (harmless, warn, stuck) = (Repetition::Harmless, Repetition::Warn, Repetition::Stuck);
    assert_eq!(
        repeated,
        [harmless, harmless, warn(3), warn(4), stuck(5), stuck(6)]
    );
}

fn any_usage() -> impl Strategy<Value = Usage> {
    any::<[u64; 4]>().prop_map(
        |[
            input_tokens,
            cached_input_tokens,
            cache_write_tokens,
            output_tokens,
        ]| Usage {
            input_tokens,
            cached_input_tokens,
            cache_write_tokens,
            output_tokens,
        },
    )
}

proptest! {
    #[test]
    fn totals_only_grow(calls in prop::collection::vec(any_usage(), 0..10), price in any::<u64>(), limit in any::<u64>()) {
        let prices = Prices { input: price, cached_input: price / 10, cache_write: price, output: price };
        let mut budget = Budget::new(Some(limit), Some(limit), Some(prices)).unwrap();
        let mut was_exceeded = false;
        for call in calls {
            let (tokens, money) = (budget.spent().total(), budget.spent_microusd());
            budget.spend(&call);
            prop_assert!(budget.spent().total() >= tokens && budget.spent_microusd() >= money);
            let is_exceeded = budget.check_start(0).is_err();
            prop_assert!(is_exceeded || !was_exceeded);
            was_exceeded = is_exceeded;
        }
    }
}

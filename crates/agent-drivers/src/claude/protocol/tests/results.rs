//! Tests of the reasons why turns end, and of their usage.

use super::*;
use agent_duplex::Usage;

/// Returns the end of a turn of one message whose result has these fields.
fn ended(fields: Value) -> TurnEnd {
    let mut session = fresh();
    session.sent(&Message::new("hello"));
    let mut result = json!({"type": "result"});
    result
        .as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    let events = hear(&mut session, &result);
    match &events[..] {
        [Event::TurnStarted { .. }, Event::TurnCompleted(end)] => end.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn p24_turn_outcome_comes_from_its_cause_and_not_its_subtype() {
    let error = |more: Value| {
        let mut fields = json!({"subtype": "success", "is_error": true});
        fields
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        fields
    };
    let cases = [
        json!({"subtype": "success", "terminal_reason": "completed", "result": "done"}),
        json!({"subtype": "success", "terminal_reason": "aborted_streaming"}),
        json!({"subtype": "error_during_execution", "is_error": true, "terminal_reason": "aborted_tools", "errors": ["[ede_diagnostic] x"]}),
        json!({"subtype": "error_max_turns", "is_error": true, "errors": ["Reached maximum number of turns (3)"]}),
        json!({"subtype": "error_max_budget_usd", "is_error": true}),
        error(json!({"terminal_reason": "prompt_too_long", "result": "Prompt is too long"})),
        error(json!({"result": "API Error: 400 prompt is too long: 1 > 0"})),
        error(json!({"api_error_status": 429, "result": "limit"})),
        error(json!({"api_error_status": 529, "result": "overloaded"})),
        error(json!({"terminal_reason": "api_error", "result": "connection\nlost"})),
        error(json!({"api_error_status": 401, "result": "API Error: 401"})),
        error(
            json!({"terminal_reason": "api_error", "result": "Not logged in · Please run /login"}),
        ),
        error(json!({"result": "Invalid API key"})),
        error(json!({"result": "Not logged in"})),
        error(json!({"result": "Please run /login"})),
        error(json!({"errors": ["No conversation found with session ID: x"]})),
        error(json!({"errors": ["odd"]})),
        json!({"stop_reason": "refusal", "terminal_reason": "completed"}),
        json!({"stop_reason": "max_tokens", "terminal_reason": "completed"}),
        json!({"stop_reason": "model_context_window_exceeded"}),
        json!({"terminal_reason": "max_turns"}),
        json!({"terminal_reason": "budget_exhausted"}),
        json!({"terminal_reason": "rapid_refill_breaker"}),
        json!({"terminal_reason": "blocking_limit"}),
        json!({}),
    ];
    let ends = cases
        .map(ended)
        .map(|end| format!("{:?} {:?}", end.reason, end.detail));
    insta::assert_snapshot!(ends.join("\n"), @r#"
    Completed ""
    Interrupted ""
    Interrupted ""
    MaxTurns "Reached maximum number of turns (3)"
    BudgetExhausted ""
    ContextOverflow "Prompt is too long"
    ContextOverflow "API Error: 400 prompt is too long: 1 > 0"
    RateLimited "limit"
    ServiceFailed "overloaded"
    ServiceFailed "connection lost"
    NotLoggedIn "API Error: 401; log in with `claude` once in a terminal, or set ANTHROPIC_API_KEY"
    NotLoggedIn "Not logged in · Please run /login; log in with `claude` once in a terminal, or set ANTHROPIC_API_KEY"
    NotLoggedIn "Invalid API key; log in with `claude` once in a terminal, or set ANTHROPIC_API_KEY"
    NotLoggedIn "Not logged in; log in with `claude` once in a terminal, or set ANTHROPIC_API_KEY"
    NotLoggedIn "Please run /login; log in with `claude` once in a terminal, or set ANTHROPIC_API_KEY"
    SessionNotFound "No conversation found with session ID: x; start a fresh session, or return to the working directory of that session"
    Failed "odd"
    Refused ""
    MaxTokens ""
    ContextOverflow ""
    MaxTurns ""
    BudgetExhausted ""
    ContextOverflow ""
    RateLimited ""
    Completed ""
    "#);
}

#[test]
fn p24_turn_without_reason_after_our_interrupt_is_interrupted() {
    let judge = |interrupt: bool, result: Value| {
        let mut session = fresh();
        session.sent(&Message::new("hello"));
        if interrupt {
            session.interrupt(false).unwrap();
        }
        match hear(&mut session, &result).pop() {
            Some(Event::TurnCompleted(end)) => end.reason,
            other => panic!("{other:?}"),
        }
    };
    let old = json!({"type": "result", "subtype": "error_during_execution", "is_error": true});
    let done = json!({"type": "result", "subtype": "success", "terminal_reason": "completed"});
    assert_eq!(judge(true, old.clone()), EndReason::Interrupted);
    assert_eq!(judge(false, old), EndReason::Failed);
    assert_eq!(
        judge(true, done),
        EndReason::Completed,
        "the turn was complete before the interrupt"
    );
}

#[test]
fn failed_call_reports_its_error_if_the_result_has_none() {
    for (failure, expected) in [
        ("authentication_failed", EndReason::NotLoggedIn),
        ("rate_limit", EndReason::RateLimited),
        ("max_output_tokens", EndReason::MaxTokens),
        ("overloaded", EndReason::ServiceFailed),
        // A repeated request can't succeed, even if the service itself reports the error.
        ("model_not_found", EndReason::Failed),
        ("invalid_request", EndReason::Failed),
        ("tomorrow", EndReason::ServiceFailed),
    ] {
        let mut session = fresh();
        session.sent(&Message::new("hello"));
        hear(
            &mut session,
            &json!({"type": "assistant", "error": failure, "message": {"content": []}}),
        );
        let result = json!({"type": "result", "is_error": true, "terminal_reason": "api_error", "result": "no"});
        let Some(Event::TurnCompleted(end)) = hear(&mut session, &result).pop() else {
            panic!("{failure}")
        };
        assert_eq!(end.reason, expected, "{failure}");
    }
}

/// Returns the counted usage of a result with these totals.
fn used(session: &mut Session, cost: f64, tokens: u64, more: Value) -> Option<Usage> {
    session.sent(&Message::new("hello"));
    let mut result = json!({
        "type": "result", "total_cost_usd": cost,
        "modelUsage": {"a": {"inputTokens": tokens, "cacheReadInputTokens": 1, "outputTokens": 2}},
    });
    result
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    hear(session, &result)
        .into_iter()
        .find_map(|event| match event {
            Event::UsageReported(usage) => Some(usage),
            _ => None,
        })
}

#[test]
fn p28a_p28b_p28c_usage_is_difference_of_totals_that_may_restart() {
    // Each new total has one cached token.
    let usage = |input_tokens, output_tokens, cost_microusd| {
        let cached = u64::from(output_tokens == 2);
        let usage = Usage::tokens(input_tokens, output_tokens).with_cached_input(cached);
        Some(usage.with_cost(cost_microusd))
    };
    let mut session = fresh();
    assert_eq!(
        used(&mut session, 0.10, 100, json!({})),
        usage(101, 2, 100_000)
    );
    assert_eq!(
        used(&mut session, 0.15, 150, json!({})),
        usage(50, 0, 50_000)
    );
    assert_eq!(used(&mut session, 0.15, 150, json!({})), None, "no usage");
    assert_eq!(
        used(&mut session, 0.01, 10, json!({})),
        usage(11, 2, 10_000),
        "the totals began again"
    );
    hear(
        &mut session,
        &json!({"type": "conversation_reset", "trigger": "clear"}),
    );
    assert_eq!(
        used(&mut session, 0.02, 20, json!({})),
        usage(21, 2, 20_000),
        "the totals began again after a reset"
    );
    assert_eq!(
        used(&mut session, f64::MAX, 20, json!({})),
        usage(0, 0, u64::MAX - 20_000)
    );

    // A resumed session includes the totals of earlier processes.
    let mut session = fresh();
    let since = json!({"model_usage_since_last_result": {"a": {"inputTokens": 5, "outputTokens": 6, "costUSD": 0.001}}});
    assert_eq!(
        used(&mut session, 7.0, 700, since.clone()),
        usage(5, 6, 1000)
    );
    assert_eq!(used(&mut session, 7.5, 705, since), usage(5, 0, 500_000));
}

#[test]
fn p28a_p28b_shrinking_total_means_a_restart() {
    let usage = |input, output, cost| Usage::tokens(input, output).with_cost(cost);
    for (input, output, cost, expected) in [
        (10, 10, 1.0, None),
        (11, 12, 1.5, Some(usage(1, 2, 500_000))),
        (9, 12, 1.5, Some(usage(9, 12, 1_500_000))),
        (11, 9, 1.5, Some(usage(11, 9, 1_500_000))),
        (11, 12, 0.5, Some(usage(11, 12, 500_000))),
    ] {
        let mut session = Session::new("s".into(), false, TIMEOUTS);
        let mut total = |input: u64, output: u64, cost: f64| {
            let models =
                json!({"modelUsage": {"a": {"inputTokens": input, "outputTokens": output}}});
            used(&mut session, cost, 0, models)
        };
        total(10, 10, 1.0);
        assert_eq!(total(input, output, cost), expected);
    }
    // Tokens without a model are those of the turn.
    let mut session = Session::new("s".into(), false, TIMEOUTS);
    let turn = json!({"modelUsage": {}, "usage": {
        "input_tokens": 1, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 3, "output_tokens": 4}});
    for _ in 0..2 {
        assert_eq!(
            used(&mut session, 0.0, 0, turn.clone()),
            Some(usage(6, 4, 0).with_cached_input(2))
        );
    }
}

#[test]
fn p28c_resumed_session_without_new_usage_is_not_counted_again() {
    let cost = |session: &mut Session, total: f64, more: Value| {
        used(session, total, 100, more).map_or(0, |usage| usage.cost_microusd)
    };
    let nothing = json!({"is_error": true, "model_usage_since_last_result": {}});
    let mut sum = cost(&mut fresh(), 0.10, json!({}));
    // Two processes resume the session; in both, the first turn fails before it uses a token.
    for _ in 0..2 {
        let mut session = fresh();
        assert_eq!(used(&mut session, 0.10, 100, nothing.clone()), None);
        sum += cost(&mut session, 0.10, nothing.clone());
    }
    assert_eq!(sum, 100_000);
    // Later usage counts. If the agent does not report the usage since the last result, the total counts.
    let mut session = fresh();
    assert_eq!(cost(&mut session, 0.10, nothing.clone()), 0);
    assert_eq!(cost(&mut session, 0.15, nothing), 50_000);
    for unsaid in [json!({}), json!({"model_usage_since_last_result": null})] {
        let mut session = fresh();
        assert_eq!(cost(&mut session, 0.10, unsaid), 100_000);
    }
}

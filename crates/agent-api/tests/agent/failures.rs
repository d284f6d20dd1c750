//! Failures of the service and of the model: one clear end, the right retry, and nothing lost.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use agent_api::{Budget, Dialect, Prices, ResponseLimits};
use agent_duplex::{EndReason, Event, SessionChoice};
use tokio::net::TcpListener;

use crate::scene::{Count, DIALECTS, Scene, Talk};
use crate::server::{Reply, Request, Server};

const ERROR: &str = r#"{"error":{"type":"some_error","message":"because of the test"}}"#;

#[tokio::test]
async fn a11_each_failure_has_its_end_and_one_message() {
    for (status, headers, body, reason, message) in [
        (401, "", ERROR, EndReason::NotLoggedIn, "check the key"),
        (404, "", ERROR, EndReason::Failed, "because of the test"),
        (400, "", ERROR, EndReason::Failed, "because of the test"),
        (
            302,
            "location: http://elsewhere/\r\n",
            "",
            EndReason::Failed,
            "redirect",
        ),
        (
            429,
            "retry-after: 3600\r\n",
            ERROR,
            EndReason::RateLimited,
            "because of the test",
        ),
        (
            529,
            "retry-after: 3600\r\n",
            ERROR,
            EndReason::ServiceFailed,
            "because of the test",
        ),
    ] {
        let scene = Scene::new();
        let refused = Reply::refused(status, headers, body);
        let server = Server::start(Dialect::Chat, move |_| refused.clone()).await;
        let mut talk = Talk::new(scene.options(&server, []));
        talk.send("go");
        let end = talk.end().await;
        assert_eq!(end.reason, reason, "{status}: {end}");
        assert!(end.detail.contains(message), "{status}: {end}");
        assert_eq!(
            server.requests().len(),
            1,
            "{status} is not tried again at once"
        );
        let limited = talk.seen.iter().find_map(|event| match event {
            Event::RateLimited { resets_at, .. } => Some(*resets_at),
            _ => None,
        });
        assert_eq!(limited.is_some(), status == 429);
        if let Some(resets_at) = limited {
            let left = resets_at
                .unwrap()
                .duration_since(SystemTime::now())
                .unwrap();
            assert!(left > Duration::from_secs(3_000), "{left:?}");
        }
    }
}

#[tokio::test]
async fn a11_server_that_is_not_there_is_tried_again_and_then_named() {
    let scene = Scene::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let server = Server::at(Dialect::Chat, &format!("http://{address}"));
    let mut options = scene.options(&server, []);
    options.max_tries = 2;
    let mut talk = Talk::new(options);
    talk.send("go");
    let end = talk.end().await;
    assert_eq!(end.reason, EndReason::ServiceFailed);
    assert!(end.detail.contains(&address.to_string()), "{end}");
    let tries = talk.seen.iter().filter(|event| {
        matches!(
            event,
            Event::Retrying {
                attempt: 1,
                max_attempts: 2,
                ..
            }
        )
    });
    assert_eq!(tries.count(), 1);
}

#[tokio::test]
async fn a11_failed_call_is_tried_again_in_the_same_turn() {
    for dialect in DIALECTS {
        for first in [
            Reply::refused(429, "retry-after: 0\r\n", ERROR),
            Reply::refused(500, "retry-after: 0\r\n", ERROR),
            Reply {
                is_cut: true,
                ..Reply::text("half")
            },
        ] {
            let scene = Scene::new();
            let server = Server::replying(dialect, [first, Reply::text("whole")]).await;
            let mut talk = Talk::new(scene.options(&server, []));
            talk.send("go");
            let end = talk.end().await;
            assert_eq!(end.reason, EndReason::Completed, "{end}");
            let retries = talk
                .seen
                .iter()
                .filter(|event| matches!(event, Event::Retrying { .. }));
            assert_eq!(retries.count(), 1);
            let requests = server.requests();
            assert_eq!(requests.len(), 2);
            assert_eq!(requests[0].body, requests[1].body, "the same request again");
        }
    }
}

#[tokio::test]
async fn a19_third_identical_call_warns_and_the_fifth_ends_the_turn() {
    let scene = Scene::new();
    let server = Server::start(Dialect::Chat, |_| Reply::call("count", "{}")).await;
    let count = Arc::new(Count::default());
    let mut talk = Talk::new(scene.options(&server, [count.clone() as _]));
    talk.send("go");
    let end = talk.end().await;
    assert_eq!(end.reason, EndReason::Failed);
    assert!(
        end.detail.contains("the same call 5 times in a row"),
        "{end}"
    );
    assert_eq!(count.runs.load(Ordering::SeqCst), 4);
    let requests = server.requests();
    let warnings = |request: &Request| request.text().matches("time in a row").count();
    assert_eq!(
        requests.iter().map(warnings).collect::<Vec<_>>(),
        [0, 0, 0, 1, 2]
    );
    // The history is valid: the next turn works.
    talk.send("stop that");
    assert_eq!(talk.end().await.reason, EndReason::Failed);
}

#[tokio::test]
async fn a21_hostile_responses_are_bounded_and_reported() {
    let limits = ResponseLimits {
        argument_bytes: 1_000,
        calls: 10,
        ..ResponseLimits::default()
    };
    let long = format!(r#"{{"text":"{}"}}"#, "x".repeat(2_000));
    let many = || (0..20).map(|_| ("count", "{}"));
    for (hostile, told) in [
        (
            Reply::call("count", &long),
            "Your last response was discarded",
        ),
        (Reply::calls(many()), "Your last response was discarded"),
        (
            Reply::call("no_such_tool", "{}"),
            "there is no tool `no_such_tool`; the tools are count",
        ),
        (Reply::call("\u{1b}[2Jcount", "{}"), "there is no tool"),
        (Reply::call("count", "{\"broken"), "are not a JSON object"),
        (Reply::call("count", "[1]"), "are not a JSON object"),
    ] {
        for dialect in DIALECTS {
            let scene = Scene::new();
            let server = Server::replying(dialect, [hostile.clone(), Reply::text("sorry")]).await;
            let count = Arc::new(Count::default());
            let mut options = scene.options(&server, [count.clone() as _]);
            options.response_limits = limits;
            let mut talk = Talk::new(options);
            talk.send("go");
            let end = talk.end().await;
            assert_eq!(
                end.reason,
                EndReason::Completed,
                "{dialect:?} {told}: {end}"
            );
            let request = server.requests().pop().unwrap().text();
            assert!(request.contains(told), "{dialect:?} {told}: {request}");
            assert_eq!(count.runs.load(Ordering::SeqCst), 0);
            let shown = format!("{:?}", talk.seen);
            assert!(!shown.contains("\\u{1b}"), "{shown}");
        }
    }
}

#[tokio::test]
async fn a10_budget_ends_the_turn_before_the_next_call() {
    let prices = Prices {
        input: 1_000_000,
        cached_input: 1_000_000,
        cache_write: 1_000_000,
        output: 1_000_000,
    };
    for budget in [
        Budget::new(Some(2_500), None, None).unwrap(),
        Budget::new(None, Some(2_500), Some(prices)).unwrap(),
    ] {
        let scene = Scene::new();
        let respond = |request: &Request| Reply {
            input_tokens: 1_000,
            ..Reply::call("count", &format!(r#"{{"n":{}}}"#, request.number))
        };
        let server = Server::start(Dialect::Chat, respond).await;
        let tools = [Arc::new(Count::default()) as _];
        let mut options = scene.options(&server, tools);
        options.budget = budget.clone();
        let mut talk = Talk::started(options.clone(), SessionChoice::Fresh).await;
        let session = talk.session().await;
        talk.send("go");
        let end = talk.end().await;
        assert_eq!(end.reason, EndReason::BudgetExhausted, "{end}");
        let calls = server.requests().len();
        assert_eq!(calls, 2, "the third call would exceed the budget");
        talk.stop().await;
        // The spending is part of the session.
        let mut talk = Talk::started(options, SessionChoice::Resume(session)).await;
        talk.send("go on");
        assert_eq!(talk.end().await.reason, EndReason::BudgetExhausted);
        assert_eq!(server.requests().len(), calls);
    }
}

#[tokio::test]
async fn a10_tokens_of_a_broken_stream_are_spent_also_after_a_restart() {
    let scene = Scene::new();
    let broken = Reply {
        is_cut: true,
        input_tokens: 1_000,
        ..Reply::default()
    };
    let server = Server::start(Dialect::Messages, move |_| broken.clone()).await;
    let mut options = scene.options(&server, []);
    options.max_tries = 1;
    options.budget = Budget::new(Some(1_500), None, None).unwrap();
    let mut talk = Talk::started(options.clone(), SessionChoice::Fresh).await;
    let session = talk.session().await;
    talk.send("go");
    assert_eq!(talk.end().await.reason, EndReason::ServiceFailed);
    talk.stop().await;
    let mut talk = Talk::started(options, SessionChoice::Resume(session)).await;
    talk.send("go on");
    assert_eq!(talk.end().await.reason, EndReason::BudgetExhausted);
}

//! The rule of the stable prefix: the conversation in a request is the start of the conversation in the next request.

use agent_api::{CacheBreakpoints, ChatThinking, Dialect, History, RequestSettings, ThinkingMode};
use proptest::prelude::*;

use crate::support::{a_step, apply};
use crate::wire::{DIALECTS, settings};

const MARK: &str = r#","cache_control":{"type":"ephemeral"}"#;

fn body(dialect: Dialect, history: &History, settings: &RequestSettings) -> String {
    String::from_utf8(dialect.request(history, settings).unwrap()).unwrap()
}

/// Returns the body without its last two closing brackets.
fn open(body: &str) -> &str {
    body.strip_suffix("]}").unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn messages_are_a_prefix_of_those_of_the_next_request(
        steps in prop::collection::vec(a_step(), 0..40), effort in prop::option::of(Just("high".to_owned())), send_back in any::<bool>(),
    ) {
        let unmarked = RequestSettings {
            cache_breakpoints: CacheBreakpoints::Off,
            thinking: effort.map_or(ThinkingMode::Default, ThinkingMode::Effort),
            chat_thinking: if send_back { ChatThinking::SendBack } else { ChatThinking::Omit },
            ..settings()
        };
        let marked = RequestSettings { cache_breakpoints: CacheBreakpoints::On, ..unmarked.clone() };
        let mut history = History::new();
        let mut last = DIALECTS.map(|_| String::new());
        for step in steps {
            apply(&mut history, step);
            if history.check_ready().is_err() {
                continue;
            }
            for (dialect, last) in DIALECTS.into_iter().zip(&mut last) {
                let body = body(dialect, &history, &unmarked);
                prop_assert!(body.starts_with(last.as_str()), "{last}\n{body}");
                *last = open(&body).to_owned();
                // The same bytes each time, also after a save.
                let restored = History::from_items(history.items().to_vec()).unwrap();
                prop_assert_eq!(&body, &self::body(dialect, &restored, &unmarked));
                prop_assert!(serde_json::from_str::<serde_json::Value>(&body).is_ok());
                // Marks are all that differs between a body with and without them.
                let with_marks = self::body(dialect, &history, &marked);
                prop_assert_eq!(without_marks(&with_marks), body);
            }
        }
    }
}

/// Removes the marks, but not a text that looks like a mark: inside of a string, its quotes are escaped.
fn without_marks(body: &str) -> String {
    body.replace(MARK, "")
}

#[test]
fn messages_have_three_marks_that_move() {
    let mut history = History::new();
    history.push_user("one").unwrap();
    let first = body(Dialect::Messages, &history, &settings());
    history
        .push_assistant(crate::support::message([crate::support::text("two")]))
        .unwrap();
    history.push_user("three").unwrap();
    let second = body(Dialect::Messages, &history, &settings());
    for body in [&first, &second] {
        assert_eq!(body.matches(MARK).count(), 3, "{body}");
    }
    assert!(
        second.ends_with(&format!(r#""text":"three"{MARK}}}]}}]}}"#)),
        "{second}"
    );
    assert!(!second.starts_with(open(&first)));
    assert!(without_marks(&second).starts_with(open(&without_marks(&first))));
}

//! How a run stands, as one line that every reader takes.

use serde_json::Value;

use crate::View;
use crate::control::protocol::{self, MAX_LINE};
use crate::control::told::Told;

/// How many characters of a text are shown, first of one that makes a line too long, then of one that still does. By the last one any line fits: a head
/// has at most a few hundred texts, and [`MOST`] bounds those of the agent.
const SHORTENED: [usize; 4] = [4096, 1024, 256, 64];
/// How many tools and questions are shown of an agent whose line is too long.
const MOST: usize = 64;
/// A name by which something is answered stays whole.
const LONGEST_ID: usize = 256;

/// Makes the line. In one that is too long, texts lose their middle, the longer ones first.
pub(super) fn line(view: &View) -> Vec<u8> {
    let mut told = Told::View(Box::new(view.clone()));
    let mut line = protocol::line(&told);
    if line.len() < MAX_LINE {
        return line;
    }
    if let Told::View(view) = &mut told {
        view.agent.tools.truncate(MOST);
        view.agent.asks.truncate(MOST);
    }
    let mut value = serde_json::to_value(&told).expect("a view is plain data");
    for most in SHORTENED {
        shorten(&mut value, most);
        line = protocol::line(&value);
        if line.len() < MAX_LINE {
            break;
        }
    }
    line
}

fn shorten(value: &mut Value, most: usize) {
    match value {
        Value::String(text) => shorten_text(text, most),
        Value::Array(all) => all.iter_mut().for_each(|it| shorten(it, most)),
        Value::Object(all) => {
            for (key, value) in all.iter_mut() {
                let is_id = key == "id" && value.as_str().is_some_and(|id| id.len() <= LONGEST_ID);
                if !is_id {
                    shorten(value, most);
                }
            }
        }
        _ => {}
    }
}

/// Cuts the middle out: of what a command printed the end tells most, of what a person said the beginning.
fn shorten_text(text: &mut String, most: usize) {
    let count = text.chars().count();
    if count <= most {
        return;
    }
    let half = (most - 1) / 2;
    let begin = text.chars().take(half);
    let end = text.chars().skip(count - half);
    *text = begin.chain(['…']).chain(end).collect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AgentView;
    use agent_duplex::Ask;
    use loop_state::{
        Command, Failure, Feedback, Finished, Head, MAX_ERRORS, MAX_PHASES, MAX_STEER_BYTES,
        MAX_STEERS, MAX_TEXT, PhaseRules, Rules, Steer, Timestamp,
    };
    use proptest::prelude::*;

    /// The largest view that there can be of a run whose texts are made of `letter`.
    fn largest(letter: char, tools: usize) -> View {
        let text = |bytes: usize| String::from(letter).repeat(bytes / letter.len_utf8());
        let phases = (0..MAX_PHASES).map(|n| PhaseRules {
            name: format!("{n}"),
            until: true,
            ..PhaseRules::default()
        });
        let rules = Rules {
            phases: phases.collect(),
            ..Rules::default()
        };
        let mut head = Head::new(rules).unwrap();
        let at = Timestamp(7);
        let error = |iteration| Failure {
            iteration,
            at,
            what: text(MAX_TEXT),
        };
        let errors = || (1..=MAX_ERRORS as u32).map(error).collect::<Vec<_>>();
        head.steers = (1..=MAX_STEERS as u32)
            .map(|id| Steer {
                id,
                at,
                text: text(MAX_STEER_BYTES / MAX_STEERS),
                state: Default::default(),
            })
            .collect();
        head.failure = Some(text(MAX_TEXT));
        head.said = Some(text(MAX_TEXT));
        head.feedback = Some(Feedback {
            source: Command::Check,
            text: text(MAX_TEXT),
        });
        head.errors = errors();
        let finished = |n: usize| Finished {
            name: n.to_string(),
            at,
            iterations: 3,
            evidence: None,
            result: Some(text(MAX_TEXT)),
            usage: Default::default(),
            errors: errors(),
        };
        head.finished = (0..MAX_PHASES).map(finished).collect();
        let ask = |n: usize| Ask {
            id: format!("{n:0>200}"),
            tool: text(MAX_TEXT),
            summary: text(MAX_TEXT),
            reason: text(MAX_TEXT),
        };
        let agent = AgentView {
            tools: vec![text(MAX_TEXT); tools],
            asks: (0..tools).map(ask).collect(),
            ..AgentView::default()
        };
        View {
            head,
            agent,
            shutdown: None,
        }
    }

    fn read(line: &[u8]) -> View {
        assert!(line.len() < MAX_LINE, "{} bytes", line.len());
        match serde_json::from_slice(line).unwrap() {
            Told::View(view) => *view,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_largest_view_fits_and_is_still_one() {
        for letter in ['…', '\u{1}'] {
            for tools in [0, 100] {
                let whole = largest(letter, tools);
                let shown = read(&line(&whole));
                assert_eq!(shown.head.rules, whole.head.rules);
                let ids = |view: &View| view.head.steers.iter().map(|it| it.id).collect::<Vec<_>>();
                assert_eq!(ids(&shown), ids(&whole));
                assert_eq!(shown.head.finished.len(), MAX_PHASES);
                let ask = shown.agent.asks.first().map(|it| &it.id);
                assert_eq!(ask, whole.agent.asks.first().map(|it| &it.id));
            }
        }
    }

    #[test]
    fn what_fits_is_told_as_it_is() {
        let mut small = largest('x', 3);
        small.head.finished.clear();
        small.head.steers.truncate(5);
        assert_eq!(read(&line(&small)).head, small.head);
    }

    proptest! {
        #[test]
        fn a_shortened_text_keeps_both_ends(text in ".{0,300}", most in 3usize..200) {
            let mut short = text.clone();
            shorten_text(&mut short, most);
            prop_assert!(short.chars().count() <= most.max(2));
            prop_assert_eq!(short.chars().next(), text.chars().next());
            prop_assert_eq!(short.chars().last(), text.chars().last());
        }
    }
}

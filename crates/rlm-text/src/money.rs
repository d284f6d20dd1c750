//! Parses and formats budgets and usage.

use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserializer, Serializer};

/// Parses US dollars, such as `5`, `4.20` or `$4.20`, into millionths.
///
/// # Errors
///
/// Returns one line for the user if the text is not an amount or is zero.
pub fn parse(text: &str) -> Result<u64, String> {
    let bad = || {
        let shown = text.escape_debug();
        format!("`{shown}` is not an amount of US dollars: write for example 5 or 4.20")
    };
    let amount = text.strip_prefix('$').unwrap_or(text);
    let amount = amount.strip_suffix("USD").unwrap_or(amount).trim();
    let (whole, rest) = amount.split_once('.').unwrap_or((amount, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(rest) || rest.len() > 6 {
        return Err(bad());
    }
    let micro = format!("{whole}{rest:0<6}");
    refuse_zero(micro.parse().map_err(|_| bad())?)
}

/// Parses a number of tokens, such as `250000`, `250k` or `2M`.
///
/// # Errors
///
/// Returns one line for the user if the text is not a number of tokens or is zero.
pub fn tokens(text: &str) -> Result<u64, String> {
    let bad = || {
        let shown = text.escape_debug();
        format!("`{shown}` is not a number of tokens: write for example 250000, 250k or 2M")
    };
    let (digits, factor) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1000),
        None => match text.strip_suffix(['m', 'M']) {
            Some(digits) => (digits, 1_000_000),
            None => (text, 1),
        },
    };
    let number: u64 = digits.parse().map_err(|_| bad())?;
    refuse_zero(number.checked_mul(factor).ok_or_else(bad)?)
}

fn refuse_zero(amount: u64) -> Result<u64, String> {
    match amount {
        0 => Err("a budget of 0 allows nothing; raise it or leave it out".into()),
        amount => Ok(amount),
    }
}

/// Deserialises dollars from a file: a number, or a text as on the command line.
///
/// # Errors
///
/// Returns an error if the value is not an amount.
pub fn deserialize_cost<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    from.deserialize_any(Amount {
        parse,
        what: "an amount of US dollars such as 5 or \"4.20\"",
    })
}

/// Serialises millionths of a dollar in a form that [`parse`] accepts.
///
/// # Errors
///
/// Returns the errors of the serialiser.
pub fn serialize_text<S: Serializer>(micro: &u64, to: S) -> Result<S::Ok, S::Error> {
    let text = format!("{}.{:06}", micro / 1_000_000, micro % 1_000_000);
    to.serialize_str(text.trim_end_matches('0').trim_end_matches('.'))
}

/// Deserialises tokens from a file: a whole number, or a text as on the command line.
///
/// # Errors
///
/// Returns an error if the value is not a number of tokens.
pub fn deserialize_tokens<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    from.deserialize_any(Amount {
        parse: tokens,
        what: "a number of tokens such as 250000 or \"2M\"",
    })
}

struct Amount {
    parse: fn(&str) -> Result<u64, String>,
    what: &'static str,
}

impl Visitor<'_> for Amount {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
        (self.parse)(text).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<u64, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<u64, E> {
        self.visit_str(&number.to_string())
    }
}

/// Formats millionths of a dollar with cents, and with more digits below one cent.
#[must_use]
pub fn dollars(micro: u64) -> String {
    match micro {
        1..10_000 => format!("{:.4} USD", micro as f64 / 1e6),
        _ => format!("{:.2} USD", micro as f64 / 1e6),
    }
}

/// Formats a usage; `None` if the agent reports none.
#[must_use]
pub fn usage_text(used: loop_state::UsageTotal) -> Option<String> {
    let tokens = format!("{} tokens", used.tokens());
    match (used.cost_microusd, used.tokens()) {
        (0, 0) => None,
        (0, _) => Some(tokens),
        (cost, 0) => Some(dollars(cost)),
        (cost, _) => Some(format!("{}, {tokens}", dollars(cost))),
    }
}

/// Returns the cost in dollars; `None` if the agent reports none.
#[must_use]
pub fn cost_usd(used: loop_state::UsageTotal) -> Option<f64> {
    (used.cost_microusd > 0).then_some(used.cost_microusd as f64 / 1e6)
}

/// Formats a number of tokens for a narrow column, such as `950`, `12.3k`, `250k` or `4.1M`; `None` if the agent reports none.
#[must_use]
pub fn tokens_short(used: loop_state::UsageTotal) -> Option<String> {
    let tokens = used.tokens();
    let (unit, suffix) = match tokens {
        0 => return None,
        1..1_000 => return Some(tokens.to_string()),
        1_000..1_000_000 => (1_000, "k"),
        _ => (1_000_000, "M"),
    };
    // The digit after the point is cut, not rounded: a shown number never exceeds the real one.
    let (whole, tenth) = (tokens / unit, tokens % unit * 10 / unit);
    Some(match whole {
        0..100 => format!("{whole}.{tenth}{suffix}"),
        _ => format!("{whole}{suffix}"),
    })
}

/// Returns a usage as JSON.
#[must_use]
pub fn usage_json(used: loop_state::UsageTotal) -> serde_json::Value {
    serde_json::json!({
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        "cost_usd": cost_usd(used),
    })
}

/// Formats the remaining budgets of the run; `None` if the run has no budget.
#[must_use]
pub fn budget_left(rules: &loop_state::Rules, used: loop_state::UsageTotal) -> Option<String> {
    let cost = rules.limits.max_cost_microusd.map(|max| {
        let left = max.saturating_sub(used.cost_microusd);
        format!("{} of {}", dollars(left), dollars(max))
    });
    let tokens = rules.limits.max_tokens.map(|max| {
        let left = max.saturating_sub(used.tokens());
        format!("{left} of {max} tokens")
    });
    let left: Vec<String> = [cost, tokens].into_iter().flatten().collect();
    (!left.is_empty()).then(|| format!("{} left", left.join(", ")))
}

/// Formats the usage for a narrow column, with the limit if there is one. The text is empty if the run has no limit and the agent reports no cost.
#[must_use]
pub fn cost_short(head: &loop_state::Head) -> String {
    let (cost, tokens) = (head.usage.cost_microusd, head.usage.tokens());
    match (
        head.rules.limits.max_cost_microusd,
        head.rules.limits.max_tokens,
    ) {
        (Some(max), _) => format!(
            "{} of {}",
            dollars(cost).trim_end_matches(" USD"),
            dollars(max)
        ),
        (None, Some(max)) => format!("{tokens} of {max} tokens"),
        _ if cost > 0 => dollars(cost),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loop_state::{Rules, RunLimits, UsageTotal};
    use proptest::prelude::*;

    #[test]
    fn common_spellings_of_amounts_are_parsed() {
        for (text, micro) in [
            ("5", 5_000_000),
            ("4.20", 4_200_000),
            ("$0.5", 500_000),
            ("0.000001", 1),
            ("12 USD", 12_000_000),
        ] {
            assert_eq!(parse(text), Ok(micro), "{text}");
        }
        for (text, number) in [("7", 7), ("250k", 250_000), ("2M", 2_000_000)] {
            assert_eq!(tokens(text), Ok(number), "{text}");
        }
        let wrong = [
            "",
            "0",
            "0.0",
            "-1",
            "4,20",
            "1.2345678",
            "4.",
            "1e9",
            "9".repeat(20).as_str(),
        ]
        .map(|text| parse(text).unwrap_err());
        insta::assert_snapshot!(wrong.join("\n"));
        for text in ["", "0", "-1", "1.5M", "k", "99999999999999999999"] {
            tokens(text).unwrap_err();
        }
    }

    #[test]
    fn usage_and_remaining_budget_are_shown() {
        let usage = |cost_microusd, input_tokens| UsageTotal {
            cost_microusd,
            input_tokens,
            output_tokens: 0,
        };
        let shown = [
            usage(0, 0),
            usage(0, 9),
            usage(3_000, 9),
            usage(4_204_999, 0),
        ]
        .map(usage_text);
        let shown_text =
            ["9 tokens", "0.0030 USD, 9 tokens", "4.20 USD"].map(|it| Some(it.to_owned()));
        assert_eq!((&shown[0], &shown[1..]), (&None, &shown_text[..]));
        let rules = Rules {
            limits: RunLimits {
                max_cost_microusd: Some(5_000_000),
                max_tokens: Some(100),
                ..RunLimits::default()
            },
            ..Rules::default()
        };
        let shown_text = budget_left(&rules, usage(800_000, 101)).unwrap();
        assert_eq!(shown_text, "4.20 USD of 5.00 USD, 0 of 100 tokens left");
        assert_eq!(budget_left(&Rules::default(), usage(1, 1)), None);
    }

    #[test]
    fn tokens_fit_a_narrow_column() {
        let short = |input_tokens, output_tokens| {
            tokens_short(UsageTotal {
                cost_microusd: 0,
                input_tokens,
                output_tokens,
            })
        };
        assert_eq!(short(0, 0), None);
        for (tokens, text) in [
            (1, "1"),
            (999, "999"),
            (1_000, "1.0k"),
            (12_399, "12.3k"),
            (99_999, "99.9k"),
            (250_400, "250k"),
            (999_999, "999k"),
            (4_190_000, "4.1M"),
            (123_456_789, "123M"),
        ] {
            assert_eq!(short(tokens, 0).as_deref(), Some(text));
            assert_eq!(short(0, tokens).as_deref(), Some(text));
        }
    }

    proptest! {
        /// A formatted amount of cents parses to the same amount, and a file accepts it as a number or a text.
        #[test]
        fn written_value_reads_back(cents in 1u64..100_000_000) {
            #[derive(serde::Deserialize)]
            struct File {
                #[serde(deserialize_with = "deserialize_cost")]
                cost: u64,
            }
            let text = format!("{}.{:02}", cents / 100, cents % 100);
            let micro = parse(&text).unwrap();
            prop_assert_eq!(micro, cents * 10_000);
            prop_assert_eq!(parse(&dollars(micro)).unwrap(), micro);
            for written in [format!("cost = {text}"), format!("cost = \"{text}\"")] {
                prop_assert_eq!(toml::from_str::<File>(&written).unwrap().cost, micro);
            }
        }
    }
}

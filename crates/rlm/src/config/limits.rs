//! The limits that can change while a run goes on, once: `rlm set` with its help, and what follows the files, come from here.

use loop_state::{RuleChange, RulesError};
use rlm_text::{duration, money};

use super::values::Config;

/// A limit that can change while a run goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// Its key in the files and in `rlm set`.
    pub(crate) key: &'static str,
    /// Reads what a person sets it to.
    pub(crate) read: fn(&str) -> Result<RuleChange, String>,
    /// What a file says of it; `None` where no file has a say.
    pub(crate) said: Option<fn(&Config) -> Option<RuleChange>>,
}

use RuleChange::{
    Autonomy, CheckTimeout, IdleTimeout, IterationTimeout, MaxCost, MaxDuration, MaxFailures,
    MaxIterations, MaxTokens, Sleep, WaitOnLimit,
};

pub(crate) const LIMITS: [Limit; 11] = [
    Limit {
        key: "max-iterations",
        read: |text| or_none(text, count).map(MaxIterations),
        said: Some(|file| Some(MaxIterations(Some(file.max_iterations?.into())))),
    },
    Limit {
        key: "max-duration",
        read: |text| or_none(text, duration::parse).map(MaxDuration),
        said: Some(|file| Some(MaxDuration(Some(file.max_duration?)))),
    },
    Limit {
        key: "iteration-timeout",
        read: |text| or_none(text, duration::parse).map(IterationTimeout),
        said: Some(|file| Some(IterationTimeout(Some(file.iteration_timeout?)))),
    },
    Limit {
        key: "idle-timeout",
        read: |text| or_none(text, duration::parse).map(IdleTimeout),
        said: Some(|file| Some(IdleTimeout(Some(file.idle_timeout?)))),
    },
    Limit {
        key: "check-timeout",
        read: |text| duration::parse(text).map(CheckTimeout),
        said: Some(|file| file.check_timeout.map(CheckTimeout)),
    },
    Limit {
        key: "max-failures",
        read: |text| Ok(MaxFailures(or_none(text, count)?.unwrap_or(0))),
        said: Some(|file| file.max_failures.map(MaxFailures)),
    },
    Limit {
        key: "sleep",
        read: |text| duration::parse(text).map(Sleep),
        said: Some(|file| file.sleep.map(Sleep)),
    },
    Limit {
        key: "autonomy",
        read: |text| {
            Ok(Autonomy(
                text.parse().map_err(|e: RulesError| e.to_string())?,
            ))
        },
        // A file is no person's word on whether they are asked.
        said: None,
    },
    Limit {
        key: "max-cost",
        read: |text| or_none(text, money::parse).map(MaxCost),
        said: Some(|file| Some(MaxCost(Some(file.max_cost?)))),
    },
    Limit {
        key: "max-tokens",
        read: |text| or_none(text, money::tokens).map(MaxTokens),
        said: Some(|file| Some(MaxTokens(Some(file.max_tokens?)))),
    },
    Limit {
        key: "wait-on-limit",
        read: |text| duration::parse(text).map(WaitOnLimit),
        said: Some(|file| file.wait_on_limit.map(WaitOnLimit)),
    },
];

/// Returns whether a file can change this while a run goes on.
pub(crate) fn follows_files(key: &str) -> bool {
    let mut limits = LIMITS.iter();
    limits.any(|limit| limit.key == key && limit.said.is_some())
}

/// Returns the keys for a sentence.
pub(crate) fn keys() -> String {
    LIMITS.map(|limit| limit.key).join(", ")
}

/// Reads a limit that can be taken away.
fn or_none<T>(text: &str, read: fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    (text != "none").then(|| read(text)).transpose()
}

fn count(text: &str) -> Result<u32, String> {
    let most = u32::MAX;
    let read = text.parse();
    read.map_err(|_| format!("`{text}` is no number from 0 to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_rule_that_a_live_run_takes_has_a_key_here() {
        let e = serde_json::from_str::<RuleChange>(r#"{"key": "no-such-rule"}"#).unwrap_err();
        let e = e.to_string();
        let taken: BTreeSet<_> = e.split('`').skip(3).step_by(2).collect();
        assert_eq!(taken, LIMITS.iter().map(|limit| limit.key).collect());
    }

    #[test]
    fn what_is_set_and_what_a_file_says_is_the_same_change() {
        for limit in LIMITS {
            let Some(said) = limit.said else { continue };
            let file: Config = toml::from_str(&format!("{} = 7", limit.key)).unwrap();
            let change = (limit.read)("7").unwrap();
            assert_eq!(said(&file), Some(change));
            assert_eq!(serde_json::to_value(change).unwrap()["key"], limit.key);
            assert_eq!(said(&Config::default()), None);
        }
    }
}

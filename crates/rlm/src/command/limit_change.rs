//! The words with which a person changes a limit: KEY=VALUE.

use loop_state::RuleChange;

use crate::config::{LIMITS, limit_names, nearest};
use crate::exit::Failure;

/// Parses one KEY=VALUE.
pub(crate) fn change(word: &str) -> Result<RuleChange, Failure> {
    let Some((key, value)) = word.split_once('=') else {
        return Err(Failure::usage(format!(
            "`{word}` has no value: write KEY=VALUE"
        )));
    };
    let limit = LIMITS.iter().find(|limit| limit.key == key);
    let limit = limit.ok_or_else(|| unknown(key))?;
    (limit.read)(value).map_err(|e| Failure::usage(format!("{key}: {e}")))
}

fn unknown(key: &str) -> Failure {
    let what = match nearest(key, &limit_names()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the keys are {}", limit_names().join(", ")),
    };
    Failure::usage(format!("`{key}` can't be set in a live run; {what}"))
}

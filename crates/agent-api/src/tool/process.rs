//! The rules that all processes of tools share: an environment without secrets, a start that can be interrupted, and the stages of a stop.

use std::collections::BTreeSet;
use std::ffi::OsString;

use agent_subprocess::{ProcessContext, ProcessTree, StopPolicy, TreeCommand};
use tokio::time::timeout;

use super::context::Stops;
use crate::times;

/// The words that make the name of a variable look secret.
const SECRET_WORDS: [&str; 10] = [
    "KEY",
    "KEYS",
    "APIKEY",
    "TOKEN",
    "SECRET",
    "SECRETS",
    "PASSWORD",
    "PASSWD",
    "CREDENTIAL",
    "CREDENTIALS",
];
/// The variables that the processes of a tool don't inherit.
#[derive(Clone, Debug, Default)]
pub(super) struct HiddenVariables {
    hidden: BTreeSet<OsString>,
    kept: BTreeSet<OsString>,
}

impl HiddenVariables {
    /// Hides a variable, whatever its name looks like. It takes precedence over [`keep`](Self::keep).
    pub(super) fn hide(&mut self, name: OsString) {
        self.hidden.insert(name);
    }

    /// Keeps a variable although its name looks secret.
    pub(super) fn keep(&mut self, name: OsString) {
        self.kept.insert(name);
    }

    /// Removes these variables from the environment of a command with this context.
    pub(super) fn removed_from(
        &self,
        mut command: TreeCommand,
        context: &ProcessContext,
    ) -> TreeCommand {
        let own = context.env.iter().map(|(name, _)| name.clone());
        let inherited = std::env::vars_os().map(|(name, _)| name);
        for name in own.chain(inherited).filter(|name| self.is_hidden(name)) {
            command = command.env_remove(name);
        }
        command
    }

    fn is_hidden(&self, name: &OsString) -> bool {
        let looks_secret = || looks_secret(&name.to_string_lossy());
        self.hidden.contains(name) || (!self.kept.contains(name) && looks_secret())
    }
}

/// Returns the stages in which a process of a tool and its tree end: SIGTERM, then SIGKILL.
pub(super) fn stop_policy(context: &ProcessContext) -> StopPolicy {
    StopPolicy {
        terminate: times::TOOL_TERMINATE,
        ..StopPolicy::kill()
    }
    .within(times::TOOL_STOP.min(context.stop.budget))
}

/// Starts a process, unless `over` comes first: the disk of a program can hang. `Err` is what `over` returned. The process doesn't run then, or its guard
/// kills it as soon as its start returns.
pub(super) async fn start_unless<T, E>(
    over: impl Future<Output = T>,
    spawning: impl Future<Output = Result<ProcessTree, E>>,
    policy: &StopPolicy,
    stops: &Stops,
) -> Result<Result<ProcessTree, E>, T> {
    let mut spawning = std::pin::pin!(spawning);
    let over = tokio::select! {
        biased;
        over = over => over,
        spawned = &mut spawning => return Ok(spawned),
    };
    match timeout(times::TOOL_TERMINATE, spawning).await {
        Ok(Ok(mut tree)) => stops.record_also(tree.stop(policy).await),
        Ok(Err(_not_started)) => {}
        Err(_elapsed) => stops.record_unproven(),
    }
    Err(over)
}

/// Returns whether the name of a variable looks as if its value is secret.
fn looks_secret(name: &str) -> bool {
    name.split('_')
        .any(|word| SECRET_WORDS.iter().any(|it| word.eq_ignore_ascii_case(it)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a14_names_of_variables_that_look_secret() {
        for name in [
            "OPENAI_API_KEY",
            "key",
            "Github_Token",
            "AWS_SECRET_ACCESS_KEY",
            "APIKEY",
            "DB_PASSWORD",
            "MYSQL_PASSWD",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "_SECRETS_",
            "TOKEN_2",
        ] {
            assert!(looks_secret(name), "{name}");
        }
        for name in [
            "PATH",
            "HOME",
            "KEYBOARD",
            "TOKENIZERS_PARALLELISM",
            "SSH_AUTH_SOCK",
            "MONKEY",
            "",
        ] {
            assert!(!looks_secret(name), "{name}");
        }
    }

    #[test]
    fn a14_hidden_variable_stays_hidden_if_it_is_also_kept() {
        let mut variables = HiddenVariables::default();
        variables.hide("PLAIN".into());
        variables.hide("BOTH_KEY".into());
        variables.keep("BOTH_KEY".into());
        variables.keep("SORT_KEY".into());
        let is_hidden = |name: &str| variables.is_hidden(&name.into());
        assert!(is_hidden("PLAIN") && is_hidden("BOTH_KEY") && is_hidden("OTHER_KEY"));
        assert!(!is_hidden("SORT_KEY") && !is_hidden("PATH"));
    }
}

//! The rules that all processes of tools share: an environment without secrets, a start that can be interrupted, and the stages of a stop.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::Arc;

use agent_subprocess::{Error, ProcessContext, ProcessTree, StopPolicy, TreeCommand};
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

/// Starts a process, unless `over` comes first: the disk of a program can hang. `Err` is what `over` returned. The process may have run for a moment
/// then. A start that returns later is continued by a task of its own, which ends the process; until then the stop is unproven.
pub(super) async fn start_unless<T>(
    over: impl Future<Output = T>,
    spawning: impl Future<Output = Result<ProcessTree, Error>> + Send + 'static,
    policy: StopPolicy,
    stops: &Arc<Stops>,
) -> Result<Result<ProcessTree, Error>, T> {
    let mut spawning = Box::pin(spawning);
    let over = tokio::select! {
        // A start that has returned is never late: the caller ends its process with a grace period.
        biased;
        spawned = &mut spawning => {
            if spawned.as_ref().is_err_and(is_unproven) {
                stops.record_unproven();
            }
            return Ok(spawned);
        }
        over = over => over,
    };
    stops.record_unproven();
    let late_stops = Arc::clone(stops);
    let ending = tokio::spawn(async move {
        match spawning.await {
            Ok(mut tree) => late_stops.record_also(tree.stop(&policy).await),
            // The process possibly ran for a moment, so the record stays.
            Err(error) if is_unproven(&error) => return,
            Err(_not_started) => {}
        }
        late_stops.remove_unproven();
    });
    // If this is too short, the task continues.
    let _ended_or_late = timeout(times::TOOL_TERMINATE, ending).await;
    Err(over)
}

/// Returns whether nothing proves that the process did not run: its guard was lost, or did not answer.
fn is_unproven(error: &Error) -> bool {
    error.is_guard_timeout() || error.lost_processes().is_some()
}

/// Returns whether the name of a variable looks as if its value is secret.
fn looks_secret(name: &str) -> bool {
    name.split('_')
        .any(|word| SECRET_WORDS.iter().any(|it| word.eq_ignore_ascii_case(it)))
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    use agent_subprocess::{Containment, guard};
    use tokio::sync::Notify;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test]
    async fn a4_start_that_returns_late_is_ended_and_then_the_stop_is_proven() {
        let stops = Arc::<Stops>::default();
        let release = Arc::new(Notify::new());
        let released = Arc::clone(&release);
        let spawning = async move {
            released.notified().await;
            let command = TreeCommand::new("sleep").arg("600");
            command.containment(Containment::Group).spawn().await
        };
        let policy = stop_policy(&ProcessContext::new("", ""));
        let started = start_unless(ready("over"), spawning, policy, &stops).await;
        assert_eq!(started.err(), Some("over"));
        assert!(stops.is_unproven(), "the process may start");
        release.notify_one();
        let deadline = Instant::now() + times::TOOL_STOP * 10;
        while stops.is_unproven() {
            assert!(Instant::now() < deadline, "the process did not start");
            tokio::task::yield_now().await;
        }
        let reports = stops.reports();
        assert_eq!(reports.len(), 1, "{reports:?}");
        assert_eq!(reports[0].0.ended.len(), 1, "{reports:?}");
    }

    /// A guard that never answers is like a program whose disk hangs. The time of this test doesn't pass: it jumps to the next deadline.
    #[tokio::test(start_paused = true)]
    async fn a4_stop_is_unproven_if_the_guard_did_not_answer_in_time() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("guard");
        std::fs::write(&script, "#!/bin/sh\nexec sleep 600\n").unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        // The other tests of this program need no guard.
        guard::guard_program(script);
        let spawning = || {
            let command = TreeCommand::new("true").containment(Containment::Guard);
            command.spawn()
        };
        let policy = || stop_policy(&ProcessContext::new("", ""));

        let stops = Arc::<Stops>::default();
        let started = start_unless(pending::<()>(), spawning(), policy(), &stops).await;
        let error = started.unwrap().unwrap_err();
        assert!(error.is_guard_timeout(), "{error}");
        assert!(stops.is_unproven());

        let stops = Arc::<Stops>::default();
        let started = start_unless(ready(()), spawning(), policy(), &stops).await;
        assert!(started.is_err());
        // The search for the processes of the guard takes real time.
        let begun = std::time::Instant::now();
        while Arc::strong_count(&stops) > 1 {
            let is_soon = begun.elapsed() < times::TOOL_STOP * 10;
            assert!(is_soon, "the task of the start ends");
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!(stops.is_unproven());

        // This guard dies after it has accepted the program, so it has possibly started it.
        tokio::time::resume();
        let frame = |text: &str| {
            let length = u32::try_from(text.len()).unwrap().to_le_bytes();
            [&length[..], text.as_bytes()].concat()
        };
        let hello = frame(r#"{"Hello":{"version":3,"start_time":0,"refused":null}}"#);
        let answers = [hello, frame(r#""Accepted""#)].concat();
        std::fs::write(dir.path().join("answers"), answers).unwrap();
        let mortal = format!("#!/bin/sh\ncat {}/answers >&0\n", dir.path().display());
        std::fs::write(dir.path().join("guard"), mortal).unwrap();
        let stops = Arc::<Stops>::default();
        let started = start_unless(pending::<()>(), spawning(), policy(), &stops).await;
        let error = started.unwrap().unwrap_err();
        assert!(!error.is_guard_timeout(), "{error}");
        assert!(stops.is_unproven());
    }

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

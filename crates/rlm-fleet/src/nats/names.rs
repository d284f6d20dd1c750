//! The names of streams, subjects and pools. A name becomes a part of a subject, so only a few characters are allowed.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use rlm_store::RunId;
use uuid::Uuid;

use super::error::{Error, Kind};

/// The name of a pool of workers: 1 to 64 of `A–Z a–z 0–9 _ -`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pool(String);

impl Pool {
    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Pool {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        check("pool", name)?;
        Ok(Self(name.into()))
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns whether a name can be a part of a subject, and is not too long.
pub(super) fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    (1..=64).contains(&name.len()) && name.chars().all(plain)
}

fn check(what: &'static str, name: &str) -> Result<(), Error> {
    match is_plain(name) {
        true => Ok(()),
        false => Err(Kind::Name {
            what,
            name: name.into(),
        }
        .into()),
    }
}

/// The names of the assets of one fleet.
#[derive(Clone, Debug)]
pub(super) struct Names {
    namespace: String,
}

impl Names {
    pub(super) fn new(namespace: &str) -> Result<Self, Error> {
        check("namespace", namespace)?;
        Ok(Self {
            namespace: namespace.into(),
        })
    }

    pub(super) fn runs(&self) -> String {
        format!("{}-runs", self.namespace)
    }

    pub(super) fn work(&self) -> String {
        format!("{}-work", self.namespace)
    }

    pub(super) fn blobs(&self) -> String {
        format!("{}-blobs", self.namespace)
    }

    /// Returns the stream of the object store, and the subject there that says whether it has an object of this name.
    pub(super) fn object(&self, name: &str) -> (String, String) {
        let bucket = self.blobs();
        // The client library writes names so.
        let encoded = URL_SAFE.encode(name);
        (format!("OBJ_{bucket}"), format!("$O.{bucket}.M.{encoded}"))
    }

    /// Returns the subject of the chunks of an object.
    pub(super) fn chunks(&self, nuid: &str) -> String {
        format!("$O.{}.C.{nuid}", self.blobs())
    }

    pub(super) fn settings(&self) -> String {
        format!("{}-settings", self.namespace)
    }

    pub(super) fn spent(&self) -> String {
        format!("{}-spent", self.namespace)
    }

    /// Returns the subject of the budget of the fleet.
    pub(super) fn budget(&self) -> String {
        format!("{}.settings.budget", self.namespace)
    }

    /// Returns the subject on which a run announces that the budget is spent.
    pub(super) fn budget_spent(&self) -> String {
        format!("{}.signal.budget-spent", self.namespace)
    }

    /// Returns the subject of the counter of a period.
    pub(super) fn spent_in(&self, period: &str) -> String {
        format!("{}.spent.{period}", self.namespace)
    }

    /// Returns the subject of all settings.
    pub(super) fn all_settings(&self) -> String {
        format!("{}.settings.*", self.namespace)
    }

    pub(super) fn consumer(&self, pool: &Pool) -> String {
        format!("pool-{pool}")
    }

    /// Returns the subject of all runs.
    pub(super) fn all_runs(&self) -> String {
        format!("{}.run.*", self.namespace)
    }

    /// Returns the subject of all work messages.
    pub(super) fn all_work(&self) -> String {
        format!("{}.work.*.*", self.namespace)
    }

    pub(super) fn pool(&self, pool: &Pool) -> String {
        format!("{}.work.{pool}.*", self.namespace)
    }

    /// Returns the subject of the records of a run.
    ///
    /// # Errors
    /// [`Error::is_usage`] if the name of the run has a dot, which would be a part of the subject.
    pub(super) fn run(&self, run: &RunId) -> Result<String, Error> {
        check("run of a fleet", run.as_str())?;
        Ok(format!("{}.run.{run}", self.namespace))
    }

    pub(super) fn work_of(&self, pool: &Pool, run: &RunId) -> Result<String, Error> {
        check("run of a fleet", run.as_str())?;
        Ok(format!("{}.work.{pool}.{run}", self.namespace))
    }

    pub(super) fn control(&self, run: &RunId) -> Result<String, Error> {
        check("run of a fleet", run.as_str())?;
        Ok(format!("{}.ctl.{run}", self.namespace))
    }

    pub(super) fn requests(&self) -> String {
        format!("{}-requests", self.namespace)
    }

    /// Returns the subject of all recorded requests.
    pub(super) fn all_requests(&self) -> String {
        format!("{}.req.*", self.namespace)
    }

    /// Returns the subject of the recorded requests of a run.
    pub(super) fn request(&self, run: &RunId) -> Result<String, Error> {
        check("run of a fleet", run.as_str())?;
        Ok(format!("{}.req.{run}", self.namespace))
    }

    pub(super) fn transcripts(&self) -> String {
        format!("{}-transcripts", self.namespace)
    }

    /// Returns the subject of the server for reads of several transcript messages.
    pub(super) fn read_transcripts(&self) -> String {
        format!("$JS.API.DIRECT.GET.{}", self.transcripts())
    }

    /// Returns the subject of all transcripts.
    pub(super) fn all_transcripts(&self) -> String {
        format!("{}.transcript.*", self.namespace)
    }

    /// Returns the subject of the transcripts of a run.
    pub(super) fn transcript(&self, run: &RunId) -> Result<String, Error> {
        check("run of a fleet", run.as_str())?;
        Ok(format!("{}.transcript.{run}", self.namespace))
    }

    /// Returns the subject of the process of a run.
    pub(super) fn live(&self, run: &RunId) -> Result<String, Error> {
        check("run of a fleet", run.as_str())?;
        Ok(format!("{}.live.{run}", self.namespace))
    }

    /// Returns a new subject for the responses of the process of a run. It is no inbox: a worker should not be permitted to write to inboxes, in which
    /// clients expect the server.
    pub(super) fn new_reply(&self) -> String {
        format!("{}.reply.{}", self.namespace, Uuid::new_v4().simple())
    }

    /// Returns whether a subject is one for responses. A request must not make the process of a run publish anywhere else.
    pub(super) fn is_reply(&self, subject: &str) -> bool {
        let id = subject.strip_prefix(&self.namespace);
        id.and_then(|rest| rest.strip_prefix(".reply."))
            .is_some_and(is_plain)
    }

    /// Returns the subject of a worker.
    pub(super) fn worker(&self, worker: &str) -> Result<String, Error> {
        check("worker", worker)?;
        Ok(format!("{}.worker.{worker}", self.namespace))
    }
}

/// Returns the run that the last part of a subject names.
pub(super) fn run_of(subject: &str) -> Option<RunId> {
    subject.rsplit('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_can_not_change_a_subject() {
        for name in ["", "a.b", "a b", "*", ">", "ä", &"x".repeat(65)] {
            let refused = name.parse::<Pool>().unwrap_err();
            assert!(refused.is_usage(), "{refused}");
            assert!(Names::new(name).is_err());
        }
        let names = Names::new("rlm").unwrap();
        let dotted = "a.b".parse().unwrap();
        assert!(names.run(&dotted).unwrap_err().is_usage());
        let run: RunId = "fix_auth-7".parse().unwrap();
        let pool = "big".parse().unwrap();
        let subject = names.work_of(&pool, &run).unwrap();
        assert_eq!(subject, "rlm.work.big.fix_auth-7");
        assert_eq!(run_of(&subject), Some(run));
    }

    #[test]
    fn only_a_subject_for_responses_gets_responses() {
        let names = Names::new("rlm").unwrap();
        assert!(names.is_reply(&names.new_reply()));
        for other in [
            "",
            "rlm.reply.",
            "rlm.reply.a.b",
            "rlm.reply.*",
            "rlm2.reply.a",
            "rlm.run.a",
            "_INBOX.a",
        ] {
            assert!(!names.is_reply(other), "{other}");
        }
    }
}

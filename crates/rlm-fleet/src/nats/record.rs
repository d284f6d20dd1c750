//! A record of a run as a message: its facts as JSON, and its body.
//!
//! Workers of several versions can be in one fleet. A newer program may add fields, which do not change a decision of this one. Each version keeps the
//! length, the JSON, and its fields `v`, `needs` and `epoch` as they are.

use checkpoint_store::Seq;
use loop_state::{Head, LastCheck, RuleChange, StopCause, StopReason, UsageTotal};
use rlm_store::RunHead;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::objects::ObjectId;
use crate::{FailedClaim, FailureCause, LastRecord, MAX_FAILED, Progress, RecordId, RecordKind};

/// The version of the form of a record. A record with a higher number has a form that this program does not know.
///
/// A later program that adds a kind, or something that changes a decision, writes such a record with a higher number. All later records of this run
/// then have this number in `needs`, so that an older program leaves the run alone, whatever the last record is.
const VERSION: u32 = 1;

/// The facts about a run that a list of runs shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSummary {
    /// The title of the run.
    pub title: Option<String>,
    /// The name of the current phase.
    pub phase: String,
    /// The number of the current iteration in its phase, from 1; 0 before the first.
    pub iteration: u32,
    /// The number of attempts of the whole run.
    pub attempts: u64,
    /// The usage of the run, as its agents report it.
    pub usage: UsageTotal,
    /// How the last check ended.
    pub last_check: Option<LastCheck>,
    /// Why the run has ended, or why its process stopped.
    pub reason: Option<StopReason>,
    /// The commit of the last save.
    pub commit: Option<String>,
    /// Why the run waits for a person or a budget; `None` if it doesn't.
    #[serde(default)]
    pub paused: Option<String>,
}

impl RunSummary {
    /// Returns the summary of a saved head.
    #[must_use]
    pub fn of(head: &RunHead) -> Self {
        let machine = &head.machine;
        Self {
            title: head.settings.title.clone(),
            phase: machine.phase_rules().name.clone(),
            iteration: machine.iteration,
            attempts: u64::from(machine.counts.attempts),
            usage: machine.usage,
            last_check: machine.last_check,
            reason: { machine.end.as_ref() }.map(|end| end.reason.clone()),
            commit: head.git_commit.clone(),
            paused: machine.awaits_person().then(|| {
                let reason = head.pause_reason.as_deref();
                reason.unwrap_or("by a person").to_owned()
            }),
        }
    }
}

/// Returns how far a save brings the run. `before` is the number of complete iterations at the save before.
///
/// A run that a signal stopped continues on another worker. A run that a person stopped has ended: no worker claims it again.
pub(super) fn progress(machine: &Head, before: u32) -> Progress {
    match machine.end.as_ref().map(|end| &end.reason) {
        Some(StopReason::Stopped(StopCause::Terminated | StopCause::HungUp)) => Progress::Working,
        Some(_) => Progress::RunEnded,
        None if completed(machine) > before => Progress::IterationCompleted,
        None => Progress::Working,
    }
}

/// Returns the number of complete iterations of a run.
pub(super) fn completed(machine: &Head) -> u32 {
    machine.counts.iterations
}

/// The code of a run: a commit, and the git bundle that has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Code {
    /// The id of the commit.
    pub(super) commit: String,
    /// The bundle. That of the base has the whole history; each later one only the commits since the base.
    pub(super) bundle: ObjectId,
}

/// A record as the server has it.
#[derive(Clone, Debug)]
pub struct StoredRecord {
    /// The facts that the decisions need.
    pub facts: LastRecord,
    /// The facts that a list of runs shows; `None` if the record has none, or a newer program wrote it.
    pub summary: Option<RunSummary>,
    /// The time at which the server stored the record, in milliseconds since 1970.
    pub stored_at: i64,
    /// The claims in a row that completed no iteration, as the evidence for people; oldest first.
    pub failed: Vec<FailedClaim>,
    pub(super) meta: Meta,
    /// The body, unless it is an object.
    pub(super) body: Vec<u8>,
}

/// The JSON of a record.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Meta {
    v: u32,
    /// The highest version of all earlier records of the run.
    #[serde(default, skip_serializing_if = "is_known")]
    needs: u32,
    /// The id, in hexadecimal digits.
    id: String,
    kind: String,
    epoch: u64,
    stalled: u32,
    /// The object with the body, if the body is not in the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) object: Option<ObjectId>,
    /// The number of the save.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) save: Option<u64>,
    /// The name of the blob that the body is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) blob: Option<String>,
    /// The code of the run from this record on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) code: Option<Code>,
    /// The code of the newest base, if the run has returned to the fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) base_code: Option<Code>,
    /// The pool of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pool: Option<String>,
    /// The worker that appended the newest claim, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) worker: Option<String>,
    /// The number of the last request before a person resumed the run; 0 if nobody did.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) resumed_at: u64,
    /// The changes of rules with which a person resumed the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    changes: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    summary: Option<Value>,
    /// The claims in a row that completed no iteration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    failed: Vec<Value>,
}

fn is_known(version: &u32) -> bool {
    *version <= VERSION
}

/// A [`FailedClaim`] as JSON.
#[derive(Serialize, Deserialize)]
struct FailedJson {
    claim: u64,
    worker: String,
    at: i64,
    cause: String,
    text: String,
}

const CAUSES: [(FailureCause, &str); 3] = [
    (FailureCause::Start, "start"),
    (FailureCause::Process, "process"),
    (FailureCause::NoAnswer, "no_answer"),
];

impl From<&FailedClaim> for FailedJson {
    fn from(failed: &FailedClaim) -> Self {
        let cause = CAUSES.iter().find(|(cause, _)| *cause == failed.cause);
        Self {
            claim: failed.epoch,
            worker: failed.worker.clone(),
            at: failed.at,
            cause: cause.map_or("", |(_, name)| name).into(),
            text: failed.text.clone(),
        }
    }
}

impl FailedJson {
    /// Returns the failed claim; `None` if a newer program wrote it.
    fn into_failed(self) -> Option<FailedClaim> {
        let (cause, _) = CAUSES.iter().find(|(_, name)| *name == self.cause)?;
        let Self {
            claim,
            worker,
            at,
            text,
            ..
        } = self;
        Some(FailedClaim::new(claim, &worker, at, *cause, &text))
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Meta {
    pub(super) fn new(id: RecordId, epoch: u64, kind: RecordKind, stalled: u32) -> Self {
        Self {
            v: VERSION,
            needs: VERSION,
            id: format!("{:032x}", id.bits()),
            kind: name_of(kind).into(),
            epoch,
            stalled,
            object: None,
            save: None,
            blob: None,
            code: None,
            base_code: None,
            pool: None,
            worker: None,
            resumed_at: 0,
            changes: None,
            summary: None,
            failed: Vec::new(),
        }
    }

    pub(super) fn set_summary(&mut self, summary: &RunSummary) {
        self.summary = serde_json::to_value(summary).ok();
    }

    /// Takes over what an earlier record says about the run.
    pub(super) fn keep(&mut self, earlier: &Self) {
        self.code.clone_from(&earlier.code);
        self.base_code.clone_from(&earlier.base_code);
        self.pool.clone_from(&earlier.pool);
        self.worker.clone_from(&earlier.worker);
        self.resumed_at = earlier.resumed_at;
        self.summary.clone_from(&earlier.summary);
        self.failed.clone_from(&earlier.failed);
        self.needs = earlier.needs.max(earlier.v);
    }

    /// Returns the failed claims that this program knows, at most as many as a run keeps.
    pub(super) fn failed(&self) -> Vec<FailedClaim> {
        let known = self.failed.iter().take(MAX_FAILED).filter_map(|it| {
            let json: FailedJson = serde_json::from_value(it.clone()).ok()?;
            json.into_failed()
        });
        known.collect()
    }

    pub(super) fn set_failed(&mut self, failed: &[FailedClaim]) {
        let json = |it| serde_json::to_value(FailedJson::from(it)).ok();
        self.failed = failed.iter().filter_map(json).collect();
    }

    /// Returns the names of the objects that a record names, for the header of its message.
    pub(super) fn objects(&self) -> Vec<&str> {
        let code = self.code.as_ref().map(|code| &code.bundle);
        let objects = self.object.iter().chain(code);
        objects.map(ObjectId::sha256).collect()
    }

    pub(super) fn set_changes(&mut self, changes: &[RuleChange]) {
        let has_any = !changes.is_empty();
        self.changes = has_any.then(|| serde_json::to_value(changes).unwrap_or_default());
    }

    /// Returns the changes of rules; `None` if a newer program wrote a change that this one does not know.
    pub(super) fn changes(&self) -> Option<Vec<RuleChange>> {
        match &self.changes {
            None => Some(Vec::new()),
            Some(changes) => serde_json::from_value(changes.clone()).ok(),
        }
    }

    pub(super) fn set_save(&mut self, save: Seq) {
        self.save = Some(save.get());
    }
}

const NAMES: [(RecordKind, &str); 13] = [
    (RecordKind::Base, "base"),
    (RecordKind::Claim, "claim"),
    (RecordKind::Save(Progress::Working), "save"),
    (RecordKind::Save(Progress::IterationCompleted), "iteration"),
    (RecordKind::Save(Progress::RunEnded), "end"),
    (RecordKind::Undo, "undo"),
    (RecordKind::Phase, "phase"),
    (RecordKind::Release, "release"),
    (RecordKind::Failure, "failure"),
    (RecordKind::Park, "park"),
    (RecordKind::Unpark, "unpark"),
    (RecordKind::Remove, "remove"),
    (RecordKind::Export, "export"),
];

fn name_of(kind: RecordKind) -> &'static str {
    let found = NAMES.iter().find(|(known, _)| *known == kind);
    found.map_or("unknown", |(_, name)| name)
}

fn kind_of(meta: &Meta) -> RecordKind {
    let found = NAMES.iter().find(|(_, name)| *name == meta.kind);
    let known = found.filter(|_| meta.v.max(meta.needs) <= VERSION);
    known.map_or(RecordKind::Unknown, |(kind, _)| *kind)
}

/// Returns the bytes of a message: the length of the JSON in four bytes, the JSON, and the body.
pub(super) fn encode(meta: &Meta, body: &[u8]) -> Vec<u8> {
    let json = serde_json::to_vec(meta).expect("a record has only text keys");
    let length = u32::try_from(json.len()).expect("a message is smaller than 4 GiB");
    [&length.to_le_bytes(), &json[..], body].concat()
}

/// Parses the bytes of a message. They may come from an attacker.
pub(super) fn decode(seq: u64, stored_at: i64, bytes: &[u8]) -> Result<StoredRecord, String> {
    let (length, rest) = bytes.split_first_chunk::<4>().ok_or("it has no length")?;
    let length = u32::from_le_bytes(*length) as usize;
    let (json, body) = rest.split_at_checked(length).ok_or("it is cut off")?;
    let (meta, id) = match parse(json) {
        Ok(both) => both,
        Err(why) => newer(json).ok_or(why)?,
    };
    let summary = meta.summary.clone();
    Ok(StoredRecord {
        facts: LastRecord {
            seq,
            id,
            epoch: meta.epoch,
            kind: kind_of(&meta),
            stalled: meta.stalled,
        },
        summary: summary.and_then(|summary| serde_json::from_value(summary).ok()),
        stored_at,
        failed: meta.failed(),
        meta,
        body: body.to_vec(),
    })
}

fn parse(json: &[u8]) -> Result<(Meta, RecordId), String> {
    let meta: Meta = serde_json::from_slice(json).map_err(|e| e.to_string())?;
    let id = u128::from_str_radix(&meta.id, 16).map_err(|_| "its id is no hexadecimal number")?;
    Ok((meta, RecordId::new(id)))
}

/// The fields that a record has in each version.
#[derive(Deserialize)]
struct Version {
    v: u32,
    #[serde(default)]
    needs: u32,
    #[serde(default)]
    epoch: u64,
}

/// Parses a record of which this program knows only these fields; `None` if no newer program wrote it.
fn newer(json: &[u8]) -> Option<(Meta, RecordId)> {
    let Version { v, needs, epoch } = serde_json::from_slice(json).ok()?;
    let id = RecordId::new(0);
    let mut meta = Meta::new(id, epoch, RecordKind::Unknown, 0);
    (meta.v, meta.needs) = (v, needs);
    (v.max(needs) > VERSION).then_some((meta, id))
}

impl StoredRecord {
    /// Returns the pool of the run.
    #[must_use]
    pub fn pool(&self) -> Option<&str> {
        self.meta.pool.as_deref()
    }

    /// Returns the name of the worker that appended the newest claim, for people.
    #[must_use]
    pub fn worker(&self) -> Option<&str> {
        self.meta.worker.as_deref()
    }

    /// Returns whether the run waits for a worker.
    #[must_use]
    pub fn is_queued(&self) -> bool {
        matches!(
            self.facts.kind,
            RecordKind::Base | RecordKind::Release | RecordKind::Failure | RecordKind::Unpark
        )
    }

    /// Returns whether no worker claims the run any more, unless a person lets them.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(
            self.facts.kind,
            RecordKind::Save(Progress::RunEnded) | RecordKind::Park | RecordKind::Remove
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn meta(kind: RecordKind) -> Meta {
        Meta::new(RecordId::new(7 << 100), 3, kind, 2)
    }

    #[test]
    fn each_kind_survives_its_message() {
        for (kind, _) in NAMES {
            let bytes = encode(&meta(kind), b"body");
            let read = decode(9, 1, &bytes).unwrap();
            let facts = LastRecord {
                seq: 9,
                id: RecordId::new(7 << 100),
                epoch: 3,
                kind,
                stalled: 2,
            };
            assert_eq!((read.facts, &read.body[..]), (facts, &b"body"[..]));
        }
    }

    #[test]
    fn run_that_a_worker_gave_back_is_queued() {
        for kind in [RecordKind::Release, RecordKind::Failure] {
            let read = decode(9, 1, &encode(&meta(kind), b"")).unwrap();
            assert!(read.is_queued() && !read.is_over(), "{kind:?}");
        }
    }

    #[test]
    fn f15_newer_record_is_unknown_whatever_else_it_has() {
        let read = |json: &str| {
            let length = u32::try_from(json.len()).unwrap().to_le_bytes();
            decode(3, 0, &[&length[..], json.as_bytes()].concat())
        };
        for (json, epoch) in [
            (r#"{"v":2}"#, 0),
            (
                r#"{"v":2,"id":7,"kind":{"name":"end"},"epoch":5,"stalled":null}"#,
                5,
            ),
            (r#"{"v":1,"needs":2,"epoch":6,"kind":["park"]}"#, 6),
        ] {
            let read = read(json).unwrap();
            let facts = (read.facts.kind, read.facts.seq, read.facts.epoch);
            assert_eq!(facts, (RecordKind::Unknown, 3, epoch), "{json}");
            assert!(!read.is_over() && !read.is_queued());
        }
        // A record of this version without its fields is damaged, and so is one without a version.
        for json in [r#"{"v":1}"#, "{}"] {
            read(json).unwrap_err();
        }
    }

    #[test]
    fn f15_unknown_fields_change_nothing_and_a_newer_form_is_unknown() {
        let with = |change: fn(&mut Value)| {
            let mut json = serde_json::to_value(meta(RecordKind::Claim)).unwrap();
            change(&mut json);
            let json = serde_json::to_vec(&json).unwrap();
            let length = u32::try_from(json.len()).unwrap().to_le_bytes();
            decode(1, 0, &[&length[..], &json].concat()).unwrap()
        };
        let more = with(|json| json["colour"] = "red".into());
        assert_eq!(more.facts.kind, RecordKind::Claim);
        let newer = with(|json| json["v"] = 2.into());
        assert_eq!(newer.facts.kind, RecordKind::Unknown);
        let after = with(|json| json["needs"] = 2.into());
        assert_eq!(after.facts.kind, RecordKind::Unknown);
        let other = with(|json| json["kind"] = "lease".into());
        assert_eq!(other.facts.kind, RecordKind::Unknown);
        let summary = with(|json| json["summary"] = "text".into());
        assert_eq!(
            (summary.facts.kind, summary.summary),
            (RecordKind::Claim, None)
        );
    }

    #[test]
    fn f15_record_after_a_newer_one_is_unknown_and_keeps_the_failed_claims() {
        let mut newer = meta(RecordKind::Claim);
        newer.v = VERSION + 1;
        let failed = FailedClaim::new(3, "w1", 7, FailureCause::Start, "no git");
        newer.set_failed(std::slice::from_ref(&failed));
        newer.failed.push("a form of a newer program".into());
        let mut later = meta(RecordKind::Release);
        later.keep(&newer);
        let mut last = meta(RecordKind::Claim);
        last.keep(&later);
        let read = decode(1, 0, &encode(&last, b"")).unwrap();
        assert_eq!(read.facts.kind, RecordKind::Unknown);
        assert_eq!(read.failed, [failed]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_record_or_an_error(bytes: Vec<u8>) {
            let _record_or_error = decode(1, 0, &bytes);
        }
    }
}

//! The output of `rlm checkpoints verify`: each file of a run with its condition, and a safe next command.

use std::fmt;

use checkpoint_store::verify::{File, FileCondition, NextAction};
use rlm_store::{Project, RunEntry};
use rlm_text::bytes::show as size;
use rlm_text::count;
use rlm_text::escape::plain;
use rlm_text::time::utc;
use serde::Serialize;

use crate::hint::program_command;
use crate::hint::quoted;

/// The result of reading every byte of a run's store.
#[derive(Debug, Serialize)]
pub(crate) struct Verified {
    run: String,
    health: StoreHealth,
    files: Vec<Checked>,
    blobs: usize,
    /// The number of damaged files that earlier processes set aside.
    set_aside: usize,
    /// The file and time of its export, if the run was transferred.
    transferred_to: Option<String>,
    transferred_at: Option<String>,
    /// The save from which a resume continues.
    resumes_from: Option<u64>,
    /// The safe next command.
    next: String,
    /// Notes about data loss, now or earlier.
    notes: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum StoreHealth {
    Valid,
    Damaged,
    /// Unknown, because the store can't be read.
    Unreadable,
}

#[derive(Debug, Serialize)]
struct Checked {
    file: String,
    bytes: u64,
    saves: Option<(u64, u64)>,
    condition: &'static str,
    offset: Option<u64>,
    reason: Option<String>,
}

impl Checked {
    fn of(file: File) -> Self {
        let (condition, offset, why) = match file.condition {
            FileCondition::Valid => ("valid", None, None),
            FileCondition::Torn { bytes } => {
                let why = format!(
                    "{bytes} bytes of an incomplete save that was never confirmed, so nothing is lost"
                );
                ("torn", None, Some(why))
            }
            FileCondition::Damaged { offset, reason } => ("damaged", Some(offset), Some(reason)),
            FileCondition::Unreadable(why) => ("unreadable", None, Some(why)),
            other => ("unreadable", None, Some(other.to_string())),
        };
        Self {
            file: file.name,
            bytes: file.bytes,
            saves: file.saves.map(|(first, last)| (first.get(), last.get())),
            condition,
            offset,
            reason: why,
        }
    }
}

impl Verified {
    pub(crate) fn of(project: &Project, run: &RunEntry) -> Self {
        let mut this = Self {
            run: run.id.to_string(),
            health: StoreHealth::Unreadable,
            files: Vec::new(),
            blobs: 0,
            set_aside: 0,
            transferred_to: None,
            transferred_at: None,
            resumes_from: None,
            next: String::new(),
            notes: run.notes.clone(),
        };
        let found = match project.verify(&run.id) {
            Ok(found) => found,
            Err(why) => {
                this.next = format!("fix this first: {why}");
                return this;
            }
        };
        this.files = found.files.into_iter().map(Checked::of).collect();
        (this.blobs, this.set_aside) = (found.blobs, found.set_aside);
        let whole = |file: &Checked| matches!(file.condition, "valid" | "torn");
        let (rlm, id) = (program_command(), &run.id);
        let readable = run.head.as_ref();
        let over = readable.is_ok_and(|it| {
            let end = it.machine.end.as_ref();
            end.is_some_and(|end| end.reason.is_final())
        });
        let dir = project.run_dir(id).display().to_string();
        let copy = format!("cp -a {} {}", quoted(&dir), quoted(&format!("{dir}.copy")));
        let sound = run.loss.is_none()
            && this.files.iter().all(whole)
            && (readable.is_ok() || found.next == NextAction::Start)
            && !matches!(
                found.next,
                NextAction::ResumeOlder { .. } | NextAction::Restore(_)
            );
        this.health = match sound {
            true => StoreHealth::Valid,
            false => StoreHealth::Damaged,
        };
        let moved = readable.ok().and_then(|head| head.transfer.as_ref());
        (this.transferred_to, this.transferred_at) =
            moved.map(|it| (it.to.clone(), utc(it.at))).unzip();
        let work = run.loss.as_ref().filter(|loss| loss.loses_iterations());
        this.next = match (found.next, readable) {
            (NextAction::Start, _) => format!("nothing was saved yet; start a new run: {rlm} run"),
            (NextAction::Wait, _) => {
                "a process works on the run, so this can be normal; verify again after the process has ended"
                    .into()
            }
            (NextAction::Resume { .. } | NextAction::ResumeOlder { .. }, Err(why)) => {
                format!("use the version of rlm that wrote this run, or a newer one, and delete nothing: {why}")
            }
            (NextAction::Resume { .. } | NextAction::ResumeOlder { .. }, Ok(_)) if moved.is_some() => format!(
                "the run was transferred; continue there: {rlm} checkpoints import; to continue it here instead: `{rlm} resume {id} --force`"
            ),
            (NextAction::Resume { seq }, _) if sound && over => {
                format!("nothing to do: the run is finished, with save {seq}")
            }
            (NextAction::Resume { seq } | NextAction::ResumeOlder { seq }, Ok(_)) if work.is_some() => {
                this.resumes_from = Some(seq.get());
                let at = work.map_or(1, |loss| loss.resumes_at);
                format!(
                    "it is safe to resume from the older save {seq}, but the work since then would \
                     run again: `{rlm} resume {id} --from {at}` does that, sets damaged files aside in \
                     quarantine/ and deletes nothing; to keep a copy, first `{copy}`"
                )
            }
            (NextAction::Resume { seq }, _) => {
                this.resumes_from = Some(seq.get());
                format!("it is safe to resume: `{rlm} resume {id}` continues from save {seq}")
            }
            (NextAction::ResumeOlder { seq }, _) => {
                this.resumes_from = Some(seq.get());
                format!(
                    "it is safe to resume, but from the older save {seq}: `{rlm} resume {id}` \
                     sets damaged files aside in quarantine/ and deletes nothing; to keep \
                     a copy, first `{copy}`"
                )
            }
            (NextAction::Restore(why), _) => format!(
                "restore a copy of {dir}, or use a newer version of rlm; delete nothing before that ({why})"
            ),
            (other, _) => other.to_string(),
        };
        this
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.health == StoreHealth::Valid
    }
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = size(self.bytes);
        write!(f, "{}  {size}", self.file)?;
        match self.saves {
            Some((first, last)) if first == last => write!(f, ", save {first}")?,
            Some((first, last)) => write!(f, ", saves {first} to {last}")?,
            None => {}
        }
        let why = self.reason.as_deref().map(plain).unwrap_or_default();
        match (self.condition, self.offset) {
            ("valid", _) => f.write_str(": valid"),
            ("torn", _) => write!(f, ": valid, then {why}"),
            (_, Some(offset)) => write!(f, ": damaged at byte {offset}: {why}"),
            _ => write!(f, ": {why}"),
        }
    }
}

impl fmt::Display for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = format!("{:?}", self.health).to_lowercase();
        write!(f, "{}  {verdict}", plain(&self.run))?;
        for file in &self.files {
            write!(f, "\n  {file}")?;
        }
        if self.blobs > 0 {
            write!(
                f,
                "\n  {} without a checksum",
                count(self.blobs, "blob", "blobs")
            )?;
        }
        if self.set_aside > 0 {
            let files = count(self.set_aside, "damaged file", "damaged files");
            write!(f, "\n  {files} set aside in quarantine/ earlier")?;
        }
        if let (Some(to), Some(at)) = (&self.transferred_to, &self.transferred_at) {
            write!(
                f,
                "\n  transferred to {} at {at}; this copy stayed here",
                plain(to)
            )?;
        }
        for note in &self.notes {
            write!(f, "\n  note: {}", plain(note))?;
        }
        write!(f, "\n  next: {}", plain(&self.next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use checkpoint_store::Seq;

    #[test]
    fn each_condition_has_a_description() {
        let saves = Some((Seq::new(1), Seq::new(5)));
        let file = |name: &str, saves, condition| {
            let mut file = File::new(name, condition);
            (file.bytes, file.saves) = (2000, saves);
            Checked::of(file)
        };
        let (offset, reason) = (77, "wrong checksum".into());
        let newer = "was written as container version 2, this program reads up to 1";
        let verified = Verified {
            run: "first".into(),
            health: StoreHealth::Damaged,
            files: vec![
                file(
                    "phase-5.ckpt",
                    saves.map(|(_, it)| (it, it)),
                    FileCondition::Valid,
                ),
                file("progress-1.ckj", saves, FileCondition::Torn { bytes: 12 }),
                file(
                    "progress-2.ckj",
                    saves,
                    FileCondition::Damaged { offset, reason },
                ),
                file(
                    "progress-3.ckj",
                    None,
                    FileCondition::Unreadable(newer.into()),
                ),
            ],
            blobs: 1,
            set_aside: 2,
            transferred_to: Some("/p/rlm-first.tar.zst".into()),
            transferred_at: Some("2026-11-22T02:00:00Z".into()),
            resumes_from: Some(5),
            next: "look\nhere".into(),
            notes: Vec::new(),
        };
        insta::assert_snapshot!(verified);
    }
}

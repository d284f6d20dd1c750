//! The sessions that an agent keeps in the directory of its run. An archive has the current one, and a fork gets a copy of it.
//!
//! Only an agent that runs inside of `rlm` keeps its sessions there. Each session is a store of its own, and the head has the position in it.

use std::path::{Path, PathBuf};

use agent_drivers::api;
use checkpoint_store::{Options, Seq, reader};
use loop_state::{ForkedSession, Head};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::runs::refuse_damaged;
use crate::{RunHead, state_dir};

/// The directory of the sessions in the directory of a run.
pub(crate) const FOLDER: &str = api::SESSIONS;
/// The largest size of a session's file in an archive, in bytes.
pub(crate) const MAX_BYTES: u64 = 256 << 20;
/// The longest id of a session, in bytes.
const MAX_ID: usize = 64;

/// Returns whether a directory of this name can be a session.
pub(crate) fn is_session(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_lowercase() || byte == b'-';
    (1..=MAX_ID).contains(&id.len()) && id.bytes().all(is_plain)
}

/// Returns the session of the head, if it is in the directory of the run.
pub(crate) fn current<'a>(run_dir: &Path, head: &'a Head) -> Option<&'a str> {
    let id = head.session.as_deref().filter(|id| is_session(id))?;
    state_dir::is_dir(&path(run_dir, id)).then_some(id)
}

/// Does the same as [`copy`]; if the session can't be copied, returns a note for the user.
pub(crate) fn copy_or_note(
    run_dir: &Path,
    head: &RunHead,
    fork_dir: &Path,
) -> (ForkedSession, Option<String>) {
    match copy(run_dir, &head.machine, fork_dir) {
        Ok(session) => (session, None),
        Err(why) => {
            let note = format!(
                "the session of the agent can't be copied ({why}): the fork begins a new one"
            );
            (ForkedSession::None, Some(note))
        }
    }
}

/// Copies the session of a run into the directory of its fork, up to the end of the last turn that this head knows.
///
/// Returns [`ForkedSession::None`] if the agent keeps its session elsewhere, or no turn of the session has ended.
pub(crate) fn copy(run_dir: &Path, head: &Head, fork_dir: &Path) -> Result<ForkedSession, String> {
    let id = head.session.as_deref().filter(|id| is_session(id));
    let (Some(id), Some(position)) = (id, head.session_position) else {
        return Ok(ForkedSession::None);
    };
    let (from, to) = (path(run_dir, id), path(fork_dir, id));
    let why = |error: checkpoint_store::Error| match error.is_not_found() {
        true => "its state of that time does not exist any more".to_owned(),
        false => error.to_string(),
    };
    let kind = reader::load::<IgnoredAny, IgnoredAny>(&from).map_err(why)?;
    let (schema, schema_version) = kind.report.schema.unwrap_or_default();
    let options = Options {
        schema,
        schema_version,
        ..Options::default()
    };
    state_dir::make_private_directory(&fork_dir.join(FOLDER)).map_err(|e| e.to_string())?;
    let copied = checkpoint_store::fork(&from, Seq::new(position), &to, &options)
        .and_then(|_| reader::load_with::<IgnoredAny, IgnoredAny>(&to, &options));
    match copied {
        Ok(copy) => Ok(ForkedSession::Copied {
            position: Some(copy.seq.get()),
        }),
        Err(error) => {
            // Only a whole copy may stay. If this fails, no head names the rest.
            let _stays = state_dir::remove_tree(&to);
            Err(why(error))
        }
    }
}

/// The parts of a session on disk that the loop needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedSession {
    /// The position up to which the session is on disk; 0 if it can't be read.
    pub position: u64,
    /// The ids of the inputs of all its messages, in order.
    pub inputs: Vec<String>,
}

/// A record of a session, as the agent writes it.
#[derive(Deserialize)]
#[serde(untagged)]
enum SavedRecord {
    Message { message: SavedMessage },
    Other(IgnoredAny),
}

#[derive(Deserialize)]
struct SavedMessage {
    #[serde(default)]
    inputs: Vec<String>,
}

/// Reads a session of a run; returns `None` if it does not exist. A process that dies before its first save leaves an empty store, which is no session.
#[must_use]
pub fn read(run_dir: &Path, id: &str) -> Option<SavedSession> {
    let session = is_session(id).then(|| path(run_dir, id))?;
    let loaded = match reader::load::<IgnoredAny, SavedRecord>(session) {
        Ok(loaded) if loaded.report.used.is_none() && loaded.report.is_undamaged() => return None,
        Ok(loaded) => loaded,
        Err(error) if error.is_not_found() => return None,
        Err(_) => return Some(SavedSession::default()),
    };
    let inputs = loaded.events.into_iter().flat_map(|record| match record {
        SavedRecord::Message { message } => message.inputs,
        SavedRecord::Other(_) => Vec::new(),
    });
    Some(SavedSession {
        position: loaded.seq.get(),
        inputs: inputs.collect(),
    })
}

/// Returns whether the directory of an imported run has the session of its head; an error if that session is damaged.
pub(crate) fn has_session(run_dir: &Path, head: &Head) -> Result<bool, String> {
    match current(run_dir, head) {
        Some(id) => refuse_damaged(&path(run_dir, id)).map(|()| true),
        None => Ok(false),
    }
}

fn path(run_dir: &Path, id: &str) -> PathBuf {
    run_dir.join(FOLDER).join(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use checkpoint_store::Writer;
    use loop_state::{PhaseRules, Rules};

    type Log = Writer<u32, String>;

    fn log(dir: &Path) -> (Log, Vec<String>) {
        let options = Options {
            schema: "a kind".to_owned(),
            ..Options::default()
        };
        let (writer, loaded) = Log::open(dir, options).unwrap();
        (writer, loaded.events)
    }

    fn head(session: &str, position: Option<u64>) -> Head {
        let phase = PhaseRules {
            has_check: true,
            ..PhaseRules::default()
        };
        let rules = Rules {
            phases: vec![phase],
            ..Rules::default()
        };
        let mut head = Head::new(rules).unwrap();
        (head.session, head.session_position) = (Some(session.to_owned()), position);
        head
    }

    #[test]
    fn a23_copy_of_an_open_session_ends_at_the_position_of_the_head() {
        let (run, fork) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (mut open, _) = log(&path(run.path(), "1-1"));
        let saves = ["a", "b", "c"].map(|text| open.append(&0, &[text.to_owned()]).unwrap());
        let head = head("1-1", Some(saves[1].get()));
        let position = |dir: &Path| read(dir, "1-1").map(|session| session.position);
        assert_eq!(position(run.path()), Some(saves[2].get()));
        let copied = copy(run.path(), &head, fork.path()).unwrap();
        let (mut copy, events) = log(&path(fork.path(), "1-1"));
        assert_eq!(events, ["a", "b"]);
        let expected = ForkedSession::Copied {
            position: Some(copy.seq().get()),
        };
        assert_eq!(copied, expected);
        // Neither has what the other one adds.
        open.append(&0, &["d".to_owned()]).unwrap();
        copy.append(&0, &["e".to_owned()]).unwrap();
        drop((open, copy));
        assert_eq!(log(&path(run.path(), "1-1")).1, ["a", "b", "c", "d"]);
        assert_eq!(log(&path(fork.path(), "1-1")).1, ["a", "b", "e"]);
    }

    #[test]
    fn a6_session_without_a_save_does_not_exist() {
        let run = tempfile::tempdir().unwrap();
        let session = path(run.path(), "1-1");
        fs_err::create_dir_all(&session).unwrap();
        assert_eq!(read(run.path(), "1-1"), None);
        // The writer has opened the store, and has not saved.
        drop(log(&session));
        assert_eq!(read(run.path(), "1-1"), None);
        let damaged = "progress-00000001-0000000000000000.ckj";
        fs_err::write(session.join(damaged), "no journal").unwrap();
        assert_eq!(read(run.path(), "1-1"), Some(SavedSession::default()));
    }

    #[test]
    fn sessions_elsewhere_are_not_copied() {
        let (run, fork) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        drop(log(&path(run.path(), "1-1")));
        for head in [
            head("1-1", None),
            head("../1-1", Some(1)),
            head("", Some(1)),
        ] {
            let copied = copy(run.path(), &head, fork.path());
            assert_eq!(copied, Ok(ForkedSession::None));
        }
        assert!(fs_err::read_dir(fork.path()).unwrap().next().is_none());
    }

    #[test]
    fn session_without_the_state_of_that_time_leaves_no_copy() {
        let (run, fork) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (mut open, _) = log(&path(run.path(), "1-1"));
        open.append(&0, &["a".to_owned()]).unwrap();
        for (head, expected) in [
            (
                head("1-1", Some(9)),
                "its state of that time does not exist",
            ),
            (
                head("2-1", Some(1)),
                "its state of that time does not exist",
            ),
        ] {
            let why = copy(run.path(), &head, fork.path()).unwrap_err();
            assert!(why.contains(expected), "{why}");
            assert_eq!(read(fork.path(), "1-1"), None);
            assert!(!path(fork.path(), head.session.as_ref().unwrap()).exists());
        }
    }
}

//! The special cases of Gemini CLI: its exit codes, and a new name for the file of a session, so that a resume does not lose the session.
//!
//! The CLI (as of 0.61.0) stores a session in a file. The name of the file has the minute in which the record begins, and the beginning of the
//! session's id. When the CLI loads a session, it first begins a new record. If the session itself began in the same minute, the new record
//! overwrites its file, and the session is lost. In a later minute, the new record is an empty file. At its next start the CLI deletes that file,
//! together with all files that have the same id in their names. But the CLI finds sessions by the content of their files. So it finds a renamed
//! file, and neither overwrites nor deletes it.

use agent_duplex::{EndReason, ExitStatus};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The name of the program of Gemini CLI.
pub(crate) const NAME: &str = "gemini";

/// The number of id characters in the name of a file.
const ID_PREFIX: usize = 8;

/// Returns the meaning of an exit code; `None` for a code that only reports a failure.
pub(crate) fn exit_code(exit: Option<ExitStatus>) -> Option<(EndReason, String)> {
    let Some(ExitStatus::Code(code)) = exit else {
        return None;
    };
    let (reason, meaning) = match code {
        42 => (EndReason::Failed, "the agent refused its input"),
        53 => (EndReason::MaxTurns, "raise its limit, or split the task"),
        _ => return None,
    };
    Some((reason, format!("{meaning} (exit status {code})")))
}

/// Renames the file of a session, unless it was already renamed. `home` is the directory with the CLI's folder; missing folders and files are no
/// error.
pub(super) fn protect_session_file(home: &Path, id: &str) -> io::Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric();
    let Some(short) = id
        .get(..ID_PREFIX)
        .filter(|short| short.chars().all(is_plain))
    else {
        return Ok(());
    };
    let begun = format!("-{short}.jsonl");
    for project in entries(&home.join(".gemini").join("tmp"))? {
        let chats = project.join("chats");
        let kept = chats.join(format!("session-0-{short}k.jsonl"));
        let is_record = |file: &PathBuf| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("session-") && name.ends_with(&begun)
        };
        // The oldest record is the session. The CLI created the later ones when it loaded the session.
        if let Some(record) = entries(&chats)?.into_iter().filter(is_record).min()
            && !kept.exists()
        {
            fs::rename(record, kept)?;
        }
    }
    Ok(())
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(Vec::new())
        }
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_record_of_a_session_gets_its_own_name_once() {
        let home = tempfile::tempdir().unwrap();
        let id = "4b4cc8ec-7dc4-45b3-b610-95d59aa55516";
        protect_session_file(home.path(), id).unwrap();
        let chats = home.path().join(".gemini/tmp/repo/chats");
        fs::create_dir_all(&chats).unwrap();
        fs::write(home.path().join(".gemini/tmp/a-file"), "").unwrap();
        let record = |minute: &str, id: &str| format!("session-2026-11-21T16-{minute}-{id}.jsonl");
        let write = |name: &str| fs::write(chats.join(name), name).unwrap();
        let other = record("33", "00000000");
        let (first, second) = (record("34", "4b4cc8ec"), record("40", "4b4cc8ec"));
        for name in [&other, &second, &first] {
            write(name);
        }
        let names = || {
            let files = entries(&chats).unwrap().into_iter();
            let mut names: Vec<_> = { files.map(|file| file.file_name().unwrap().to_owned()) }
                .map(|name| name.into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        protect_session_file(home.path(), "short").unwrap();
        protect_session_file(home.path(), "../../..").unwrap();
        assert_eq!(names(), [&*other, &first, &second]);
        let kept = "session-0-4b4cc8eck.jsonl";
        for _ in 0..2 {
            protect_session_file(home.path(), id).unwrap();
            assert_eq!(names(), [kept, &other, &second]);
            assert_eq!(fs::read_to_string(chats.join(kept)).unwrap(), first);
        }
    }
}

//! The manifest of an archive, and the rules for an archive's files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use loop_state::Timestamp;
use serde::{Deserialize, Serialize};

use crate::RunId;
use crate::git::is_object_name;
pub(super) use crate::git::own_files::MANIFEST as NAME;
use crate::run_head::is_random_name;
use crate::sessions;
use crate::settings::MAX_PROMPT;

/// The archive format that this version writes and reads.
pub(super) const FORMAT: u32 = 1;
/// The name of the git bundle.
pub(super) const BUNDLE: &str = "git.bundle";
/// The largest size of a manifest in bytes.
pub(super) const MAX_BYTES: u64 = 16 << 20;
/// The largest total size of the files in a manifest, in bytes.
const MAX_TOTAL: u64 = 16 << 30;
/// The largest size of a store file in bytes: more than any run of this program saves in one file.
const MAX_STORE: u64 = 64 << 20;

/// The first file of an archive: the list of the other files, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) format: u32,
    /// The version of the program that wrote the archive.
    pub(super) version: String,
    pub(super) run: RunId,
    pub(super) created: Timestamp,
    /// The number of the run's transfers, including this one.
    pub(super) transfers: u32,
    /// Whether the run also continues at its origin.
    pub(super) copy: bool,
    /// The paths of the project and of the run's working tree at the origin.
    pub(super) root: String,
    pub(super) tree: String,
    /// The git position of the files; `None` for a run outside git.
    pub(super) git: Option<GitTip>,
    pub(super) files: Vec<ArchiveEntry>,
}

/// The git position of a run's files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GitTip {
    pub(super) commit: String,
    pub(super) branch: Option<String>,
    /// The commit with the uncommitted changes, on top of `commit`.
    pub(super) dirty: Option<String>,
    /// The prefix of both names in the bundle.
    pub(super) refs: String,
}

/// A file of an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ArchiveEntry {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) crc32c: u32,
}

impl Manifest {
    /// Parses a manifest, and returns an error if no export could have written it.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct FormatOnly {
            format: u32,
        }
        let broken = |e: serde_json::Error| format!("invalid manifest: {e}");
        let FormatOnly { format } = serde_json::from_slice(text).map_err(broken)?;
        if format != FORMAT {
            return Err(format!(
                "the archive has format {format}, and this version reads format {FORMAT}: use the version that wrote the archive, or a newer one"
            ));
        }
        let this: Self = serde_json::from_slice(text).map_err(broken)?;
        this.check()?;
        Ok(this)
    }

    fn check(&self) -> Result<(), String> {
        let mut names = BTreeSet::new();
        let mut total: u64 = 0;
        for entry in &self.files {
            let shown = || entry.name.escape_debug().take(80).collect::<String>();
            if path_in_run(&entry.name).is_none() {
                return Err(format!("invalid file name `{}` in the manifest", shown()));
            }
            if !names.insert(&entry.name) {
                return Err(format!("`{}` is in the manifest twice", shown()));
            }
            let most = max_bytes(&entry.name);
            if entry.bytes > most {
                return Err(format!(
                    "the manifest has {} bytes for `{}`, and the limit is {most}",
                    entry.bytes,
                    shown()
                ));
            }
            total = total.saturating_add(entry.bytes);
        }
        if total > MAX_TOTAL {
            return Err(format!(
                "the manifest has {total} bytes, and the limit is {MAX_TOTAL}: export with --state-only, and clone the repository"
            ));
        }
        let sessions: BTreeSet<_> = self.sessions().collect();
        if sessions.len() > 1 {
            return Err(format!(
                "the manifest has files of {} sessions, and a run has one; export the run again with this version",
                sessions.len()
            ));
        }
        let Some(git) = &self.git else {
            return match names.iter().any(|name| *name == BUNDLE) {
                true => Err("the manifest has a git bundle without a commit".into()),
                false => Ok(()),
            };
        };
        let hashes = std::iter::once(&git.commit).chain(&git.dirty);
        if !hashes.into_iter().all(|hash| is_object_name(hash)) || !is_random_name(&git.refs) {
            return Err("invalid commit id in the manifest".into());
        }
        match git.branch.as_deref().is_none_or(is_branch) {
            true => Ok(()),
            false => Err("invalid branch name in the manifest".into()),
        }
    }

    /// Returns the total size of the files.
    pub(super) fn total(&self) -> u64 {
        self.files.iter().map(|entry| entry.bytes).sum()
    }

    /// Returns the session of each file that belongs to one.
    pub(super) fn sessions(&self) -> impl Iterator<Item = &str> {
        { self.files.iter() }.filter_map(|entry| session_of(&entry.name))
    }

    pub(super) fn has_bundle(&self) -> bool {
        self.files.iter().any(|entry| entry.name == BUNDLE)
    }
}

/// Returns the largest size of a file with this name, in bytes.
pub(super) fn max_bytes(name: &str) -> u64 {
    match name.rsplit_once('/') {
        Some(("store/blobs", _)) => MAX_PROMPT,
        Some(("store", _)) => MAX_STORE,
        _ if session_of(name).is_some() => sessions::MAX_BYTES,
        _ => MAX_TOTAL,
    }
}

/// Returns the path of an archive's file in the directory of a run; `None` for an invalid name.
pub(super) fn path_in_run(name: &str) -> Option<PathBuf> {
    if name == BUNDLE {
        return Some(name.into());
    }
    let (folder, file) = name.rsplit_once('/')?;
    let is_good = match folder {
        "store" => is_of_store(file),
        "store/blobs" => checkpoint_store::check_name(file).is_ok(),
        "transcripts" => is_transcript(file) || file == "removed.json",
        _ => session_of(name).is_some_and(sessions::is_session) && is_of_store(file),
    };
    let folder = folder.strip_prefix("store").unwrap_or(folder);
    is_good.then(|| Path::new(folder.trim_start_matches('/')).join(file))
}

/// Returns the session to which an archive's file of this name belongs.
pub(super) fn session_of(name: &str) -> Option<&str> {
    let (folder, _) = name.rsplit_once('/')?;
    folder.strip_prefix(sessions::FOLDER)?.strip_prefix('/')
}

/// Returns whether a file with this name in the directory of a run is part of its store.
pub(super) fn is_of_store(file: &str) -> bool {
    let plain = |c: char| c.is_ascii_hexdigit() && !c.is_ascii_uppercase() || c == '-';
    let middle = |start: &str, end: &str| {
        let middle = file.strip_prefix(start).and_then(|it| it.strip_suffix(end));
        middle.is_some_and(|it| (1..=64).contains(&it.len()) && it.chars().all(plain))
    };
    middle("phase-", ".ckpt") || middle("progress-", ".ckj") || middle("epoch-", "")
}

/// Returns whether a file with this name is the transcript of an attempt.
pub(super) fn is_transcript(file: &str) -> bool {
    let stem = file.strip_suffix(".zst").unwrap_or(file);
    let stem = stem
        .strip_suffix(".ndjson")
        .and_then(|it| it.split_once('-'));
    let number = |text: &str| text.parse::<u32>().is_ok_and(|n| n.to_string() == text);
    stem.is_some_and(|(iteration, attempt)| number(iteration) && number(attempt))
}

/// Returns whether a text may be a branch name; git makes the final decision.
fn is_branch(text: &str) -> bool {
    let bad = |c: char| c.is_control() || " ~^:?*[\\".contains(c);
    let part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && !part.ends_with(".lock")
            && !part.ends_with('.')
    };
    (1..=200).contains(&text.len())
        && !text.starts_with('-')
        // Git reads these as the current commit.
        && !matches!(text, "HEAD" | "@")
        && !text.contains(bad)
        && !text.contains("..")
        && !text.contains("@{")
        && text.split('/').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Component;

    fn manifest() -> Manifest {
        let entry = |name: &str| ArchiveEntry {
            name: name.into(),
            bytes: 7,
            crc32c: 1,
        };
        Manifest {
            format: FORMAT,
            version: "0.1.0".into(),
            run: "r1".parse().unwrap(),
            created: Timestamp::from_millis(1),
            transfers: 1,
            copy: false,
            root: "/old".into(),
            tree: "/old".into(),
            git: Some(GitTip {
                commit: "a".repeat(40),
                branch: Some("main".into()),
                dirty: None,
                refs: "0".repeat(32),
            }),
            files: vec![
                entry("store/progress-00000001-0000000000000000.ckj"),
                entry("store/blobs/prompt-1"),
                entry("transcripts/1-1.ndjson.zst"),
                entry("sessions/1-1/progress-00000001-0000000000000000.ckj"),
                entry(BUNDLE),
            ],
        }
    }

    /// A new, changed or removed key needs a decision, because another version reads the manifest, and knows the differences only by the format
    /// number.
    #[test]
    fn archive_manifest_keys_snapshot() {
        let mut manifest = manifest();
        manifest.files.truncate(1);
        let git = manifest.git.as_mut().unwrap();
        (git.commit, git.dirty) = ("a".into(), Some("b".into()));
        insta::assert_snapshot!(serde_json::to_string(&manifest).unwrap(), @r#"{"format":1,"version":"0.1.0","run":"r1","created":1,"transfers":1,"copy":false,"root":"/old","tree":"/old","git":{"commit":"a","branch":"main","dirty":"b","refs":"00000000000000000000000000000000"},"files":[{"name":"store/progress-00000001-0000000000000000.ckj","bytes":7,"crc32c":1}]}"#);
    }

    fn refused(change: impl FnOnce(&mut Manifest)) -> String {
        let mut manifest = manifest();
        change(&mut manifest);
        let text = serde_json::to_vec(&manifest).unwrap();
        Manifest::parse(&text).unwrap_err()
    }

    #[test]
    fn x112e_a_manifest_that_no_export_writes_is_refused() {
        let text = serde_json::to_vec(&manifest()).unwrap();
        assert_eq!(Manifest::parse(&text).unwrap(), manifest());
        for name in [
            "sessions/progress-00000001-0000000000000000.ckj",
            "sessions//progress-00000001-0000000000000000.ckj",
            "sessions/../progress-00000001-0000000000000000.ckj",
            "sessions/1/1/progress-00000001-0000000000000000.ckj",
            "sessions/1-1/LOCK",
            "sessions/1-1/blobs",
            "sessionsprogress-00000001-0000000000000000.ckj",
        ] {
            let refused = refused(|it| it.files[0].name = name.into());
            assert!(refused.contains("invalid file name"), "{name}: {refused}");
        }
        let planted = "sessions/2-1/progress-00000001-0000000000000000.ckj";
        let two = refused(|it| it.files[0].name = planted.into());
        assert!(two.contains("files of 2 sessions"), "{two}");
        let large = |it: &mut Manifest| it.files[3].bytes = sessions::MAX_BYTES + 1;
        assert!(refused(large).contains("the limit is"));
        for (why, refused) in [
            ("has format 2", refused(|it| it.format = 2)),
            (
                "invalid file name",
                refused(|it| it.files[0].name = "../x".into()),
            ),
            ("twice", refused(|it| it.files.push(it.files[0].clone()))),
            ("the limit is", refused(|it| it.files[0].bytes = u64::MAX)),
            (
                "commit id",
                refused(|it| it.git.as_mut().unwrap().commit = "--all".into()),
            ),
            (
                "branch name",
                refused(|it| it.git.as_mut().unwrap().branch = Some("-x".into())),
            ),
            ("without a commit", refused(|it| it.git = None)),
        ] {
            assert!(refused.contains(why), "{refused}");
        }
        for name in ["HEAD", "@"] {
            let refused = refused(|it| it.git.as_mut().unwrap().branch = Some(name.into()));
            assert!(refused.contains("branch name"), "{refused}");
        }
        let text = String::from_utf8(text)
            .unwrap()
            .replace("\"r1\"", "\"../r1\"");
        assert!(
            Manifest::parse(text.as_bytes())
                .unwrap_err()
                .contains("is not a run id")
        );
    }

    proptest! {
        /// Each valid name of an archive's file is a path in the directory of the run, at the place of such a file.
        #[test]
        fn x112e_no_name_leads_out_of_the_run(name in "(store/|store/blobs/|transcripts/|sessions/|sessions/1-1/|/|\\./)?(\\PC|[./\\\\]){0,40}") {
            if let Some(place) = path_in_run(&name) {
                let parts: Vec<_> = place.components().collect();
                prop_assert!(parts.iter().all(|part| matches!(part, Component::Normal(_))), "{place:?}");
                prop_assert!(parts.len() <= 3);
                prop_assert!(!place.ends_with("LOCK"));
            }
        }
    }
}

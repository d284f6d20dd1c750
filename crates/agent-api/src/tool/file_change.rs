//! The change of one file. After a crash, the digests of the contents before and after show whether it was made.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;

use ring::digest::{Context, SHA256};
use rustix::fs::{AtFlags, Mode, OFlags, linkat, openat, renameat, unlinkat};
#[cfg(target_os = "linux")]
use rustix::{
    fs::{RenameFlags, renameat_with},
    io::Errno,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::context::{FileStamp, SeenFiles};
use super::no_links::{self, MissingDirectory};
use super::{WorkingDirectory, plain_file};
use crate::history::FileIntent;

/// The largest file that can be changed, in bytes.
pub(super) const MAX_BYTES: u64 = 32 << 20;

/// A change of one file that is not made yet.
#[derive(Clone, Debug)]
pub struct FileChange {
    path: PathBuf,
    /// The contents before, or `None` if there is no file.
    before: Option<String>,
    contents: Vec<u8>,
    /// The result of the call, if the change is made.
    done: String,
    /// The files that the model knows.
    seen: Option<Arc<SeenFiles>>,
}

/// The state of a saved change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeState {
    /// The file has the contents after the change.
    Made,
    /// The file has the contents before the change.
    NotMade,
    /// The file has other contents.
    Unknown,
}

impl FileChange {
    /// Prepares to write `contents` to a file that has the contents `before`; `None` if there is no file. `done` is the result for the model.
    ///
    /// `path` must contain no link, as a path of [`WorkingDirectory::resolve`]. The change follows none.
    #[must_use]
    pub fn new(
        path: impl Into<PathBuf>,
        before: Option<&[u8]>,
        contents: impl Into<Vec<u8>>,
        done: impl Into<String>,
    ) -> Self {
        Self {
            path: path.into(),
            before: before.map(digest),
            contents: contents.into(),
            done: done.into(),
            seen: None,
        }
    }

    /// Records after the change that the model knows the file.
    pub(super) fn known_in(self, seen: &Arc<SeenFiles>) -> Self {
        Self {
            seen: Some(seen.clone()),
            ..self
        }
    }

    /// Returns what is saved before the change is made.
    pub(crate) fn intent(&self, directory: &WorkingDirectory) -> FileIntent {
        FileIntent {
            path: directory.shown(&self.path),
            before: self.before.clone(),
            after: digest(&self.contents),
        }
    }

    /// Makes the change: a new file takes the place of the old one, so there is no moment with half of it. Missing directories are made. Returns the
    /// result for the model.
    ///
    /// # Errors
    ///
    /// A message for the model: the file changed since the call was prepared, or it can't be written. The file is unchanged then.
    pub fn make(self) -> Result<String, String> {
        self.make_unless(&CancellationToken::new())
    }

    /// Returns whether the file is in the directory.
    pub(crate) fn is_inside(&self, directory: &WorkingDirectory) -> bool {
        self.path.starts_with(directory.path())
    }

    /// Makes the change, unless it is cancelled before the new file takes the place of the old one.
    pub(crate) fn make_unless(self, cancel: &CancellationToken) -> Result<String, String> {
        let shown = self.path.display().to_string();
        let failed = |what: &str, error: &io::Error| format!("{shown} can't be {what}: {error}");
        let opened = no_links::parent(&self.path, MissingDirectory::Make);
        let (parent, name) = opened.map_err(|error| failed("written", &error))?;
        let current = plain_file::open_in(&parent, name).and_then(digest_of);
        let current = current.map_err(|error| failed("read", &error))?;
        if current != self.before {
            return Err(format!(
                "{shown} was changed by another program; read it again"
            ));
        }
        let stamp = { self.replace(parent.as_fd(), name, cancel) }
            .map_err(|error| failed("written", &error))?;
        if let Some(seen) = &self.seen {
            seen.record(&self.path, stamp);
        }
        Ok(self.done)
    }

    fn replace(
        &self,
        parent: BorrowedFd<'_>,
        name: &OsStr,
        cancel: &CancellationToken,
    ) -> io::Result<FileStamp> {
        let old = plain_file::open_in(parent, name)?;
        let mut new = NewFile::create(parent)?;
        new.file.write_all(&self.contents)?;
        if let Some(old) = old {
            let mode = old.metadata()?.permissions();
            new.file.set_permissions(mode)?;
        }
        new.file.sync_data()?;
        if cancel.is_cancelled() {
            return Err(io::Error::other("interrupted by the user"));
        }
        match self.before {
            Some(_) => new.replace(name),
            None => new.add(name),
        }
    }
}

/// A new file under a name of its own. Dropping it removes this name.
struct NewFile<'a> {
    parent: BorrowedFd<'a>,
    name: String,
    file: File,
}

impl<'a> NewFile<'a> {
    fn create(parent: BorrowedFd<'a>) -> io::Result<Self> {
        let name = format!(".agent-api-{}", Uuid::new_v4());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        // The mode is that of a new file of any other program.
        let file = openat(parent, &name, flags, Mode::from_raw_mode(0o666))?;
        Ok(Self {
            parent,
            name,
            file: file.into(),
        })
    }

    /// Replaces another file.
    fn replace(self, name: &OsStr) -> io::Result<FileStamp> {
        renameat(self.parent, &self.name, self.parent, name)?;
        Ok(FileStamp::of(&self.file.metadata()?))
    }

    /// Takes a name, unless another file has it.
    fn add(self, name: &OsStr) -> io::Result<FileStamp> {
        #[cfg(target_os = "linux")]
        match renameat_with(
            self.parent,
            &self.name,
            self.parent,
            name,
            RenameFlags::NOREPLACE,
        ) {
            // The file system can't.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
            renamed => {
                renamed?;
                return Ok(FileStamp::of(&self.file.metadata()?));
            }
        }
        linkat(self.parent, &self.name, self.parent, name, AtFlags::empty())?;
        Ok(FileStamp::of(&self.file.metadata()?))
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        // It fails if the file has its place.
        let _gone = unlinkat(self.parent, &self.name, AtFlags::empty());
    }
}

/// Compares the file of a saved change with its digests.
pub(crate) fn change_state(intent: &FileIntent, directory: &WorkingDirectory) -> ChangeState {
    let file = plain_file::open(&directory.path().join(&intent.path));
    match file.and_then(digest_of) {
        Ok(Some(digest)) if digest == intent.after => ChangeState::Made,
        Ok(digest) if digest == intent.before => ChangeState::NotMade,
        Ok(_) | Err(_) => ChangeState::Unknown,
    }
}

/// Returns the digest of a file; `None` if there is none.
fn digest_of(file: Option<File>) -> io::Result<Option<String>> {
    let Some(file) = file else {
        return Ok(None);
    };
    let mut context = Context::new(&SHA256);
    let mut file = file.take(MAX_BYTES + 1);
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            read => context.update(&buffer[..read]),
        }
    }
    match file.limit() {
        0 => Err(io::Error::from(io::ErrorKind::FileTooLarge)),
        _ => Ok(Some(hex(context.finish().as_ref()))),
    }
}

fn digest(bytes: &[u8]) -> String {
    hex(ring::digest::digest(&SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;

    #[test]
    fn a6_saved_change_tells_after_a_crash_whether_it_was_made() {
        let dir = tempfile::tempdir().unwrap();
        let directory = WorkingDirectory::new(dir.path()).unwrap();
        for before in [None, Some(b"old".as_slice())] {
            let path = { directory.path() }.join(format!("{}", before.is_some()));
            if let Some(before) = before {
                std::fs::write(&path, before).unwrap();
            }
            let change = FileChange::new(&path, before, "new", "done");
            let saved = serde_json::to_string(&change.intent(&directory)).unwrap();
            let intent: FileIntent = serde_json::from_str(&saved).unwrap();
            let state = || change_state(&intent, &directory);
            assert_eq!(state(), ChangeState::NotMade);
            assert_eq!(change.clone().make().unwrap(), "done");
            assert_eq!(state(), ChangeState::Made);
            std::fs::write(&path, "a person's text").unwrap();
            assert_eq!(state(), ChangeState::Unknown);
            let refused = change.make().unwrap_err();
            assert!(
                refused.contains("was changed by another program"),
                "{refused}"
            );
            assert_eq!(std::fs::read(&path).unwrap(), b"a person's text");
        }
    }

    #[test]
    fn change_keeps_the_mode_and_makes_directories() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        std::fs::write(&script, "old").unwrap();
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
        FileChange::new(&script, Some(b"old"), "new", "")
            .make()
            .unwrap();
        assert_eq!(
            script.metadata().unwrap().permissions().mode() & 0o777,
            0o755
        );

        let deep = dir.path().join("a/b/c");
        FileChange::new(&deep, None, "new", "").make().unwrap();
        let plain = dir.path().join("plain");
        std::fs::write(&plain, "").unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode();
        assert_eq!(mode(&deep), mode(&plain), "as a file of any other program");
        let files = std::fs::read_dir(dir.path()).unwrap();
        assert_eq!(files.count(), 3, "no temporary file is left");
    }

    #[test]
    fn change_of_what_is_no_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let refused = FileChange::new(dir.path(), None, "new", "")
            .make()
            .unwrap_err();
        assert!(refused.contains("is a directory"), "{refused}");
        let below = dir.path().join("file/below");
        std::fs::write(dir.path().join("file"), "").unwrap();
        assert!(FileChange::new(below, None, "new", "").make().is_err());
    }
}

//! Files that only their owner may read, such as a prompt for a program. This module also opens files that a program can have replaced: it follows no
//! link, waits for no FIFO and opens no device.

use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat};
use rustix::io::Errno;

/// The symbolic links that are allowed in a path. The last component must never be a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SymlinkPolicy {
    /// Links in the directories above the file.
    Above,
    /// No links: the path was resolved before.
    None,
}

/// Opens a regular file; creates it with mode 0600.
pub(crate) fn open(path: &Path, flags: OFlags, links: SymlinkPolicy) -> io::Result<File> {
    let Some(name) = path.file_name() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let directory = directory(path.parent().unwrap_or(path), links)?;
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(&directory, name, flags, Mode::RUSR | Mode::WUSR)?;
    let mode = rustix::fs::fstat(&file)?.st_mode;
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => Ok(file.into()),
        _ => Err(io::Error::other("not a regular file; move it away")),
    }
}

/// Opens a directory as the base of relative paths.
pub(crate) fn directory(path: &Path, links: SymlinkPolicy) -> io::Result<OwnedFd> {
    let enter = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // Passing through a directory requires no permission to list it.
    #[cfg(target_os = "linux")]
    let enter = enter | OFlags::PATH;
    if links == SymlinkPolicy::Above {
        return Ok(rustix::fs::open(path, enter, Mode::empty())?);
    }
    let mut directory = rustix::fs::open("/", enter, Mode::empty())?;
    for component in path.components().skip(1) {
        let enter = enter | OFlags::NOFOLLOW;
        directory = openat(&directory, component.as_os_str(), enter, Mode::empty())?;
    }
    Ok(directory)
}

/// A file that only its owner may read. Dropping it removes the file.
#[derive(Debug)]
pub struct ScratchFile {
    path: PathBuf,
    directory: OwnedFd,
}

impl ScratchFile {
    /// Writes a new file of mode 0600 whose name begins with `what` and ends with `extension`. Creates the directory `scratch` with mode 0700 if it
    /// is missing. The path is absolute, because the program has its own working directory.
    ///
    /// # Errors
    /// Fails if the directory cannot be created or the file cannot be written.
    pub fn write(scratch: &Path, what: &str, extension: &str, bytes: &[u8]) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(scratch)?;
        // The path is resolved here and contains no link. A link that is planted later is not followed.
        let above = std::fs::canonicalize(scratch.parent().unwrap_or(scratch))?;
        let scratch = match scratch.file_name() {
            Some(name) => above.join(name),
            None => above,
        };
        let directory = directory(&scratch, SymlinkPolicy::None)?;
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("{what}-{}-{number}.{extension}", std::process::id());
            let path = scratch.join(&name);
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            match rustix::fs::openat(&directory, &name, flags, Mode::RUSR | Mode::WUSR) {
                // A host with the same pid was killed and left this file.
                Err(Errno::EXIST) => {}
                file => {
                    let mut file = File::from(file?);
                    let scratch = ScratchFile { path, directory };
                    file.write_all(bytes)?;
                    return Ok(scratch);
                }
            }
        }
    }

    /// Returns the absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        // The program can have removed the file already. Another failure can't be handled in a drop.
        let name = self.path.file_name().unwrap_or_default();
        let _gone = rustix::fs::unlinkat(&self.directory, name, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn h2_links_pipes_and_devices_are_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let top = std::fs::canonicalize(dir.path()).unwrap();
        let other = top.join("other");
        std::fs::create_dir(&other).unwrap();
        std::fs::write(other.join("file"), "precious").unwrap();
        symlink(&other, top.join("linked")).unwrap();
        symlink(other.join("file"), top.join("file")).unwrap();
        symlink("/dev/zero", top.join("zero")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, top.join("fifo"), Mode::RWXU).unwrap();
        let append = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
        for name in ["file", "zero", "fifo", "linked/file", "linked/new"] {
            open(&top.join(name), append, SymlinkPolicy::None).unwrap_err();
        }
        for name in ["file", "zero", "fifo"] {
            open(&top.join(name), OFlags::RDONLY, SymlinkPolicy::Above).unwrap_err();
        }
        open(
            &top.join("linked/file"),
            OFlags::RDONLY,
            SymlinkPolicy::Above,
        )
        .unwrap();
        open(&other.join("new"), append, SymlinkPolicy::None).unwrap();
        assert!(other.join("new").exists());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn h2_survivor_report_is_not_written_through_a_hard_link() {
        let dir = tempfile::tempdir().unwrap();
        let top = std::fs::canonicalize(dir.path()).unwrap();
        let (precious, report) = (top.join("precious"), top.join("survivors"));
        std::fs::write(&precious, "precious").unwrap();
        std::fs::hard_link(&precious, &report).unwrap();
        let new = crate::sweep::SweepReport::default();
        new.append(&report).unwrap_err();
        assert_eq!(std::fs::read(&precious).unwrap(), b"precious");
        std::fs::remove_file(&report).unwrap();
        new.append(&report).unwrap();
    }
}

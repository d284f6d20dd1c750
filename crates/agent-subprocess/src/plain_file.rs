//! Opening a file that an agent may have replaced: no link in its place is followed, no FIFO waited for, no device opened.

use rustix::fs::{FileType, Mode, OFlags, openat};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Which links may be on the way to a file. Its own name is never one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// Those of the directories above it.
    Above,
    /// None: the path was resolved before.
    None,
}

/// Opens a regular file; a new one has mode 0600.
pub(crate) fn open(path: &Path, flags: OFlags, links: Links) -> io::Result<File> {
    let Some(name) = path.file_name() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let directory = directory(path.parent().unwrap_or(path), links)?;
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(&directory, name, flags, Mode::RUSR | Mode::WUSR)?;
    let mode = rustix::fs::fstat(&file)?.st_mode;
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => Ok(file.into()),
        _ => Err(io::Error::other("it is not a regular file; move it away")),
    }
}

/// Opens a directory to find names in it.
pub(crate) fn directory(path: &Path, links: Links) -> io::Result<OwnedFd> {
    let enter = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // To pass through a directory needs no right to list it.
    #[cfg(target_os = "linux")]
    let enter = enter | OFlags::PATH;
    if links == Links::Above {
        return Ok(rustix::fs::open(path, enter, Mode::empty())?);
    }
    let mut directory = rustix::fs::open("/", enter, Mode::empty())?;
    for component in path.components().skip(1) {
        let enter = enter | OFlags::NOFOLLOW;
        directory = openat(&directory, component.as_os_str(), enter, Mode::empty())?;
    }
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

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
            open(&top.join(name), append, Links::None).unwrap_err();
        }
        for name in ["file", "zero", "fifo"] {
            open(&top.join(name), OFlags::RDONLY, Links::Above).unwrap_err();
        }
        open(&top.join("linked/file"), OFlags::RDONLY, Links::Above).unwrap();
        open(&other.join("new"), append, Links::None).unwrap();
        assert!(other.join("new").exists());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn h2_a_report_of_survivors_is_not_written_to_a_second_name() {
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

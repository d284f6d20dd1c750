//! Files that an agent reads and nobody else may: a prompt, a configuration with secrets in it.

use crate::plain_file::{self, Links};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A file that only its owner may read. Dropping it removes the file.
#[derive(Debug)]
pub struct ScratchFile {
    path: PathBuf,
    directory: OwnedFd,
}

impl ScratchFile {
    /// Writes a new file of mode 0600 whose name begins with `what` and ends with `extension`. Makes the directory `scratch`
    /// with mode 0700 if it is missing. The path is absolute, because the agent has a working directory of its own.
    ///
    /// # Errors
    /// When the directory cannot be made or the file cannot be written.
    pub fn write(scratch: &Path, what: &str, extension: &str, bytes: &[u8]) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(scratch)?;
        // Nothing below is a link by now; one that is planted later is not followed.
        let above = std::fs::canonicalize(scratch.parent().unwrap_or(scratch))?;
        let scratch = match scratch.file_name() {
            Some(name) => above.join(name),
            None => above,
        };
        let directory = plain_file::directory(&scratch, Links::None)?;
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("{what}-{}-{number}.{extension}", std::process::id());
            let path = scratch.join(&name);
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            match rustix::fs::openat(&directory, &name, flags, Mode::RUSR | Mode::WUSR) {
                // Left by a host that was killed and had the same pid.
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
        // The agent may have removed it, and nobody could do anything about another failure.
        let name = self.path.file_name().unwrap_or_default();
        let _gone = rustix::fs::unlinkat(&self.directory, name, AtFlags::empty());
    }
}

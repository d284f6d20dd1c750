//! Files that an agent reads and nobody else may: a prompt, a configuration with secrets in it.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A file that only its owner may read. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct ScratchFile(PathBuf);

impl ScratchFile {
    /// Writes a file whose name begins with `what` and ends with `extension`. Its path is absolute, because the agent has a
    /// working directory of its own.
    pub(crate) fn write(
        scratch: &Path,
        what: &str,
        extension: &str,
        bytes: &[u8],
    ) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(scratch)?;
        let scratch = std::path::absolute(scratch)?;
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("{what}-{}-{number}.{extension}", std::process::id());
            let path = scratch.join(name);
            match OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)
            {
                // Left by a host that was killed and had the same pid.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                file => {
                    let mut file = file?;
                    let scratch = ScratchFile(path);
                    file.write_all(bytes)?;
                    return Ok(scratch);
                }
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        // The agent may have removed it, and nobody could do anything about another failure.
        let _gone = std::fs::remove_file(&self.0);
    }
}

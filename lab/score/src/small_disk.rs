//! A small disk: a mount namespace with a small file system in place of a repository. Apart from `scene`, because it outlives the scene's processes.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use fs_err as fs;
use rlm_survivors::quoted;

/// A small file system at the path of a repository, in a mount namespace. A process without the scene's marker keeps the namespace, so that a reboot
/// doesn't lose the disk. The process ends when this struct is dropped, or when the lab is gone.
#[derive(Debug)]
pub(crate) struct SmallDisk {
    keeper: Child,
    repo: PathBuf,
}

impl SmallDisk {
    /// Mounts a disk of this size with a copy of the repository. `place` is a directory for the mount.
    ///
    /// # Errors
    /// The reason why this machine doesn't allow it.
    pub(crate) fn mount(place: &Path, repo: &Path, size: &str) -> Result<Self, String> {
        let folder = place.join("disk");
        fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        let (folder, at) = (quoted(&folder), quoted(repo));
        // `cat` ends when its standard input closes.
        let script = format!(
            "mount -t tmpfs -o size={size} none {folder} && cp -a {at}/. {folder} && mount --bind {folder} {at} && echo ready && exec cat"
        );
        let mut keeper = Command::new("unshare");
        let keeper = { keeper.args(["-m", "sh", "-c", &script]) }
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("unshare: {error}"))?;
        let mut this = Self {
            keeper,
            repo: repo.into(),
        };
        let mut line = String::new();
        let stdout = this.keeper.stdout.as_mut();
        let read = stdout.map(|stdout| BufReader::new(stdout).read_line(&mut line));
        match (read, line.as_str()) {
            (Some(Ok(_)), "ready\n") => Ok(this),
            _ => Err("no mount namespaces here".into()),
        }
    }

    /// Returns the argument with which `nsenter` enters the namespace.
    pub(crate) fn namespace(&self) -> String {
        format!("--mount=/proc/{}/ns/mnt", self.keeper.id())
    }

    /// Returns the path of the repository on this disk, as the lab sees it.
    pub(crate) fn repo(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.keeper.id()));
        root.join(self.repo.strip_prefix("/").unwrap_or(&self.repo))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _gone = self.keeper.kill();
        let _status = self.keeper.wait();
    }
}

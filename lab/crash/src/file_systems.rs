//! Temporary file systems in temporary image files: no real disk is changed.
//!
//! All mounts are in a mount namespace of their own, which only the threads of one layer use. When the last of these threads ends, in any way, the
//! kernel removes the namespace and its loop devices.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

use crate::program;

/// Largest size of an image, in bytes.
const MOST: u64 = 64 << 20;
/// Number of tries to unmount a busy file system.
const TRIES: u32 = 200;

/// Runs `act` in its own mount namespace, with an empty directory in memory.
///
/// # Errors
/// If this process has no permission for that; the text has the reason.
///
/// # Panics
/// If `act` panics; everything is unmounted first.
pub fn privately<T: Send>(
    megabytes: u32,
    act: impl FnOnce(&Path) -> T + Send,
) -> Result<T, String> {
    let dir = tempfile::tempdir().map_err(|err| err.to_string())?;
    let inside = || {
        enter(dir.path(), megabytes).map_err(|err| match err {
            Errno::EPERM => "it needs root".to_owned(),
            err => format!("no mount namespace: {err}"),
        })?;
        Ok(act(dir.path()))
    };
    // Only this thread changes its namespace, and the threads and programs that it starts inherit it.
    let done = std::thread::scope(|scope| scope.spawn(inside).join());
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn enter(dir: &Path, megabytes: u32) -> Result<(), Errno> {
    const NONE: Option<&OsStr> = None;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)?;
    tmpfs(dir, &format!("size={megabytes}m"))
}

/// Mounts a file system in memory.
///
/// # Errors
/// If the system call fails.
pub fn tmpfs(at: &Path, options: &str) -> Result<(), Errno> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), at, Some("tmpfs"), flags, Some(options))
}

/// A kind of file system, with the arguments to make and mount it.
#[derive(Debug, Clone, Copy)]
pub struct FileSystemKind {
    /// The name in the table.
    pub name: &'static str,
    /// The type for `mkfs` and `mount`.
    pub kind: &'static str,
    /// The arguments of `mkfs`.
    pub make: &'static [&'static str],
    /// The mount options.
    pub options: &'static str,
    /// The smallest possible size, in MiB.
    pub megabytes: u64,
    /// Whether two file systems of the same identity can be mounted at the same time.
    pub can_repeat: bool,
}

/// The file system of most machines, as small as possible; data is written before names.
pub const EXT4: FileSystemKind = FileSystemKind {
    name: "ext4",
    kind: "ext4",
    make: &["-q", "-F", "-m", "0"],
    options: "data=ordered",
    megabytes: 16,
    can_repeat: true,
};

/// The same file system without an order between data and names.
pub const WRITEBACK: FileSystemKind = FileSystemKind {
    name: "ext4 writeback",
    options: "data=writeback,noauto_da_alloc",
    ..EXT4
};

/// XFS.
pub const XFS: FileSystemKind = FileSystemKind {
    name: "xfs",
    kind: "xfs",
    make: &["-q", "-f"],
    options: "nouuid",
    megabytes: 32,
    can_repeat: true,
};

/// A file system that writes each block to a new place.
pub const BTRFS: FileSystemKind = FileSystemKind {
    name: "btrfs",
    kind: "btrfs",
    make: &["-q", "-f", "--mixed", "-m", "single", "-d", "single"],
    options: "noatime",
    megabytes: 48,
    can_repeat: false,
};

impl FileSystemKind {
    /// Makes an image with an empty file system.
    ///
    /// # Errors
    /// If the tool is missing or fails; the text has the reason.
    ///
    /// # Panics
    /// If the size is above the limit for images.
    pub fn make(&self, image: &Path, megabytes: u64, more: &[&str]) -> Result<(), String> {
        let tool = program::tool(&format!("mkfs.{}", self.kind))?;
        assert!(megabytes << 20 <= MOST, "the image is too large");
        let file = std::fs::File::create(image).map_err(|err| err.to_string())?;
        file.set_len(megabytes << 20)
            .map_err(|err| err.to_string())?;
        let mut command = Command::new(tool);
        // The XFS tools make small file systems only for their own tests, so the variables of these tests are set.
        command.envs([("TEST_DIR", "1"), ("TEST_DEV", "1"), ("QA_CHECK_FS", "1")]);
        run(command.args(self.make).args(more).arg(image))
    }

    /// Mounts an image through a loop device, which is released with the mount.
    ///
    /// # Errors
    /// If that is not possible here; the text has the reason.
    pub fn mount(&self, image: &Path, at: &Path) -> Result<MountedFileSystem, String> {
        let options = format!("loop,{}", self.options);
        let mut command = Command::new(program::tool("mount")?);
        run(command
            .args(["-t", self.kind, "-o", &options])
            .arg(image)
            .arg(at))?;
        Ok(MountedFileSystem(at.into()))
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|err| format!("cannot start {command:?}: {err}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr)
            .trim()
            .replace('\n', " ")),
    }
}

/// A mounted file system. Dropping it unmounts it.
#[derive(Debug)]
pub struct MountedFileSystem(PathBuf);

impl Drop for MountedFileSystem {
    fn drop(&mut self) {
        for _ in 0..TRIES {
            match umount2(&self.0, MntFlags::empty()) {
                Err(Errno::EBUSY) => program::pause(Duration::from_millis(2)),
                _ => return,
            }
        }
        let (Ok(()) | Err(_)) = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

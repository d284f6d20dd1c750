//! The kind of a file system.

use std::path::Path;

use crate::render::Health;

/// A kind of file system, with the properties that matter for a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileSystemKind {
    pub(super) name: &'static str,
    pub(super) health: Health,
    persistence: Persistence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Persistence {
    Local,
    /// Another machine, or a program, implements locks and flushes.
    Elsewhere,
    /// Lost at a reboot.
    Memory,
}

impl FileSystemKind {
    /// Returns a warning about its limits.
    pub(super) fn warning(self) -> Option<&'static str> {
        match self.persistence {
            Persistence::Local => None,
            Persistence::Elsewhere => Some(
                "its server decides whether locks and saved state are safe; a local disk is better",
            ),
            Persistence::Memory => Some("its content is lost at a reboot"),
        }
    }
}

/// The numbers of file systems on Linux, from `magic.h` and from their own headers.
#[cfg(target_os = "linux")]
const KNOWN: [(u32, &str, Persistence); 24] = [
    (0xEF53, "ext4", Persistence::Local),
    (0x5846_5342, "xfs", Persistence::Local),
    (0x9123_683E, "btrfs", Persistence::Local),
    (0x2FC1_2FC1, "zfs", Persistence::Local),
    (0xCA45_1A4E, "bcachefs", Persistence::Local),
    (0xF2F5_2010, "f2fs", Persistence::Local),
    (0x794C_7630, "overlayfs", Persistence::Local),
    (0x4D44, "vfat", Persistence::Local),
    (0x2011_BAB0, "exfat", Persistence::Local),
    (0x7366_746E, "ntfs", Persistence::Local),
    (0x0102_1994, "tmpfs", Persistence::Memory),
    (0x8584_58F6, "ramfs", Persistence::Memory),
    (0x6969, "nfs", Persistence::Elsewhere),
    (0xFF53_4D42, "cifs", Persistence::Elsewhere),
    (0xFE53_4D42, "smb", Persistence::Elsewhere),
    (0x517B, "smb", Persistence::Elsewhere),
    (0x6573_5546, "fuse", Persistence::Elsewhere),
    (0x0102_1997, "9p", Persistence::Elsewhere),
    (0x00C3_6400, "ceph", Persistence::Elsewhere),
    (0x5346_414F, "afs", Persistence::Elsewhere),
    (0x7375_7245, "coda", Persistence::Elsewhere),
    (0x0BD0_0BD0, "lustre", Persistence::Elsewhere),
    (0x4750_4653, "gpfs", Persistence::Elsewhere),
    (0x0116_1970, "gfs2", Persistence::Elsewhere),
];

/// Returns the kind of the file system of a path; `None` if it is not known.
#[cfg(target_os = "linux")]
pub(super) fn of(path: &Path) -> Option<FileSystemKind> {
    let number = rustix::fs::statfs(path).ok()?.f_type;
    // The type is narrow on some machines and signed on most; the numbers have 32 bits.
    kind(number as u32)
}

#[cfg(target_os = "linux")]
fn kind(number: u32) -> Option<FileSystemKind> {
    let (_, name, keeps) = KNOWN.into_iter().find(|(known, ..)| *known == number)?;
    let health = match keeps {
        Persistence::Local => Health::Ok,
        _ => Health::Warning,
    };
    Some(FileSystemKind {
        name,
        health,
        persistence: keeps,
    })
}

#[cfg(not(target_os = "linux"))]
pub(super) fn of(_path: &Path) -> Option<FileSystemKind> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn network_and_memory_file_systems_are_reported() {
        let found: Vec<_> = [0xEF53, 0x6969, 0x0102_1994]
            .into_iter()
            .filter_map(kind)
            .map(|kind| (kind.name, kind.health, kind.warning().is_some()))
            .collect();
        let expected = [
            ("ext4", Health::Ok, false),
            ("nfs", Health::Warning, true),
            ("tmpfs", Health::Warning, true),
        ];
        assert_eq!(found, expected);
        assert!(kind(1).is_none());
        assert_eq!(
            of(Path::new("/proc/self/missing")).map(|kind| kind.name),
            None
        );
    }
}

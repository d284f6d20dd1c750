//! How many bytes of disk a tree of files takes, by directory descriptors: a link in it is counted and not followed.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::AtFlags;

use super::walk::{self, Place};
use super::{DEEPEST, Metadata, names};

/// Adds up the bytes of disk of a file or a directory, as long as `left` files are left to look at. Follows no link.
#[must_use]
pub fn disk_usage(path: &Path, left: &mut usize) -> u64 {
    match Place::of(path) {
        Ok(place) => disk_below(&place.directory, place.name, left, DEEPEST),
        Err(_) => 0,
    }
}

fn disk_below(parent: &OwnedFd, name: &OsStr, left: &mut usize, depth: usize) -> u64 {
    if *left == 0 {
        return 0;
    }
    *left -= 1;
    let Ok(stat) = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) else {
        return 0;
    };
    let meta = Metadata { stat };
    let entries = match meta.is_dir() && depth > 0 {
        true => walk::open_directory(parent, name)
            .and_then(|directory| Ok((names(&directory)?, directory))),
        false => return meta.disk(),
    };
    let Ok((entries, directory)) = entries else {
        return meta.disk();
    };
    let below = { entries.iter() }.map(|entry| disk_below(&directory, entry, left, depth - 1));
    below.sum::<u64>() + meta.disk()
}

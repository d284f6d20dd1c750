//! The owners of files: a file of another user is an error, unless the caller trusts the project.

use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use rustix::fs::{AtFlags, CWD};

/// The largest number of bytes of the user database that are searched for a name.
const MOST: u64 = 4 << 20;

/// The arguments of [`trust`].
static TRUSTED: RwLock<Vec<PathBuf>> = RwLock::new(Vec::new());

/// Accepts files of other owners in these projects, for the whole process. Each entry is the path of a project, the path of a directory followed by
/// `/*` for all projects below it, or `*` for all projects. The list must come from the user, never from a project.
pub fn trust(projects: impl IntoIterator<Item = PathBuf>) {
    let mut trusted = TRUSTED.write().unwrap_or_else(PoisonError::into_inner);
    *trusted = projects.into_iter().collect();
    for project in trusted.iter().filter(|it| !it.ends_with("*")) {
        checkpoint_store::accept_any_owner(project.join(crate::state_directory()));
    }
    for pattern in trusted.iter().filter(|it| it.ends_with("*")) {
        let below = pattern.parent().filter(|it| !it.as_os_str().is_empty());
        checkpoint_store::accept_any_owner(below.unwrap_or(Path::new("/")).to_owned());
    }
}

/// Returns whether files of other owners are accepted in this project.
fn is_trusted(project: &Path) -> bool {
    let trusted = TRUSTED.read().unwrap_or_else(PoisonError::into_inner);
    trusted.iter().any(|it| {
        let below = it.parent().filter(|_| it.ends_with("*"));
        it == project || below.is_some_and(|below| project.starts_with(below))
    })
}

/// The error of a file that belongs to another user.
#[derive(Clone, Debug)]
pub struct OtherOwner {
    path: PathBuf,
    project: PathBuf,
    owner: u32,
}

impl fmt::Display for OtherOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = rustix::process::geteuid().as_raw();
        write!(
            f,
            "`{}` belongs to {}, and you are {}: if it is yours, run `chown -R {own} {}`; if you trust its owner, add \
             `safe-directories = [\"{}\"]` to your own ~/.config/rlm/config.toml",
            self.path.display(),
            user(self.owner),
            user(own),
            self.path.display(),
            self.project.display(),
        )
    }
}

impl std::error::Error for OtherOwner {}

pub(super) fn is_own(stat: &rustix::fs::Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw()
}

/// Returns an error if the file belongs to another user.
pub(super) fn check(project: &Path, path: &Path, stat: &rustix::fs::Stat) -> io::Result<()> {
    match is_own(stat) || is_trusted(project) {
        true => Ok(()),
        false => Err(io::Error::other(OtherOwner {
            path: path.into(),
            project: project.into(),
            owner: stat.st_uid,
        })),
    }
}

/// Returns an error if a file of a project belongs to another user; checks a link itself. A missing file is fine.
///
/// # Errors
///
/// An error if the file belongs to another user and the project isn't trusted.
pub fn check_owner(project: &Path, path: &Path) -> Result<(), OtherOwner> {
    for flags in [AtFlags::SYMLINK_NOFOLLOW, AtFlags::empty()] {
        let Ok(stat) = rustix::fs::statat(CWD, path, flags) else {
            continue;
        };
        if !is_own(&stat) && !is_trusted(project) {
            return Err(OtherOwner {
                path: path.into(),
                project: project.into(),
                owner: stat.st_uid,
            });
        }
    }
    Ok(())
}

/// Returns the name of a user, if the system's user database has one.
fn user(uid: u32) -> String {
    let mut list = Vec::new();
    // The file belongs to the administrator, not to a project.
    let _unreadable =
        fs_err::File::open("/etc/passwd").and_then(|file| file.take(MOST).read_to_end(&mut list));
    let list = String::from_utf8_lossy(&list);
    let name = list.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    });
    match name {
        Some(name) => format!("{} (uid {uid})", name.escape_debug()),
        None => format!("uid {uid}"),
    }
}

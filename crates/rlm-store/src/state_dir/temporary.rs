//! Temporary files: their names, and which of them nobody will finish.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use uuid::Uuid;

/// What the name of every temporary file ends with.
const ENDING: &str = ".tmp";
/// A temporary file lives for milliseconds. One of this age is an orphan, whoever has its number by now.
const OLD: Duration = Duration::from_secs(60 * 60);

/// Returns a random name for a temporary file that is to become `name`. It has the number of this process in it, so that others can tell whether
/// its owner is alive.
pub(super) fn name(name: &OsStr) -> OsString {
    let mut temporary = OsString::from(".");
    temporary.push(name);
    let random = Uuid::new_v4().simple().to_string();
    temporary.push(format!(".{}.{random}{ENDING}", std::process::id()));
    temporary
}

/// Returns the number of the process that made a temporary file, by its name.
fn owner(name: &OsStr) -> Option<u32> {
    let name = name.to_str()?.strip_prefix('.')?.strip_suffix(ENDING)?;
    let (rest, random) = name.rsplit_once('.')?;
    let is_random = random.len() == 32 && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (_, pid) = rest.rsplit_once('.').filter(|_| is_random)?;
    pid.parse().ok()
}

fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| {
        // Another user's process is alive too.
        rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH)
    })
}

/// Removes the temporary files in a directory whose process is dead, and those that are older than an hour. Returns how many it removed.
#[must_use]
pub fn remove_orphans(directory: &Path) -> usize {
    let entries = super::entries(directory).unwrap_or_default();
    let orphans = entries.into_iter().filter(|path| {
        let Some(pid) = path.file_name().and_then(owner) else {
            return false;
        };
        let metadata = super::metadata(path);
        let age = metadata.ok().and_then(|it| it.modified().elapsed().ok());
        !is_alive(pid) || age.is_some_and(|age| age > OLD)
    });
    orphans
        .filter(|path| super::remove_file(path).is_ok())
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_in_the_name() {
        assert_eq!(
            owner(&name("holder.json".as_ref())),
            Some(std::process::id())
        );
        for other in [
            "holder.json",
            ".tmp",
            ".a.1.tmp",
            ".a.x.00000000000000000000000000000000.tmp",
        ] {
            assert_eq!(owner(other.as_ref()), None, "{other}");
        }
    }
}

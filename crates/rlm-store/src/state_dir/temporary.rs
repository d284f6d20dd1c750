//! The names of temporary files.

use std::ffi::{OsStr, OsString};

use uuid::Uuid;

/// What the name of every temporary file ends with.
const ENDING: &str = ".tmp";
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
pub(super) fn owner(name: &OsStr) -> Option<u32> {
    let name = name.to_str()?.strip_prefix('.')?.strip_suffix(ENDING)?;
    let (rest, random) = name.rsplit_once('.')?;
    let is_random = random.len() == 32 && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (_, pid) = rest.rsplit_once('.').filter(|_| is_random)?;
    pid.parse().ok()
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

//! The marks by which a sweep recognises a process after its host and guard ended: the marker in the environment of a program, and the arguments of a
//! guard.

/// Marks every process of one attempt through an environment variable `VARIABLE=scope.member`.
///
/// A descendant inherits the variable through `setsid`, double forks and re-parenting, so [`sweep`](crate::sweep) finds it after guard and host
/// ended. A sweep misses a process that clears its environment or changes its user. A spawn rejects a marker that no sweep can find, or that a sweep
/// for another scope would find.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Marker {
    /// The name of the environment variable, for example `RLM_MARKER`. It must not be empty or contain `=`.
    pub variable: String,
    /// A random text for each run, by which a sweep searches. It must not be empty or contain a full stop.
    pub scope: String,
    /// The member of the scope, for example `3.1` for the first attempt of the third iteration.
    pub member: String,
}

impl Marker {
    /// Creates a marker that no other process tree has.
    pub(crate) fn random() -> Self {
        use std::hash::{BuildHasher as _, Hasher as _, RandomState};
        // The standard library seeds it with random numbers of the system.
        let number = || RandomState::new().build_hasher().finish();
        Self {
            variable: "PROCESS_TREE".to_owned(),
            scope: format!("{:016x}{:016x}", number(), number()),
            member: std::process::id().to_string(),
        }
    }

    /// Returns why the marker is invalid, if it is.
    pub(crate) fn validation_error(&self) -> Option<&'static str> {
        match (&*self.variable, &*self.scope) {
            (variable, _) if variable.is_empty() || variable.contains('=') => {
                Some("its variable is empty or contains `=`; choose a name such as RLM_MARKER")
            }
            (_, "") => Some("its scope is empty; choose a random text"),
            (_, scope) if scope.contains('.') => Some(
                "its scope contains a full stop, so a sweep for the part before it would end this process tree too; remove the full stop",
            ),
            _ => None,
        }
    }

    pub(crate) fn value(&self) -> String {
        format!("{}.{}", self.scope, self.member)
    }
}

/// The name of a guard, as its `argv[0]` and as its command name. It must not contain the name of a host program: otherwise `pkill -9 host` would
/// kill host and guard together.
#[cfg(target_os = "linux")]
pub(crate) const GUARD: &str = "agent-guard";
/// The first argument of a guard.
#[cfg(target_os = "linux")]
pub(crate) const GUARD_ARGUMENT: &str = "--agent-guard";

/// Hashes a scope (FNV-1a, 64 bits) for the command line of a guard. A sweep recognises the guard by this hash; only the environment of the program
/// contains the marker itself.
#[cfg(any(test, target_os = "linux"))]
pub(crate) fn tag(scope: &str) -> String {
    let hash = scope.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn random_markers_are_valid_and_differ() {
        let [first, second] = [(); 2].map(|()| super::Marker::random());
        assert_eq!(first.validation_error(), None);
        assert_ne!(first.scope, second.scope);
    }

    #[test]
    fn the_tag_is_stable_across_versions() {
        assert_eq!(super::tag(""), "cbf29ce484222325");
        assert_eq!(super::tag("foobar"), "85944171f73967e8");
    }
}

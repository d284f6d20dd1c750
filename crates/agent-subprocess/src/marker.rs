//! The marks by which a process is recognised after everybody who knew it is gone: the marker in the environment of an
//! agent, the arguments of a guard.

/// Marks every process of one attempt through an environment variable `VARIABLE=scope.member`.
///
/// A descendant inherits the variable through `setsid`, double forks and re-parenting, so that [`sweep`](crate::sweep)
/// finds it when the guard and the host are gone. A process that clears its environment or changes its user is not found.
/// A spawn refuses a marker that no sweep could find, or that a sweep for another scope would.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Marker {
    /// The name of the environment variable, for example `RLM_MARKER`; not empty and without `=`.
    pub variable: String,
    /// A random text without a full stop, not empty, one for each run: what a sweep looks for.
    pub scope: String,
    /// The member of the scope, for example `3.1` for the first attempt of the third iteration.
    pub member: String,
}

impl Marker {
    /// Says what is wrong with it, if anything is.
    pub(crate) fn reject(&self) -> Option<&'static str> {
        match (&*self.variable, &*self.scope) {
            (variable, _) if variable.is_empty() || variable.contains('=') => {
                Some("its variable is empty or holds `=`: name one such as RLM_MARKER")
            }
            (_, "") => Some("its scope is empty: make up a random text"),
            (_, scope) if scope.contains('.') => Some(
                "its scope holds a full stop, so that a sweep for what stands before it would end this tree too: leave it out",
            ),
            _ => None,
        }
    }

    pub(crate) fn value(&self) -> String {
        format!("{}.{}", self.scope, self.member)
    }
}

/// The name of a guard, as its `argv[0]` and as its command name. It does not hold the name of any host program:
/// `pkill -9 host` would otherwise take host and guard together.
#[cfg(target_os = "linux")]
pub(crate) const GUARD: &str = "agent-guard";
/// The first argument of a guard.
#[cfg(target_os = "linux")]
pub(crate) const GUARD_WORD: &str = "--agent-guard";

/// Hashes a scope (FNV-1a, 64 bits) for the guard's command line: a sweep knows the guard by it, while the marker
/// itself stands only in the environment of the agent.
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
    fn the_tag_is_stable_across_versions() {
        assert_eq!(super::tag(""), "cbf29ce484222325");
        assert_eq!(super::tag("foobar"), "85944171f73967e8");
    }
}

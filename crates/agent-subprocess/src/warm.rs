//! The warm guard: the guard of the next program, started a moment before the program is needed.
//!
//! Most of the time of a guarded start is the start of the guard. A host that knows that it needs a program soon starts the guard while it does
//! something else.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
mod slot;

use std::fmt;
#[cfg(target_os = "linux")]
use std::sync::Arc;

/// Starts the guard of the next program ahead of time. Clones share one guard.
///
/// At most one guard waits, for less than 30 seconds. While it waits, it runs no program, and holds neither a descriptor of the host nor a working
/// directory. It has no marker. It gets the program, the arguments, the environment, the directory, the streams and the held descriptors when the
/// program starts. A program inherits its resource limits, ids, groups and capabilities from the guard, and the guard inherits them from the thread that
/// starts it. If those of the host, or of the thread that starts the program, are others, the guard is ended and another one is started. The host must
/// not change its umask, its priority, its processors, its namespaces, its seccomp filters, or the bounding and ambient sets of its capabilities while a
/// guard waits.
///
/// A warm guard changes only the time of a start. If it certainly fails before it accepts a program, the program gets another guard. If it possibly
/// accepted the program, the start fails, because there could be two programs otherwise.
///
/// A guard that waits ends by itself as soon as the host has ended. It does so too if the last clone of this value is dropped.
///
/// # Platform
/// Does nothing outside Linux.
///
/// # Examples
/// ```no_run
/// use agent_subprocess::{Marker, TreeCommand, WarmGuard};
///
/// # async fn example(marker: Marker) -> Result<(), Box<dyn std::error::Error>> {
/// let warm = WarmGuard::new(&marker.scope);
/// warm.want();
/// std::fs::write("saved", "the guard starts during this")?;
/// let mut tree = TreeCommand::new("make").marker(marker).warm_guard(&warm).spawn().await?;
/// tree.wait().await;
/// warm.close().await;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct WarmGuard {
    #[cfg(target_os = "linux")]
    pub(crate) place: Arc<linux::Place>,
}

impl WarmGuard {
    /// Creates the place of the guards for programs whose [`Marker`](crate::Marker) has this scope. Programs of other scopes never get its guard.
    pub fn new(scope: &str) -> Self {
        #[cfg(target_os = "linux")]
        return Self {
            place: Arc::new(linux::Place::new(scope, crate::times::WARM_GUARD)),
        };
        #[cfg(not(target_os = "linux"))]
        {
            let _no_guard_here = scope;
            Self {}
        }
    }

    /// Creates a place where a guard waits for less than `max_age`.
    #[cfg(all(feature = "test-util", target_os = "linux"))]
    #[doc(hidden)]
    pub fn with_max_age(scope: &str, max_age: std::time::Duration) -> Self {
        Self {
            place: Arc::new(linux::Place::new(scope, max_age)),
        }
    }

    /// Starts a guard for the next program, if none waits. Returns immediately; if the guard can't be started, nothing happens.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime with I/O and time enabled.
    pub fn want(&self) {
        #[cfg(target_os = "linux")]
        self.place.want();
    }

    /// Kills the guard that waits, if there is one. The next [`want`](Self::want) starts another one. The returned future waits until the killed guard
    /// is reaped, for at most six seconds.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime with I/O and time enabled.
    ///
    /// # Cancel safety
    /// The guard ends also if the future is dropped or never polled.
    pub fn discard(&self) -> impl Future<Output = ()> + Send + use<> {
        #[cfg(target_os = "linux")]
        return self.place.discard();
        #[cfg(not(target_os = "linux"))]
        std::future::ready(())
    }

    /// Ends the guard that waits, and starts no guard any more. Later programs start as without this value.
    ///
    /// A program with this value reports its end before its guard is reaped. This waits for every guard of this value, for at most six seconds. So call
    /// it when all programs with this value have ended.
    ///
    /// # Cancel safety
    /// Dropping the future doesn't keep the guard.
    pub async fn close(&self) {
        #[cfg(target_os = "linux")]
        self.place.close().await;
    }

    /// Returns the pid of the guard that waits.
    #[doc(hidden)] // only tests and benches observe the guard
    pub fn pid(&self) -> Option<u32> {
        #[cfg(target_os = "linux")]
        return self.place.pid();
        #[cfg(not(target_os = "linux"))]
        None
    }
}

impl fmt::Debug for WarmGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WarmGuard").finish_non_exhaustive()
    }
}

//! The process of the warm guard: its start, its hand-over to a program, and its end.

use super::slot::{Taken, WarmSlot};
use crate::guard_executable::executable;
use crate::guarded::{GuardConnection, UnreapedGuards, spawn_guard};
use crate::times;
use rustix::process::{Gid, Pid, Resource, Rlimit, Signal};
use rustix::thread::CapabilitySets;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The limits that a program inherits.
const LIMITS: [Resource; 16] = [
    Resource::Cpu,
    Resource::Fsize,
    Resource::Data,
    Resource::Stack,
    Resource::Core,
    Resource::Rss,
    Resource::Nproc,
    Resource::Nofile,
    Resource::Memlock,
    Resource::As,
    Resource::Locks,
    Resource::Sigpending,
    Resource::Msgqueue,
    Resource::Nice,
    Resource::Rtprio,
    Resource::Rttime,
];

/// The place of one warm guard.
pub(crate) struct Place {
    scope: String,
    path: Option<PathBuf>,
    max_age: Duration,
    slot: Mutex<WarmSlot<Started, HostState>>,
    /// The guards of this place, and of all programs that were started with it.
    pub(crate) unreaped: UnreapedGuards,
}

/// The state of the host that a guard inherits at its start, and that the program inherits from the guard. In another runtime, the socket of the guard
/// could not be used.
#[derive(Debug, PartialEq)]
struct HostState {
    limits: [Rlimit; LIMITS.len()],
    runtime: runtime::Id,
}

impl HostState {
    fn now() -> Self {
        Self {
            limits: LIMITS.map(rustix::process::getrlimit),
            runtime: Handle::current().id(),
        }
    }
}

/// The state of the thread that starts a guard. The guard inherits it, and the program inherits it from the guard.
#[derive(Debug, PartialEq)]
struct ThreadState {
    ids: [u32; 4],
    groups: Vec<Gid>,
    capabilities: Option<CapabilitySets>,
    has_no_new_privileges: Option<bool>,
}

impl ThreadState {
    fn now() -> Self {
        use rustix::process::{getegid, geteuid, getgid, getgroups, getuid};
        Self {
            ids: [
                getuid().as_raw(),
                geteuid().as_raw(),
                getgid().as_raw(),
                getegid().as_raw(),
            ],
            groups: getgroups().unwrap_or_default(),
            capabilities: rustix::thread::capabilities(None).ok(),
            has_no_new_privileges: rustix::thread::no_new_privs().ok(),
        }
    }
}

/// A guard that was started.
struct Started {
    line: JoinHandle<Result<(ThreadState, GuardConnection), crate::Error>>,
    /// 0 until the process is started.
    pid: Arc<AtomicU32>,
    /// Dropping it ends the task that ends the guard when it is too old.
    _timer: oneshot::Sender<Infallible>,
}

impl Started {
    /// Returns the pid if the process is started. The pid can't mean another process, because this value owns the guard, and only the owner reaps it.
    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(self.pid.load(Ordering::Relaxed).cast_signed())
    }

    /// Ends the guard, and reaps it.
    async fn end(self) {
        // This stops only a start that has not begun.
        self.line.abort();
        if let Ok(Ok((_, line))) = self.line.await {
            line.end().await;
        }
    }
}

impl Place {
    pub(super) fn new(scope: &str, max_age: Duration) -> Self {
        Self {
            scope: scope.to_owned(),
            path: executable(),
            max_age,
            slot: Mutex::new(WarmSlot::new(max_age)),
            unreaped: UnreapedGuards::default(),
        }
    }

    fn slot(&self) -> MutexGuard<'_, WarmSlot<Started, HostState>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn want(self: &Arc<Self>) {
        if let Some(path) = &self.path {
            self.slot().want(|| self.start(path));
        }
    }

    fn start(self: &Arc<Self>, path: &Path) -> (Instant, HostState, Started) {
        let (since, state) = (Instant::now(), HostState::now());
        let (path, scope) = (path.to_owned(), self.scope.clone());
        // The spawn blocks until the guard executes its program.
        let pid = Arc::new(AtomicU32::new(0));
        let started_pid = pid.clone();
        let counted = self.unreaped.add();
        let line = tokio::task::spawn_blocking(move || {
            let state = ThreadState::now();
            let line = spawn_guard(&path, &scope, Some(counted))?;
            started_pid.store(line.pid(), Ordering::Relaxed);
            Ok((state, line))
        });
        let (_timer, cancelled) = oneshot::channel();
        let started = Started { line, pid, _timer };
        let (place, max_age) = (Arc::downgrade(self), self.max_age);
        tokio::spawn(async move {
            let is_too_old = timeout(max_age, cancelled).await.is_err();
            if let Some(place) = place.upgrade().filter(|_| is_too_old) {
                let expired = place.slot().expire(Instant::now());
                drop(place.end(expired));
            }
        });
        (since, state, started)
    }

    /// Takes the guard for a program. Returns `None` if no guard waits that can serve it.
    pub(crate) async fn take(
        self: &Arc<Self>,
        path: &Path,
        scope: &str,
    ) -> Option<GuardConnection> {
        if self.path.as_deref() != Some(path) || self.scope != scope {
            return None;
        }
        let taken = self.slot().take(Instant::now(), &HostState::now());
        match taken {
            Taken::Guard(mut started) => {
                let Ok(line) = timeout(times::WARM_REPLY, &mut started.line).await else {
                    tokio::spawn(started.end());
                    return None;
                };
                let (state, line) = line.ok()?.ok()?;
                if state != ThreadState::now() {
                    tokio::spawn(line.end());
                    return None;
                }
                Some(line)
            }
            Taken::Unfit(started) => {
                drop(self.end(Some(started)));
                None
            }
            Taken::Nothing => None,
        }
    }

    pub(super) fn discard(self: &Arc<Self>) -> impl Future<Output = ()> + Send + use<> {
        let waiting = self.slot().discard();
        self.end(waiting)
    }

    pub(super) async fn close(self: &Arc<Self>) {
        let waiting = self.slot().close();
        drop(self.end(waiting));
        // Each guard is counted, also one whose start is not over.
        let _reaped_or_stuck = timeout(2 * times::GUARD_EXIT, self.unreaped.wait()).await;
    }

    /// Ends a guard that was given back, in a task of its own. The returned future waits for its end.
    fn end(self: &Arc<Self>, started: Option<Started>) -> impl Future<Output = ()> + Send + use<> {
        let ending = started.map(|started| {
            // At once: the host is possibly suspended before the task runs.
            if let Some(pid) = started.pid() {
                let _gone = rustix::process::kill_process(pid, Signal::KILL);
            }
            let place = self.clone();
            tokio::spawn(async move {
                started.end().await;
                if let Some(path) = &place.path {
                    place.slot().ended(|| place.start(path));
                }
            })
        });
        async move {
            if let Some(ending) = ending {
                let _ended_or_stuck = timeout(2 * times::GUARD_EXIT, ending).await;
            }
        }
    }

    pub(super) fn pid(&self) -> Option<u32> {
        let pid = self.slot().waiting()?.pid()?;
        Some(pid.as_raw_nonzero().get().cast_unsigned())
    }
}

//! The host's side of a guard: starts it, sends it the spec to spawn, and receives reports about the process tree.

use crate::error::{Error, Kind};
use crate::guard_protocol::{GuardMessage, Inbox, MAX_HOLD, SpawnSpec, TreeEnd, VERSION, frame};
use crate::orphans::{self, LostGuard};
use crate::sweep::SweepReport;
use crate::times;
use crate::tree_handle::{TreeChannel, TreeHandle, TreeProgress};
use crate::{Exit, Marker, ProcessId, marker, proc_fs, sweep};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::{Pid, Signal};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::pin::pin;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

/// The maximum number of starts: a Ctrl-C of the terminal can kill a guard in its first millisecond. It has spawned nothing by then, so the host
/// tries again.
const TRIES: u32 = 3;
/// The time for a guard to send its hello, and then to spawn (a program can be on a slow disk).
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// The end of a guard that possibly spawned the program.
const LOST: &str = "ended before it spawned the agent";
/// The maximum number of bytes to send before the guard reads: less than the buffer of a socket.
const MAX_EARLY_BYTES: usize = 32 << 10;

/// The reason why there is no process tree.
pub(crate) enum Failure {
    /// The guard cannot work in its environment, for this reason.
    Refused(String),
    NotSpawned {
        source: io::Error,
        in_directory: bool,
    },
    Other(Error),
}

impl Failure {
    fn of_guard(path: &Path, what: String) -> Self {
        let path = path.to_owned();
        Self::Other(Kind::Guard { path, what }.into())
    }

    fn late_guard(path: &Path, what: &'static str) -> Self {
        let path = path.to_owned();
        Self::Other(Kind::GuardTimeout { path, what }.into())
    }
}

/// Makes a guard spawn the program: the warm one, or one that it starts.
pub(crate) async fn start(
    path: &Path,
    spec: &SpawnSpec,
    descriptors: &[BorrowedFd<'_>],
    marker: Marker,
    warm: Option<GuardConnection>,
    unreaped: Option<&UnreapedGuards>,
) -> Result<TreeHandle, Failure> {
    let spec = frame(spec);
    if let Some(mut line) = warm {
        let launched = line.launch(path, &spec, descriptors, &marker, times::WARM_REPLY);
        match launched.await {
            Ok(main) => return Ok(line.follow(main, marker, unreaped)),
            Err(NotLaunched::Failed(failure)) => return Err(failure),
            Err(NotLaunched::Ended | NotLaunched::Unusable(_)) => line.process.end().await,
        }
    }
    for _ in 0..TRIES {
        let mut line = spawn_guard(path, &marker.scope).map_err(Failure::Other)?;
        let launched = line.launch(path, &spec, descriptors, &marker, REPLY_TIMEOUT);
        match launched.await {
            Ok(main) => return Ok(line.follow(main, marker, unreaped)),
            Err(NotLaunched::Failed(failure) | NotLaunched::Unusable(failure)) => {
                return Err(failure);
            }
            Err(NotLaunched::Ended) => line.process.end().await,
        }
    }
    let what = format!("ended {TRIES} times before it answered");
    Err(Failure::of_guard(path, what))
}

/// The reason why a guard runs no program.
enum NotLaunched {
    /// The guard ended before it accepted the spec, so it has spawned nothing.
    Ended,
    /// The guard can't serve the program. It has spawned nothing.
    Unusable(Failure),
    /// Another guard must not be tried: the program can't be started, or has possibly been started.
    Failed(Failure),
}

/// Counts the guards whose programs have a common owner, until they are reaped. The owner waits for them once, and not after each program.
#[derive(Clone, Default)]
pub(crate) struct UnreapedGuards(Arc<watch::Sender<usize>>);

impl UnreapedGuards {
    fn add(&self) -> UnreapedGuard {
        self.0.send_modify(|count| *count += 1);
        UnreapedGuard(self.clone())
    }

    pub(crate) async fn wait(&self) {
        let mut count = self.0.subscribe();
        let _cannot_close = count.wait_for(|count| *count == 0).await;
    }
}

/// One guard that is not reaped.
struct UnreapedGuard(UnreapedGuards);

impl Drop for UnreapedGuard {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

/// The process of a guard. It stays in the list of guards until it is reaped, so no sweep takes it for an orphan. If this is dropped before, a task of
/// the runtime waits for the end of the process.
struct GuardProcess {
    pid: u32,
    /// `None` once it is reaped.
    child: Option<Child>,
    /// Counts the guard until it is reaped, if the owner of its program waits for that.
    counted: Option<UnreapedGuard>,
}

impl GuardProcess {
    fn new(child: Child) -> Self {
        Self {
            pid: child.id().unwrap_or(0),
            child: Some(child),
            counted: None,
        }
    }

    fn kill(&mut self) {
        if let Some(child) = &mut self.child {
            let _killed_or_gone = child.start_kill();
        }
    }

    /// Returns the pid, which can't mean another process until this process is reaped.
    fn unreaped(&self) -> Option<Pid> {
        Pid::from_raw(self.pid.cast_signed()).filter(|_| self.child.is_some())
    }

    /// Kills the guard, and waits for its end.
    async fn end(&mut self) {
        self.kill();
        self.wait_for_end().await;
    }

    /// Waits for the end of the guard, for at most [`times::GUARD_EXIT`]. Returns whether it has ended.
    async fn wait_for_end(&mut self) -> bool {
        let Some(child) = &mut self.child else {
            return true;
        };
        let ended = timeout(times::GUARD_EXIT, child.wait()).await;
        if matches!(ended, Ok(Ok(_))) {
            self.child = None;
            orphans::guard_is_reaped(self.pid);
            self.counted = None;
        }
        self.child.is_none()
    }
}

/// Continues the process if a signal suspended it.
fn resume(unreaped: Option<Pid>) {
    if let Some(pid) = unreaped {
        let _gone = rustix::process::kill_process(pid, Signal::CONT);
    }
}

impl Drop for GuardProcess {
    fn drop(&mut self) {
        // A suspended guard would not notice that its socket closes.
        resume(self.unreaped());
        let (pid, counted) = (self.pid, self.counted.take());
        if let (Some(mut child), Ok(runtime)) = (self.child.take(), Handle::try_current()) {
            runtime.spawn(async move {
                let _until_it_is_reaped = counted;
                if child.wait().await.is_ok() {
                    orphans::guard_is_reaped(pid);
                }
            });
        }
    }
}

/// A guard that has no program yet.
pub(crate) struct GuardConnection {
    process: GuardProcess,
    socket: UnixStream,
    inbox: Inbox,
    guard: ProcessId,
    /// The time at which the host began to send the spec, in clock ticks since boot.
    sent: u64,
}

impl GuardConnection {
    async fn next(&mut self) -> io::Result<Option<GuardMessage>> {
        next(&self.socket, &mut self.inbox).await
    }

    /// Returns a time before which the guard had no program.
    fn since(&self) -> u64 {
        self.guard.start_time.max(self.sent)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid
    }

    /// Ends a guard that has no program.
    pub(crate) async fn end(mut self) {
        self.process.end().await;
    }

    /// Makes the guard spawn the program, and returns the pid of the program. The guard has this time to accept the spec.
    async fn launch(
        &mut self,
        path: &Path,
        spec: &[u8],
        descriptors: &[BorrowedFd<'_>],
        marker: &Marker,
        limit: Duration,
    ) -> Result<u32, NotLaunched> {
        let failed = |what: &str| Failure::of_guard(path, what.to_owned());
        self.sent = proc_fs::tick();
        let process = self.process.unreaped();
        let handed_over = async {
            let mut handed_over = pin!(self.hand_over(path, spec, descriptors));
            let soon = timeout(times::WARM_RESUME, &mut handed_over).await;
            match soon {
                Ok(handed_over) => handed_over,
                Err(_) => {
                    // A signal has possibly suspended the guard while it waited.
                    resume(process);
                    handed_over.await
                }
            }
        };
        match timeout(limit, handed_over).await {
            Ok(handed_over) => handed_over?,
            // A guard that is only slow would end when its socket closes. But a suspended one would not, and a program that is no guard never reads.
            Err(_) => {
                let late = Failure::late_guard(path, "did not answer");
                if !self.has_accepted_at_its_end().await {
                    return Err(NotLaunched::Unusable(late));
                }
                self.sweep(marker).await;
                return Err(NotLaunched::Failed(late));
            }
        }
        match timeout(REPLY_TIMEOUT, self.next()).await {
            Ok(Ok(Some(GuardMessage::Spawned { pid }))) => Ok(pid),
            Ok(Ok(Some(GuardMessage::SpawnFailed {
                errno,
                in_directory,
            }))) => {
                self.process.wait_for_end().await;
                Err(NotLaunched::Failed(Failure::NotSpawned {
                    source: io::Error::from_raw_os_error(errno),
                    in_directory,
                }))
            }
            Ok(_) => {
                self.sweep(marker).await;
                Err(NotLaunched::Failed(failed(LOST)))
            }
            Err(_) => {
                let late = Failure::late_guard(path, "did not spawn the program");
                Err(NotLaunched::Failed(late))
            }
        }
    }

    /// Sends the spec, and waits until the guard has accepted it.
    async fn hand_over(
        &mut self,
        path: &Path,
        spec: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), NotLaunched> {
        let failed = |what: String| Failure::of_guard(path, what);
        let not_sent =
            |error| NotLaunched::Unusable(failed(format!("did not receive its spec ({error})")));
        // Send a small spec early, so that it is there when the guard is ready. This saves one round trip.
        let is_early = spec.len() <= MAX_EARLY_BYTES;
        if is_early {
            let sent = send_to_guard(&self.socket, spec, descriptors).await;
            sent.map_err(not_sent)?;
        }
        match self.next().await {
            Ok(Some(GuardMessage::Hello { version, .. })) if version != VERSION => {
                let what = format!("uses protocol version {version} instead of {VERSION}");
                return Err(NotLaunched::Failed(failed(what)));
            }
            Ok(Some(GuardMessage::Hello {
                refused: Some(reason),
                ..
            })) => {
                self.process.wait_for_end().await;
                return Err(NotLaunched::Unusable(Failure::Refused(reason)));
            }
            Ok(Some(GuardMessage::Hello { start_time, .. })) => self.guard.start_time = start_time,
            Ok(None) => return Err(NotLaunched::Ended),
            _ => return Err(NotLaunched::Failed(failed("sent no hello".to_owned()))),
        }
        if !is_early {
            let sent = send_to_guard(&self.socket, spec, descriptors).await;
            sent.map_err(not_sent)?;
        }
        match self.next().await {
            Ok(Some(GuardMessage::Accepted)) => Ok(()),
            Ok(None) => Err(NotLaunched::Ended),
            _ => Err(NotLaunched::Failed(failed(
                "did not accept its spec".to_owned(),
            ))),
        }
    }

    /// Kills the guard. Returns whether it had accepted the spec before; it counts as accepted if that is unknown.
    async fn has_accepted_at_its_end(&mut self) -> bool {
        self.process.end().await;
        let accepted = async {
            loop {
                match self.next().await {
                    Ok(Some(GuardMessage::Hello { .. })) => {}
                    Ok(None) => return false,
                    _ => return true,
                }
            }
        };
        timeout(times::GUARD_EXIT, accepted).await.unwrap_or(true)
    }

    /// Ends the processes of a guard that accepted the spec and then died: it has possibly spawned the program.
    async fn sweep(&mut self, marker: &Marker) {
        self.process.end().await;
        let lost = LostGuard {
            guard: self.guard,
            main: None,
            since: self.since(),
        };
        sweep_for(lost, marker.clone()).await;
    }

    /// Follows the guard to its end in a task of its own.
    fn follow(
        mut self,
        main: u32,
        marker: Marker,
        unreaped: Option<&UnreapedGuards>,
    ) -> TreeHandle {
        self.process.counted = unreaped.map(UnreapedGuards::add);
        let guard = self.guard;
        let lost = LostGuard {
            guard,
            main: Some(main),
            since: self.since(),
        };
        let socket = Arc::new(self.socket);
        let (sender, progress) = watch::channel(TreeProgress::default());
        let give_up = Arc::new(Notify::new());
        tokio::spawn(follow_guard(
            self.process,
            lost,
            socket.clone(),
            self.inbox,
            sender,
            give_up.clone(),
            marker.clone(),
        ));
        TreeHandle {
            main,
            channel: TreeChannel::Guard { socket, guard },
            progress,
            give_up,
            marker,
        }
    }
}

/// Starts the guard without `pre_exec`. Then the standard library uses `posix_spawn`, whose cost does not grow with the memory of the host.
pub(crate) fn spawn_guard(path: &Path, scope: &str) -> Result<GuardConnection, Error> {
    let no_socket = |source| Error::from(Kind::Pipe { source });
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(no_socket)?;
    ours.set_nonblocking(true).map_err(no_socket)?;
    let mut command = tokio::process::Command::new(path);
    command
        .arg0(marker::GUARD)
        .arg(marker::GUARD_ARGUMENT)
        .arg(marker::tag(scope));
    command
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let failed = |source| match crate::error::is_out_of_descriptors(&source) {
        true => no_socket(source),
        false => {
            let path = path.to_owned();
            Kind::GuardSpawn { path, source }.into()
        }
    };
    let child = orphans::starting_guard(|| command.spawn(), Child::id).map_err(failed)?;
    let process = GuardProcess::new(child);
    let guard = ProcessId {
        pid: process.pid,
        start_time: 0,
    };
    Ok(GuardConnection {
        process,
        socket: UnixStream::from_std(ours).map_err(no_socket)?,
        inbox: Inbox::default(),
        guard,
        sent: 0,
    })
}

/// Sends the frame; the descriptors go with its first bytes. If the guard is gone, its next message is missing.
async fn send_to_guard(
    socket: &UnixStream,
    mut bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut rights = Some(descriptors);
    while !bytes.is_empty() {
        let send = || -> io::Result<usize> {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3 + MAX_HOLD))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if let Some(rights) = rights
                && !control.push(SendAncillaryMessage::ScmRights(rights))
            {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            Ok(rustix::net::sendmsg(
                socket,
                &[IoSlice::new(bytes)],
                &mut control,
                flags,
            )?)
        };
        // Without a first look at the state of the socket, which is almost always empty.
        let sent = match send() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                socket.async_io(Interest::WRITABLE, send).await
            }
            sent => sent,
        };
        match sent {
            Ok(sent) => bytes = &bytes[sent..],
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
        rights = None;
    }
    Ok(())
}

/// Returns whether the other end of the socket is closed. A guard that ends before it has read everything resets the connection.
fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

/// Returns the next message of the guard; `None` at the end. Cancel safe: the inbox keeps the bytes that were read.
async fn next(socket: &UnixStream, inbox: &mut Inbox) -> io::Result<Option<GuardMessage>> {
    let mut bytes = [0; 8192];
    loop {
        if let Some(notice) = inbox.next()? {
            return Ok(Some(notice));
        }
        socket.readable().await?;
        match socket.try_read(&mut bytes) {
            Ok(0) => return Ok(None),
            Ok(read) => inbox.push(&bytes[..read]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if is_gone(&error) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

/// Follows one guard to its end and reaps it. If the guard ended without a last message, sweeps by the marker.
async fn follow_guard(
    mut process: GuardProcess,
    lost: LostGuard,
    socket: Arc<UnixStream>,
    mut inbox: Inbox,
    progress: watch::Sender<TreeProgress>,
    give_up: Arc<Notify>,
    marker: Marker,
) {
    let mut final_report = None;
    let listen = async {
        while let Ok(Some(notice)) = next(&socket, &mut inbox).await {
            match notice {
                GuardMessage::Exited(exit) => progress.send_modify(|now| now.exit = Some(exit)),
                GuardMessage::Listed {
                    sequence,
                    processes,
                } => {
                    progress.send_modify(|now| now.latest_list = (sequence, processes));
                }
                GuardMessage::Ended(aftermath) => {
                    final_report = Some(aftermath);
                    break;
                }
                GuardMessage::Hello { .. }
                | GuardMessage::Accepted
                | GuardMessage::Spawned { .. }
                | GuardMessage::SpawnFailed { .. } => {}
            }
        }
    };
    tokio::select! {
        () = listen => {}
        () = give_up.notified() => {}
    }
    let orderly = final_report.is_some();
    // The guard has closed the descriptors that it held before its last message. If somebody waits for its end later, the result needs no wait.
    if process.counted.is_some()
        && let Some(report) = final_report.take()
    {
        publish(&progress, report);
    }
    if !orderly || !process.wait_for_end().await {
        process.end().await;
    }
    if process.child.is_none() {
        orphans::reap_orphans();
    }
    match final_report {
        Some(report) => publish(&progress, report),
        None if orderly => {}
        None => publish(&progress, sweep_for(lost, marker).await),
    }
}

fn publish(progress: &watch::Sender<TreeProgress>, report: TreeEnd) {
    progress.send_modify(|now| {
        // A survivor has no exit status. A caller that waits for the exit of a lost program must not wait forever.
        if report.guard_lost {
            now.exit.get_or_insert(Exit::UNKNOWN);
        }
        now.tree_end = Some(report);
    });
}

async fn sweep_for(lost: LostGuard, marker: Marker) -> TreeEnd {
    let sweep = tokio::task::spawn_blocking(move || {
        let mut report = SweepReport::default();
        if orphans::is_on() {
            report = orphans::end_orphans(lost, &marker, times::GUARD_SWEEP);
        }
        let members = sweep::find_within(&marker, times::GUARD_SWEEP);
        let marked = sweep::end(members, times::GUARD_SWEEP);
        report.ended.extend(marked.ended);
        let unnamed = marked.survivors.into_iter();
        let unnamed: Vec<_> = unnamed
            .filter(|it| !report.survivors.contains(it))
            .collect();
        report.survivors.extend(unnamed);
        report
    });
    let SweepReport { ended, survivors } = sweep.await.unwrap_or_default();
    TreeEnd {
        ended,
        survivors,
        killed: true,
        guard_lost: true,
        ..TreeEnd::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    async fn expect_no_guard() {
        let left = async {
            while orphans::guards() > 0 {
                tokio::task::yield_now().await;
            }
        };
        let reaped = timeout(10 * times::GUARD_EXIT, left).await;
        reaped.expect("all guards are reaped and forgotten");
    }

    #[tokio::test]
    async fn guard_that_fails_to_start_is_forgotten_when_it_is_reaped() {
        let ends_at_once = Path::new("/bin/true");
        let marker = Marker::random();
        let mut line = spawn_guard(ends_at_once, &marker.scope).unwrap();
        let launched = line.launch(ends_at_once, b"", &[], &marker, REPLY_TIMEOUT);
        assert!(matches!(launched.await, Err(NotLaunched::Ended)));
        drop(line);
        expect_no_guard().await;
        drop(spawn_guard(ends_at_once, &marker.scope).unwrap());
        expect_no_guard().await;
    }

    /// The guard is too slow, and its answer arrives while the host kills it.
    #[tokio::test]
    async fn answer_that_arrives_before_the_end_of_a_killed_guard_counts() {
        let hello = || GuardMessage::Hello {
            version: VERSION,
            start_time: 1,
            refused: None,
        };
        for (messages, is_accepted) in [
            (vec![], false),
            (vec![hello()], false),
            (vec![hello(), GuardMessage::Accepted], true),
        ] {
            let marker = Marker::random();
            let mut line = spawn_guard(Path::new("/bin/true"), &marker.scope).unwrap();
            let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            line.socket = UnixStream::from_std(ours).unwrap();
            for message in &messages {
                (&theirs).write_all(&frame(message)).unwrap();
            }
            drop(theirs);
            assert_eq!(line.has_accepted_at_its_end().await, is_accepted);
        }
    }
}

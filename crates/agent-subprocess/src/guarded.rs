//! The host's side of a guard: starts it, sends it the spec to spawn, and receives reports about the process tree.

use crate::error::{Error, Kind};
use crate::guard_protocol::{GuardMessage, Inbox, MAX_HOLD, SpawnSpec, TreeEnd, VERSION, frame};
use crate::orphans::{self, LostGuard};
use crate::sweep::SweepReport;
use crate::sys;
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
/// The time for a guard to accept its spec, and then to spawn (a program can be on a slow disk).
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
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
        let swept = None;
        Self::Other(Kind::Guard { path, what, swept }.into())
    }

    fn late_guard(path: &Path, what: &'static str) -> Self {
        let path = path.to_owned();
        let swept = None;
        Self::Other(Kind::GuardTimeout { path, what, swept }.into())
    }

    /// Adds the result of the sweep after a guard that possibly spawned the program.
    fn with_sweep(self, swept: SweepReport) -> Self {
        match self {
            Self::Other(error) => Self::Other(error.with_sweep(swept)),
            failure => failure,
        }
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
    if let Some(line) = warm {
        let limits = ReplyLimits {
            accept: times::WARM_REPLY,
            spawn: REPLY_TIMEOUT,
        };
        let launched = line.launch(path, &spec, descriptors, &marker, limits);
        match launched.await {
            Ok(tree) => return Ok(tree),
            Err(NotLaunched::Failed(failure)) => return Err(failure),
            Err(NotLaunched::Ended | NotLaunched::Unusable(_)) => {}
        }
    }
    for _ in 0..TRIES {
        let counted = unreaped.map(UnreapedGuards::add);
        let line = spawn_guard(path, &marker.scope, counted);
        let line = line.map_err(Failure::Other)?;
        let limits = ReplyLimits {
            accept: REPLY_TIMEOUT,
            spawn: REPLY_TIMEOUT,
        };
        let launched = line.launch(path, &spec, descriptors, &marker, limits);
        match launched.await {
            Ok(tree) => return Ok(tree),
            Err(NotLaunched::Failed(failure) | NotLaunched::Unusable(failure)) => {
                return Err(failure);
            }
            Err(NotLaunched::Ended) => {}
        }
    }
    let what = format!("ended {TRIES} times before it answered");
    Err(Failure::of_guard(path, what))
}

/// The time that a guard has for each of its answers.
#[derive(Clone, Copy)]
struct ReplyLimits {
    accept: Duration,
    /// After it accepted the spec.
    spawn: Duration,
}

/// The reason why a guard runs no program.
enum NotLaunched {
    /// The guard ended before it accepted the spec, so it has spawned nothing.
    Ended,
    /// The guard can't serve the program. It has spawned nothing.
    Unusable(Failure),
    /// Another guard must not be tried: the program can't be started, or has possibly been started and then ended.
    Failed(Failure),
}

/// The reason why a guard did not report a program.
enum NoReport {
    Known(NotLaunched),
    /// The guard has possibly spawned the program, or can still do so.
    Unclear(Failure),
}

impl From<NotLaunched> for NoReport {
    fn from(reason: NotLaunched) -> Self {
        Self::Known(reason)
    }
}

/// Counts the guards with a common owner, from before their start until they are reaped. The owner waits for them once, and not after each program.
#[derive(Clone, Default)]
pub(crate) struct UnreapedGuards(Arc<watch::Sender<usize>>);

impl UnreapedGuards {
    pub(crate) fn add(&self) -> UnreapedGuard {
        self.0.send_modify(|count| *count += 1);
        UnreapedGuard(self.clone())
    }

    pub(crate) async fn wait(&self) {
        let mut count = self.0.subscribe();
        let _cannot_close = count.wait_for(|count| *count == 0).await;
    }
}

/// One guard that is not reaped.
pub(crate) struct UnreapedGuard(UnreapedGuards);

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
    /// Counts the guard until it is reaped, if its owner waits for that.
    counted: Option<UnreapedGuard>,
}

impl GuardProcess {
    fn new(child: Child, counted: Option<UnreapedGuard>) -> Self {
        Self {
            pid: child.id().unwrap_or(0),
            child: Some(child),
            counted,
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

    /// Waits for the end of a guard that exits by itself, and kills it if it doesn't.
    async fn exit_or_end(&mut self) {
        if !self.wait_for_end().await {
            self.end().await;
        }
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
    // Dropped before the process, which continues the guard: a suspended guard must not spawn a program that nobody waits for.
    socket: UnixStream,
    process: GuardProcess,
    inbox: Inbox,
    guard: ProcessId,
    /// The time at which the host began to send the spec, in clock ticks since boot.
    sent: u64,
    /// Whether the guard sent anything after its hello. Then it has possibly spawned the program.
    has_accepted: bool,
}

impl GuardConnection {
    async fn next(&mut self) -> io::Result<Option<GuardMessage>> {
        let message = next(&self.socket, &mut self.inbox).await;
        self.has_accepted |= !matches!(message, Ok(None | Some(GuardMessage::Hello { .. })));
        message
    }

    /// Returns a time before which the guard had no program. The clock can be one tick ahead of that of the start times.
    fn since(&self) -> u64 {
        self.guard.start_time.max(self.sent.saturating_sub(1))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid
    }

    /// Ends a guard that has no program.
    pub(crate) async fn end(mut self) {
        self.process.end().await;
    }

    /// Makes the guard spawn the program, and follows it. A guard without a program is ended. A guard that has possibly spawned the program without a
    /// report is killed, and its processes are ended, also if the returned future is dropped meanwhile.
    async fn launch(
        mut self,
        path: &Path,
        spec: &[u8],
        descriptors: &[BorrowedFd<'_>],
        marker: &Marker,
        limits: ReplyLimits,
    ) -> Result<TreeHandle, NotLaunched> {
        match self.try_launch(path, spec, descriptors, limits).await {
            Ok(main) => Ok(self.follow(main, marker.clone())),
            Err(NoReport::Known(reason)) => {
                self.process.end().await;
                Err(reason)
            }
            Err(NoReport::Unclear(failure)) => {
                let ending = tokio::spawn(self.kill_and_sweep(marker.clone()));
                Err(match ending.await {
                    Ok(None) => NotLaunched::Unusable(failure),
                    Ok(Some(swept)) => NotLaunched::Failed(failure.with_sweep(swept)),
                    Err(_the_runtime_ends) => NotLaunched::Failed(failure),
                })
            }
        }
    }

    async fn try_launch(
        &mut self,
        path: &Path,
        spec: &[u8],
        descriptors: &[BorrowedFd<'_>],
        limits: ReplyLimits,
    ) -> Result<u32, NoReport> {
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
        // A guard that is only slow would end when its socket closes. But a suspended one would not, and a program that is no guard never reads.
        let late = |what| NoReport::Unclear(Failure::late_guard(path, what));
        let handed_over = timeout(limits.accept, handed_over).await;
        handed_over.map_err(|_| late("did not answer"))??;
        match timeout(limits.spawn, self.next()).await {
            Ok(Ok(Some(GuardMessage::Spawned { pid }))) => Ok(pid),
            Ok(Ok(Some(GuardMessage::SpawnFailed {
                errno,
                in_directory,
            }))) => {
                self.process.exit_or_end().await;
                let source = io::Error::from_raw_os_error(errno);
                let failure = Failure::NotSpawned {
                    source,
                    in_directory,
                };
                Err(NotLaunched::Failed(failure).into())
            }
            Ok(_) => {
                let what = "ended before it reported the start of the agent".to_owned();
                Err(NoReport::Unclear(Failure::of_guard(path, what)))
            }
            Err(_) => Err(late("did not report the start of the agent")),
        }
    }

    /// Sends the spec, and waits until the guard has accepted it.
    async fn hand_over(
        &mut self,
        path: &Path,
        spec: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), NoReport> {
        let failed = |what: String| Failure::of_guard(path, what);
        let unclear = |what: String| Err(NoReport::Unclear(failed(what)));
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
                return unclear(format!(
                    "uses protocol version {version} instead of {VERSION}"
                ));
            }
            Ok(Some(GuardMessage::Hello {
                refused: Some(reason),
                ..
            })) => {
                self.process.exit_or_end().await;
                return Err(NotLaunched::Unusable(Failure::Refused(reason)).into());
            }
            Ok(Some(GuardMessage::Hello { start_time, .. })) => self.guard.start_time = start_time,
            Ok(None) => return Err(NotLaunched::Ended.into()),
            _ => return unclear("sent no hello".to_owned()),
        }
        if !is_early {
            let sent = send_to_guard(&self.socket, spec, descriptors).await;
            sent.map_err(not_sent)?;
        }
        match self.next().await {
            Ok(Some(GuardMessage::Accepted)) => Ok(()),
            Ok(None) => Err(NotLaunched::Ended.into()),
            _ => unclear("did not accept its spec".to_owned()),
        }
    }

    /// Kills the guard. Returns whether it had accepted the spec before; it counts as accepted if that is unknown.
    async fn has_accepted_at_its_end(&mut self) -> bool {
        self.process.end().await;
        let rest = async {
            while !self.has_accepted && !matches!(self.next().await, Ok(None)) {}
            self.has_accepted
        };
        timeout(times::GUARD_EXIT, rest).await.unwrap_or(true)
    }

    /// Kills the guard. If it has possibly spawned the program, ends its processes too, and returns them.
    async fn kill_and_sweep(mut self, marker: Marker) -> Option<SweepReport> {
        if !self.has_accepted_at_its_end().await {
            return None;
        }
        let lost = LostGuard {
            guard: self.guard,
            main: None,
            since: self.since(),
        };
        let TreeEnd {
            ended, survivors, ..
        } = sweep_for(lost, marker).await;
        Some(SweepReport { ended, survivors })
    }

    /// Follows the guard to its end in a task of its own.
    fn follow(self, main: u32, marker: Marker) -> TreeHandle {
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
pub(crate) fn spawn_guard(
    path: &Path,
    scope: &str,
    counted: Option<UnreapedGuard>,
) -> Result<GuardConnection, Error> {
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
    let spawn = || sys::without_terminal_stops(|| command.spawn());
    let child = orphans::starting_guard(spawn, Child::id).map_err(failed)?;
    let process = GuardProcess::new(child, counted);
    let guard = ProcessId {
        pid: process.pid,
        start_time: 0,
    };
    Ok(GuardConnection {
        socket: UnixStream::from_std(ours).map_err(no_socket)?,
        process,
        inbox: Inbox::default(),
        guard,
        sent: 0,
        has_accepted: false,
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
    match orderly {
        true => process.exit_or_end().await,
        false => process.end().await,
    }
    if process.child.is_none() && orphans::can_have_dead_orphans() {
        let _reaped_or_shut_down = tokio::task::spawn_blocking(orphans::reap_orphans).await;
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
    use std::task::Poll;

    const LIMITS: ReplyLimits = ReplyLimits {
        accept: REPLY_TIMEOUT,
        spawn: REPLY_TIMEOUT,
    };

    async fn expect_no_guard() {
        let left = async {
            while orphans::unreaped_guards() > 0 {
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
        let line = spawn_guard(ends_at_once, &marker.scope, None).unwrap();
        let launched = line.launch(ends_at_once, b"", &[], &marker, LIMITS);
        assert!(matches!(launched.await, Err(NotLaunched::Ended)));
        expect_no_guard().await;
        drop(spawn_guard(ends_at_once, &marker.scope, None).unwrap());
        expect_no_guard().await;
    }

    /// The guard is too slow, and its answer arrives while the host kills it.
    #[tokio::test]
    async fn answer_that_arrives_before_the_end_of_a_killed_guard_counts() {
        for (messages, is_accepted) in [
            (vec![], false),
            (vec![hello(VERSION)], false),
            (vec![hello(VERSION), GuardMessage::Accepted], true),
        ] {
            let marker = Marker::random();
            let mut line = spawn_guard(Path::new("/bin/true"), &marker.scope, None).unwrap();
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

    /// Starts a script as the guard, which has the file `answers` with these messages. Its program has the marker.
    fn script_as_guard(
        directory: &Path,
        script: &str,
        answers: &[GuardMessage],
        marker: &Marker,
        unreaped: &UnreapedGuards,
    ) -> GuardConnection {
        let answers: Vec<u8> = answers.iter().flat_map(frame).collect();
        std::fs::write(directory.join("answers"), answers).unwrap();
        let (place, variable, value) = (directory.display(), &marker.variable, marker.value());
        let program = directory.join("guard");
        let agent = format!("{variable}={value} setsid sh -c 'echo >up; exec sleep 674'");
        let text = format!(
            "#!/bin/sh\ncd {place}\n{agent} <&- & \nuntil test -e up; do sleep 0.01; done\n{script}\n"
        );
        std::fs::write(&program, text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        spawn_guard(&program, &marker.scope, Some(unreaped.add())).unwrap()
    }

    fn hello(version: u32) -> GuardMessage {
        GuardMessage::Hello {
            version,
            start_time: 1,
            refused: None,
        }
    }

    /// Answers, and then neither reports a program nor ends.
    const ANSWERS_AND_WAITS: &str = "cat answers >&0; exec sleep 675";
    /// With a short time for the report of a program.
    const SHORT: ReplyLimits = ReplyLimits {
        accept: REPLY_TIMEOUT,
        spawn: Duration::from_millis(100),
    };

    #[tokio::test]
    async fn guard_that_possibly_spawned_the_program_is_killed_and_swept() {
        for (answers, is_late) in [
            (vec![hello(VERSION), GuardMessage::Accepted], true),
            (vec![GuardMessage::Accepted], false),
            (
                vec![hello(VERSION), hello(VERSION), GuardMessage::Accepted],
                false,
            ),
            (vec![hello(0), GuardMessage::Accepted], false),
        ] {
            let (marker, unreaped) = (Marker::random(), UnreapedGuards::default());
            let directory = tempfile::tempdir().unwrap();
            let place = directory.path();
            let line = script_as_guard(place, ANSWERS_AND_WAITS, &answers, &marker, &unreaped);
            let launched = line.launch(place, b"", &[], &marker, SHORT);
            let Err(NotLaunched::Failed(Failure::Other(error))) = launched.await else {
                panic!("the program has possibly been started: {answers:?}");
            };
            assert_eq!(error.is_guard_timeout(), is_late, "{error}");
            let swept = error.lost_processes().expect("a sweep");
            let ended: Vec<_> = swept.ended.iter().map(|it| it.name.as_str()).collect();
            assert_eq!((ended, swept.survivors.len()), (vec!["sleep"], 0));
            let reaped = timeout(10 * times::GUARD_EXIT, unreaped.wait()).await;
            reaped.expect("the guard is reaped");
            assert_eq!(sweep::find_within(&marker, times::GUARD_SWEEP), []);
        }
    }

    #[tokio::test]
    async fn guard_that_possibly_spawned_the_program_is_swept_although_the_start_is_dropped() {
        let (marker, unreaped) = (Marker::random(), UnreapedGuards::default());
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path();
        let answers = [hello(VERSION), GuardMessage::Accepted];
        let line = script_as_guard(place, ANSWERS_AND_WAITS, &answers, &marker, &unreaped);
        let mut launched = Box::pin(line.launch(place, b"", &[], &marker, SHORT));
        // The test has one thread, so the task that kills the guard does nothing before this ends.
        let is_late = std::future::poll_fn(|context| {
            assert!(launched.as_mut().poll(context).is_pending());
            match Handle::current().metrics().num_alive_tasks() {
                0 => Poll::Pending,
                _ => Poll::Ready(()),
            }
        });
        let is_late = timeout(10 * times::GUARD_EXIT, is_late).await;
        is_late.expect("the guard does not report its program");
        assert!(!sweep::find_within(&marker, times::GUARD_SWEEP).is_empty());
        drop(launched);
        let swept = async {
            unreaped.wait().await;
            while !sweep::find_within(&marker, times::GUARD_SWEEP).is_empty() {
                tokio::task::yield_now().await;
            }
        };
        let swept = timeout(10 * times::GUARD_EXIT, swept).await;
        swept.expect("the processes are ended");
    }
}

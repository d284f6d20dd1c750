//! The host's side of a guard: starting it, telling it what to spawn, and hearing what becomes of the tree.

use crate::error::{Error, Kind};
use crate::guard::adopt::{self, Lost};
use crate::keeper::{Keeper, Orders, Progress};
use crate::sweep::SweepReport;
use crate::times;
use crate::wire::{Aftermath, Inbox, MAX_HOLD, Notice, Spec, VERSION, frame};
use crate::{Exit, Marker, ProcessId, marker, sweep};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

/// A guard may be hit by a Ctrl-C of the terminal in its first millisecond; nothing was spawned yet, so it is tried again.
const TRIES: u32 = 3;
/// What a guard may take to say hello, and then to spawn (a program on a slow disk).
const ANSWER: Duration = Duration::from_secs(30);
/// What can be sent to a guard before it reads, in bytes: less than the buffer of a socket.
const EARLY: usize = 32 << 10;

/// Why there is no tree.
pub(crate) enum Failure {
    /// The guard runs where it cannot do its work, for this reason.
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
}

/// Starts a guard and has it spawn the agent.
pub(crate) async fn start(
    path: &Path,
    spec: &Spec,
    descriptors: &[BorrowedFd<'_>],
    marker: Option<Marker>,
) -> Result<Keeper, Failure> {
    let failed = |what: String| Failure::of_guard(path, what);
    let spec = frame(spec);
    // What is small is there when the guard is ready for it, and saves waiting for each other once.
    let (early, late) = if spec.len() <= EARLY {
        (Some(&*spec), None)
    } else {
        (None, Some(&*spec))
    };
    let mut line = greet(path, marker.as_ref(), early, descriptors).await?;
    let asked = timeout(ANSWER, async {
        let told = match late {
            Some(spec) => tell(&line.socket, spec, descriptors).await,
            None => Ok(()),
        };
        // A guard that could not take everything may still have said why.
        line.next().await.and_then(|notice| told.map(|()| notice))
    });
    let main = match asked.await {
        Ok(Ok(Some(Notice::Spawned { pid }))) => pid,
        Ok(Ok(Some(Notice::SpawnFailed {
            errno,
            in_directory,
        }))) => {
            line.reap().await;
            return Err(Failure::NotSpawned {
                source: io::Error::from_raw_os_error(errno),
                in_directory,
            });
        }
        Ok(Ok(_)) => return Err(failed("ended before it spawned anything".to_owned())),
        Ok(Err(error)) => return Err(failed(format!("did not take its order ({error})"))),
        Err(_) => {
            return Err(failed(format!(
                "spawned nothing within {} s",
                ANSWER.as_secs()
            )));
        }
    };
    let socket = Arc::new(line.socket);
    let (sender, progress) = watch::channel(Progress::default());
    let give_up = Arc::new(Notify::new());
    let orders = Orders::Guard {
        socket: socket.clone(),
        guard: line.guard,
    };
    let keeper = Keeper {
        main,
        orders,
        progress,
        give_up: give_up.clone(),
        marker: marker.clone(),
    };
    let guard = line.guard;
    let lost = Lost { guard, main };
    tokio::spawn(watch_guard(
        line.child, lost, socket, line.inbox, sender, give_up, marker,
    ));
    Ok(keeper)
}

/// A guard that has said hello.
struct Line {
    child: Child,
    socket: UnixStream,
    inbox: Inbox,
    guard: ProcessId,
}

impl Line {
    async fn next(&mut self) -> io::Result<Option<Notice>> {
        next(&self.socket, &mut self.inbox).await
    }

    /// Leaves no zombie of a guard that ends by itself.
    async fn reap(&mut self) {
        let _reaped_or_late = timeout(times::GUARD_EXIT, self.child.wait()).await;
    }
}

/// Starts guards until one says hello. Each is told early what to spawn, if that fits into its socket.
async fn greet(
    path: &Path,
    marker: Option<&Marker>,
    spec: Option<&[u8]>,
    descriptors: &[BorrowedFd<'_>],
) -> Result<Line, Failure> {
    let failed = |what: String| Failure::of_guard(path, what);
    for _ in 0..TRIES {
        let (child, socket) = spawn_guard(path, marker).map_err(Failure::Other)?;
        let pid = child.id().unwrap_or(0);
        let guard = ProcessId { pid, start_time: 0 };
        let mut line = Line {
            child,
            socket,
            inbox: Inbox::default(),
            guard,
        };
        let hello = timeout(ANSWER, async {
            if let Some(spec) = spec {
                // A guard that is gone already says no hello either.
                let _told_or_gone = tell(&line.socket, spec, descriptors).await;
            }
            line.next().await
        });
        match hello.await {
            Ok(Ok(Some(Notice::Hello { version, .. }))) if version != VERSION => {
                return Err(failed(format!(
                    "speaks version {version} of the messages instead of {VERSION}"
                )));
            }
            Ok(Ok(Some(Notice::Hello {
                refused: Some(reason),
                ..
            }))) => {
                line.reap().await;
                return Err(Failure::Refused(reason));
            }
            Ok(Ok(Some(Notice::Hello { start_time, .. }))) => {
                line.guard.start_time = start_time;
                return Ok(line);
            }
            Ok(Ok(Some(_))) => return Err(failed("said something else than hello".to_owned())),
            Ok(_) => line.reap().await,
            Err(_) => {
                // It was asked to end by the closing of its socket, but it may be a program that never reads.
                let _gone = line.child.start_kill();
                return Err(failed(format!(
                    "did not answer within {} s",
                    ANSWER.as_secs()
                )));
            }
        }
    }
    Err(failed(format!("ended {TRIES} times before it answered")))
}

/// Starts the guard the cheap way: without `pre_exec`, the standard library takes `posix_spawn`, whose cost does not
/// grow with the memory of the host.
fn spawn_guard(path: &Path, marker: Option<&Marker>) -> Result<(Child, UnixStream), Error> {
    let no_socket = |source| Error::from(Kind::Pipe { source });
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(no_socket)?;
    ours.set_nonblocking(true).map_err(no_socket)?;
    let mut command = tokio::process::Command::new(path);
    command
        .arg0(marker::GUARD)
        .arg(marker::GUARD_WORD)
        .arg(marker.map_or_else(String::new, |m| marker::tag(&m.scope)));
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
    let child = adopt::starting_guard(|| command.spawn(), Child::id).map_err(failed)?;
    Ok((child, UnixStream::from_std(ours).map_err(no_socket)?))
}

/// Sends the frame; the descriptors go with its first bytes.
async fn tell(
    socket: &UnixStream,
    mut bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut rights = Some(descriptors);
    while !bytes.is_empty() {
        let sent = socket.async_io(Interest::WRITABLE, || {
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
        });
        bytes = &bytes[sent.await?..];
        rights = None;
    }
    Ok(())
}

/// Returns the next notice; `None` at the end. Cancel safe: what was read stays in the inbox.
async fn next(socket: &UnixStream, inbox: &mut Inbox) -> io::Result<Option<Notice>> {
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
            Err(error) => return Err(error),
        }
    }
}

/// Follows one guard to its end, reaps it, and sweeps by the marker as soon as it is gone without a last word.
async fn watch_guard(
    mut child: Child,
    lost: Lost,
    socket: Arc<UnixStream>,
    mut inbox: Inbox,
    progress: watch::Sender<Progress>,
    give_up: Arc<Notify>,
    marker: Option<Marker>,
) {
    let mut last_word = None;
    let listen = async {
        while let Ok(Some(notice)) = next(&socket, &mut inbox).await {
            match notice {
                Notice::Exited(exit) => progress.send_modify(|now| now.exit = Some(exit)),
                Notice::Listed {
                    sequence,
                    processes,
                } => {
                    progress.send_modify(|now| now.listed = (sequence, processes));
                }
                Notice::Ended(aftermath) => {
                    last_word = Some(aftermath);
                    break;
                }
                Notice::Hello { .. } | Notice::Spawned { .. } | Notice::SpawnFailed { .. } => {}
            }
        }
    };
    tokio::select! {
        () = listen => {}
        () = give_up.notified() => {}
    }
    let orderly = last_word.is_some();
    // The guard's own end comes before the news of it: the descriptors that it holds are closed then.
    if !orderly || timeout(times::GUARD_EXIT, child.wait()).await.is_err() {
        let _gone = child.start_kill();
        let _reaped = timeout(times::GUARD_EXIT, child.wait()).await;
    }
    if child.id().is_none() {
        adopt::guard_is_reaped(lost.guard.pid);
        adopt::reap_orphans();
    }
    let aftermath = match last_word {
        Some(aftermath) => aftermath,
        None => sweep_for(lost, marker).await,
    };
    progress.send_modify(|now| {
        // A survivor has no exit; whoever waits for the lost one must not wait for ever.
        if aftermath.guard_lost {
            now.exit.get_or_insert(Exit::UNKNOWN);
        }
        now.aftermath = Some(aftermath);
    });
}

async fn sweep_for(lost: Lost, marker: Option<Marker>) -> Aftermath {
    let sweep = tokio::task::spawn_blocking(move || {
        let member = |marker: &Marker| sweep::find(&marker.variable, &marker.value());
        let mut report = SweepReport::default();
        if adopt::is_on() {
            report = adopt::end_orphans(lost, marker.as_ref(), times::GUARD_SWEEP);
        }
        if let Some(marker) = marker {
            let marked = sweep::end(member(&marker), times::GUARD_SWEEP);
            report.ended.extend(marked.ended);
            let news = marked.survivors.into_iter();
            let news: Vec<_> = news.filter(|it| !report.survivors.contains(it)).collect();
            report.survivors.extend(news);
        }
        report
    });
    let SweepReport { ended, survivors } = sweep.await.unwrap_or_default();
    Aftermath {
        ended,
        survivors,
        killed: true,
        guard_lost: true,
        ..Aftermath::default()
    }
}

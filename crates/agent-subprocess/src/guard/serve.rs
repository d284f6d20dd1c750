//! The main code of the guard. At its start, the guard ignores signals, and becomes the leader of its session and the parent of every orphan below
//! it. Then it handles the commands of the host.

use std::ffi::{CString, OsString};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags};
use rustix::process::Signal;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, clock_gettime,
    timerfd_create, timerfd_settime,
};

use super::tree::Tree;
use crate::exec_image::ExecImage;
use crate::guard_protocol::{
    GuardMessage, HostCommand, Inbox, MAX_HOLD, MAX_NAMES, OsText, SignalTarget, SpawnSpec,
    VERSION, frame,
};
use crate::proc_fs::timespec;
use crate::proc_fs::{self, Stat};
use crate::sys::{self, AgentSpec};
use crate::{sweep, times};

/// Runs the guard and does not return if standard input is the control socket.
pub(super) fn run_if_connected() {
    let connected = rustix::net::getsockname(std::io::stdin())
        .is_ok_and(|address| address.address_family() == rustix::net::AddressFamily::UNIX);
    if connected {
        // Ignore signals first: a Ctrl-C of the terminal reaches this process until it has a session of its own.
        sys::ignore_signals();
        let own = proc_fs::own();
        let (refusal, start_time) = (refusal(own), own.map_or(0, |own| own.start_time));
        if let Ok((control, children)) = prepare() {
            serve(control, children, start_time, refusal);
        }
        sys::exit_now(0);
    }
}

/// Returns the reason why this process cannot be a guard, if there is one.
fn refusal(own: Option<Stat>) -> Option<String> {
    let reason = match own {
        None => "/proc belongs to another pid namespace; mount the /proc of this namespace",
        Some(own) if own.threads != 1 => {
            "a thread was started before run_if_guard; call it first in main"
        }
        Some(_) => return None,
    };
    Some(reason.to_owned())
}

/// Returns the time for which a guard without a program waits.
fn longest_wait() -> Duration {
    #[cfg(feature = "test-util")]
    if let Ok(milliseconds) = std::env::var("AGENT_GUARD_WAIT_MS") {
        return Duration::from_millis(milliseconds.parse().unwrap_or(0));
    }
    times::WARM_GUARD
}

/// Returns the control socket, and the descriptor that becomes readable when a child ends.
fn prepare() -> Result<(OwnedFd, OwnedFd), Errno> {
    sys::close_leaked_descriptors()?;
    // The guard must not keep a file system busy. It stays there if the system refuses.
    let _stays = rustix::process::chdir(c"/");
    sys::reset_signals();
    rustix::process::setsid()?;
    rustix::thread::set_name(c"agent-guard")?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    // A program can stop its guard with SIGSTOP, and a stopped guard would not notice the death of its host.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::CONT))?;
    let control = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3)?;
    let null = rustix::fs::open(
        "/dev/null",
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
        0.into(),
    )?;
    rustix::stdio::dup2_stdin(null)?;
    Ok((control, sys::child_signals()?))
}

pub(super) fn serve(control: OwnedFd, children: OwnedFd, start_time: u64, refused: Option<String>) {
    let mut line = ControlLine {
        socket: control,
        inbox: Inbox::default(),
        outbox: Vec::new(),
        has_reported_exit: false,
        closed: false,
        has_lost_a_message: false,
    };
    let stay = refused.is_none();
    line.send_to_host(&GuardMessage::Hello {
        version: VERSION,
        start_time,
        refused,
    });
    if !stay {
        return;
    }
    if !line.wait_for_spec(Duration::ZERO) {
        rehearse();
        if !line.wait_for_spec(longest_wait()) {
            return;
        }
    }
    let Some((spec, descriptors)) = line.receive_spec() else {
        return;
    };
    line.send_to_host(&GuardMessage::Accepted);
    // The host takes a guard that ends without this message for one that has spawned nothing.
    if line.has_lost_a_message || !line.outbox.is_empty() {
        return;
    }
    // A host that is gone waits for no program. The guard holds the lock of that host, so another host can start a program when this guard has ended.
    if line.host_is_gone() {
        return;
    }
    let survivors_file = spec
        .survivors_file
        .clone()
        .map(|path| PathBuf::from(OsString::from(path)));
    let kill_at = spec.kill_at.map(Duration::from_millis);
    let (pid, held) = match spawn(spec, descriptors) {
        Ok(spawned) => spawned,
        Err((in_directory, error)) => {
            return line.send_to_host(&GuardMessage::SpawnFailed {
                errno: error.raw_os_error(),
                in_directory,
            });
        }
    };
    line.send_to_host(&GuardMessage::Spawned { pid });
    let mut tree = Tree::new(pid, children);
    serve_commands(&mut line, &mut tree, kill_at);
    let aftermath = tree.tree_end();
    line.report_exit(&tree);
    let found = !(aftermath.ended.is_empty() && aftermath.survivors.is_empty());
    if let Some(path) = survivors_file.filter(|_| line.closed && found) {
        let report = sweep::SweepReport {
            ended: aftermath.ended.clone(),
            survivors: aftermath.survivors.clone(),
        };
        // A failure can't be reported because the host is gone; the next sweep uses the marker anyway.
        let _unwritten = report.append(&path);
    }
    // The process tree is gone, or nothing can end the survivors that the report names. So the descriptors of the host close. The host can rely on
    // this when it gets the last message.
    drop(held);
    // A host that only dropped its handle still reads.
    line.send_to_host(&GuardMessage::Ended(aftermath));
    line.flush_until(Instant::now() + times::LAST_REPORT);
}

/// Reads a small spec of its own before the host sends one, so that the memory and the code that this needs are in place.
fn rehearse() {
    let text = || OsText::new("RLM=text");
    let spec = SpawnSpec {
        program: text(),
        args: vec![text()],
        env: vec![text(); 40],
        directory: text(),
        stdin: false,
        uid: None,
        gid: None,
        survivors_file: Some(text()),
        kill_at: None,
    };
    let mut inbox = Inbox::default();
    inbox.push(&frame(&spec));
    if let Ok(Some(spec)) = inbox.next::<SpawnSpec>() {
        let _image = ExecImage::new(&spec);
    }
}

/// Waits and handles commands until the process tree is empty or the time is over.
fn serve_commands(line: &mut ControlLine, tree: &mut Tree, kill_at: Option<Duration>) {
    let mut kill: Option<(Instant, Duration)> = None;
    let mut deadline = kill_at.map(KillDeadline::new);
    while tree.reap() {
        line.report_exit(tree);
        let now = Instant::now();
        if let Some((at, rounds)) = kill
            && now >= at
        {
            tree.kill_rounds(rounds);
            break;
        }
        if deadline.as_ref().is_some_and(KillDeadline::is_over) {
            tree.kill_rounds(times::ORPHAN_ROUNDS);
            break;
        }
        let timer = deadline
            .as_ref()
            .and_then(|deadline| deadline.timer.as_ref());
        let until_kill = kill.map(|(at, _)| at - now);
        let time = tree.go_on_suspending().into_iter().chain(until_kill).min();
        line.wait(tree.child_signals(), timer, time);
        while let Some(order) = line.next_command() {
            match order {
                HostCommand::RecordNames => tree.record_all(),
                HostCommand::Signal {
                    signal,
                    target: whom,
                } => {
                    let Some(signal) = Signal::from_named_raw(signal) else {
                        continue;
                    };
                    match whom {
                        SignalTarget::Group => tree.signal_group(signal),
                        SignalTarget::Tree if signal == Signal::STOP => tree.suspend(),
                        SignalTarget::Tree => tree.signal_all(signal),
                    }
                }
                HostCommand::Stop { grace, rounds } => {
                    let at = Instant::now() + Duration::from_millis(grace);
                    terminate(tree, &mut kill, at, Duration::from_millis(rounds));
                }
                HostCommand::KillAt { boottime } => {
                    deadline = Some(KillDeadline::new(Duration::from_millis(boottime)));
                }
                HostCommand::List { sequence } => {
                    let others = tree
                        .descendants()
                        .into_iter()
                        .filter(|stat| stat.pid != tree.main);
                    let processes = others
                        .map(|stat| proc_fs::name(stat.pid))
                        .take(MAX_NAMES)
                        .collect();
                    line.send_to_host(&GuardMessage::Listed {
                        sequence,
                        processes,
                    });
                }
            }
        }
        if line.closed && kill.is_none_or(|(at, _)| at > Instant::now() + times::ORPHAN_GRACE) {
            terminate(
                tree,
                &mut kill,
                Instant::now() + times::ORPHAN_GRACE,
                times::ORPHAN_ROUNDS,
            );
        }
    }
}

/// The time at which the guard kills the process tree without a command. It must hold while the host is frozen, and over a suspend of the machine.
struct KillDeadline {
    /// In the time of `CLOCK_BOOTTIME`.
    at: Duration,
    /// Becomes readable at that time. `None` if the system has no such timer: then the process tree is killed at once.
    timer: Option<OwnedFd>,
}

impl KillDeadline {
    fn new(at: Duration) -> Self {
        let armed = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Boottime, armed).and_then(|timer| {
            let once = Itimerspec {
                it_interval: timespec(Duration::ZERO),
                // A value of zero would disarm the timer.
                it_value: timespec(at.max(Duration::from_nanos(1))),
            };
            timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &once)?;
            Ok(timer)
        });
        let timer = timer.ok();
        Self { at, timer }
    }

    fn is_over(&self) -> bool {
        let now = clock_gettime(ClockId::Boottime);
        let now = Duration::try_from(now).unwrap_or(Duration::MAX);
        self.timer.is_none() || now >= self.at
    }
}

/// Sends SIGTERM once. A later command, or the death of the host, can only make the end earlier.
fn terminate(
    tree: &mut Tree,
    kill: &mut Option<(Instant, Duration)>,
    at: Instant,
    rounds: Duration,
) {
    // A killed process is recorded when it is killed. A process that ends by itself must be recorded before.
    if kill.is_none() && at > Instant::now() {
        tree.record_all();
        tree.signal_all(Signal::TERM);
        // A stopped process handles SIGTERM only after SIGCONT.
        tree.signal_all(Signal::CONT);
    }
    *kill = Some((kill.map_or(at, |(earlier, _)| earlier.min(at)), rounds));
}

/// Spawns the program. Returns the pid and the descriptors to hold. On failure, returns whether the working directory was the reason.
fn spawn(spec: SpawnSpec, descriptors: Vec<OwnedFd>) -> Result<(u32, Vec<OwnedFd>), (bool, Errno)> {
    let mut descriptors = descriptors.into_iter();
    let mut next = || descriptors.next().ok_or((false, Errno::BADF));
    let stdin = spec.stdin.then(&mut next).transpose()?;
    let (stdout, stderr) = (next()?, next()?);
    let image = ExecImage::new(&spec).map_err(|_| (false, Errno::INVAL))?;
    let directory = CString::new(OsString::from(spec.directory).into_vec());
    let pid = sys::spawn_agent(AgentSpec {
        image,
        directory: directory.map_err(|_| (true, Errno::INVAL))?,
        stdin,
        stdout,
        stderr,
        uid: spec.uid,
        gid: spec.gid,
    })?;
    let pid = pid.as_raw_nonzero().get().cast_unsigned();
    Ok((pid, descriptors.collect()))
}

/// The guard's end of the control socket. A write never blocks.
struct ControlLine {
    socket: OwnedFd,
    inbox: Inbox,
    outbox: Vec<u8>,
    has_reported_exit: bool,
    closed: bool,
    /// Whether the system refused to send something.
    has_lost_a_message: bool,
}

impl ControlLine {
    fn send_to_host(&mut self, notice: &GuardMessage) {
        self.outbox.extend(frame(notice));
        self.flush();
    }

    /// Reports the exit of the main process once, as soon as it is known.
    fn report_exit(&mut self, tree: &Tree) {
        if let Some(exit) = tree.exit
            && !std::mem::replace(&mut self.has_reported_exit, true)
        {
            self.send_to_host(&GuardMessage::Exited(exit));
        }
    }

    fn flush(&mut self) {
        while !self.outbox.is_empty() {
            match rustix::net::send(
                &self.socket,
                &self.outbox,
                SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
            ) {
                Ok(sent) => drop(self.outbox.drain(..sent)),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(_) => {
                    self.outbox.clear();
                    self.has_lost_a_message = true;
                }
            }
        }
    }

    /// Returns whether the host has closed its end. Reads nothing from the socket.
    fn host_is_gone(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match rustix::net::recv(&self.socket, &mut [0_u8; 1], flags) {
            Ok((_, read)) => read == 0,
            Err(error) => error != Errno::AGAIN,
        }
    }

    fn flush_until(&mut self, deadline: Instant) {
        while !self.outbox.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let _woken_or_due = rustix::event::poll(
                &mut [PollFd::new(&self.socket, PollFlags::OUT)],
                Some(&timespec(left)),
            );
            self.flush();
        }
    }

    /// Waits until the host sends a command, a child ends or the timer is due.
    fn wait(&mut self, children: &OwnedFd, timer: Option<&OwnedFd>, time: Option<Duration>) {
        let interest = if self.outbox.is_empty() {
            PollFlags::IN
        } else {
            PollFlags::IN | PollFlags::OUT
        };
        let mut fds = vec![PollFd::new(children, PollFlags::IN)];
        fds.extend(timer.map(|timer| PollFd::new(timer, PollFlags::IN)));
        if !self.closed {
            fds.push(PollFd::new(&self.socket, interest));
        }
        let _woken_or_due = rustix::event::poll(&mut fds, time.map(timespec).as_ref());
        self.flush();
    }

    /// Returns the next command that has arrived; notices the end of the host.
    fn next_command(&mut self) -> Option<HostCommand> {
        let mut bytes = [0; 4096];
        loop {
            match self.inbox.next() {
                Ok(Some(order)) => return Some(order),
                Ok(None) if !self.closed => {}
                _ => {
                    self.closed = true;
                    return None;
                }
            }
            match rustix::net::recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => self.closed = true,
                Ok((_, read)) => self.inbox.push(&bytes[..read]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return None,
                Err(_) => self.closed = true,
            }
        }
    }

    /// Waits until the host has sent something or has closed its end. Returns `false` if it did neither in this time.
    fn wait_for_spec(&self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        loop {
            // The last look takes no time: a host and its guard can be suspended together, for longer than this time.
            let left = deadline.saturating_duration_since(Instant::now());
            match rustix::event::poll(&mut fds, Some(&timespec(left))) {
                Err(Errno::INTR) => {}
                Ok(0) if !left.is_zero() => {}
                ready => return ready.is_ok_and(|count| count > 0),
            }
        }
    }

    /// Waits for the spec to spawn; returns `None` if the host is gone or sent a message that this guard does not understand.
    fn receive_spec(&mut self) -> Option<(SpawnSpec, Vec<OwnedFd>)> {
        let mut descriptors = Vec::new();
        let mut bytes = vec![0; 64 << 10];
        loop {
            if let Some(spec) = self.inbox.next().ok()? {
                return Some((spec, descriptors));
            }
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3 + MAX_HOLD))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut slices = [IoSliceMut::new(&mut bytes)];
            let received = rustix::net::recvmsg(
                &self.socket,
                &mut slices,
                &mut control,
                RecvFlags::CMSG_CLOEXEC,
            );
            let read = match received {
                Err(Errno::INTR) => continue,
                received => received.ok()?.bytes,
            };
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = message {
                    descriptors.extend(rights);
                }
            }
            if read == 0 {
                return None;
            }
            self.inbox.push(&bytes[..read]);
        }
    }
}

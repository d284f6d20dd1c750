//! Probes as child processes of a test: with pipes, or on their own terminal.

use std::{
    collections::VecDeque,
    fs::File,
    io::{Read, Write},
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, mpsc},
    time::{Duration, Instant},
};

use rustix::{
    fs::{Mode, OFlags},
    io::{FdFlags, fcntl_setfd},
    process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, test_kill_process, waitid},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{OptionalActions, tcgetattr, tcsetattr},
};

use crate::{DEADLINE, wait_for};

/// The variable with the name of the probe that this binary becomes.
pub(crate) const VARIABLE: &str = "INTERRUPT_STACK_PROBE";

/// Returns a command that starts this binary as a probe.
fn again(probe: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(PROBE).env(VARIABLE, probe);
    command
}

/// Returns a shell command that starts this binary as a probe.
fn job() -> String {
    let exe = std::env::current_exe().unwrap();
    let exe = exe.to_str().expect("the path of the test binary is UTF-8");
    format!("'{exe}' {}", PROBE.join(" "))
}

const PROBE: [&str; 4] = ["--exact", "probe::probe", "--nocapture", "--test-threads=1"];

/// The output of a probe: its reported lines, and all text.
struct ProbeOutput {
    lines: mpsc::Receiver<String>,
    text: Arc<Mutex<String>>,
}

impl ProbeOutput {
    fn from(source: impl Read + Send + 'static) -> Self {
        let (sender, lines) = mpsc::channel();
        let text = Arc::new(Mutex::new(String::new()));
        let all = text.clone();
        std::thread::spawn(move || {
            let (mut source, mut block, mut line) = (source, [0; 4096], String::new());
            // Reading a closed terminal returns an error.
            while let Ok(count @ 1..) = source.read(&mut block) {
                let part = String::from_utf8_lossy(&block[..count]);
                all.lock().unwrap().push_str(&part);
                line += &part;
                while let Some(end) = line.find('\n') {
                    let rest = line.split_off(end + 1);
                    // On a terminal, the echo of the input may come before the report on the same line.
                    if let Some((_, said)) = line.split_once("probe: ")
                        && sender.send(said.trim_end().to_owned()).is_err()
                    {
                        return;
                    }
                    line = rest;
                }
            }
        });
        Self { lines, text }
    }

    #[track_caller]
    fn line(&self) -> String {
        let line = self.lines.recv_timeout(DEADLINE);
        line.unwrap_or_else(|_| panic!("no line from the probe; its output:\n{}", self.text()))
    }

    fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }

    #[track_caller]
    fn ready(&self) -> Pid {
        let line = self.line();
        let pid = line.strip_prefix("ready ").and_then(|pid| pid.parse().ok());
        pid.and_then(Pid::from_raw)
            .unwrap_or_else(|| panic!("not ready: {line}\n{}", self.text()))
    }
}

/// A probe with pipes. Dropping this value ends the probe.
pub(crate) struct Probe {
    pub(crate) child: Child,
    stdin: ChildStdin,
    heard: ProbeOutput,
    /// The pid of the probe, which differs from the child's pid if a shell is in between.
    pub(crate) pid: Pid,
}

impl Probe {
    pub(crate) fn start(probe: &str) -> Self {
        Self::start_by("exec \"$@\"", probe)
    }

    /// Starts the probe from a shell script, in which `"$@"` is the probe.
    pub(crate) fn start_by(script: &str, probe: &str) -> Self {
        let mut child = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(std::env::current_exe().unwrap())
            .args(PROBE)
            .env(VARIABLE, probe)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let heard = ProbeOutput::from(child.stderr.take().unwrap());
        // Create the value before anything can fail, because its drop ends the child.
        let mut probe = Self {
            pid: Pid::from_child(&child),
            child,
            stdin,
            heard,
        };
        probe.expect_ready();
        probe
    }

    #[track_caller]
    pub(crate) fn line(&self) -> String {
        self.heard.line()
    }

    /// Returns the next line, if the probe has already reported it.
    pub(crate) fn next_line(&self) -> Option<String> {
        self.heard.lines.try_recv().ok()
    }

    /// Returns all lines from now on until the probe ends.
    pub(crate) fn rest(&self) -> Vec<String> {
        self.heard.lines.iter().collect()
    }

    #[track_caller]
    pub(crate) fn expect_ready(&mut self) {
        self.pid = self.heard.ready();
    }

    pub(crate) fn kill(&self, signal: Signal) {
        kill_process(self.pid, signal).unwrap();
    }

    /// Sends SIGINT, and waits until a thread of the probe has taken it and the debounce has passed.
    #[track_caller]
    pub(crate) fn press(&self) {
        press(self.pid);
    }

    /// Returns the processor time of the probe, in hundredths of a second.
    #[cfg(target_os = "linux")]
    pub(crate) fn processor_ticks(&self) -> u64 {
        let path = format!("/proc/{}/stat", self.pid.as_raw_nonzero());
        let stat = std::fs::read_to_string(path).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let times = fields.split_ascii_whitespace().skip(11).take(2);
        times.map(|time| time.parse::<u64>().unwrap()).sum()
    }

    /// Returns the pid of the one process that the child has started; that process has another pid in its own namespace.
    #[cfg(target_os = "linux")]
    pub(crate) fn grandchild(&self) -> Pid {
        let pid = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let child = children.trim().parse().ok().and_then(Pid::from_raw);
        child.expect("the child has exactly one child")
    }

    pub(crate) fn resume(&mut self) {
        writeln!(self.stdin).unwrap();
    }

    /// Whether a signal has stopped the probe.
    pub(crate) fn is_stopped(&self) -> bool {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let stopped = waitid(WaitId::Pid(self.pid), options).unwrap();
        stopped.is_some_and(|status| status.stopped())
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    #[track_caller]
    pub(crate) fn end(&mut self) -> ExitStatus {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(
                Instant::now() < deadline,
                "the probe is still alive:\n{}",
                self.heard.text()
            );
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        if self.is_alive() {
            self.child.kill().unwrap();
            self.child.wait().unwrap();
        }
    }
}

/// The process group in the foreground of the terminal.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// The probe is in the foreground, and its parent outlives it.
    Foreground,
    /// The parent stays in the foreground.
    Background,
}

/// A terminal, a session on it, and the probe as its job. Dropping this value ends the session and the probe.
pub(crate) struct Seat {
    ours: File,
    heard: ProbeOutput,
    /// The session leader. Without it the system would reset the terminal.
    leader: Child,
    probe: Option<Pid>,
    /// The original settings of the terminal.
    pub(crate) before: String,
    /// The end of the probe, as its parent reported it.
    ended: Option<String>,
    /// Lines that were read during the search for `ended`.
    unread: VecDeque<String>,
}

impl Seat {
    pub(crate) fn take(place: Place, probe: &str, mode: &str) -> Self {
        let place = match place {
            Place::Foreground => "foreground",
            Place::Background => "background",
        };
        let mut seat = Self::lead(
            again("seat")
                .env("JOB", job())
                .env("INTERRUPT_STACK_JOB", probe)
                .env("INTERRUPT_STACK_PLACE", place)
                .env("INTERRUPT_STACK_MODE", mode),
        );
        seat.expect_ready();
        seat
    }

    /// Starts a shell on a terminal, in which `eval "$JOB"` runs the probe.
    pub(crate) fn shell(arguments: &[&str], probe: &str, mode: &str) -> Self {
        Self::lead(
            again("shell")
                .env("INTERRUPT_STACK_ARGUMENTS", arguments.join("\n"))
                .env("INTERRUPT_STACK_JOB", probe)
                .env("INTERRUPT_STACK_MODE", mode)
                .env("JOB", job())
                .env("PS1", "$ ")
                .env("HISTFILE", ""),
        )
    }

    fn lead(command: &mut Command) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        fcntl_setfd(&ours, FdFlags::CLOEXEC).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let name = std::ffi::OsStr::from_bytes(name.as_bytes());
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let theirs: OwnedFd = rustix::fs::open(name, flags, Mode::empty()).unwrap();
        let ours = File::from(ours);
        let before = settings(&ours);
        let heard = ProbeOutput::from(ours.try_clone().unwrap());
        let leader = command
            .stdin(theirs.try_clone().unwrap())
            .stdout(theirs.try_clone().unwrap())
            .stderr(theirs)
            .spawn()
            .unwrap();
        Self {
            ours,
            heard,
            leader,
            probe: None,
            before,
            ended: None,
            unread: VecDeque::new(),
        }
    }

    #[track_caller]
    pub(crate) fn expect_ready(&mut self) {
        self.probe = Some(self.heard.ready());
    }

    #[track_caller]
    pub(crate) fn line(&mut self) -> String {
        let unread = self.unread.pop_front();
        unread.unwrap_or_else(|| self.heard.line())
    }

    /// Returns all output so far.
    pub(crate) fn text(&self) -> String {
        self.heard.text()
    }

    pub(crate) fn send(&self, bytes: impl AsRef<[u8]>) {
        (&self.ours).write_all(bytes.as_ref()).unwrap();
    }

    pub(crate) fn kill(&self, signal: Signal) {
        kill_process(self.probe.unwrap(), signal).unwrap();
    }

    pub(crate) fn probe(&self) -> Pid {
        self.probe.expect("the probe is ready")
    }

    /// Whether the probe has ended, even if its parent has not waited for it. For a parent that reports nothing.
    pub(crate) fn is_gone(&self) -> bool {
        let pid = self.probe();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| stat.contains(") Z ")) || test_kill_process(pid).is_err()
    }

    /// Makes the terminal raw, as another program on it would, and returns the new settings.
    pub(crate) fn change(&self) -> String {
        let mut terminal = tcgetattr(&self.ours).unwrap();
        terminal.make_raw();
        tcsetattr(&self.ours, OptionalActions::Now, &terminal).unwrap();
        self.settings()
    }

    /// Waits until the probe's parent waits, because a shell that has just started a job may not be ready for a signal.
    #[track_caller]
    pub(crate) fn let_the_parent_wait(&self) {
        #[cfg(target_os = "linux")]
        wait_for("the parent's wait", || {
            let stat = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            let own = stat(&self.probe().to_string());
            let parent = own
                .rsplit(") ")
                .next()
                .and_then(|rest| rest.split(' ').nth(1));
            stat(parent.unwrap()).contains(") S ")
        });
        crate::apart();
    }

    /// Sends SIGINT as [`Probe::press`] does.
    #[track_caller]
    pub(crate) fn press(&self) {
        press(self.probe());
    }

    /// Types ^C on a terminal that turns it into a signal, and waits for its echo. At the time of the echo the signal has been sent.
    #[track_caller]
    pub(crate) fn type_press(&self) {
        let echoes = || self.text().matches("^C").count();
        let before = echoes();
        self.send(b"\x03");
        wait_for("the echo", || echoes() > before);
    }

    pub(crate) fn settings(&self) -> String {
        settings(&self.ours)
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        for line in self.heard.lines.try_iter() {
            if line.starts_with("ended ") {
                self.ended = Some(line);
                self.probe = None; // the pid can be reused from now on
            } else {
                self.unread.push_back(line);
            }
        }
        self.ended.is_some()
    }

    /// Waits for the end of the probe, and returns its parent's report.
    #[track_caller]
    pub(crate) fn end(&mut self) -> String {
        let deadline = Instant::now() + DEADLINE;
        while !self.has_ended() {
            assert!(
                Instant::now() < deadline,
                "the probe is still alive:\n{}",
                self.text()
            );
            std::thread::park_timeout(Duration::from_millis(1));
        }
        self.ended.clone().unwrap()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if !self.has_ended()
            && let Some(probe) = self.probe
        {
            // The probe may have ended already, together with the shell that would have reported it.
            _ = kill_process(probe, Signal::KILL);
        }
        self.leader.kill().unwrap();
        self.leader.wait().unwrap();
    }
}

/// Sends SIGINT as [`Probe::press`] does, and waits, because a busy machine may deliver a signal late, right before the next one.
#[track_caller]
pub(crate) fn press(pid: Pid) {
    send(pid, Signal::INT);
}

/// Sends a signal, and waits until a thread has taken and handled it.
#[track_caller]
pub(crate) fn send(pid: Pid, signal: Signal) {
    kill_process(pid, signal).unwrap();
    wait_for_the_taking(pid);
    crate::apart();
}

/// Waits until threads have taken all sent signals. Only Linux reports this.
#[track_caller]
pub(crate) fn wait_for_the_taking(pid: Pid) {
    wait_for("the signal", || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
        let mask = pending.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.unwrap_or(0) == 0
    });
}

/// Returns all settings of the terminal, as text.
fn settings(terminal: &File) -> String {
    format!("{:?}", tcgetattr(terminal).unwrap())
}

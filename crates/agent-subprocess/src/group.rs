//! The fallback without a guard: a process group, a walk of the descendants before the kill, and a sweep by marker after it. A process escapes if it
//! left the group, lost its parents and cleared its environment.

use crate::guard_protocol::{HostCommand, SignalTarget, TreeEnd};
use crate::tree_handle::{TreeChannel, TreeHandle, TreeProgress};
use crate::{Exit, Marker, ProcessId, ProcessName};
use rustix::process::{Pid, Signal};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::spawn_blocking;

/// The maximum number of waiting commands; a stop needs two.
const ORDERS: usize = 16;
/// The interval between two checks whether all processes are gone.
const POLL: Duration = Duration::from_millis(5);

/// Spawns the program in a process group of its own. `command` already has its streams, arguments and environment.
pub(crate) fn start(
    mut command: Command,
    marker: Marker,
    group_only: bool,
) -> io::Result<TreeHandle> {
    let child = command.process_group(0).spawn()?;
    let main = child.id().unwrap_or(0);
    let (sender, orders) = mpsc::channel(ORDERS);
    let (progress, receiver) = watch::channel(TreeProgress::default());
    let group = Group {
        main,
        pid_owner: Arc::new(Mutex::new(PidOwner::Main)),
        marker: marker.clone(),
        group_only,
    };
    let hold = ReapTask {
        child,
        group: group.clone(),
    };
    tokio::spawn(serve(hold, orders, progress));
    let give_up = Arc::new(Notify::new());
    Ok(TreeHandle {
        main,
        channel: TreeChannel::Group { sender, group },
        progress: receiver,
        give_up,
        marker,
    })
}

/// The main process, owned by the task that reaps it. When the runtime drops the task, this value kills the group.
struct ReapTask {
    child: Child,
    group: Group,
}

impl ReapTask {
    /// Waits for the end of the main process. Its pid can't be reused until then, and no signal is sent while it is reaped.
    async fn reaped(&mut self) -> Exit {
        let wait = self.child.wait();
        tokio::pin!(wait);
        let exit = std::future::poll_fn(|cx| {
            let mut number = self.group.lock();
            let polled = wait.as_mut().poll(cx);
            if polled.is_ready() {
                *number = self.group.owner_without_main();
            }
            polled
        });
        exit.await.map_or(Exit::UNKNOWN, Exit::from)
    }
}

impl Drop for ReapTask {
    fn drop(&mut self) {
        self.group.kill();
        // From here on, tokio reaps the process without a report, so assume that the pid is free.
        *self.group.lock() = PidOwner::Free;
    }
}

/// Reaps the main process and handles commands until the group has ended.
async fn serve(
    mut hold: ReapTask,
    mut orders: mpsc::Receiver<HostCommand>,
    progress: watch::Sender<TreeProgress>,
) {
    let mut met = BTreeMap::new();
    // A `List` follows each `RecordNames`, so one search serves both.
    let mut noting = false;
    let exited = |exit: Exit| progress.send_modify(|now| now.exit = Some(exit));
    let group = hold.group.clone();
    loop {
        let alive = progress.borrow().exit.is_none();
        let order = tokio::select! {
            exit = hold.reaped(), if alive => {
                exited(exit);
                continue;
            }
            order = orders.recv() => order,
        };
        let work = group.clone();
        match order {
            // The handle was dropped, which killed the group.
            None => {
                return if alive {
                    exited(hold.reaped().await)
                };
            }
            Some(HostCommand::RecordNames) => noting = true,
            // `ProcessTree` refuses it without a guard.
            Some(HostCommand::KillAt { .. }) => {}
            Some(HostCommand::Signal {
                signal,
                target: whom,
            }) => {
                let Some(signal) = Signal::from_named_raw(signal) else {
                    continue;
                };
                match whom {
                    SignalTarget::Group if !alive => {}
                    SignalTarget::Group => {
                        met.extend(
                            spawn_blocking(move || work.members())
                                .await
                                .unwrap_or_default(),
                        );
                        group.signal_group(signal);
                    }
                    SignalTarget::Tree => {
                        drop(spawn_blocking(move || work.signal_all(signal)).await)
                    }
                }
            }
            Some(HostCommand::List { sequence }) => {
                let members = spawn_blocking(move || work.members())
                    .await
                    .unwrap_or_default();
                if noting {
                    met.extend(members.clone());
                }
                let members = members
                    .into_iter()
                    .map(named)
                    .filter(|member| member.pid != group.main);
                progress.send_modify(|now| now.latest_list = (sequence, members.collect()));
            }
            Some(HostCommand::Stop { grace, rounds }) => {
                let times = (Duration::from_millis(grace), Duration::from_millis(rounds));
                let met = std::mem::take(&mut met);
                let (kill_at, kill_watch) = watch::channel(Instant::now() + times.0);
                let mut end = spawn_blocking(move || work.end(times, &kill_watch, met));
                // Continue to reap: an unreaped main process keeps its group alive.
                let ended = loop {
                    let alive = progress.borrow().exit.is_none();
                    tokio::select! {
                        ended = &mut end => break ended,
                        exit = hold.reaped(), if alive => exited(exit),
                        // Another stop can make the end earlier.
                        Some(order) = orders.recv() => if let HostCommand::Stop { grace, .. } = order {
                            let at = Instant::now() + Duration::from_millis(grace);
                            kill_at.send_modify(|kill| *kill = at.min(*kill));
                        },
                    }
                };
                progress.send_modify(|now| now.tree_end = Some(ended.unwrap_or_default()));
                return if progress.borrow().exit.is_none() {
                    exited(hold.reaped().await)
                };
            }
        }
    }
}

type Members = BTreeMap<ProcessId, String>;

fn named((process, name): (ProcessId, String)) -> ProcessName {
    ProcessName {
        pid: process.pid,
        name,
    }
}

/// The owner of the pid of the main process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PidOwner {
    /// The main process, alive or dead, and its group: no other process can have the pid.
    Main,
    /// The group only: the main process is gone. Another process can get the pid only when the group is gone too.
    Group,
    /// No process of this program; possibly another process.
    Free,
}

#[derive(Clone, Debug)]
pub(crate) struct Group {
    main: u32,
    pid_owner: Arc<Mutex<PidOwner>>,
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "only Linux is swept")
    )]
    marker: Marker,
    /// A stop uses only `killpg`: the control experiment of the tests.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "there is only the group")
    )]
    group_only: bool,
}

impl Group {
    fn lock(&self) -> MutexGuard<'_, PidOwner> {
        self.pid_owner
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn owner_without_main(&self) -> PidOwner {
        let group = self.pid().map(rustix::process::test_kill_process_group);
        match group {
            None | Some(Err(rustix::io::Errno::SRCH)) => PidOwner::Free,
            Some(_) => PidOwner::Group,
        }
    }

    /// Kills the group immediately, if it still belongs to the main process.
    pub(crate) fn kill(&self) {
        // Hold the lock until the signal is sent: otherwise the main process could be reaped in between.
        let number = self.lock();
        if self.is_group(*number) {
            self.signal_group(Signal::KILL);
        }
    }

    /// Returns whether the process group still belongs to the program. If a process has the id of the group as its pid, it is most
    /// likely the leader of another program's group.
    fn is_group(&self, number: PidOwner) -> bool {
        match number {
            PidOwner::Main => true,
            PidOwner::Group => {
                let leader = self.pid().map(rustix::process::test_kill_process);
                leader == Some(Err(rustix::io::Errno::SRCH))
            }
            PidOwner::Free => false,
        }
    }

    fn signal_group(&self, signal: Signal) {
        if let Some(group) = self.pid() {
            let _gone_or_refused = rustix::process::kill_process_group(group, signal);
        }
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.main).ok().and_then(Pid::from_raw)
    }

    /// Returns the living processes that are in the group, are below the main process, or have the marker.
    #[cfg(target_os = "linux")]
    fn members(&self) -> Members {
        use crate::{proc_fs, sweep};
        if !proc_fs::is_ours() {
            return self.members_without_proc();
        }
        let number = *self.lock();
        let all = proc_fs::all();
        let is_ours = self.is_group(number);
        let group = all
            .iter()
            .copied()
            .filter(|stat| is_ours && stat.group == self.main && !stat.is_dead());
        let below = if self.group_only || number != PidOwner::Main {
            Vec::new()
        } else {
            proc_fs::below(self.main, &all)
        };
        let mut members: Members = group
            .chain(below)
            .map(|stat| (stat.id(), proc_fs::name(stat.pid).name))
            .collect();
        if !self.group_only {
            let found = sweep::find_within(&self.marker, Duration::ZERO);
            members.extend(found.into_iter().map(|found| (found.process, found.name)));
        }
        members
    }

    #[cfg(not(target_os = "linux"))]
    fn members(&self) -> Members {
        self.members_without_proc()
    }

    /// Returns the group as one entry if it exists: here its processes can't be listed.
    fn members_without_proc(&self) -> Members {
        let there = self.is_group(*self.lock())
            && self
                .pid()
                .is_some_and(|group| rustix::process::test_kill_process_group(group).is_ok());
        let main = ProcessId {
            pid: self.main,
            start_time: 0,
        };
        there
            .then(|| (main, "process group".to_owned()))
            .into_iter()
            .collect()
    }

    /// Finds all members and signals them.
    fn signal_all(&self, signal: Signal) -> Members {
        let members = self.members();
        self.signal_members(&members, signal);
        members
    }

    /// Signals members, after a check of the identity of each, and the group while it belongs to the main process.
    fn signal_members(&self, members: &Members, signal: Signal) {
        let number = self.lock();
        if *number == PidOwner::Main || !members.is_empty() && !self.can_list() {
            self.signal_group(signal);
        }
        drop(number);
        #[cfg(target_os = "linux")]
        for member in members.keys().filter(|_| self.can_list()) {
            let _gone_or_refused = crate::proc_fs::signal(*member, signal, |_| true);
        }
    }

    /// Returns whether the members can be listed and signalled one by one.
    fn can_list(&self) -> bool {
        #[cfg(target_os = "linux")]
        return !self.group_only && crate::proc_fs::is_ours();
        #[cfg(not(target_os = "linux"))]
        false
    }

    /// Returns all members that are found now, the earlier members that are still alive, and the descendants of both. If a process lost its
    /// parents, a walk does not find it again.
    #[cfg(target_os = "linux")]
    fn living(&self, met: &Members) -> Members {
        use crate::proc_fs;
        let mut living = self.members();
        let is_lost = |process: &&ProcessId| !living.contains_key(process) && process.is_alive();
        let lost: Vec<ProcessId> = met.keys().filter(is_lost).copied().collect();
        if !lost.is_empty() {
            let all = proc_fs::all();
            let lost = lost.into_iter();
            let with_below = lost.flat_map(|process| {
                let below = proc_fs::below(process.pid, &all).into_iter();
                std::iter::once(process).chain(below.map(|stat| stat.id()))
            });
            living.extend(with_below.map(|id| (id, proc_fs::name(id.pid).name)));
        }
        if living.is_empty() && self.can_list() {
            // Only the last search is worth a wait.
            let found = crate::sweep::find(&self.marker.variable, &self.marker.value());
            living.extend(found.into_iter().map(|found| (found.process, found.name)));
        }
        living
    }

    #[cfg(not(target_os = "linux"))]
    fn living(&self, _met: &Members) -> Members {
        self.members()
    }

    /// Ends all members: SIGTERM, then SIGKILL in rounds from `kill` on. Blocks for at most about the sum of both times.
    fn end(
        &self,
        (grace, rounds): (Duration, Duration),
        kill: &watch::Receiver<Instant>,
        mut met: Members,
    ) -> TreeEnd {
        let mut alive = self.living(&met);
        let terminated = !grace.is_zero() && !alive.is_empty();
        if terminated {
            for signal in [Signal::TERM, Signal::CONT] {
                let now = self.living(&met);
                self.signal_members(&now, signal);
                met.extend(now);
            }
        }
        while !alive.is_empty() && Instant::now() < *kill.borrow() {
            met.extend(std::mem::take(&mut alive));
            pause();
            alive = self.living(&met);
        }
        let killed = !alive.is_empty();
        let over = *kill.borrow() + rounds;
        // Kill at least once: the search can take all of the time.
        while !alive.is_empty() {
            self.signal_members(&alive, Signal::KILL);
            met.extend(std::mem::take(&mut alive));
            pause();
            alive = self.living(&met);
            if Instant::now() >= over {
                break;
            }
        }
        met.retain(|member, _| !alive.contains_key(member));
        let (ended, survivors) = (
            met.into_iter().map(named).collect(),
            alive.into_iter().map(named).collect(),
        );
        TreeEnd {
            ended,
            survivors,
            terminated,
            killed,
            ..TreeEnd::default()
        }
    }
}

/// Blocks the thread for one interval.
fn pause() {
    let time = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: POLL.subsec_nanos().into(),
    };
    let _nothing_to_wait_for_but_time = rustix::event::poll(&mut [], Some(&time));
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn found_process_is_killed_after_slow_scan() {
        use std::os::unix::process::CommandExt as _;
        let mut child = std::process::Command::new("sleep")
            .arg("600")
            .process_group(0)
            .spawn()
            .unwrap();
        let group = Group {
            main: child.id(),
            pid_owner: Arc::new(Mutex::new(PidOwner::Main)),
            marker: Marker::random(),
            group_only: false,
        };
        let (_kill_at, at) = watch::channel(Instant::now());
        let aftermath = group.end((Duration::ZERO, Duration::ZERO), &at, Members::new());
        assert!(aftermath.killed);
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap()),
            Some(9)
        );
    }
}

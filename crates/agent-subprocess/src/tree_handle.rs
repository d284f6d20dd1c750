//! The host's handle of a process tree, for both kinds of containment: it sends commands and receives progress.

use crate::group::Group;
use crate::guard_protocol::{HostCommand, SignalTarget, TreeEnd};
use crate::{Exit, Marker, ProcessId, ProcessName, sweep};
use rustix::process::Signal;
use std::io;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc, watch};

/// The method that holds the process tree of a program together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Containment {
    /// A guard; without one the spawn fails. The default on Linux.
    Guard,
    /// A guard if one is available, otherwise the process group.
    Auto,
    /// A process group, a walk of the descendants and a sweep by marker. A process escapes if it left the group, lost its parent and cleared its
    /// environment. All processes escape if the host is killed. The default outside Linux.
    Group,
}

impl Default for Containment {
    /// Returns the strongest containment of the platform.
    fn default() -> Self {
        match cfg!(target_os = "linux") {
            true => Self::Guard,
            false => Self::Group,
        }
    }
}

/// The known facts about a process tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct TreeProgress {
    /// The exit of the main process.
    pub(crate) exit: Option<Exit>,
    /// The latest requested list of processes, with its sequence number.
    pub(crate) latest_list: (u64, Vec<ProcessName>),
    /// The result of the process tree, once the tree has ended by itself or by a command.
    pub(crate) tree_end: Option<TreeEnd>,
}

#[derive(Debug)]
pub(crate) enum TreeChannel {
    #[cfg(target_os = "linux")]
    Guard {
        socket: Arc<tokio::net::UnixStream>,
        guard: ProcessId,
    },
    Group {
        sender: mpsc::Sender<HostCommand>,
        group: Group,
    },
}

/// The host's handle of one program. Dropping it ends the process tree: a guard sees its socket close and ends the tree by itself; without a guard, the
/// process group is killed immediately.
#[derive(Debug)]
pub(crate) struct TreeHandle {
    pub(crate) main: u32,
    pub(crate) channel: TreeChannel,
    pub(crate) progress: watch::Receiver<TreeProgress>,
    /// Makes the background task give up on a guard that does not answer: the task kills the guard and sweeps.
    pub(crate) give_up: Arc<Notify>,
    pub(crate) marker: Marker,
}

impl TreeHandle {
    pub(crate) fn guard(&self) -> Option<ProcessId> {
        match self.channel {
            #[cfg(target_os = "linux")]
            TreeChannel::Guard { guard, .. } => Some(guard),
            TreeChannel::Group { .. } => None,
        }
    }

    /// Continues a guard that was stopped by SIGSTOP: otherwise it would not receive a stop.
    pub(crate) fn wake(&self) {
        #[cfg(target_os = "linux")]
        if let Some(guard) = self.guard() {
            let _gone = crate::proc_fs::signal(guard, Signal::CONT, |_| true);
        }
    }

    pub(crate) fn containment(&self) -> Containment {
        if self.guard().is_some() {
            Containment::Guard
        } else {
            Containment::Group
        }
    }

    pub(crate) fn exit(&self) -> Option<Exit> {
        self.progress.borrow().exit
    }

    /// Sends a command without waiting. Commands are small, so a full socket means that the guard no longer reads.
    pub(crate) fn send_command(&self, order: HostCommand) -> io::Result<()> {
        match &self.channel {
            #[cfg(target_os = "linux")]
            TreeChannel::Guard { socket, .. } => {
                use rustix::net::SendFlags;
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                rustix::net::send(&**socket, &crate::guard_protocol::frame(&order), flags)?;
                Ok(())
            }
            TreeChannel::Group { sender, .. } => sender
                .try_send(order)
                .map_err(|_| io::ErrorKind::BrokenPipe.into()),
        }
    }

    pub(crate) fn signal(&self, signal: Signal, whom: SignalTarget) -> io::Result<()> {
        // If the main process was reaped, another process can have its group by now.
        if whom == SignalTarget::Group && self.exit().is_some() {
            return Ok(());
        }
        self.send_command(HostCommand::Signal {
            signal: signal.as_raw(),
            target: whom,
        })
    }

    /// Waits for the list with this sequence number, or for the end of the process tree.
    pub(crate) async fn listed(&self, sequence: u64) -> Vec<ProcessName> {
        let mut progress = self.progress.clone();
        let came = progress
            .wait_for(|progress| progress.latest_list.0 >= sequence || progress.tree_end.is_some())
            .await;
        came.map_or_else(
            |_| Vec::new(),
            |progress| match &progress.tree_end {
                Some(aftermath) => aftermath.survivors.clone(),
                None => progress.latest_list.1.clone(),
            },
        )
    }

    /// Returns whether a guard has proven that the process tree is empty.
    pub(crate) fn is_proven_over(&self) -> bool {
        let progress = self.progress.borrow();
        let report = progress.tree_end.as_ref();
        self.guard().is_some() && report.is_some_and(|it| !it.guard_lost)
    }

    /// Searches leftovers by the marker, if the guard does not answer.
    pub(crate) async fn find_by_marker(&self) -> Vec<ProcessName> {
        let (main, marker) = (self.main, self.marker.clone());
        let found =
            tokio::task::spawn_blocking(move || sweep::find(&marker.variable, &marker.value()));
        let others = found.await.unwrap_or_default().into_iter();
        let others = others.filter(|found| !found.is_guard && found.process.pid != main);
        others
            .map(|found| ProcessName {
                pid: found.process.pid,
                name: found.name,
            })
            .collect()
    }
}

impl Drop for TreeHandle {
    fn drop(&mut self) {
        self.wake();
        match &self.channel {
            #[cfg(target_os = "linux")]
            // Close only our direction: the background task still reads the last messages and reaps the guard.
            TreeChannel::Guard { socket, .. } => drop(rustix::net::shutdown(
                &**socket,
                rustix::net::Shutdown::Write,
            )),
            TreeChannel::Group { group, .. } => group.kill(),
        }
    }
}

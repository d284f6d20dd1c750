//! The host's hold on a tree, whoever keeps it: orders go out, progress comes in.

use crate::group::Group;
use crate::wire::{Aftermath, Order, Whom};
use crate::{Exit, Marker, ProcessId, ProcessName, sweep};
use rustix::process::Signal;
use std::io;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc, watch};

/// Who owns the tree of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Containment {
    /// A guard where there can be one, else the process group.
    #[default]
    Auto,
    /// A guard, or the spawn fails.
    Guard,
    /// A process group of its own, a walk of the descendants and a sweep by marker: what has left the group, lost its
    /// parent and its environment escapes, and so does everything when the host is killed.
    Group,
}

/// What is known about a tree so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// How the main process ended.
    pub(crate) exit: Option<Exit>,
    /// The latest list that was asked for, with its number.
    pub(crate) listed: (u64, Vec<ProcessName>),
    /// What came of the tree once it has ended, by itself or by order.
    pub(crate) aftermath: Option<Aftermath>,
}

#[derive(Debug)]
pub(crate) enum Orders {
    #[cfg(target_os = "linux")]
    Guard {
        socket: Arc<tokio::net::UnixStream>,
        guard: ProcessId,
    },
    Group {
        sender: mpsc::Sender<Order>,
        group: Group,
    },
}

/// The host's hold on one agent. Dropping it ends the tree: a guard sees its socket close and does that by itself;
/// without one, the process group is killed at once.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) main: u32,
    pub(crate) orders: Orders,
    pub(crate) progress: watch::Receiver<Progress>,
    /// Makes the task behind it give up on a guard that does not answer: kill it and sweep.
    pub(crate) give_up: Arc<Notify>,
    pub(crate) marker: Option<Marker>,
}

impl Keeper {
    pub(crate) fn guard(&self) -> Option<ProcessId> {
        match self.orders {
            #[cfg(target_os = "linux")]
            Orders::Guard { guard, .. } => Some(guard),
            Orders::Group { .. } => None,
        }
    }

    /// Lets a guard go on that was stopped: it would not hear of a stop.
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

    /// Hands out an order without waiting; orders are small, and a socket that is full of them belongs to a dead guard.
    pub(crate) fn order(&self, order: Order) -> io::Result<()> {
        match &self.orders {
            #[cfg(target_os = "linux")]
            Orders::Guard { socket, .. } => {
                use rustix::net::SendFlags;
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                rustix::net::send(&**socket, &crate::wire::frame(&order), flags)?;
                Ok(())
            }
            Orders::Group { sender, .. } => sender
                .try_send(order)
                .map_err(|_| io::ErrorKind::BrokenPipe.into()),
        }
    }

    pub(crate) fn signal(&self, signal: Signal, whom: Whom) -> io::Result<()> {
        // The group of a main process that was reaped may be somebody else's by now.
        if whom == Whom::Group && self.exit().is_some() {
            return Ok(());
        }
        self.order(Order::Signal {
            signal: signal.as_raw(),
            whom,
        })
    }

    /// Waits for the list with this number, or for the end.
    pub(crate) async fn listed(&self, sequence: u64) -> Vec<ProcessName> {
        let mut progress = self.progress.clone();
        let came = progress
            .wait_for(|progress| progress.listed.0 >= sequence || progress.aftermath.is_some())
            .await;
        came.map_or_else(
            |_| Vec::new(),
            |progress| match &progress.aftermath {
                Some(aftermath) => aftermath.survivors.clone(),
                None => progress.listed.1.clone(),
            },
        )
    }

    /// Returns whether a guard has proven that the tree is over.
    pub(crate) fn is_proven_over(&self) -> bool {
        let progress = self.progress.borrow();
        let heard = progress.aftermath.as_ref();
        self.guard().is_some() && heard.is_some_and(|it| !it.guard_lost)
    }

    /// Looks for leftovers by the marker, when nobody else answers.
    pub(crate) async fn marked(&self) -> Vec<ProcessName> {
        let (main, Some(marker)) = (self.main, self.marker.clone()) else {
            return Vec::new();
        };
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

impl Drop for Keeper {
    fn drop(&mut self) {
        self.wake();
        match &self.orders {
            #[cfg(target_os = "linux")]
            // Only our direction: the task behind still reads the last words and reaps the guard.
            Orders::Guard { socket, .. } => drop(rustix::net::shutdown(
                &**socket,
                rustix::net::Shutdown::Write,
            )),
            Orders::Group { group, .. } => group.kill(),
        }
    }
}

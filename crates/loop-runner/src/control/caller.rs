//! Which process may control the run: a person's may, an agent's may not.
//!
//! A process below a guard belongs to an agent. So does a process below one that owns a run: the kernel hands it the
//! orphans of a guard that was killed. Such a process may control only a run that was itself started below the same
//! guard or owner.

use std::collections::BTreeSet;

use agent_subprocess::ancestry::{Ancestor, Peer};
use agent_subprocess::{ProcessId, ProcessName, ancestry};

use crate::locks;

/// Why a process may not control the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The process, as far as it is known.
    pub(crate) by: Option<ProcessName>,
    pub(crate) why: String,
}

impl Refusal {
    /// Says to the run which request was refused to which process, and why.
    pub(crate) fn report(&self, request: &str) -> String {
        let why = &self.why;
        match &self.by {
            Some(by) => format!("refused `{request}` from {}: it {why}", Named(by)),
            None => format!("refused `{request}`: the process that asks {why}"),
        }
    }

    /// Says the same to that process.
    pub(crate) fn answer(&self) -> String {
        let why = &self.why;
        match &self.by {
            Some(by) => format!("{} {why}", Named(by)),
            None => format!("the process that asks {why}"),
        }
    }
}

/// Writes a process as `pid 12 (name)`.
struct Named<'a>(&'a ProcessName);

impl std::fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "pid {} ({})", self.0.pid, self.0.name.escape_debug())
    }
}

/// Checks whether the process that connected may control the run of the process `owner`.
///
/// Elsewhere than on Linux, where ancestors are not known, every process of the user may.
pub(crate) fn check(peer: std::io::Result<Peer>, owner: ProcessId) -> Result<(), Refusal> {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let peer = peer.map_err(|e| Refusal {
        by: None,
        why: unproven(&e),
    })?;
    let by = ProcessName {
        pid: peer.process().pid,
        name: peer.name().to_owned(),
    };
    let refused = |why: String| Refusal {
        by: Some(by.clone()),
        why,
    };
    let line = peer.line().map_err(|e| refused(unproven(&e)))?;
    judge(&line, owner).map_err(refused)
}

/// Checks whether this process may end the process `owner` of a run. One whose ancestors can't be proven may: a person can always stop a run.
pub(crate) fn check_own(owner: ProcessId) -> Result<(), String> {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    match ancestry::line(ProcessId::current()) {
        Ok(own) => judge(&own, owner),
        Err(_) => Ok(()),
    }
}

fn unproven(why: &std::io::Error) -> String {
    format!(
        "can't be proven to be no agent's: {why}; to end the run all the same: rlm stop --force"
    )
}

/// Says why the first process of this line may not control the run of the process `owner`.
fn judge(line: &[Ancestor], owner: ProcessId) -> Result<(), String> {
    let holders = locks::holders_of_directories(line.iter().map(|it| it.process.pid));
    let Some(keeper) = keeper(line, owner, &holders) else {
        return Ok(());
    };
    let owners = ancestry::line(owner).map_err(|e| unproven(&e))?;
    if owners.iter().skip(1).any(|it| it.process == keeper.process) {
        return Ok(());
    }
    let pid = keeper.process.pid;
    Err(match keeper.is_guard {
        true => format!(
            "runs inside an agent (guard: pid {pid}); control the run from another terminal"
        ),
        false => format!(
            "runs below the process of a run (pid {pid}); control the run from another terminal"
        ),
    })
}

/// Finds the nearest guard, or owner of a run, above the first process of a line.
fn keeper<'a>(
    line: &'a [Ancestor],
    owner: ProcessId,
    holders: &BTreeSet<u32>,
) -> Option<&'a Ancestor> {
    let keeps =
        |it: &&Ancestor| it.is_guard || it.process == owner || holders.contains(&it.process.pid);
    line.iter().skip(1).find(keeps)
}

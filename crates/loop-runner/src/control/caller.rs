//! Decides which process may control the run: a process of a person may, a process of an agent may not.
//!
//! A process below a guard belongs to an agent. A process below the owner of a run (the process that works on it) also counts as a process of an
//! agent: the kernel makes the owner the parent of the orphans of a killed guard. Such a process may control only a run that was itself started below
//! the same guard or owner.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;

use agent_subprocess::ancestry::{Ancestor, Peer};
use agent_subprocess::{ProcessId, ProcessName, ancestry};
use rlm_store::locks;

/// Why a process may not control the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ControlRefusal {
    /// The process, if it is known.
    pub(crate) by: Option<ProcessName>,
    pub(crate) why: String,
}

impl ControlRefusal {
    /// Returns the event for the run: the refused request, the process and the reason.
    pub(crate) fn refusal_report(&self, request: &str) -> String {
        let why = &self.why;
        match &self.by {
            Some(by) => format!("refused `{request}` from {}: it {why}", Named(by)),
            None => format!("refused `{request}`: the requesting process {why}"),
        }
    }

    /// Returns the message for the refused process.
    pub(crate) fn message(&self) -> String {
        let why = &self.why;
        match &self.by {
            Some(by) => format!("{} {why}", Named(by)),
            None => format!("the requesting process {why}"),
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
/// Outside Linux, the ancestors are not known, so every process of the user may control the run.
pub(crate) fn check(peer: std::io::Result<Peer>, owner: ProcessId) -> Result<(), ControlRefusal> {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let peer = peer.map_err(|e| ControlRefusal {
        by: None,
        why: unproven(&e),
    })?;
    let by = ProcessName {
        pid: peer.process().pid,
        name: peer.name().to_owned(),
    };
    let refused = |why: String| ControlRefusal {
        by: Some(by.clone()),
        why,
    };
    let line = peer.ancestors().map_err(|e| refused(unproven(&e)))?;
    check_ancestors(&line, owner).map_err(refused)
}

/// Returns an error if the process at the other end of a socket belongs to an agent, or possibly does. There is one exception: this process belongs to
/// the same agent. The error says why, for the other process.
///
/// # Errors
///
/// The reason. Outside Linux, the ancestors of a process are not known, and there is no error.
pub fn refuse_agent(socket: BorrowedFd<'_>) -> Result<(), String> {
    check(Peer::of(socket), ProcessId::current()).map_err(|refusal| refusal.message())
}

/// Returns why this process belongs to an agent, if it does: it runs below a guard, or below the process of a run.
///
/// Outside Linux, the ancestors of a process are not known, and the function returns `None`.
#[must_use]
pub fn agent_of_this_process() -> Option<String> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let line = ancestry::ancestors(ProcessId::current()).ok()?;
    let holders = locks::directory_lock_holders(line.iter().map(|it| it.process.pid));
    let nearest = nearest_owner(&line, ProcessId::current(), &holders)?;
    Some(format!(
        "it runs inside an agent (pid {})",
        nearest.process.pid
    ))
}

/// Checks whether this process may end the process `owner` of a run. If its ancestors can't be verified, it may end the run, because a person can
/// always stop a run.
pub(crate) fn check_own(owner: ProcessId) -> Result<(), String> {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    match ancestry::ancestors(ProcessId::current()) {
        Ok(own) => check_ancestors(&own, owner),
        Err(_) => Ok(()),
    }
}

fn unproven(why: &std::io::Error) -> String {
    format!("may belong to an agent ({why}); to end the run anyway: rlm stop --force")
}

/// Returns why the first process of this list of ancestors may not control the run of the process `owner`.
fn check_ancestors(line: &[Ancestor], owner: ProcessId) -> Result<(), String> {
    let holders = locks::directory_lock_holders(line.iter().map(|it| it.process.pid));
    let Some(nearest) = nearest_owner(line, owner, &holders) else {
        return Ok(());
    };
    let owners = ancestry::ancestors(owner).map_err(|e| unproven(&e))?;
    if owners
        .iter()
        .skip(1)
        .any(|it| it.process == nearest.process)
    {
        return Ok(());
    }
    let pid = nearest.process.pid;
    Err(match nearest.is_guard {
        true => format!(
            "runs inside an agent (guard: pid {pid}); control the run from another terminal"
        ),
        false => format!(
            "runs below the process of a run (pid {pid}); control the run from another terminal"
        ),
    })
}

/// Returns the nearest guard, or owner of a run, above the first process of a list of ancestors.
fn nearest_owner<'a>(
    line: &'a [Ancestor],
    owner: ProcessId,
    holders: &BTreeSet<u32>,
) -> Option<&'a Ancestor> {
    let is_owner =
        |it: &&Ancestor| it.is_guard || it.process == owner || holders.contains(&it.process.pid);
    line.iter().skip(1).find(is_owner)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixListener;
    use std::process::Command;
    use std::time::Instant;

    /// A Perl script that connects to a socket and stays alive.
    const CONNECTS: &str = "use Socket; socket(S, AF_UNIX, SOCK_STREAM, 0) or die; \
                            connect(S, sockaddr_un($ARGV[0])) or die; sleep 600";

    /// The guard of this process is gone, so only the owner of the run is left above it.
    #[test]
    fn h13b_orphan_adopted_by_the_owner_of_a_run_is_refused() {
        agent_subprocess::guard::adopt_orphans().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let daemon =
            "(setsid env -i PATH=\"$PATH\" perl -e \"$0\" \"$1\" </dev/null >/dev/null 2>&1 &)";
        let shell = Command::new("sh")
            .args(["-c", daemon, CONNECTS])
            .arg(&path)
            .status();
        let perl = Command::new("perl").arg("-v").output();
        if !perl.is_ok_and(|it| it.status.success()) {
            println!("skipped: perl is not installed");
            return;
        }
        assert!(shell.unwrap().success());
        let (stream, _) = listener.accept().unwrap();
        let peer = Peer::of(stream.as_fd()).unwrap();
        let own = ProcessId::current();
        let until = Instant::now() + std::time::Duration::from_secs(20);
        while peer
            .ancestors()
            .unwrap()
            .get(1)
            .is_none_or(|it| it.process != own)
        {
            assert!(
                Instant::now() < until,
                "the orphan should become a child of this process"
            );
            std::thread::yield_now();
        }
        let pid = rustix::process::Pid::from_raw(peer.process().pid.cast_signed()).unwrap();
        let refused = check(Ok(peer), own);
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap();
        let refused = refused.unwrap_err().message();
        let expected = format!("runs below the process of a run (pid {})", own.pid);
        assert!(refused.contains(&expected), "{refused}");
    }
}

//! Finds the commands that an interrupted turn left running.
//!
//! The agent starts each command as the leader of its own session, with the conversation's id in its environment. It starts MCP servers in the
//! agent's session, without the id. So the module takes a process and its ancestors outside of the agent's session, and looks at the highest of them.
//! The process belongs to a command if that ancestor is younger than the turn, and has the id or has the agent as its parent.

use agent_subprocess::ProcessStat;
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::fs;

/// Returns the clock ticks since boot, the unit of process start times; a second has 100 of them. `/proc/uptime` is not used, because in some
/// containers it begins with the container.
pub(super) fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let (seconds, nanos) = (now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned());
    seconds * 100 + nanos / 10_000_000
}

/// Returns the processes below the agent that are commands of the conversation `thread` and started at `since` or later.
pub(super) fn commands_started_since(
    main: u32,
    below: &[u32],
    thread: &str,
    since: u64,
) -> Vec<ProcessStat> {
    let stats = below.iter().filter_map(|pid| ProcessStat::read(*pid));
    let stats: HashMap<u32, ProcessStat> = stats.map(|stat| (stat.process.pid, stat)).collect();
    let session = ProcessStat::read(main).map(|stat| stat.session);
    let is_command = |stat: &&ProcessStat| {
        let root = root(stat, &stats, session);
        let is_one = |root: &ProcessStat| root.parent == main || is_named(root.process.pid, thread);
        !stat.is_dead && root.is_some_and(|root| root.process.start_time >= since && is_one(&root))
    };
    stats.values().filter(is_command).copied().collect()
}

/// Returns the highest known ancestor outside of the agent's session; the process itself counts.
fn root(
    stat: &ProcessStat,
    known: &HashMap<u32, ProcessStat>,
    session: Option<u32>,
) -> Option<ProcessStat> {
    let apart = |stat: &ProcessStat| session.is_none_or(|session| stat.session != session);
    let (mut now, mut root) = (*stat, None);
    // Parents can change during the loop, so its length is limited by the number of processes.
    for _ in 0..=known.len() {
        if apart(&now) {
            root = Some(now);
        }
        match known.get(&now.parent) {
            Some(parent) => now = *parent,
            None => break,
        }
    }
    root
}

fn is_named(pid: u32, thread: &str) -> bool {
    let name = format!("CODEX_THREAD_ID={thread}");
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment
        .split(|byte| *byte == 0)
        .any(|variable| variable == name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x127a_clock_matches_process_start_times() {
        let before = now();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let started = ProcessStat::read(child.id()).unwrap().process.start_time;
        let after = now();
        child.wait().unwrap();
        assert!(
            before <= started && started <= after,
            "{before} {started} {after}"
        );
    }
}

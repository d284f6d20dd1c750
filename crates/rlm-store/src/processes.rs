//! The names of the processes of a run.

use agent_duplex::ProcessName;

/// Converts the names of processes to the type of conversations.
pub fn names(processes: Vec<agent_subprocess::ProcessName>) -> Vec<ProcessName> {
    processes
        .into_iter()
        .map(|p| ProcessName {
            pid: p.pid,
            name: p.name,
        })
        .collect()
}

/// Converts the names to the type of the control socket.
pub fn to_subprocess_names(processes: &[ProcessName]) -> Vec<agent_subprocess::ProcessName> {
    let names = processes.iter().map(|p| agent_subprocess::ProcessName {
        pid: p.pid,
        name: p.name.clone(),
    });
    names.collect()
}

/// Returns the processes without the survivors.
pub fn without_survivors(
    mut processes: Vec<ProcessName>,
    survivors: &[ProcessName],
) -> Vec<ProcessName> {
    processes.retain(|process| !survivors.contains(process));
    processes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survivors_are_not_listed_as_ended() {
        let [ended, survivor] = [7, 8].map(|pid| ProcessName {
            pid,
            name: "sh".into(),
        });
        let both = vec![ended.clone(), survivor.clone()];
        assert_eq!(without_survivors(both, &[survivor]), [ended]);
    }
}

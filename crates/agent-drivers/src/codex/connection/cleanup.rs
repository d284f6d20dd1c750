//! Ends the commands that an interrupted turn left running, before the driver reports the turn's end.

use super::CodexConnection;
use crate::dialogue::{Dialogue as _, LineOutcome};
use agent_duplex::{EndReason, Event, Observation};
use tokio::time::Instant;

#[cfg(target_os = "linux")]
use {
    super::super::commands,
    crate::times,
    agent_subprocess::{ProcessId, ProcessName, Signal},
    std::collections::BTreeMap,
    std::time::Duration,
    tokio::time::timeout_at,
};

/// The time between two searches.
#[cfg(target_os = "linux")]
const POLL: Duration = Duration::from_millis(10);

/// The end of a turn. It is held back until the commands of the turn have ended.
#[derive(Debug)]
pub(super) struct CommandCleanup {
    seen: Observation,
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "no search on this platform")
    )]
    start: Instant,
    #[cfg(target_os = "linux")]
    next: Option<Instant>,
    #[cfg(target_os = "linux")]
    seen_processes: BTreeMap<ProcessId, ProcessName>,
}

/// Returns the current time in the unit of process start times.
pub(super) fn now() -> u64 {
    #[cfg(target_os = "linux")]
    return commands::now();
    #[cfg(not(target_os = "linux"))]
    0
}

impl CodexConnection {
    /// Sets the earliest start time for commands of the next turn.
    pub(super) fn note_start(&mut self) {
        if !self.session.is_busy() && self.cleanup.is_none() {
            self.since = now();
        }
    }

    /// Publishes an observation: immediately, or when the commands of an interrupted turn have ended.
    pub(super) fn publish_or_defer(&mut self, mut seen: Observation, outcome: LineOutcome) {
        seen.events = outcome.events;
        for line in outcome.lines {
            self.push(line);
        }
        let is_interrupted = |event: &Event| match event {
            Event::TurnCompleted(end) => end.reason == EndReason::Interrupted,
            _ => false,
        };
        let may = self.link.stopping.is_none() && !self.link.has_reported_exit;
        if cfg!(target_os = "linux") && may && seen.events.iter().any(is_interrupted) {
            self.cleanup = Some(CommandCleanup {
                seen,
                start: Instant::now(),
                #[cfg(target_os = "linux")]
                next: None,
                #[cfg(target_os = "linux")]
                seen_processes: BTreeMap::new(),
            });
            return;
        }
        self.publish(seen);
    }

    fn publish(&mut self, seen: Observation) {
        let completed = |event: &Event| matches!(event, Event::TurnCompleted(_));
        if seen.events.iter().any(completed) || !self.session.is_turn_expected() {
            // Commands that start from now on belong to the next turn.
            self.since = now();
        }
        self.queue_observation(seen);
        let outcome = self.session.continue_after_interrupt();
        self.apply_outcome(outcome);
        self.watch();
    }

    /// Ends the wait, because the whole process tree is being ended anyway.
    pub(super) fn cancel_cleanup(&mut self) {
        if let Some(cleanup) = self.cleanup.take() {
            self.publish(cleanup.seen);
        }
    }

    /// Does one search; returns `false` if there is nothing to do. A search waits at most [`POLL`]. The caller keeps the deadline, and can
    /// drop the future.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn clean_up_step(&mut self) -> bool {
        #[cfg(target_os = "linux")]
        if let Some(cleanup) = &mut self.cleanup {
            if let Some(next) = cleanup.next {
                let _due = timeout_at(next, std::future::pending::<()>()).await;
            }
            let below = self.link.agent.leftovers().await;
            let below: Vec<u32> = below.iter().map(|process| process.pid).collect();
            let thread = self.session.thread().unwrap_or_default();
            let left =
                commands::commands_started_since(self.link.agent.pid(), &below, thread, self.since);
            let time = cleanup.start.elapsed();
            for stat in &left {
                let is_new = !cleanup.seen_processes.contains_key(&stat.process);
                let signal = match time < times::CODEX_COMMANDS_ENDING {
                    true if is_new => Signal::Terminate,
                    true => continue,
                    false => Signal::Kill,
                };
                cleanup
                    .seen_processes
                    .entry(stat.process)
                    .or_insert_with(|| ProcessName::read(stat.process.pid));
                // If the signal fails, the final warning names the process.
                let _named = stat.process.signal(signal);
            }
            cleanup.next = Some(Instant::now() + POLL);
            if left.is_empty() || time >= times::CODEX_COMMANDS {
                let left: Vec<ProcessId> = left.iter().map(|stat| stat.process).collect();
                let of = |alive: bool| {
                    let met = cleanup.seen_processes.iter();
                    let met = met.filter(|(id, _)| left.contains(id) == alive);
                    let names: Vec<String> = met.map(|(_, name)| name.to_string()).collect();
                    names.join(", ")
                };
                let ended = "ended commands that the interrupted turn left running: ";
                let alive = "can't end commands of the interrupted turn; still running: ";
                let texts = [(ended, of(false)), (alive, of(true))];
                let end = cleanup.seen.events.len().saturating_sub(1);
                for (what, names) in texts {
                    if !names.is_empty() {
                        let warning = Event::Warning(format!("{what}{names}"));
                        cleanup.seen.events.insert(end, warning);
                    }
                }
                self.cancel_cleanup();
            }
            return true;
        }
        false
    }
}

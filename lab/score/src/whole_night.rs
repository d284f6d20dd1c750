//! The whole night: all events of a night in one run, one after the other. Apart from `night`, because here the events act on what earlier ones left.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fs_err as fs;
use rlm_tests::{Ended, Running, poll_until};

use crate::night;
use crate::scene::{Effort, Job, Scene, Waited, step};
use crate::{Cell, Lab};

/// The name of the cell.
const NAME: &str = "whole night";
/// The time limit of the night.
const LIMIT: Duration = Duration::from_secs(300);
/// The longest time without progress. The lab then kills the tool and starts it again, as a person would in the morning.
const STALL: Duration = Duration::from_secs(30);
/// The longest time until the tool ends after the last step.
const END: Duration = Duration::from_secs(20);
/// The number of iterations that the tool is asked for.
const ITERATIONS: u32 = 60;
/// The largest number of restarts by hand.
const RESTARTS: u32 = 12;
/// The seconds for which the service is limited or overloaded, and after which the disk has space again.
const OUTAGE: u32 = 4;

/// The events in their order. An event happens when the work has as many steps as there are events before it; a step follows.
const EVENTS: [&str; 10] = [
    "429 with a reset",
    "529",
    "dropped stream",
    "hang",
    "line of 1 MB",
    "1 GB of output",
    "agent crash",
    REBOOT,
    FULL_DISK,
    "lying agent",
];
const REBOOT: &str = "reboot";
const FULL_DISK: &str = "full disk";
/// The steps of the work.
const STEPS: u32 = 10;

/// Returns the shell lines that play the events, before the agent makes its step.
fn before(effort: Effort) -> String {
    let parts = match effort {
        Effort::Quick => 16,
        Effort::Full => 128,
    };
    let event = |number: usize| EVENTS[number];
    let outage = |number: usize, text: &str| {
        let name = event(number);
        format!(
            "{number}) [ -e {{lab}}/reset-$n ] || echo $(($(date +%s) + {OUTAGE})) >{{lab}}/reset-$n\n\
             RESET=$(cat {{lab}}/reset-$n)\n\
             if [ \"$(date +%s)\" -lt \"$RESET\" ]; then landed '{name}'; echo \"{text}\"; exit 1; fi ;;\n"
        )
    };
    let once = |number: usize, lines: &str| {
        let lines = lines.replace("{landed}", &format!("landed '{}'", event(number)));
        format!("{number}) if first; then {lines}; fi ;;\n")
    };
    [
        "n=$(cat {lab}/steps 2>/dev/null | wc -l)\n".to_owned(),
        format!("if [ \"$n\" -ge {STEPS} ]; then echo '{{promise}}'; exit 0; fi\n"),
        "echo $$ >>{lab}/turns\n".to_owned(),
        "landed() { echo \"$1\" >>{lab}/landed; }\n".to_owned(),
        "first() { [ ! -e {lab}/played-$n ] && : >{lab}/played-$n; }\n".to_owned(),
        "case $n in\n".to_owned(),
        outage(0, "Claude AI usage limit reached|$RESET"),
        outage(
            1,
            "API Error: 529 {\\\"type\\\":\\\"overloaded_error\\\",\\\"message\\\":\\\"Overloaded\\\"}",
        ),
        once(2, "{landed}; printf 'I made half of the'; exit 1"),
        once(3, "{landed}; exec sleep 600"),
        once(4, "head -c 1000000 /dev/zero | tr '\\0' x; echo; {landed}"),
        once(
            5,
            // Each part leaves a receipt, so that a slow reader is not a stall.
            &format!(
                "line=$(printf '%0200d' 0); for part in $(seq {parts}); do yes \"$line\" | head -c 8M; echo >>{{lab}}/flooded; done; {{landed}}"
            ),
        ),
        once(6, "{landed}; kill -SEGV $$"),
        once(7, "{landed}; exec sleep 600"),
        // The agent needs space for a larger file, too: a small one may fit into a block that is not full.
        format!(
            "8) if first && [ -e {{lab}}/small ]; then dd if=/dev/zero of={{repo}}/ballast bs=4k 2>/dev/null || landed '{}'; fi\n\
             head -c 65536 /dev/zero >{{repo}}/part || {{ rm -f {{repo}}/part; echo 'no space for my work'; exit 1; }}\n\
             rm {{repo}}/part ;;\n",
            event(8)
        ),
        once(9, "{landed}; echo '{promise}'; exit 0"),
        "esac\n".to_owned(),
    ]
    .concat()
}

/// The size of the disk: less than the output of the agent, so that a tool can't save all of it.
fn disk_size(effort: Effort) -> &'static str {
    match effort {
        Effort::Quick => "96m",
        Effort::Full => "256m",
    }
}

/// Plays all events, and lets the tool finish its work.
pub(crate) fn cell(lab: Lab<'_>) -> Cell {
    let job = Job {
        before: before(lab.effort),
        steps: STEPS,
        ..Job::endless(step("", 20), ITERATIONS)
    };
    let scene = Scene::new(lab, &job);
    let is_small = scene.has_mounts();
    let scene = match is_small {
        true => scene.on_small_disk(disk_size(lab.effort)),
        false => Ok(scene),
    };
    let scene = match scene {
        Ok(scene) => scene,
        Err(why) => return Cell::not_shown(NAME, why),
    };
    if is_small && let Err(why) = scene.receipt("small") {
        return Cell::not_shown(NAME, why);
    }
    let mut night = Night {
        scene: &scene,
        begun: Instant::now(),
        disk: DiskState::Free,
        has_rebooted: false,
        restarts: 0,
        false_reports: 0,
    };
    match night.play() {
        Ok(end) => night.judged(&end, is_small),
        Err(why) => Cell::not_shown(NAME, why),
    }
}

/// The space on the small disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DiskState {
    Free,
    Full(Instant),
    /// The disk was full and has space again. A tool that ended meanwhile may be started again.
    Emptied,
    /// The tool was started again.
    Excused,
}

/// A change that the lab waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Progress,
    Reboot,
}

/// The end of a night.
enum End {
    /// The tool ended by itself after the last step, and reports done or not.
    Done(bool),
    /// The work can't continue, for this reason.
    Stuck(String),
}

struct Night<'a> {
    scene: &'a Scene<'a>,
    begun: Instant,
    disk: DiskState,
    has_rebooted: bool,
    restarts: u32,
    false_reports: u32,
}

impl Night<'_> {
    fn has_landed(&self, event: &str) -> bool {
        self.scene.lines("landed").iter().any(|line| line == event)
    }

    /// Returns a count that grows with each turn, each step, each event, and each part of the flood.
    fn progress(&self) -> usize {
        ["turns", "steps", "landed", "flooded"]
            .map(|file| self.scene.lines(file).len())
            .iter()
            .sum()
    }

    fn is_finished(&self) -> bool {
        self.scene.steps() >= STEPS
    }

    /// Gives the full disk its space back when its time has come.
    fn look_after_disk(&mut self) {
        let Some(disk) = self.scene.disk() else {
            return;
        };
        match self.disk {
            DiskState::Free if self.has_landed(FULL_DISK) => {
                self.disk = DiskState::Full(Instant::now());
            }
            DiskState::Full(since) if since.elapsed() >= Duration::from_secs(OUTAGE.into()) => {
                let _absent = fs::remove_file(disk.repo().join("ballast"));
                self.disk = DiskState::Emptied;
            }
            _ => {}
        }
    }

    /// Lets the tool work until the work is finished or stuck.
    fn play(&mut self) -> Result<End, String> {
        let scene = self.scene;
        let tool = scene.lab().tool;
        let mut running = scene.start_silently();
        let (mut verb, mut turns) = (tool.start.as_str(), 0);
        loop {
            let before = self.progress();
            let limit = match self.is_finished() {
                true => END,
                false => STALL,
            };
            let limit = limit.min(LIMIT.saturating_sub(self.begun.elapsed()));
            let waited = scene.wait(&mut running, limit, || {
                self.look_after_disk();
                if !self.has_rebooted && self.has_landed(REBOOT) {
                    return Some(Seen::Reboot);
                }
                (self.progress() > before).then_some(Seen::Progress)
            });
            match waited {
                Waited::Found(Seen::Progress) => continue,
                Waited::Found(Seen::Reboot) => {
                    night::reboot(scene, running)?;
                    self.has_rebooted = true;
                    verb = tool.again();
                    running = scene.run_silently(verb);
                    continue;
                }
                Waited::Outgrown => {
                    scene.kill_all();
                    return Ok(End::Stuck("too many processes or files".into()));
                }
                Waited::Ended => {
                    let ended = running.wait(Duration::ZERO);
                    if let Some(end) = self.ended(&ended) {
                        return Ok(end);
                    }
                }
                Waited::Late if self.is_finished() => {
                    scene.kill_all();
                    return Ok(End::Stuck("the tool continues after the last step".into()));
                }
                Waited::Late => {
                    stop(scene, running);
                    self.restarts += 1;
                }
            }
            if self.restarts > RESTARTS || self.begun.elapsed() >= LIMIT {
                return Ok(End::Stuck("the time or the restarts are used up".into()));
            }
            // If the restart started no agent, only a new start can help.
            let now = scene.lines("turns").len();
            verb = match (now > turns, verb == tool.again()) {
                (false, true) if verb == tool.start => {
                    return Ok(End::Stuck("a new start starts no agent".into()));
                }
                (false, true) => &tool.start,
                (false, false) if now > 0 && tool.again() != tool.start => {
                    return Ok(End::Stuck("a new start starts no agent".into()));
                }
                _ => tool.again(),
            };
            turns = now;
            running = scene.run_silently(verb);
        }
    }

    /// Handles a tool that ended. Returns the end of the night, or `None` if the tool must be started again.
    fn ended(&mut self, ended: &Ended) -> Option<End> {
        let reports_done = self.scene.reports_done(ended);
        if self.is_finished() {
            return Some(End::Done(reports_done));
        }
        self.false_reports += u32::from(reports_done);
        // A person needs some time, too: each outage is over when the tool starts again.
        let _none = poll_until(Duration::from_secs(u64::from(OUTAGE) + 1), || {
            self.look_after_disk();
            self.scene
                .lab()
                .given_up
                .load(Ordering::Relaxed)
                .then_some(())
        });
        match (self.disk, self.scene.steps()) {
            (DiskState::Emptied, 8) => self.disk = DiskState::Excused,
            _ => self.restarts += 1,
        }
        None
    }

    fn judged(&self, end: &End, is_small: bool) -> Cell {
        let scene = self.scene;
        let (left, steps) = (scene.left(), scene.steps());
        let turns = u32::try_from(scene.lines("turns").len()).unwrap_or(u32::MAX);
        let (lost, twice) = (STEPS.saturating_sub(steps), steps.saturating_sub(STEPS));
        let wasted = turns.saturating_sub(steps);
        let expected = { EVENTS.iter() }.filter(|it| is_small || **it != FULL_DISK);
        let (played, missing): (Vec<&str>, Vec<&str>) =
            expected.partition(|event| self.has_landed(event));
        let mut faults = Vec::new();
        match end {
            End::Done(true) => {}
            End::Done(false) => faults.push("never reported done".to_owned()),
            End::Stuck(why) => faults.push(why.clone()),
        }
        let counts = [
            (lost, "steps lost"),
            (twice, "steps too many"),
            (self.restarts, "restarts by hand"),
            (self.false_reports, "false reports of done"),
            (scene.overlaps(), "agents beside another one"),
        ];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0);
        faults.extend(counts.map(|(count, of)| format!("{of}: {count}")));
        if !left.is_empty() {
            faults.push(format!("alive: {}", left.join(", ")));
        }
        let not_played = match missing.as_slice() {
            [] => String::new(),
            missing => format!("; not played: {}", missing.join(", ")),
        };
        let stored = stored(
            scene
                .disk()
                .map_or(scene.sandbox.repo(), |it| it.repo())
                .as_path(),
        );
        let without_disk = match is_small {
            true => "",
            false => "; without a full disk, because the machine has no mount namespaces",
        };
        let why = match faults.as_slice() {
            [] => format!("{wasted} turns without a step{not_played}{without_disk}"),
            faults => format!("{}{not_played}{without_disk}", faults.join("; ")),
        };
        let landed = u32::try_from(played.len()).unwrap_or(u32::MAX);
        let cell = match (landed, faults.is_empty(), missing.is_empty()) {
            (0, _, _) => Cell::not_shown(NAME, why),
            (_, true, false) => Cell::not_shown(NAME, why),
            (landed, is_kept, _) => Cell::judged(NAME, landed, is_kept, why),
        };
        let finished = matches!(end, End::Done(true)) && lost == 0;
        cell.figure("finished", u32::from(finished))
            .figure("lost", lost)
            .figure("twice", twice)
            .figure("wasted", wasted)
            .figure("restarts", self.restarts)
            .figure("false_reports", self.false_reports)
            .figure("stored_bytes", stored)
            .figure("left", u32::try_from(left.len()).unwrap_or(u32::MAX))
    }
}

/// Kills a tool that makes no progress, with all its processes.
fn stop(scene: &Scene<'_>, running: Running) {
    scene.kill_all();
    drop(running);
}

/// Returns the bytes of the files below a directory.
fn stored(folder: &Path) -> u32 {
    let (mut bytes, mut folders) = (0, vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(about) if about.is_dir() => folders.push(entry.path()),
                Ok(about) => bytes += about.len(),
                Err(_) => {}
            }
        }
    }
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

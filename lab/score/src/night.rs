//! Night: the loop finishes its work, whatever happens to the service, the agent, the tool and the machine.

use std::time::Duration;

use fs_err as fs;
use rlm_tests::{Ended, Running};

use crate::scene::{Effort, Job, Scene, Waited, step, tail};
use crate::{Cell, Lab};

/// The time limit of one event, with the rest of the work.
const LIMIT: Duration = Duration::from_secs(60);
/// The time limit of the flood: a tool may need a minute for 1 GB on a busy machine.
const FLOOD_LIMIT: Duration = Duration::from_secs(200);
/// The time limit for the first agent.
const START: Duration = Duration::from_secs(20);
/// The number of iterations that the tool is asked for.
const ITERATIONS: u32 = 8;
/// The steps of the work.
const STEPS: u32 = 2;
/// The seconds for which the service is limited or overloaded, and after which the disk has space again.
const OUTAGE: u32 = 4;
/// The size of the small disk.
const DISK: &str = "24m";

/// One event of a night.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    RateLimit,
    Overload,
    DroppedStream,
    Hang,
    LongLine,
    Flood,
    AgentCrash,
    ToolCrash,
    Reboot,
    FullDisk,
    LyingAgent,
}

impl Event {
    pub(crate) const ALL: [Self; 11] = [
        Self::RateLimit,
        Self::Overload,
        Self::DroppedStream,
        Self::Hang,
        Self::LongLine,
        Self::Flood,
        Self::AgentCrash,
        Self::ToolCrash,
        Self::Reboot,
        Self::FullDisk,
        Self::LyingAgent,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RateLimit => "429 with a reset",
            Self::Overload => "529",
            Self::DroppedStream => "dropped stream",
            Self::Hang => "hang",
            Self::LongLine => "line of 1 MB",
            Self::Flood => "1 GB of output",
            Self::AgentCrash => "agent crash",
            Self::ToolCrash => "tool crash",
            Self::Reboot => "reboot",
            Self::FullDisk => "full disk",
            Self::LyingAgent => "lying agent",
        }
    }

    fn limit(self) -> Duration {
        match self {
            Self::Flood => FLOOD_LIMIT,
            _ => LIMIT,
        }
    }

    /// Returns the agent's script. The line with `landed` is the receipt of the event.
    fn script(self, effort: Effort) -> String {
        let landed = "@1 append {lab}/landed {start}\n";
        let size = match effort {
            Effort::Quick => "64M",
            Effort::Full => "1G",
        };
        let (first, steps) = match self {
            Self::RateLimit | Self::Overload | Self::FullDisk => (String::new(), ""),
            Self::DroppedStream => (
                format!("@1 part I made half of the\n{landed}@1 exit 1\n"),
                "@2..",
            ),
            Self::Hang => (format!("{landed}@1 hang\n"), "@2.."),
            Self::LongLine => (format!("@1 flood 1M unbroken\n{landed}@1 print \n"), ""),
            Self::Flood => (format!("@1 flood {size}\n{landed}"), ""),
            Self::AgentCrash => (format!("{landed}@1 die SEGV\n"), "@2.."),
            Self::ToolCrash | Self::Reboot => ("@1 hang\n".into(), "@2.."),
            Self::LyingAgent => (format!("@1 print {{promise}}\n{landed}"), "@2.."),
        };
        first + &step(steps, 100)
    }

    /// Returns the shell lines before the agent. An agent whose work is done says so and ends.
    fn before(self) -> String {
        let done = format!(
            "if [ \"$(cat {{lab}}/steps 2>/dev/null | wc -l)\" -ge {STEPS} ]; then echo '{{promise}}'; exit 0; fi\n"
        );
        let outage = |text: &str| {
            format!(
                "[ -e {{lab}}/reset ] || echo $(($(date +%s) + {OUTAGE})) >{{lab}}/reset\n\
                 RESET=$(cat {{lab}}/reset)\n\
                 if [ \"$(date +%s)\" -lt \"$RESET\" ]; then\n\
                 echo refused >>{{lab}}/landed\n\
                 echo \"{text}\"\nexit 1\nfi\n"
            )
        };
        done + &match self {
            Self::RateLimit => outage("Claude AI usage limit reached|$RESET"),
            Self::Overload => {
                outage("API Error: 529 {\\\"type\\\":\\\"overloaded_error\\\",\\\"message\\\":\\\"Overloaded\\\"}")
            }
            Self::FullDisk => "if [ ! -e {lab}/filled ]; then\n: >{lab}/filled\n\
                 dd if=/dev/zero of={repo}/ballast bs=4k 2>/dev/null || echo full >>{lab}/landed\nfi\n"
                .into(),
            _ => String::new(),
        }
    }
}

/// Plays one event, and lets the tool finish its work.
pub(crate) fn cell(lab: Lab<'_>, event: Event) -> Cell {
    let job = Job {
        before: event.before(),
        steps: STEPS,
        ..Job::endless(event.script(lab.effort), ITERATIONS)
    };
    let scene = Scene::new(lab, &job);
    let ended = match event {
        Event::ToolCrash | Event::Reboot => interrupted(&scene, event),
        Event::FullDisk if !scene.has_mounts() => Err("no mount namespaces here".into()),
        Event::FullDisk => Ok((scene.end(scene.start_on_small_disk(DISK, OUTAGE), LIMIT), 0)),
        Event::Flood => Ok((scene.end(scene.start_silently(), event.limit()), 0)),
        _ => Ok((scene.end(scene.start(), LIMIT), 0)),
    };
    match ended {
        Err(why) if event == Event::FullDisk => Cell::skipped(event.name(), why),
        Err(why) => Cell::not_shown(event.name(), why),
        Ok((ended, landed)) => judged(&scene, event, ended.as_ref(), landed + scene.landed()),
    }
}

/// Kills the tool, or everything, in the first turn of the agent. Returns the end of the restarted tool.
fn interrupted(scene: &Scene<'_>, event: Event) -> Result<(Option<Ended>, u32), String> {
    let mut tool = scene.start();
    let is_alive = || (!scene.agents_alive().is_empty()).then_some(());
    if scene.wait(&mut tool, START, is_alive) != Waited::Found(()) {
        return Err("the agent did not start".into());
    }
    match event {
        Event::Reboot => reboot(scene, tool)?,
        _ => scene.kill(tool)?,
    }
    Ok((scene.end(scene.restart(), LIMIT), 1))
}

/// Kills all processes at once, and empties the directories that are empty after a boot.
pub(crate) fn reboot(scene: &Scene<'_>, tool: Running) -> Result<(), String> {
    let killed = scene.kill_all();
    drop(tool);
    if killed == 0 {
        return Err("nothing was alive at the reboot".into());
    }
    for folder in ["run", "tmp"] {
        let folder = scene.sandbox.path().join(folder);
        fs::remove_dir_all(&folder)
            .and_then(|()| fs::create_dir(&folder))
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn judged(scene: &Scene<'_>, event: Event, ended: Option<&Ended>, landed: u32) -> Cell {
    let name = event.name();
    let left = scene.left();
    let (steps, starts) = (scene.steps(), scene.start_count());
    let how = ended.map_or_else(
        || format!(" (no end within {} s)", event.limit().as_secs()),
        tail,
    );
    if landed == 0 {
        return Cell::not_shown(name, format!("the event did not happen{how}"));
    }
    let reports_done = ended.is_some_and(|it| scene.reports_done(it));
    let (lost, twice) = (STEPS.saturating_sub(steps), steps.saturating_sub(STEPS));
    let refused = match event {
        Event::RateLimit | Event::Overload => landed,
        _ => 0,
    };
    let wasted = (starts + refused).saturating_sub(steps);
    let mut faults = Vec::new();
    if lost > 0 {
        faults.push(format!("{steps} of {STEPS} steps{how}"));
    } else if !reports_done {
        faults.push(format!("never reported done{how}"));
    }
    if twice > 0 {
        faults.push(format!("{twice} steps too many"));
    }
    if !left.is_empty() {
        faults.push(format!("alive: {}", left.join(", ")));
    }
    let left = u32::try_from(left.len()).unwrap_or(u32::MAX);
    let why = match faults.as_slice() {
        [] => format!("{wasted} turns without a step"),
        faults => faults.join("; "),
    };
    Cell::judged(name, landed, faults.is_empty(), why)
        .figure("finished", u32::from(reports_done && lost == 0))
        .figure("lost", lost)
        .figure("twice", twice)
        .figure("wasted", wasted)
        .figure("left", left)
}

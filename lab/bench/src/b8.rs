//! B8: the time from the request to stop to the end of the last process of a process tree, and the number of survivors.

mod group;
mod scene;

use std::time::Duration;

use agent_subprocess::{Containment, StopPolicy, TreeCommand};

use crate::harness::{
    Bench, Outcome, Plan, Progress, Result, Role, Series, Turn, find, in_turn_beside, one_thread,
};
use group::Group;
use scene::Scene;

pub(crate) const BENCH: Bench = Bench {
    id: "b8",
    title: "the stop of a process tree",
    run,
    measured: None,
};

const GUARD: &str = "guard";
const FALLBACK: &str = "fallback";
const KILLPG: &str = "killpg";
const CGROUP: &str = "cgroup.kill";

/// The forms of the processes below an agent, each with the names of its two series.
const SHAPES: [(&str, &str, &str); 3] = [
    ("flat", "stopped: flat", "survivors: flat"),
    (
        "setsid",
        "stopped: each in a session of its own",
        "survivors: each in a session of its own",
    ),
    ("daemonised", "stopped: daemonised", "survivors: daemonised"),
];
/// A process that lives longer than this is a survivor.
const HANGS: Duration = Duration::from_secs(1);

fn run(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    const SIZES: [(usize, &str); 3] = [(1, "1"), (10, "10"), (1000, "1,000")];
    let sizes = plan.scale.pick(&SIZES[..], &SIZES[..], &SIZES[..1]);
    let rounds = plan.scale.pick([15, 15, 7], [3, 3, 2], [1, 0, 0]);
    let group = Group::make();
    if let Err(why) = &group {
        outcome.skip(CGROUP, why);
    }
    for (shape, quantity, left) in SHAPES {
        for ((count, label), rounds) in sizes.iter().copied().zip(rounds) {
            let progress = Progress::of(format!("b8 {shape}, {label}"));
            let ways = [
                (GUARD, Role::Ours),
                (FALLBACK, Role::Ours),
                (KILLPG, Role::Floor),
            ];
            let ways = ways
                .into_iter()
                .chain(group.is_ok().then_some((CGROUP, Role::Peer)));
            let turns = ways.map(|(name, role)| {
                let group = group.as_ref().ok();
                Turn::beside(name, role, move |_| {
                    let scene = Scene::new(plan, shape, count)?;
                    let took = stop(name, &scene, group)?;
                    Ok((took, Some(scene.survivors() as f64)))
                })
            });
            let (times, mut most) = in_turn_beside(0..rounds, turns.collect(), &progress)?;
            for contender in &mut most {
                let samples = std::mem::take(&mut contender.samples).into_iter();
                let most = samples.max_by(|a, b| a.value.total_cmp(&b.value));
                contender.samples.extend(most);
            }
            let times = Series::new(quantity, "ms", times).sized(count as f64, label);
            let most = Series::new(left, "processes at most", most).sized(count as f64, label);
            let got_away = most.get(GUARD).and_then(|guard| Some(guard.summary()?.max));
            outcome
                .at_most(
                    &format!("{left}, {label}, under the guard"),
                    got_away,
                    0.0,
                    "processes",
                )
                .about(most.title(), GUARD);
            outcome.series.extend([times, most]);
        }
    }
    let daemons = find(&outcome.series, SHAPES[2].1, "1,000");
    let daemons = daemons.and_then(|series| series.median(GUARD));
    let title = format!("{}, 1,000", SHAPES[2].1);
    outcome
        .at_most("1,000 daemonised, under the guard", daemons, 300.0, "ms")
        .about(title, GUARD);
    outcome.notes.push(
        "each way sends SIGKILL at once; the sizes do not count the main process; a time ends when the stop has returned and the last \
         process is gone; a round in which a process stays alive is lost"
            .into(),
    );
    Ok(())
}

/// Makes the process tree of `scene`, ends it in one way, and returns the ms until all processes are gone.
fn stop(way: &str, scene: &Scene, group: Option<&Group>) -> Result<Option<f64>> {
    let containment = match way {
        GUARD => Containment::Guard,
        FALLBACK => Containment::Group,
        _ => return scene.stop_plainly(group.filter(|_| way == CGROUP)),
    };
    one_thread()?.block_on(async {
        let mut words = scene.words(None)?.into_iter();
        let program = words.next().ok_or("no program")?;
        let command = TreeCommand::new(program)
            .args(words)
            .marker(scene.marker.clone());
        let mut agent = command.containment(containment).spawn().await?;
        scene.wait_until_started()?;
        let begun = std::time::Instant::now();
        let report = agent.stop(&StopPolicy::kill()).await;
        let gone = scene.is_gone_within(HANGS)?;
        let took = begun.elapsed();
        if !report.survivors.is_empty() {
            return Err(format!("{way}: {report}").into());
        }
        Ok(gone.then_some(took.as_secs_f64() * 1e3))
    })
}

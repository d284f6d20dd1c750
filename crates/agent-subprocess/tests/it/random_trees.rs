//! Stops random small process trees at random moments: no process with their marker is left, and the report names each process that it ended.

use std::fmt::Write as _;
use std::time::Duration;

use agent_subprocess::{Containment, ProcessTree, StopPolicy};
use proptest::prelude::*;
use rustix::process::Signal;

use crate::scene::{DEADLINE, Scene, kill, wait_for};

/// The number of processes between the root and the deepest member, both included.
const MAX_DEPTH: usize = 3;
const MAX_MEMBERS: usize = 6;

/// How a parent starts a member.
#[derive(Clone, Copy, Debug)]
enum Start {
    Child,
    Session,
    /// By a double fork: the first child is in a session of its own and ends.
    Daemon,
}

#[derive(Clone, Debug)]
struct Member {
    /// Selects the parent among the members before this one.
    parent: usize,
    start: Start,
    ignores_term: bool,
    holds_pipes: bool,
    exits_early: bool,
}

#[derive(Clone, Copy, Debug)]
enum Stop {
    Kill,
    Terminate,
    AllStages,
    /// The test kills the guard before the stop.
    LostGuard,
    Drop,
}

fn any_member() -> impl Strategy<Value = Member> {
    let start = prop_oneof![
        Just(Start::Child),
        Just(Start::Session),
        Just(Start::Daemon)
    ];
    let flags = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.25));
    (0..MAX_MEMBERS, start, flags).prop_map(
        |(parent, start, (ignores_term, holds_pipes, exits_early))| Member {
            parent,
            start,
            ignores_term,
            holds_pipes,
            exits_early,
        },
    )
}

fn any_stop() -> impl Strategy<Value = (Containment, Stop)> {
    use Containment::{Group, Guard};
    prop_oneof![
        3 => (prop_oneof![Just(Guard), Just(Group)], prop_oneof![Just(Stop::Kill), Just(Stop::Terminate)]),
        2 => (prop_oneof![Just(Guard), Just(Group)], Just(Stop::AllStages)),
        1 => Just((Guard, Stop::LostGuard)),
        // Without a guard, a drop reaches only the process group.
        1 => Just((Guard, Stop::Drop)),
    ]
}

/// Returns the number of the parent of each member; the first member is the root.
fn parents(members: &[Member]) -> Vec<Option<usize>> {
    let mut depths: Vec<usize> = Vec::new();
    let mut parents = Vec::new();
    for (number, member) in members.iter().enumerate() {
        let able: Vec<usize> = (0..number).filter(|it| depths[*it] < MAX_DEPTH).collect();
        let parent = able.get(member.parent % able.len().max(1)).copied();
        depths.push(parent.map_or(1, |parent| depths[parent] + 1));
        parents.push(parent);
    }
    parents
}

/// Writes one script for each member. A member starts its children, writes its pid, and then ends or sleeps.
fn write_scripts(scene: &Scene, members: &[Member]) {
    let parents = parents(members);
    for (number, member) in members.iter().enumerate() {
        let mut script = String::new();
        if member.ignores_term {
            script += "trap '' TERM\n";
        }
        let children = (0..members.len()).filter(|it| parents[*it] == Some(number));
        for child in children {
            let pipes = match members[child].holds_pipes {
                true => "",
                false => ">/dev/null 2>&1",
            };
            let line = match members[child].start {
                Start::Child => format!("sh ./{child} {pipes} &"),
                Start::Session => format!("setsid sh ./{child} {pipes} &"),
                Start::Daemon => format!("setsid sh -c 'sh ./{child} & exit 0' {pipes} &"),
            };
            writeln!(script, "{line}").unwrap();
        }
        writeln!(script, "echo $$ >new.{number}; mv new.{number} up.{number}").unwrap();
        script += match member.exits_early {
            true => "exit 0\n",
            false => "exec sleep 660\n",
        };
        std::fs::write(scene.path(&number.to_string()), script).unwrap();
    }
}

/// Returns the pids of the members that have begun, by their numbers.
fn begun(scene: &Scene, members: &[Member]) -> Vec<(usize, u32)> {
    let numbers = 0..members.len();
    numbers
        .filter_map(|number| {
            let pid = std::fs::read_to_string(scene.path(&format!("up.{number}"))).ok()?;
            Some((number, pid.trim().parse().unwrap()))
        })
        .collect()
}

/// Stops the tree, and checks that the report names each member of `alive`.
async fn stop(mut tree: ProcessTree, how: Stop, alive: &[(usize, u32)]) {
    let short = Duration::from_millis(60);
    let stages = StopPolicy {
        interrupt: short,
        close_stdin: short,
        terminate: short,
        ..StopPolicy::default()
    };
    let main = tree.pid();
    let policy = match how {
        Stop::Drop => return,
        Stop::Kill => StopPolicy::kill(),
        Stop::Terminate => stages.without_interrupt(),
        Stop::AllStages => stages,
        Stop::LostGuard => {
            // After its tree ended by itself, there is no guard.
            if let Some(guard) = tree.guard().filter(|guard| guard.is_alive()) {
                kill(guard.pid, Signal::KILL);
            }
            stages
        }
    };
    let report = tokio::time::timeout(DEADLINE, tree.stop(&policy)).await;
    let report = report.expect("a stop never hangs");
    let named = |pid: u32| {
        let both = report.ended.iter().chain(&report.survivors);
        both.filter(|process| process.pid == pid).count()
    };
    for (number, pid) in alive {
        // The kernel ends the main process together with its guard, before any search.
        let may_be_unnamed = report.guard_lost && *pid == main;
        assert!(
            named(*pid) == 1 || may_be_unnamed,
            "member {number} ({pid}) is named {} times: {report:?}",
            named(*pid)
        );
    }
    assert!(report.survivors.is_empty(), "{report:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, max_shrink_iters: 20, ..ProptestConfig::default() })]

    #[test]
    fn random_stop_of_a_random_tree_leaves_no_process_and_names_each(
        members in prop::collection::vec(any_member(), 1..=MAX_MEMBERS),
        (containment, how) in any_stop(),
        moment in 0..=MAX_MEMBERS,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let scene = Scene::new();
            write_scripts(&scene, &members);
            let command = scene.agent("exec sh ./0").containment(containment);
            let tree = command.spawn().await.unwrap();
            let moment = moment.min(members.len());
            wait_for("the moment", || begun(&scene, &members).len() >= moment);
            let mut alive = begun(&scene, &members);
            alive.retain(|(number, _)| !members[*number].exits_early);
            stop(tree, how, &alive).await;
            if let Stop::Drop = how {
                // The guard ends the tree by itself.
                wait_for("the end of the tree", || scene.find().is_empty());
            }
            scene.assert_no_process_is_left();
        });
    }
}

//! Dropping an agent at any moment leaves no process, no zombie, no descriptor and no thread.

use crate::containment::quick;
use crate::scene::{
    DEADLINE, Scene, TREE, alone, children, wait_for, wait_for_line, wait_for_tree,
};
use agent_subprocess::{Containment, StdinMode, StopPolicy, TreeCommand, WarmGuard};
use std::time::Duration;

const BOTH: [Containment; 2] = [Containment::Guard, Containment::Group];

fn count(what: &str) -> usize {
    std::fs::read_dir(what).unwrap().count()
}

/// Starts one agent and drops it at a moment that depends on `n`.
async fn cycle(scene: &Scene, n: usize) {
    let containment = BOTH[usize::from(!(n / 25).is_multiple_of(3))];
    // Each agent has its own marker: without a guard, a stop ends every process with the marker.
    let mut marker = scene.marker.clone();
    marker.member = n.to_string();
    let warm = WarmGuard::new(&scene.marker.scope);
    // Some programs start while their guard starts, some without one, and some leave one unused.
    if !n.is_multiple_of(3) {
        warm.want();
    }
    let command = |program: &str| {
        let mut command = TreeCommand::new(program).containment(containment);
        if n % 3 < 2 {
            command = command.warm_guard(&warm);
        }
        command.marker(marker.clone()).stdin(StdinMode::Piped)
    };
    match n % 25 {
        // In the middle of a spawn.
        0 => {
            let time = Duration::from_micros(n as u64 * 7 % 3000);
            drop(tokio::time::timeout(time, command("cat").spawn()).await);
        }
        // As soon as it runs, and while it is being stopped.
        1 => drop(command("cat").spawn().await.unwrap()),
        2 => {
            let mut agent = command("cat").spawn().await.unwrap();
            let time = Duration::from_micros(n as u64 * 11 % 3000);
            drop(tokio::time::timeout(time, agent.stop(&quick())).await);
        }
        3 => drop(command("/no/such/agent").spawn().await.unwrap_err()),
        4 => {
            let mut agent = command("cat").spawn().await.unwrap();
            assert!(agent.stop(&StopPolicy::kill()).await.survivors.is_empty());
        }
        _ => {
            let mut agent = command("/bin/true").spawn().await.unwrap();
            let exit = agent.wait().await;
            assert!(exit.success(), "{exit}");
        }
    }
}

#[tokio::test]
async fn p41a_p55b_thousand_cycles_leak_no_zombie_descriptor_or_thread() {
    // Other tests of this binary open descriptors too when they share its process.
    if !alone("drops::p41a_p55b_thousand_cycles_leak_no_zombie_descriptor_or_thread") {
        return;
    }
    let scene = Scene::new();
    let threads = || count("/proc/self/task");
    // The runtime opens descriptors and starts threads of its own at the first use.
    for n in 0..40 {
        cycle(&scene, n).await;
    }
    wait_for("their end", || scene.find().is_empty());
    let (before, threads_before) = (count("/proc/self/fd"), threads());
    for n in (0..1000).step_by(4) {
        tokio::join!(
            cycle(&scene, n),
            cycle(&scene, n + 1),
            cycle(&scene, n + 2),
            cycle(&scene, n + 3)
        );
    }
    let start = std::time::Instant::now();
    while (count("/proc/self/fd") > before || !children().is_empty()) && start.elapsed() < DEADLINE
    {
        tokio::task::yield_now().await;
    }
    assert_eq!(children(), "");
    assert!(
        count("/proc/self/fd") <= before,
        "{} of {before}",
        count("/proc/self/fd")
    );
    // Blocking work runs on threads that tokio keeps for the next use: on a busy machine several for each of the four cycles.
    assert!(
        threads() <= threads_before + 16,
        "{} of {threads_before}",
        threads()
    );
    wait_for("their end", || scene.find().is_empty());
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

#[test]
fn p41b_an_agent_that_outlives_its_runtime_is_ended_when_it_is_dropped() {
    for containment in BOTH {
        let scene = Scene::new();
        let runtime = runtime();
        let agent = runtime.block_on(async {
            // Without a guard, only the group can be ended by a drop.
            let script = if containment == Containment::Guard {
                TREE
            } else {
                "sleep 630 & sleep 631 & echo ready; wait"
            };
            let mut agent = scene
                .agent(script)
                .containment(containment)
                .spawn()
                .await
                .unwrap();
            wait_for_line(&mut agent, "ready").await;
            agent
        });
        if containment == Containment::Guard {
            wait_for_tree(&scene);
        }
        drop(runtime);
        drop(agent);
        wait_for("their end", || scene.find().is_empty());
    }
}

#[test]
fn p41b_stop_after_its_runtime_ended_does_not_spin_and_reports_it() {
    for containment in BOTH {
        let scene = Scene::new();
        let command = scene.agent("sleep 635 & echo ready; wait");
        let first = runtime();
        let mut agent = first.block_on(async {
            let mut agent = command.containment(containment).spawn().await.unwrap();
            wait_for_line(&mut agent, "ready").await;
            agent
        });
        drop(first);
        let hour = Duration::from_secs(3600);
        let policy = StopPolicy {
            interrupt: hour,
            terminate: hour,
            ..StopPolicy::default().within(hour)
        };
        let stop = std::thread::spawn(move || {
            let report = runtime().block_on(agent.stop(&policy));
            assert!(!report.is_proven(), "{report}");
            let said =
                "? (result unknown: the runtime that started the program has ended or hangs)";
            assert!(report.to_string().ends_with(said), "{report}");
        });
        wait_for("the report", || stop.is_finished());
        stop.join().unwrap();
        wait_for("their end", || scene.find().is_empty());
    }
}

#[test]
fn p41b_a_panic_ends_the_agent_too() {
    for containment in BOTH {
        let scene = Scene::new();
        let command = scene
            .agent("sleep 632 & sleep 633 & echo ready; wait")
            .containment(containment);
        let panicked = std::thread::spawn(move || {
            runtime().block_on(async {
                let mut agent = command.spawn().await.unwrap();
                wait_for_line(&mut agent, "ready").await;
                let _dropped_by_the_panic = agent;
                std::panic::resume_unwind(Box::new("on purpose"));
            });
        });
        assert!(panicked.join().is_err());
        wait_for("their end", || scene.find().is_empty());
    }
}

#[tokio::test]
async fn p41a_drop_after_exit_ends_leftovers() {
    for containment in BOTH {
        let scene = Scene::new();
        let command = scene.agent("sleep 634 >/dev/null 2>&1 & exit 0");
        let mut agent = command.containment(containment).spawn().await.unwrap();
        assert!(agent.wait().await.success());
        scene.wait_for_program("sleep", "634");
        drop(agent);
        wait_for("their end", || scene.find().is_empty());
    }
}

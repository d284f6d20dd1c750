//! No process of a process tree escapes, whatever method it uses.

use crate::scene::{
    DEADLINE, Scene, TREE, TREE_SIZE, is_gone, stdout, wait_for, wait_for_line, wait_for_tree,
};
use agent_subprocess::{Containment, ProcessId, StopPolicy, StopStage};
use std::time::Duration;

pub fn quick() -> StopPolicy {
    let short = Duration::from_millis(300);
    StopPolicy {
        budget: Duration::from_secs(8),
        interrupt: Duration::ZERO,
        close_stdin: Duration::ZERO,
        terminate: short,
    }
}

#[tokio::test]
async fn x101e_x101k_p35_p36_a_stop_ends_every_kind_of_descendant_and_counts_them() {
    for containment in [Containment::Guard, Containment::Group] {
        let scene = Scene::new();
        let mut agent = scene
            .agent(TREE)
            .containment(containment)
            .spawn()
            .await
            .unwrap();
        wait_for_line(&mut agent, "ready").await;
        let before = wait_for_tree(&scene);
        let report = agent.stop(&quick()).await;
        assert!(!before.iter().any(ProcessId::is_alive));
        // Without a guard, init reaps the orphans in its own time.
        assert!(
            containment == Containment::Group || before.iter().all(is_gone),
            "not even a zombie"
        );
        assert_eq!(
            (report.ended.len(), report.containment),
            (TREE_SIZE, containment),
            "{report:?}"
        );
        assert_eq!(
            (report.stage, report.outputs_ended),
            (StopStage::Kill, true),
            "{report:?}"
        );
        assert!(
            report.to_string().starts_with("all processes ended"),
            "{report}"
        );
        scene.assert_no_process_is_left();
    }
}

/// The control experiment for the test above.
#[cfg(feature = "test-util")]
#[tokio::test]
async fn x101h_control_killpg_leaves_at_least_two_kinds() {
    let scene = Scene::new();
    let mut agent = scene.agent(TREE).group_only().spawn().await.unwrap();
    wait_for_line(&mut agent, "ready").await;
    let before = wait_for_tree(&scene);
    let report = agent.stop(&quick()).await;
    let left = before.iter().filter(|process| !is_gone(process)).count();
    assert!(
        left >= 2 && scene.members().len() >= 2,
        "{left} left; {report}"
    );
    assert!(
        !report.outputs_ended,
        "one of them keeps standard output open"
    );
}

#[tokio::test]
async fn p39_p40_held_pipes_delay_neither_exit_nor_output() {
    let scene = Scene::new();
    let script = "echo before; (sleep 620) & head -c 3000000 /dev/zero; echo; echo last; exit 4";
    let mut agent = scene.agent(script).spawn().await.unwrap();
    assert_eq!(agent.wait().await.code, Some(4));
    let lines = tokio::time::timeout(DEADLINE, stdout(&mut agent))
        .await
        .unwrap();
    assert_eq!(
        lines.iter().map(String::len).collect::<Vec<_>>(),
        [6, 3_000_000, 4],
        "all output, then the end"
    );
    let leftovers = agent.leftovers().await;
    assert!(!leftovers.is_empty());
    let report = agent.stop(&quick()).await;
    assert_eq!(report.ended.len(), leftovers.len(), "{report:?}");
    assert!(
        !report.outputs_ended,
        "the stop did not wait for the end of the output"
    );
    scene.assert_no_process_is_left();
}

#[tokio::test]
async fn leftover_server_can_continue_to_write() {
    let scene = Scene::new();
    // It writes for longer than its output is returned, and more than fits into a pipe.
    let script = "(for n in $(seq 60); do head -c 50000 /dev/zero || exit; sleep 0.02; done; echo alive >alive; sleep 600) & exit 0";
    let mut agent = scene.agent(script).spawn().await.unwrap();
    assert!(agent.wait().await.success());
    tokio::time::timeout(DEADLINE, stdout(&mut agent))
        .await
        .unwrap();
    let written = async {
        while !scene.path("alive").exists() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, written).await.unwrap();
    agent.stop(&quick()).await;
    scene.assert_no_process_is_left();
}

#[tokio::test]
async fn p34a_processes_that_fork_and_exit_are_ended() {
    let scene = Scene::new();
    // Bounded: each lineage ends by itself after 600 generations. The last arguments start one fork and one exec for each generation.
    let script = r#"
        echo '[ "$1" -gt 600 ] && exit; trap "" TERM; sleep 0.004; setsid sh ./lineage $(($1 + 1)) & exit 0' >lineage
        for n in 1 2 3 4; do sh ./lineage 0 & done; echo ready; exec sleep 630"#;
    let mut agent = scene.agent(script).spawn().await.unwrap();
    wait_for_line(&mut agent, "ready").await;
    wait_for("lineages", || scene.members().len() >= 3);
    let report = agent
        .stop(&StopPolicy {
            terminate: Duration::from_millis(50),
            ..quick()
        })
        .await;
    // On a loaded machine the stop can reach all of them between a fork and its trap.
    assert!(report.stage >= StopStage::Terminate, "{report}");
    assert!(
        report.survivors.is_empty() && report.ended.len() > 4,
        "{report}"
    );
    scene.assert_no_process_is_left();
}

#[tokio::test]
async fn a_stopped_child_is_ended_too() {
    let scene = Scene::new();
    let mut agent = scene
        .agent("setsid sleep 640 & kill -STOP $!; echo ready; wait")
        .spawn()
        .await
        .unwrap();
    wait_for_line(&mut agent, "ready").await;
    let report = agent
        .stop(&StopPolicy {
            terminate: Duration::from_secs(3),
            ..quick()
        })
        .await;
    assert_eq!(
        (report.stage, report.ended.len()),
        (StopStage::Terminate, 2),
        "{report}"
    );
    scene.assert_no_process_is_left();
}

#[tokio::test]
async fn agent_with_nested_guards_is_ended_completely() {
    let scene = Scene::new();
    let inner = Scene::new();
    let host = crate::lost::helper(&inner);
    let mut command = scene
        .agent(r#"exec "$@""#)
        .arg("sh")
        .arg(host.get_program())
        .args(host.get_args());
    for (name, value) in host.get_envs() {
        command = command.env(name, value.unwrap());
    }
    let mut agent = command.spawn().await.unwrap();
    let before = wait_for_tree_of(&inner, &mut agent).await;
    let report = agent.stop(&quick()).await;
    assert!(
        report.survivors.is_empty() && before.iter().all(is_gone),
        "{report}"
    );
    assert!(
        report
            .ended
            .iter()
            .any(|process| process.name == "agent-guard"),
        "{report:?}"
    );
    scene.assert_no_process_is_left();
    inner.assert_no_process_is_left();
}

async fn wait_for_tree_of(
    scene: &Scene,
    agent: &mut agent_subprocess::ProcessTree,
) -> Vec<ProcessId> {
    while let Some(output) = agent.next_output().await {
        if output.line.text().starts_with("host:") {
            break;
        }
    }
    wait_for_tree(scene)
}

/// The fallback can't find such a process. The guard ends it without a search.
#[tokio::test]
async fn p34b_fallback_loses_process_without_group_parent_and_environment() {
    for containment in [Containment::Guard, Containment::Group] {
        let scene = Scene::new();
        let escape = "env -i setsid sh -c 'echo $$ >pid.new; mv pid.new pid; exec sleep 634'";
        let script = format!(
            "({escape} >/dev/null 2>&1 &); until [ -e pid ]; do sleep 0.02; done; echo ready; sleep 635"
        );
        let command = scene.agent(&script).containment(containment);
        let mut agent = command.spawn().await.unwrap();
        wait_for_line(&mut agent, "ready").await;
        let pid: u32 = std::fs::read_to_string(scene.path("pid"))
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        let report = agent.stop(&quick()).await;
        let escaped = std::path::Path::new(&format!("/proc/{pid}")).exists();
        if escaped {
            crate::scene::kill(pid, rustix::process::Signal::KILL);
        }
        assert_eq!(escaped, containment == Containment::Group, "{report:?}");
        assert_eq!(report.is_proven(), containment == Containment::Guard);
    }
}

/// An interrupt alone ends the main process, and the walk can't find a process in a session of its own after that.
#[tokio::test]
async fn w21_live_process_is_never_reported_as_ended() {
    let scene = Scene::new();
    let mut agent = agent_subprocess::TreeCommand::new("bash")
        .args(["-c", "setsid sleep 641 & echo ready; exec sleep 642"])
        // Only for the cleanup of this test: the agent itself has no marker.
        .env(
            crate::scene::VARIABLE,
            format!("{}.1.1", scene.marker.scope),
        )
        .containment(Containment::Group)
        .spawn()
        .await
        .unwrap();
    wait_for_line(&mut agent, "ready").await;
    scene.wait_for_program("sleep", "641");
    let report = agent.stop(&StopPolicy::default()).await;
    let alive = scene.members();
    for process in &alive {
        let named = |it: &agent_subprocess::ProcessName| it.pid == process.pid;
        assert!(!report.ended.iter().any(named), "{report:?}");
        assert!(report.survivors.iter().any(named), "{report:?}");
    }
    assert!(alive.is_empty(), "a process was not ended: {report:?}");
    assert_eq!(report.ended.len(), 2, "{report:?}");
}

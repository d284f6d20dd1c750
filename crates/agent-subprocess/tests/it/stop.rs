//! The stages of a stop, each with an agent that ignores the stages before.

use crate::scene::{DEADLINE, Scene, TREE, is_gone, stdout, wait_for_line, wait_for_tree};
use agent_subprocess::{Containment, ProcessId, Signal, StdinMode, StopPolicy, StopStage};
use std::time::Duration;

/// Returns a policy with short stages, so that waiting for the end of one costs little.
fn short() -> StopPolicy {
    let short = Duration::from_millis(200);
    StopPolicy {
        budget: Duration::from_secs(4),
        interrupt: short,
        close_stdin: short,
        terminate: short,
    }
}

#[tokio::test]
async fn l90d_l90e_l90f_p38a_p38b_each_stage_ends_an_agent_that_ignores_earlier_ones() {
    let cases = [
        (
            "trap 'echo INT; exit 5' INT; echo ready; while :; do read x || sleep 0.1; done",
            StopStage::Interrupt,
            "exit status 5",
        ),
        (
            "trap '' INT; echo ready; cat >/dev/null; exit 6",
            StopStage::CloseInput,
            "exit status 6",
        ),
        (
            "trap '' INT; trap 'exit 7' TERM; echo ready; while :; do sleep 0.1; done",
            StopStage::Terminate,
            "exit status 7",
        ),
        (
            "trap '' INT TERM; echo ready; while :; do sleep 0.1; done",
            StopStage::Kill,
            "killed by SIGKILL",
        ),
    ];
    for containment in [Containment::Guard, Containment::Group] {
        for (script, stage, exit) in cases {
            let scene = Scene::new();
            let command = scene
                .agent(script)
                .stdin(StdinMode::Piped)
                .containment(containment);
            let mut agent = command.spawn().await.unwrap();
            let _stdin = agent.take_stdin();
            wait_for_line(&mut agent, "ready").await;
            // Gives the tested stage enough time on a loaded machine; the stages that can't end the agent stay short.
            let mut policy = short();
            match stage {
                StopStage::Interrupt => policy.interrupt = Duration::from_secs(3),
                StopStage::CloseInput => policy.close_stdin = Duration::from_secs(3),
                StopStage::Terminate => policy.terminate = Duration::from_secs(3),
                _ => {}
            }
            let report = agent.stop(&policy).await;
            assert_eq!(
                (report.stage, report.exit.unwrap().to_string().as_str()),
                (stage, exit),
                "{report}"
            );
            assert!(
                report.survivors.is_empty() && !report.ended.is_empty() && report.outputs_ended,
                "{report:?}"
            );
            assert_eq!(
                agent.stop(&policy).await,
                report,
                "the second report is the first"
            );
            scene.assert_no_process_is_left();
        }
    }
}

#[tokio::test]
async fn p40_p38b_output_before_exit_is_readable_after_stop() {
    let scene = Scene::new();
    let mut agent = scene
        .agent("trap 'echo partial; exit 0' INT; echo ready; while :; do sleep 0.05; done")
        .spawn()
        .await
        .unwrap();
    wait_for_line(&mut agent, "ready").await;
    let report = agent.stop(&StopPolicy::default()).await;
    assert_eq!(report.stage, StopStage::Interrupt, "{report}");
    assert_eq!(stdout(&mut agent).await, ["partial"]);
}

#[tokio::test]
async fn p35_p38b_processes_alive_at_stop_are_counted() {
    for containment in [Containment::Guard, Containment::Group] {
        let scene = Scene::new();
        let command = scene.agent("echo ready; cat | cat");
        let mut agent = command
            .stdin(StdinMode::Piped)
            .containment(containment)
            .spawn()
            .await
            .unwrap();
        wait_for_line(&mut agent, "ready").await;
        crate::scene::wait_for("a pipeline", || scene.members().len() == 3);
        let policy = StopPolicy {
            close_stdin: Duration::from_secs(5),
            ..StopPolicy::default().without_interrupt()
        };
        let report = agent.stop(&policy).await;
        assert_eq!(
            (report.stage, report.ended.len()),
            (StopStage::CloseInput, 3),
            "{report:?}"
        );
    }
}

#[tokio::test]
async fn interrupt_reaches_the_group_and_the_agent_can_stay() {
    let scene = Scene::new();
    let mut agent = scene
        .agent("trap 'echo INT' INT; echo ready; while :; do read x || sleep 0.05; done")
        .spawn()
        .await
        .unwrap();
    wait_for_line(&mut agent, "ready").await;
    agent.signal(Signal::Interrupt).unwrap();
    wait_for_line(&mut agent, "INT").await;
    let report = agent.stop(&StopPolicy::kill()).await;
    assert_eq!(report.stage, StopStage::Kill, "{report}");
    agent
        .signal(Signal::Interrupt)
        .expect("a signal after the end does nothing");
}

#[tokio::test]
async fn x127b_leftovers_are_listed_after_a_normal_exit_and_a_stop_ends_and_names_them() {
    let scene = Scene::new();
    let script =
        "sleep 600 >/dev/null 2>&1 & setsid sh -c 'exec sleep 601' >/dev/null 2>&1 & exit 0";
    let mut agent = scene.agent(script).spawn().await.unwrap();
    assert!(agent.wait().await.success());
    scene.wait_for_program("sleep", "600");
    scene.wait_for_program("sleep", "601");
    let mut left = agent.leftovers().await;
    assert_eq!(left.len(), 2, "{left:?}");
    let before = scene.members();
    let report = agent.stop(&StopPolicy::default()).await;
    left.sort();
    let ended: Vec<u32> = report.ended.iter().map(|process| process.pid).collect();
    assert_eq!(
        ended,
        left.iter().map(|process| process.pid).collect::<Vec<_>>()
    );
    assert_eq!(
        (report.stage, report.exit.unwrap().code),
        (StopStage::Terminate, Some(0)),
        "{report}"
    );
    assert!(before.iter().all(is_gone));
    assert!(agent.leftovers().await.is_empty());
}

fn wait_for_suspension(scene: &Scene) {
    let state = |process: &ProcessId| {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", process.pid)).unwrap_or_default();
        stat.rsplit_once(") ")
            .and_then(|(_, rest)| rest.chars().next())
    };
    // A shell whose child was stopped between vfork and exec waits for the child in the kernel.
    crate::scene::wait_for("a stop", || {
        let states: Vec<_> = scene.members().iter().map(state).collect();
        states.contains(&Some('T')) && states.iter().all(|state| matches!(state, Some('T' | 'D')))
    });
}

/// Every process that a suspension misses would run on.
#[tokio::test]
async fn x126a_suspension_reaches_processes_that_start_meanwhile() {
    let scene = Scene::new();
    let script = "while :; do echo tick; sleep 673 & sleep 673 & sleep 673 & sleep 0.01; done";
    let mut agent = scene.agent(script).spawn().await.unwrap();
    for _ in 0..20 {
        wait_for_line(&mut agent, "tick").await;
        agent.suspend().unwrap();
        wait_for_suspension(&scene);
        agent.resume().unwrap();
    }
    agent.stop(&StopPolicy::kill()).await;
    scene.assert_no_process_is_left();
}

#[tokio::test]
async fn suspended_tree_can_be_continued_and_stopped() {
    let scene = Scene::new();
    let mut agent = scene
        .agent("echo ready; while :; do echo tick; sleep 0.02; done")
        .spawn()
        .await
        .unwrap();
    wait_for_line(&mut agent, "ready").await;
    agent.suspend().unwrap();
    wait_for_suspension(&scene);
    agent.resume().unwrap();
    wait_for_line(&mut agent, "tick").await;
    agent.suspend().unwrap();
    let report = agent.stop(&short()).await;
    assert!(
        report.stage <= StopStage::Terminate && report.survivors.is_empty(),
        "{report:?}"
    );
    scene.assert_no_process_is_left();
}

/// Without the thaw, the agent would sleep through the gentle stages and lose the state that it saves in them.
#[tokio::test]
async fn suspended_agent_gets_the_gentle_stages_of_a_stop() {
    let cases = [
        (
            "trap 'exit 5' INT; echo ready; while :; do sleep 0.1; done",
            StopStage::Interrupt,
            5,
        ),
        (
            "trap '' INT; echo ready; cat >/dev/null; exit 6",
            StopStage::CloseInput,
            6,
        ),
    ];
    for containment in [Containment::Guard, Containment::Group] {
        for (script, stage, code) in cases {
            let scene = Scene::new();
            let command = scene.agent(script).stdin(StdinMode::Piped);
            let mut agent = command.containment(containment).spawn().await.unwrap();
            wait_for_line(&mut agent, "ready").await;
            agent.suspend().unwrap();
            let mut policy = short();
            match stage {
                StopStage::Interrupt => policy.interrupt = Duration::from_secs(3),
                _ => policy.close_stdin = Duration::from_secs(3),
            }
            let report = agent.stop(&policy).await;
            let exit = report.exit.and_then(|exit| exit.code);
            assert_eq!((report.stage, exit), (stage, Some(code)), "{report:?}");
            scene.assert_no_process_is_left();
        }
    }
}

#[tokio::test]
async fn dropped_stop_continues_at_the_same_stage() {
    let scene = Scene::new();
    let mut agent = scene
        .agent("trap '' INT TERM; echo ready; while :; do sleep 0.1; done")
        .spawn()
        .await
        .unwrap();
    wait_for_line(&mut agent, "ready").await;
    let policy = short();
    // Dropped again and again, also during the kill.
    let mut cuts = 0;
    let report = loop {
        match tokio::time::timeout(Duration::from_millis(7), agent.stop(&policy)).await {
            Ok(report) => break report,
            Err(_) => cuts += 1,
        }
    };
    assert!(cuts > 5 && !report.guard_lost, "{cuts} {report}");
    assert_eq!(report.stage, StopStage::Kill, "{report}");
    scene.assert_no_process_is_left();
}

/// With the first policy alone, this would take a day.
#[tokio::test]
async fn l90g_second_stop_with_less_time_shortens_the_first() {
    let day = Duration::from_secs(24 * 3600);
    let (zero, second) = (Duration::ZERO, Duration::from_secs(1));
    let policy = |interrupt, terminate| StopPolicy {
        interrupt,
        terminate,
        ..StopPolicy::default().within(day)
    };
    let script =
        "trap 'echo INT' INT; trap 'echo TERM' TERM; echo ready; while :; do sleep 0.05; done";
    for containment in [Containment::Guard, Containment::Group] {
        for (first, heard) in [(policy(day, day), "INT"), (policy(zero, day), "TERM")] {
            let scene = Scene::new();
            let command = scene.agent(script).containment(containment);
            let mut agent = command.spawn().await.unwrap();
            wait_for_line(&mut agent, "ready").await;
            // A dropped future leaves the stop in its current stage.
            let mut stop = Duration::from_millis(20);
            while let Err(_cut) = tokio::time::timeout(stop, agent.stop(&first)).await {
                stop *= 2;
                let said = tokio::time::timeout(stop, wait_for_line(&mut agent, heard)).await;
                if said.is_ok() {
                    break;
                }
            }
            let hurried = first.within(second);
            let sooner = tokio::time::timeout(DEADLINE, agent.stop(&hurried));
            let sooner = sooner
                .await
                .expect("the stop continues by the first policy");
            assert_eq!(
                sooner.stage,
                StopStage::Kill,
                "{containment:?} {heard}: {sooner}"
            );
            assert!(
                sooner.survivors.is_empty() && !sooner.guard_lost,
                "{sooner:?}"
            );
            scene.assert_no_process_is_left();
        }
    }
}

#[tokio::test]
async fn stop_without_time_kills() {
    for containment in [Containment::Guard, Containment::Group] {
        let scene = Scene::new();
        let command = scene.agent(TREE).containment(containment);
        let mut agent = command.spawn().await.unwrap();
        wait_for_line(&mut agent, "ready").await;
        wait_for_tree(&scene);
        let policy = StopPolicy::default().within(Duration::ZERO);
        let report = agent.stop(&policy).await;
        assert!(
            report.survivors.is_empty() && !report.guard_lost,
            "{report:?}"
        );
        assert_eq!(report.stage, StopStage::Kill);
        scene.assert_no_process_is_left();
    }
}

#[tokio::test]
async fn a_stop_without_a_bound_waits_for_the_agent() {
    for containment in [Containment::Guard, Containment::Group] {
        let scene = Scene::new();
        let script = "trap '' INT; trap 'exit 4' TERM; echo ready; while :; do sleep 0.05; done";
        let mut agent = scene
            .agent(script)
            .containment(containment)
            .spawn()
            .await
            .unwrap();
        wait_for_line(&mut agent, "ready").await;
        let policy = StopPolicy {
            interrupt: Duration::from_millis(100),
            terminate: Duration::MAX,
            ..StopPolicy::default().within(Duration::MAX)
        };
        let report = agent.stop(&policy).await;
        assert_eq!(
            (report.stage, report.exit.unwrap().code),
            (StopStage::Terminate, Some(4))
        );
        assert!(!report.guard_lost, "{report}");
    }
}

#[tokio::test]
async fn p33a_p33b_agent_has_its_own_group_and_signals_stay_in_it() {
    for containment in [Containment::Guard, Containment::Group] {
        let mut neighbour = std::process::Command::new("sleep")
            .arg("640")
            .spawn()
            .unwrap();
        let scene = Scene::new();
        let command = scene.agent("echo ready; sleep 641");
        let mut agent = command.containment(containment).spawn().await.unwrap();
        wait_for_line(&mut agent, "ready").await;
        let pid = i32::try_from(agent.pid()).unwrap();
        let group = rustix::process::getpgid(rustix::process::Pid::from_raw(pid)).unwrap();
        assert_ne!(group, rustix::process::getpgrp());
        agent.signal(Signal::Interrupt).unwrap();
        agent.stop(&short()).await;
        assert_eq!(
            neighbour.try_wait().unwrap(),
            None,
            "our group must get no signal"
        );
        neighbour.kill().unwrap();
        neighbour.wait().unwrap();
        scene.assert_no_process_is_left();
    }
}

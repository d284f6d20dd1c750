//! Tests of the options that the driver applies before it starts the agent.

use super::*;
use agent_drivers::Redacted;
use agent_drivers::acp::AcpOptions;

fn with(name: &str, value: &str) -> AcpOptions {
    AcpOptions {
        env: Redacted([(name.into(), value.into())].into()),
        ..AcpOptions::default()
    }
}

#[tokio::test]
async fn p32a_agent_inherits_only_allowed_variables() {
    let scene = Scene::new();
    let driver = driver(&scene, "env > environment").options(AcpOptions {
        env_allow: Some(vec!["NO_SUCH_*".into()]),
        ..AcpOptions::default()
    });
    let mut connection = open(&driver, SessionChoice::Fresh).await.unwrap();
    let environment = std::fs::read_to_string(scene.path("environment")).unwrap();
    assert!(
        environment.contains(crate::scene::VARIABLE),
        "{environment}"
    );
    assert!(!environment.contains("CARGO_"), "{environment}");
    drop(connection.stop(DEADLINE).await);
    scene.assert_no_process_left();
}

#[test]
fn p31e_repeated_driver_flags_are_refused() {
    let scene = Scene::new();
    let gemini = |args: &[&str]| {
        let driver = AcpDriver::gemini(vec!["gemini".into()], context(&scene)).model("m");
        let args = args.iter().map(OsString::from).collect();
        driver.args(args).check().map_err(|e| e.to_string())
    };
    gemini(&["--skip-trust", "--debug"]).unwrap();
    let refused = ["--approval-mode=yolo", "--acp", "-m"].map(|arg| gemini(&[arg]).unwrap_err());
    insta::assert_snapshot!(refused.join("\n"));
    let other = AcpDriver::new(vec!["agent".into()], context(&scene));
    other.clone().args(vec!["-y".into()]).check().unwrap();
    other.options(with("A=B", "1")).check().unwrap_err();
}

#[tokio::test]
async fn x124f_opencode_requests_permission_unless_all_is_allowed() {
    let scene = Scene::new();
    let script = format!("{AGENT}{LOOP}");
    let script = script.replacen("say()", "env > environment; say()", 1);
    for (permissions, own, expected) in [
        (Permissions::Deny, None, Some(r#"{"*":"ask","#)),
        (Permissions::Edits, None, Some(r#"{"*":"ask","#)),
        (Permissions::All, None, None),
        (Permissions::Deny, Some("{}"), Some("{}")),
    ] {
        let program = ["sh", "-c", &script, "sh"].map(OsString::from);
        let driver = AcpDriver::opencode(program.into(), context(&scene));
        let mut driver = driver.permissions(permissions);
        if let Some(own) = own {
            driver = driver.options(with("OPENCODE_PERMISSION", own));
        }
        let mut connection = open(&driver, SessionChoice::Fresh).await.unwrap();
        let environment = std::fs::read_to_string(scene.path("environment")).unwrap();
        let mut lines = environment.lines();
        let told = lines.find_map(|line| line.strip_prefix("OPENCODE_PERMISSION="));
        let told = told.map(|told| told.get(..11).unwrap_or(told));
        assert_eq!(told, expected, "{permissions:?}");
        // An agent that was started without permission requests can't be made to ask later.
        let less = connection.set_permissions(Permissions::Deny).await;
        let refused = less.err().is_some_and(|error| error.is_unsupported());
        assert_eq!(refused, permissions == Permissions::All);
        drop(connection.stop(DEADLINE).await);
    }
}

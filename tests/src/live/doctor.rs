//! Checks of `rlm doctor` with the real CLIs: their versions, and whether they are logged in.

use std::path::Path;

use serde_json::Value;

use super::real::{RealAgent, of_every_agent};
use super::scene::{LiveScene, RUN};
use super::{Check, install};
use crate::{Ended, Rlm};

/// The checks by the program of the agent, and by name.
pub(super) const CHECKS: [(&str, &str, Check); 5] = of_every_agent!("", ": rlm doctor", examined);

fn examined(real: RealAgent, rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::of(real, rlm, agent, "");
    let name = match real {
        RealAgent::ClaudeAcp => "acp",
        _ => real.program(),
    };
    let ask = |rlm: Rlm<'_>, code: i32| {
        let ended = rlm.args(["doctor", name, "--json"]).run(RUN);
        scene.expect_nothing_alive();
        found(real, &ended.expect_code(code))
    };
    // OpenCode counts stored keys and keys in known variables. A custom service is neither.
    let counts = real == RealAgent::Opencode;
    let with = ask(scene.rlm(&[]), 0);
    let expected = if counts { "unknown" } else { "yes" };
    assert_eq!(with.0, expected, "{}", with.1);
    let variables = scene.environment();
    let path = variables.into_iter().rfind(|(name, _)| name == "PATH");
    let bare = scene.sandbox.rlm(rlm).env("PATH", path.unwrap().1);
    let bare = bare.env("CODEX_HOME", scene.sandbox.path().join("tmp"));
    let without = ask(bare, i32::from(!counts));
    let expected = if counts { "unknown" } else { "no" };
    assert_eq!(without.0, expected, "{}", without.1);
    assert!(scene.model.requests().is_empty(), "the model got a request");
    format!(
        "login is {} with a key and {} without; the model got no request",
        with.0, without.0
    )
}

/// Returns the login state of the agent, and everything printed about it.
fn found(real: RealAgent, ended: &Ended) -> (String, String) {
    let said: Value = serde_json::from_str(&ended.stdout).unwrap();
    let agent = &said["agents"][0];
    let versions = install::versions();
    let version = { versions.iter() }.find(|(program, _)| *program == real.program());
    assert_eq!(agent["version"], version.unwrap().1, "{ended}");
    (
        agent["logged_in"].as_str().unwrap().to_owned(),
        ended.to_string(),
    )
}

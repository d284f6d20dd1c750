//! The binary under test exists.

use rlm_tests::Sandbox;

use crate::{LONG, RLM};

#[test]
fn binary_prints_its_name_and_version() {
    let sandbox = Sandbox::new();
    let ended = sandbox
        .rlm(RLM)
        .args(["--version"])
        .run(LONG)
        .expect_code(0);
    assert!(ended.stdout.starts_with("rlm "), "{ended}");
}

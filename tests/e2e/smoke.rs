//! The binary under test exists.

use rlm_tests::Sandbox;

use crate::{LONG, RLM};

#[test]
fn the_binary_names_itself_and_its_version() {
    let sandbox = Sandbox::new();
    let ended = sandbox
        .rlm(RLM)
        .args(["--version"])
        .run(LONG)
        .expect_code(0);
    assert!(ended.stdout.starts_with("rlm "), "{ended}");
}

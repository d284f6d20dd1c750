//! Tests the pages of `rlm view` in headless Chromium, which Debian's packages `chromium` and `chromium-driver` contain.

use std::path::Path;
use std::process::Command;

use crate::chosen_tests::Tests;
use crate::command::{self, Show};
use crate::tally::Tally;
use crate::workspace::Workspace;

/// The accessibility checker, from npm.
const AXE: &str = "axe-core@4.11.0";
const TESTS: Tests = Tests::new("rlm-tests", "e2e", "browser::").ignored();

/// Runs the tests, or reports them as skipped where there is no browser.
pub(crate) fn run(workspace: &Workspace) -> Tally {
    let installed = |name: &str| Path::new("/usr/bin").join(name).exists();
    if !installed("chromium") || !installed("chromedriver") {
        let how = "install the packages chromium and chromium-driver";
        return Tally::skipped(format!("browser: Chromium is not installed; {how}"));
    }
    let place = workspace.target.join("tools/axe");
    let axe = place.join("node_modules/axe-core/axe.min.js");
    if !axe.exists() {
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-save", "--prefix"]);
        npm.arg(&place).arg(AXE);
        command::finish(&mut npm, Show::OnFailure);
    }
    if axe.exists() {
        return TESTS.run(("RLM_TEST_AXE", &axe.to_string_lossy()));
    }
    let mut tally = TESTS.run(("RLM_TEST_NO_AXE", "1"));
    tally += Tally::skipped(format!(
        "browser: accessibility: npm could not install {AXE}"
    ));
    tally
}

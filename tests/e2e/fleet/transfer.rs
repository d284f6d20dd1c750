//! A run leaves the fleet, continues without a server, and returns.

use super::*;

#[test]
fn f10_exported_run_continues_without_a_server_and_returns() {
    let Some(mut fleet) = Fleet::new("append work {start}\n@3 touch done", SHORT) else {
        return;
    };
    fleet.submit(&["--until", "test -e done", "-n", "1"]);
    let worker = fleet.worker("w1");
    assert_eq!(fleet.wait().1, 3);
    let place = fleet.scene.sandbox.path().join("laptop");
    let at = place.to_str().unwrap();
    let exported = fleet.fleet(&["export", "r1", at]).run(LONG).expect_code(0);
    assert!(
        exported.stdout.contains("no worker takes it"),
        "{}",
        exported.stdout
    );
    assert_eq!(fleet.row()["state"], "exported");
    // It is out, so nobody else may have it.
    let resumed = fleet
        .fleet(&["resume", "r1"])
        .run(LONG)
        .expect_code(2)
        .stderr;
    assert!(resumed.contains("was exported to"), "{resumed}");
    fleet.kill_server();
    // An import that does not reach the server does not keep the run from continuing here.
    let failed = fleet.fleet(&["import", "r1"]).dir(&place).run(LONG);
    assert_ne!(failed.code(), Some(0), "{failed}");
    let local = fleet
        .scene
        .rlm(&["resume", "r1", "-n", "2"])
        .dir(&place)
        .run(LONG);
    local.expect_code(3);
    let status = fleet
        .scene
        .rlm(&["status", "r1", "--json"])
        .dir(&place)
        .run(LONG);
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!(status["iteration"], 2, "{status}");
    fleet.start_server();
    wait_for("the server", LONG, || {
        let ps = fleet.fleet(&["ps"]).run(LONG);
        (ps.code() == Some(0)).then_some(())
    });
    let import = || fleet.fleet(&["import", "r1"]).dir(&place).run(LONG);
    import().expect_code(0);
    // To return it again is the same, and it can't continue here.
    import();
    let here = fleet
        .scene
        .rlm(&["resume", "r1", "-n", "5"])
        .dir(&place)
        .run(LONG);
    assert_ne!(here.code(), Some(0));
    assert_eq!(fleet.scene.start_count(), 2);
    // It ended at its limit, and the fleet continues it with a higher one.
    fleet
        .fleet(&["resume", "r1", "max-iterations=5"])
        .run(LONG)
        .expect_code(0);
    let (row, code) = fleet.wait();
    assert_eq!((row["iteration"].as_u64(), code), (Some(3), 0), "{row}");
    assert_eq!(row["attempts"], 3);
    assert_eq!(fleet.work(), ["1", "2", "3"]);
    drop(worker);
}

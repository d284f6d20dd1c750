//! A storm on `rlm` itself.

use rlm_storm::Fault;

use crate::{plan, storm};

#[test]
fn f2_storm_loses_no_committed_iteration_and_does_none_twice() {
    let faults = vec![
        (Fault::KillWorker, 2),
        (Fault::FreezeWorker, 1),
        (Fault::CutOffWorker, 1),
        (Fault::KillServer, 1),
    ];
    let Some(plan) = plan(faults.clone()) else {
        return;
    };
    let result = storm(&plan);
    assert_eq!(result.findings, [], "{result:?}");
    for (fault, count) in faults {
        assert!(result.landed(fault) >= count, "{result:?}");
    }
    assert!(result.iterations > 0, "{result:?}");
}

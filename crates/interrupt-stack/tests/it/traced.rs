//! Tests of the events of the feature `tracing`.

use crate::child::Probe;

#[test]
fn events_report_each_stage_until_the_exit() {
    let probe = Probe::start("traced");
    for said in [
        "press, notice",
        "press, shutdown begins",
        "press, hard exit",
    ] {
        probe.press();
        for event in said.split(", ") {
            assert_eq!(probe.line(), format!("event {event}"));
        }
    }
}

/// The crate never waits for a subscriber.
#[test]
fn hanging_subscriber_does_not_block_others() {
    let mut probe = Probe::start("traced for ever");
    probe.press();
    assert_eq!(probe.line(), "event press");
    probe.press();
    let mut lines = [probe.line(), probe.line()];
    lines.sort();
    assert_eq!(lines, ["event press", "shutdown Some(Press)"]);
    probe.press();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&probe.end()),
        Some(2)
    );
}

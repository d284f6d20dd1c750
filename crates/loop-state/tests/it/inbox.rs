//! The first inputs of a process.

use loop_state::{Attendance, Inbox, MachineInput, ResumeOptions};

#[test]
fn new_run_learns_whether_somebody_can_be_asked_and_a_resume_has_it_in_its_options() {
    let order = |first: MachineInput, attendance| {
        let mut inbox = Inbox::<()>::default();
        inbox.begin(first, attendance);
        let order = std::iter::from_fn(|| inbox.take().map(|(what, ())| what));
        order.collect::<Vec<_>>()
    };
    let started = |attended| [MachineInput::Started, MachineInput::Attended(attended)];
    let new = |attendance| order(MachineInput::Started, attendance);
    assert_eq!(new(Attendance::Attended), started(true));
    assert_eq!(new(Attendance::Unattended), started(false));
    let resumed = MachineInput::Resumed(ResumeOptions::default());
    assert_eq!(order(resumed.clone(), Attendance::Attended), [resumed]);
}

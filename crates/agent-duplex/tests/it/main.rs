//! Tests of the public promises of the crate.

mod closing;
mod commands;
mod contract;
#[cfg(feature = "sqlite")]
mod disks;
mod documented_behaviour;
mod ends;
mod examples;
mod fanout;
mod front_door;
#[cfg(feature = "sqlite")]
mod histories;
mod input_parts;
mod kills;
mod library;
mod races;
mod random;
mod readers;
#[cfg(feature = "sqlite")]
mod recovery;
mod refused;
mod replays;
mod restarts;
#[cfg(feature = "sqlite")]
mod stored_records;
mod support;
mod turns;
mod waiting_callers;

use agent_duplex::{Capabilities, Capability, Error, Event, ProcessName, StopReport, StopStage};
use proptest::prelude::*;

proptest! {
    #[test]
    fn set_contains_inserted_elements(bits in proptest::collection::vec(0usize..6, 0..8)) {
        use Capability::{Interrupt, Permissions, Resume, Steer, Tools, Usage};
        let all = [Interrupt, Steer, Resume, Tools, Usage, Permissions];
        let set = bits.iter().fold(Capabilities::none(), |set, i| set.with(all[*i]));
        for (i, capability) in all.into_iter().enumerate() {
            prop_assert_eq!(set.has(capability), bits.contains(&i));
        }
    }
}

#[test]
fn errors_state_cause_and_next_step() {
    let process = |pid, name: &str| ProcessName {
        pid,
        name: name.into(),
    };
    let report = |survivors: Vec<ProcessName>, proven| StopReport {
        stage: StopStage::Kill,
        ended: vec![process(10, "sh"), process(11, "sleep")],
        survivors,
        proven,
    };
    let texts = [
        report(vec![], true).to_string(),
        report(vec![], false).to_string(),
        report(vec![process(12, "sudo"), process(13, "su")], true).to_string(),
        Error::unsupported(
            "command",
            "take a second input",
            "start it again with the new prompt",
        )
        .to_string(),
        format!(
            "{:?}",
            Capabilities::none()
                .with(Capability::Usage)
                .with(Capability::Interrupt)
        ),
    ];
    insta::assert_snapshot!(texts.join("\n"), @r"
    all processes ended
    all processes ended (not proven)
    2 of 4 left: 12 (sudo), 13 (su)
    the command agent can't take a second input; start it again with the new prompt
    {Interrupt, Usage}
    ");
}

#[test]
fn types_cross_threads() {
    fn check<T: Send + Sync>() {}
    check::<Error>();
    check::<Event>();
    check::<StopReport>();
    check::<agent_duplex::Conversation>();
    check::<agent_duplex::Primary>();
    check::<agent_duplex::Subscription>();
}

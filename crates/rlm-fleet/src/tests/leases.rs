//! Properties of a lease, for inputs in any order.

use std::time::Duration;

use proptest::prelude::*;

use crate::{LeaseClock, LeaseInput, LeaseOutput, Moment};

const LEASE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
enum Event {
    Time,
    /// The answer to one of the renewals arrives.
    Answered(usize),
    Fenced,
}

fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let event = prop_oneof![
        10 => Just(Event::Time),
        10 => any::<usize>().prop_map(Event::Answered),
        1 => Just(Event::Fenced),
    ];
    prop::collection::vec((0..8_000_u64, event), 0..60)
}

proptest! {
    #[test]
    fn agent_dies_half_a_lease_after_the_sending_of_an_answered_renewal(events in events()) {
        let mut now = Moment::from_millis(1_000);
        let mut lease = LeaseClock::new(LEASE, now);
        let (mut confirmed, mut sent, mut is_lost) = (now, Vec::new(), false);
        for (millis, event) in events {
            now = now + Duration::from_millis(millis);
            let input = match event {
                Event::Answered(which) if !sent.is_empty() => {
                    let sent = sent[which % sent.len()];
                    LeaseInput::Answered { sent }
                }
                Event::Fenced => LeaseInput::Fenced,
                _ => LeaseInput::Time,
            };
            let must_end = input == LeaseInput::Fenced || now >= confirmed + LEASE / 2;
            let outputs = lease.step(input, now);
            prop_assert!(!is_lost || outputs.is_empty(), "a lost lease is final");
            if !is_lost {
                prop_assert_eq!(must_end, outputs == [LeaseOutput::Lost]);
            }
            is_lost |= must_end;
            if let (LeaseInput::Answered { sent }, false) = (input, is_lost) {
                confirmed = confirmed.max(sent);
            }
            for output in outputs {
                match output {
                    LeaseOutput::Renew { sent: moment } => {
                        prop_assert_eq!(moment, now);
                        sent.push(moment);
                    }
                    LeaseOutput::KillAt(at) => prop_assert_eq!(at, confirmed + LEASE / 2),
                    LeaseOutput::WakeAt(at) => prop_assert!(at > now && at <= confirmed + LEASE / 2),
                    LeaseOutput::Lost => {}
                }
            }
            let kill_at = (!is_lost).then_some(confirmed + LEASE / 2);
            prop_assert_eq!(lease.kill_at(), kill_at);
        }
    }
}

#[test]
fn two_lost_renewals_in_a_row_do_not_lose_the_lease() {
    let at = Moment::from_millis;
    let mut lease = LeaseClock::new(LEASE, at(0));
    drop(lease.step(LeaseInput::Time, at(0)));
    drop(lease.step(LeaseInput::Answered { sent: at(0) }, at(1)));
    for lost in [15_000, 18_750] {
        let outputs = lease.step(LeaseInput::Time, at(lost));
        assert_eq!(outputs[0], LeaseOutput::Renew { sent: at(lost) });
    }
    let outputs = lease.step(LeaseInput::Time, at(22_500));
    assert_eq!(outputs[0], LeaseOutput::Renew { sent: at(22_500) });
    let answered = LeaseInput::Answered { sent: at(22_500) };
    let outputs = lease.step(answered, at(29_999));
    assert_eq!(outputs[0], LeaseOutput::KillAt(at(52_500)));
}

//! Short runs of the layer of a fleet, its controls, and the small form of the large simulation.

use rlm_crash::fleet::simulation::simulate;
use rlm_crash::outcome::Level;
use rlm_crash::{cases, fleet, mistake, sabotages};
use rlm_fleet::sabotage::Sabotage;

use crate::keeps_all_promises;

#[test]
fn d0_fleet_loses_no_confirmed_save_and_has_one_owner_at_a_time() {
    keeps_all_promises(&fleet::run(Level::Test), 500);
}

#[test]
fn d9_printed_note_of_a_fleet_replays_the_mistake() {
    let mistake = Sabotage::FollowOtherOwner;
    let note = sabotages::noticed(mistake, fleet::run, Level::Test).unwrap();
    let (_, case) = note.rsplit_once("--case ").unwrap();
    assert_eq!(cases::replay(case), Ok(()), "{case}");
    assert!(mistake::during(mistake, || cases::replay(case)).is_err());
}

#[test]
fn f16_simulated_fleet_ends_every_run_with_one_owner_at_a_time() {
    let simulated = simulate(60, 1);
    let measured = &simulated.measured;
    assert_eq!(simulated.broken, None);
    assert_eq!((measured.ended, measured.parked), (60, 0), "{measured:?}");
    // The faults landed: owners changed, and the server forgot leases of living owners.
    assert!(measured.takeovers.len() > 10, "{measured:?}");
    assert!(!measured.handovers.is_empty(), "{measured:?}");
}

/// Two restarts of the server must fall around a probe, so this needs more histories than the other mistakes.
#[test]
fn d9_claim_across_restart_is_noticed() {
    // The histories in which the server restarts and forgets leases.
    let mut seeds = (1..30_000).step_by(6);
    let noticed = mistake::during(Sabotage::ClaimAcrossRestart, || {
        seeds.find(|seed| cases::replay(&format!("fleet={seed}/3f")).is_err())
    });
    let seed = noticed.expect("no history notices it");
    assert_eq!(cases::replay(&format!("fleet={seed}/3f")), Ok(()));
}

/// The number of sequences of faults that a control tries.
const SEEDS: u64 = 20;

#[test]
fn f16_control_simulation_finds_overlapping_owners() {
    for mistake in [Sabotage::SkipProbe, Sabotage::ReleaseTooEarly] {
        // Not each sequence of faults shows each mistake.
        let broken = mistake::during(mistake, || {
            (1..=SEEDS).find_map(|seed| simulate(60, seed).broken)
        });
        let broken = broken.unwrap_or_default();
        assert!(broken.contains("two agents"), "{mistake:?}: {broken}");
    }
}

/// Makes a test for each mistake of a worker.
macro_rules! noticed {
    ($($test:ident: $sabotage:ident;)+) => {
        $(
            #[test]
            fn $test() {
                let noticed = sabotages::noticed(Sabotage::$sabotage, fleet::run, Level::Test);
                assert!(noticed.is_some(), "the layer does not detect it");
            }
        )+

        #[test]
        fn d9_every_sabotage_of_a_fleet_has_a_test() {
            let tested = [$(Sabotage::$sabotage),+];
            assert!(mistake::FLEET.iter().all(|sabotage| tested.contains(sabotage)));
        }
    };
}

noticed! {
    d9_fence_without_read_back_is_noticed: FenceWithoutReadBack;
    d9_trust_lost_answer_is_noticed: TrustLostAnswer;
    d9_follow_other_owner_is_noticed: FollowOtherOwner;
    d9_append_after_fence_is_noticed: AppendAfterFence;
    d9_take_old_answers_is_noticed: TakeOldAnswers;
    d9_revive_lease_is_noticed: ReviveLease;
    d9_kill_at_lease_end_is_noticed: KillAtLeaseEnd;
    d9_count_from_answer_is_noticed: CountFromAnswer;
    d9_skip_grace_is_noticed: SkipGrace;
    d9_skip_probe_is_noticed: SkipProbe;
    d9_ignore_owner_is_noticed: IgnoreOwner;
    d9_skip_poison_is_noticed: SkipPoison;
    d9_claim_after_loss_is_noticed: ClaimAfterLoss;
    d9_claim_ended_is_noticed: ClaimEnded;
    d9_release_too_early_is_noticed: ReleaseTooEarly;
}

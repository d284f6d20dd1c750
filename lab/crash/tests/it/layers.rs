//! Small runs of the layers, in every build.

use checkpoint_store::sabotage::Sabotage;
use rlm_crash::outcome::Level;
use rlm_crash::sabotages::Run;
use rlm_crash::{cases, fault, machine, mistake, race, replica, sabotages, sim};

use crate::keeps_all_promises;

#[test]
fn d0_power_cut_loses_no_acknowledged_save() {
    keeps_all_promises(&sim::run(Level::Test), 100);
}

#[test]
fn d0_two_writers_never_create_two_histories() {
    keeps_all_promises(&race::run(Level::Test), 100);
}

#[test]
fn d0_replica_has_every_acknowledged_save_and_at_most_one_more() {
    keeps_all_promises(&replica::run(Level::Test), 1_000);
}

#[test]
fn d1_fault_at_any_call_loses_no_acknowledged_save() {
    keeps_all_promises(&fault::run(Level::Test), 100);
}

#[test]
fn d2_random_history_loads_as_acknowledged() {
    keeps_all_promises(&machine::run(Level::Test), 100);
}

#[test]
fn d9_printed_note_replays_the_mistake() {
    let layers: [(Sabotage, Run); 6] = [
        (Sabotage::DropDirSync, sim::run),
        (Sabotage::RetrySync, fault::run),
        (Sabotage::SkipSeq, machine::run),
        (Sabotage::EpochByPresence, race::run),
        (Sabotage::ReplicateBeforeDisk, replica::run),
        (Sabotage::ContinueAfterRefusal, replica::run),
    ];
    for (sabotage, run) in layers {
        let note = sabotages::noticed(sabotage, run, Level::Test).unwrap();
        let (_, case) = note.rsplit_once("--case ").unwrap();
        assert_eq!(
            cases::replay(case),
            Ok(()),
            "{case} must pass without the sabotage"
        );
        let again = mistake::during(sabotage, || cases::replay(case));
        assert!(again.is_err(), "{case}");
    }
}

/// Makes a test for each sabotage, with the layer that must detect it.
macro_rules! noticed {
    ($($test:ident: $sabotage:ident by $layer:ident;)+) => {
        $(
            #[test]
            fn $test() {
                let noticed = sabotages::noticed(Sabotage::$sabotage, $layer::run, Level::Test);
                assert!(noticed.is_some(), "{} does not detect it", stringify!($layer));
            }
        )+

        #[test]
        fn d9_every_sabotage_has_a_test() {
            let tested = [$(Sabotage::$sabotage),+];
            assert!(mistake::STORE.iter().all(|sabotage| tested.contains(sabotage)));
        }
    };
}

noticed! {
    d9_drop_file_sync_is_noticed: DropFileSync by sim;
    d9_drop_dir_sync_is_noticed: DropDirSync by sim;
    d9_sync_after_rename_is_noticed: SyncAfterRename by sim;
    d9_skip_crc_is_noticed: SkipCrc by machine;
    d9_skip_salt_is_noticed: SkipSalt by sim;
    d9_skip_seq_is_noticed: SkipSeq by machine;
    d9_skip_tail_cut_is_noticed: SkipTailCut by sim;
    d9_cut_without_sync_is_noticed: CutWithoutSync by sim;
    d9_link_last_save_is_noticed: LinkLastSave by sim;
    d9_retry_sync_is_noticed: RetrySync by fault;
    d9_ack_before_sync_is_noticed: AckBeforeSync by sim;
    d9_watermark_at_ack_is_noticed: WatermarkAtAck by fault;
    d9_drop_progress_early_is_noticed: DropProgressEarly by sim;
    d9_ignore_trailing_is_noticed: IgnoreTrailing by machine;
    d9_reuse_name_is_noticed: ReuseName by sim;
    d9_random_phase_name_is_noticed: RandomPhaseName by race;
    d9_epoch_by_presence_is_noticed: EpochByPresence by race;
    d9_scan_before_create_is_noticed: ScanBeforeCreate by race;
    d9_two_frames_is_noticed: TwoFrames by sim;
    d9_repair_from_memory_is_noticed: RepairFromMemory by fault;
    d9_skip_name_check_is_noticed: SkipNameCheck by machine;
    d9_acknowledge_before_replica_is_noticed: AcknowledgeBeforeReplica by replica;
    d9_replicate_before_disk_is_noticed: ReplicateBeforeDisk by replica;
    d9_continue_after_refusal_is_noticed: ContinueAfterRefusal by replica;
    d9_rebuild_skips_gap_is_noticed: RebuildSkipsGap by replica;
}

//! Small runs of the layers with real programs and file systems, and their controls. The layers skip the parts that need root or a missing tool.

use checkpoint_store::sabotage::Sabotage;
use rlm_crash::counting::Counting;
use rlm_crash::outcome::{Level, Outcome};
use rlm_crash::rename_saver::RenameSaver;
use rlm_crash::rng::Rng;
use rlm_crash::saver::SaverKind;
use rlm_crash::{
    blocklog, bytes, counting, fulldisk, fuzzing, mistake, sabotages, storm, strace, writers,
};

use crate::{is_skipped, keeps_all_promises};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn d3_faults_at_real_system_calls_lose_nothing() {
    keeps_all_promises(&strace::run(Level::Test), 0);
}

#[test]
fn d4_power_cut_on_real_file_system_loses_nothing() {
    keeps_all_promises(&blocklog::run(Level::Test), 0);
}

#[test]
fn d4_control_rename_without_sync_is_detected() {
    let old = |file_sync, dir_sync| {
        let old = RenameSaver {
            file_sync,
            dir_sync,
        };
        blocklog::control(old, 10)
    };
    for control in [old(false, false), old(true, false)] {
        assert!(control.lost > 0 || is_skipped(&control), "{control:?}");
    }
    keeps_all_promises(&old(true, true), 0);
}

#[test]
fn d5_killed_program_loses_no_acknowledged_save() {
    keeps_all_promises(&storm::run(Level::Test), 0);
}

#[test]
fn d5_control_premature_acknowledgement_is_detected() {
    assert!(storm::savers(50, SaverKind::Early).lost > 0);
}

/// Returns whether a layer of real programs detects a mistake of the store, or could not run at all.
fn notices(sabotage: Sabotage, run: impl FnOnce() -> Outcome) -> bool {
    let outcome = mistake::during(sabotage, run);
    outcome.lost > 0 || is_skipped(&outcome)
}

#[test]
fn d3_control_repair_that_drops_a_save_is_detected() {
    assert!(notices(Sabotage::WatermarkAtAck, || strace::run(
        Level::Quick
    )));
}

#[test]
fn d4_control_unsynced_file_is_detected() {
    assert!(notices(Sabotage::DropFileSync, || blocklog::store(60)));
}

#[test]
fn d4_control_unsynced_directory_entry_is_detected() {
    assert!(notices(Sabotage::DropDirSync, || blocklog::store(60)));
}

#[test]
fn d5_control_untruncated_torn_save_is_detected() {
    assert!(notices(Sabotage::SkipTailCut, || storm::run(Level::Quick)));
}

#[test]
fn d6_control_decreasing_epoch_is_detected() {
    assert!(notices(Sabotage::EpochByPresence, || writers::run(
        Level::Quick
    )));
}

#[test]
fn d6_two_writers_create_one_history() {
    keeps_all_promises(&writers::run(Level::Test), 0);
}

#[test]
fn d7_a_full_disk_loses_nothing() {
    keeps_all_promises(&fulldisk::run(Level::Test), 0);
}

#[test]
fn d8_bit_flip_or_truncation_never_loads_as_wrong_state() {
    keeps_all_promises(&bytes::run(Level::Test), 0);
}

#[test]
fn d8_control_load_without_checksums_is_detected() {
    assert!(sabotages::noticed(Sabotage::SkipCrc, bytes::run, Level::Test).is_some());
}

#[test]
fn d8_allocations_are_counted() {
    let (bytes, most) = counting::most(|| vec![1_u8; 5_000]);
    assert!((5_000..10_000).contains(&most), "{most}");
    let (_, most) = counting::most(|| bytes[..100].to_vec());
    assert!(most < 5_000, "{most}");
}

/// Runs the fuzz targets on their seeds and on random bytes, so that they keep working even if nobody fuzzes.
#[test]
fn d8_fuzz_targets_pass_on_their_seeds() {
    let mut rng = Rng::new(8);
    for (name, target) in fuzzing::TARGETS {
        let seeds = fuzzing::seeds(name);
        assert!(!seeds.is_empty(), "{name} has no seeds");
        for seed in seeds {
            target(&seed);
            for _ in 0..20 {
                let mut bytes = seed.clone();
                for _ in 0..1 + rng.below(4) {
                    let at = rng.below(bytes.len());
                    bytes[at] = rng.draw() as u8;
                }
                target(&bytes);
                bytes.truncate(rng.below(bytes.len()));
                target(&bytes);
            }
        }
    }
}

#[test]
fn d8_records_of_seed_are_rebuilt() {
    for seed in fuzzing::seeds("records") {
        let rebuilt = fuzzing::rebuilt_from(&seed).unwrap();
        assert_eq!(rebuilt.get(), 5, "the target must reach the rebuild");
    }
    // The number of the save before, in the metadata frame of the third record.
    let err = fuzzing::rebuilt_from(&[2, 48, 0, 9]).unwrap_err();
    assert!(err.to_string().contains("out of sequence"), "{err}");
}

#[test]
fn d8_control_rebuild_that_skips_a_gap_is_detected() {
    // Exchanges the second record and the third one.
    let exchanged = [1, 255, 255, 2];
    let err = fuzzing::rebuilt_from(&exchanged).unwrap_err();
    let text = "record 3: is the record after save 2";
    assert!(err.to_string().contains(text), "{err}");
    let tried = || std::panic::catch_unwind(|| fuzzing::records(&exchanged));
    assert!(mistake::during(Sabotage::RebuildSkipsGap, tried).is_err());
}

#[test]
fn d8_frames_of_seed_are_loaded() {
    let seeds = fuzzing::seeds("frames");
    assert!(
        fuzzing::loads(&seeds[0]),
        "the target must reach the decoder"
    );
}

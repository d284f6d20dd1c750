//! Which files retention removes, and which it never removes.

use std::time::{Duration, SystemTime};

use checkpoint_store::retention::{RetentionPlan, RetentionPolicy, plan};
use checkpoint_store::verify::{FileCondition, NextAction, verify};
use checkpoint_store::{PhaseMeta, reader};

use crate::support::{Dir, Log, files};

const DAY: Duration = Duration::from_secs(86_400);

fn names(plan: &RetentionPlan) -> Vec<&str> {
    plan.remove.iter().map(|item| item.name.as_str()).collect()
}

/// Makes four phases with progress between them and after the last one.
fn phases(dir: &Dir) -> Log {
    let (mut writer, _) = dir.open();
    for n in 1..=4 {
        writer.append(&n, &[n]).unwrap();
        writer.save_phase("p", &n, PhaseMeta::default()).unwrap();
    }
    writer.append(&5, &[5]).unwrap();
    writer
}

#[test]
fn s20b_s20f_newest_and_required_phases_are_kept() {
    let dir = Dir::new();
    drop(phases(&dir));
    let before = files(&dir.path);
    for (keep, removed) in [(9, 0), (5, 0), (4, 1), (3, 3), (1, 7), (0, 7)] {
        let policy = RetentionPolicy {
            keep,
            ..RetentionPolicy::default()
        };
        let plan = plan(&dir.path, policy).unwrap();
        assert_eq!(plan.remove.len(), removed, "keep {keep}\n{plan}");
        assert!(
            !names(&plan).contains(&"phase-0000000000000008.ckpt"),
            "{plan}"
        );
        assert_eq!(files(&dir.path), before, "planning must remove nothing");
    }
    let policy = RetentionPolicy {
        keep: 0,
        ..RetentionPolicy::default()
    };
    let removed = plan(&dir.path, policy.clone()).unwrap().apply().unwrap();
    assert_eq!(removed.len(), 7);
    let loaded = dir.load();
    assert_eq!((loaded.head, loaded.events), (Some(5), vec![1, 2, 3, 4, 5]));
    assert!(plan(&dir.path, policy).unwrap().remove.is_empty());
}

/// The age of a file decides too. A file with a time in the future counts as new, whatever the time zone.
#[test]
fn s20a_s21c_age_is_in_utc_and_future_times_count_as_new() {
    let dir = Dir::new();
    drop(phases(&dir));
    let at = |now| RetentionPolicy {
        keep: 9,
        now,
        ..RetentionPolicy::default()
    };
    let now = SystemTime::now();
    for now in [now, now + 29 * DAY, now - 400 * DAY] {
        assert!(plan(&dir.path, at(now)).unwrap().remove.is_empty());
    }
    let plan = plan(&dir.path, at(now + 31 * DAY)).unwrap();
    assert_eq!(plan.remove.len(), 7, "{plan}");
    assert!(
        plan.to_string()
            .contains("it is 31 days old, and the limit is 30 days"),
        "{plan}"
    );
}

#[test]
fn a_store_in_use_is_cleaned_by_its_writer_only() {
    let dir = Dir::new();
    let mut writer = phases(&dir);
    let policy = RetentionPolicy {
        keep: 1,
        ..RetentionPolicy::default()
    };
    let plan = plan(&dir.path, policy.clone()).unwrap();
    assert!(plan.apply().unwrap_err().is_locked());
    assert_eq!(writer.clean(policy).unwrap().len(), 7);
    writer.append(&6, &[6]).unwrap();
    assert!(
        writer.last_repair().is_none(),
        "a cleaned file is not a missing file"
    );
    assert_eq!(dir.load().events, [1, 2, 3, 4, 5, 6]);
}

#[test]
fn quarantine_is_bounded_by_size_and_age() {
    let dir = Dir::new();
    drop(phases(&dir));
    let aside = dir.path.join("quarantine");
    std::fs::create_dir(&aside).unwrap();
    for name in ["a", "b", "c"] {
        std::fs::write(aside.join(name), [1; 100]).unwrap();
    }
    let policy = RetentionPolicy {
        quarantine_bytes: 250,
        ..RetentionPolicy::default()
    };
    assert_eq!(verify(&dir.path).unwrap().set_aside, 3);
    assert_eq!(
        plan(&dir.path, policy.clone())
            .unwrap()
            .apply()
            .unwrap()
            .len(),
        1
    );
    let late = RetentionPolicy {
        keep: 99,
        now: policy.now + 31 * DAY,
        ..policy
    };
    let removed = plan(&dir.path, late).unwrap().apply().unwrap();
    assert_eq!(
        removed
            .iter()
            .filter(|item| item.name.contains('/'))
            .count(),
        2
    );
    assert!(!aside.exists());
}

#[test]
fn s20f_listed_store_shows_whether_it_is_resumable() {
    let root = tempfile::tempdir().unwrap();
    let open = |name: &str| {
        Log::open(root.path().join(name), Default::default())
            .unwrap()
            .0
    };
    let finished = PhaseMeta {
        finished: true,
        ..PhaseMeta::default()
    };
    open("done").save_phase("p", &1, finished.clone()).unwrap();
    open("open").append(&1, &[1]).unwrap();
    let mut again = open("again");
    again.save_phase("p", &1, finished).unwrap();
    again.append(&2, &[2]).unwrap();
    std::fs::create_dir(root.path().join("bad")).unwrap();
    std::fs::write(root.path().join("bad/phase-0000000000000001.ckpt"), "x").unwrap();
    for no_store in ["other", ".hidden"] {
        std::fs::create_dir(root.path().join(no_store)).unwrap();
    }
    let listed = reader::list(root.path()).unwrap();
    let listed = listed
        .iter()
        .map(|entry| (entry.name.as_str(), entry.is_resumable()));
    let wanted = [
        ("again", true),
        ("bad", false),
        ("done", false),
        ("open", true),
    ];
    assert_eq!(Vec::from_iter(listed), wanted);
}

/// Each condition of a store, with the next step that is safe for it.
#[test]
fn verify_states_the_safe_next_step() {
    let dir = Dir::new();
    let (mut writer, _) = dir.open();
    assert_eq!(verify(&dir.path).unwrap().next, NextAction::Wait);
    drop(writer);
    assert_eq!(verify(&dir.path).unwrap().next, NextAction::Start);
    (writer, _) = dir.open();
    writer.append(&1, &[1]).unwrap();
    writer.save_phase("p", &2, PhaseMeta::default()).unwrap();
    writer.append(&3, &[3]).unwrap();
    drop(writer);
    let found = verify(&dir.path).unwrap();
    assert!(matches!(found.next, NextAction::Resume { seq } if seq.get() == 3));
    assert!(
        found
            .files
            .iter()
            .all(|file| file.condition == FileCondition::Valid)
    );

    let journal = dir.path.join("progress-00000002-0000000000000002.ckj");
    let phase = dir.only("phase-");
    let whole = std::fs::read(&journal).unwrap();
    let used = crate::support::without_room(&whole).len();
    let torn = [&whole[..used], b"CKF1 half a frame"].concat();
    std::fs::write(&journal, torn).unwrap();
    let found = verify(&dir.path).unwrap();
    assert!(matches!(found.next, NextAction::Resume { seq } if seq.get() == 3));

    let mut bytes = std::fs::read(&phase).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&phase, bytes).unwrap();
    let before = files(&dir.path);
    let found = verify(&dir.path).unwrap();
    assert!(
        matches!(found.next, NextAction::ResumeOlder { seq } if seq.get() == 1),
        "{found}"
    );
    insta::assert_snapshot!(found);
    std::fs::write(dir.path.join("progress-00000002-0000000000000000.ckj"), "").unwrap();
    assert!(matches!(
        verify(&dir.path).unwrap().next,
        NextAction::Restore(_)
    ));
    assert_eq!(
        files(&dir.path).len(),
        before.len(),
        "verifying changes nothing"
    );
}

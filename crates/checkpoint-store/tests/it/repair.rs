//! Writers whose files are removed while they are open.

use std::os::unix::fs::PermissionsExt;

use checkpoint_store::{Options, PhaseMeta, Repaired};

use crate::support::{Dir, Log, files};

fn repair_of(writer: &Log) -> &Repaired {
    writer.last_repair().expect("the writer repaired its store")
}

/// Makes two phases, a blob and progress, with an ignore file beside them.
fn filled(dir: &Dir) -> Log {
    let (mut writer, _) = dir.open();
    std::fs::write(dir.path.join(".gitignore"), "*\n").unwrap();
    drop(writer);
    (writer, _) = dir.open();
    for n in 1..=2 {
        writer.append(&n, &[n]).unwrap();
        writer.save_phase("p", &n, PhaseMeta::default()).unwrap();
    }
    writer.put_blob("prompt", b"text").unwrap();
    writer.append(&3, &[3]).unwrap();
    writer
}

#[test]
fn x128b_x128c_x128d_removed_store_is_rewritten_and_losses_are_named() {
    let dir = Dir::new();
    let mut writer = filled(&dir);
    assert!(writer.last_repair().is_none());
    std::fs::remove_dir_all(&dir.path).unwrap();

    writer.append(&4, &[4]).unwrap();
    let old = "phase-0000000000000002.ckpt";
    assert_eq!(repair_of(&writer).lost, ["blobs/prompt", old]);
    assert_eq!(repair_of(&writer).epoch, writer.fencing_token());
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&dir.path) & 0o777, 0o700);
    let found = files(&dir.path);
    assert_eq!(found[".gitignore"], b"*\n");
    assert!(found.contains_key(&format!("epoch-{:08x}", writer.fencing_token())));
    assert!(
        Log::open(&dir.path, Options::default())
            .unwrap_err()
            .is_locked(),
        "the new directory is locked"
    );
    let loaded = dir.load();
    assert_eq!((loaded.head, loaded.events), (Some(4), vec![1, 2, 3, 4]));
    assert!(loaded.report.is_undamaged(), "{}", loaded.report);

    writer.save_phase("p", &5, PhaseMeta::default()).unwrap();
    drop(writer);
    let (writer, loaded) = dir.open();
    assert_eq!((loaded.head, loaded.events), (Some(5), vec![1, 2, 3, 4]));
    assert!(
        writer.last_repair().is_none(),
        "the repair belongs to another writer"
    );
}

/// Removes all files, but not the directory, as `git clean -fdx` does if the directory holds files of others.
#[test]
fn x128b_x128d_emptied_store_is_rewritten() {
    let dir = Dir::new();
    let mut writer = filled(&dir);
    for name in files(&dir.path).into_keys() {
        std::fs::remove_file(dir.path.join(name)).unwrap();
    }
    std::fs::remove_dir_all(dir.path.join("blobs")).unwrap();
    writer.append(&4, &[4]).unwrap();
    assert_eq!(repair_of(&writer).lost.len(), 2);
    let other = Log::open(&dir.path, Options::default());
    assert!(other.unwrap_err().is_locked());
    drop(writer);
    let (_, loaded) = dir.open();
    assert_eq!((loaded.head, loaded.events), (Some(4), vec![1, 2, 3, 4]));
}

#[cfg(feature = "test-util")]
#[test]
fn x128f_control_without_the_name_check_the_save_is_lost() {
    use checkpoint_store::sabotage::{self, Sabotage};

    let dir = Dir::new();
    let mut writer = filled(&dir);
    std::fs::remove_file(dir.path.join("progress-00000002-0000000000000004.ckj")).unwrap();
    sabotage::set(Some(Sabotage::SkipNameCheck));
    writer.append(&4, &[4]).unwrap();
    sabotage::set(None);
    assert_eq!(dir.load().head, Some(2), "the acknowledged save is lost");
}

/// Removes each of the files in turn, before each of the calls that save.
#[test]
fn x128b_x128d_removed_file_is_detected_before_the_next_acknowledgement() {
    type Save = fn(&mut Log);
    let saves: [Save; 3] = [
        |writer| {
            writer.append(&4, &[4]).unwrap();
        },
        |writer| {
            writer.save_phase("q", &4, PhaseMeta::default()).unwrap();
        },
        |writer| {
            writer.put_blob("other", b"x").unwrap();
            writer.append(&4, &[]).unwrap();
        },
    ];
    for (index, save) in saves.into_iter().enumerate() {
        let names = files(
            &{
                let dir = Dir::new();
                filled(&dir);
                dir
            }
            .path,
        );
        assert!(names.len() > 4, "{:?}", names.keys());
        for name in names.into_keys() {
            let dir = Dir::new();
            let mut writer = filled(&dir);
            std::fs::remove_file(dir.path.join(&name)).unwrap();
            save(&mut writer);
            let what = format!("{name} before save {index}");
            // A phase replaces the journal and its base.
            let needed = name.starts_with("epoch-")
                || index != 1 && (name.ends_with("4.ckj") || name.ends_with("4.ckpt"));
            assert_eq!(writer.last_repair().is_some(), needed, "{what}");
            drop(writer);
            let loaded = dir.load();
            assert_eq!(loaded.head, Some(4), "{what}");
            assert!(loaded.events.starts_with(&[1, 2, 3]), "{what}");
            assert!(loaded.report.is_undamaged(), "{what}: {}", loaded.report);
        }
    }
}

/// A program that removes a directory does it file by file, and may be only half done.
#[test]
fn x128d_repair_outlasts_a_removal_in_progress() {
    let dir = Dir::new();
    let mut writer = filled(&dir);
    let path = dir.path.clone();
    let remover = std::thread::spawn(move || {
        for _ in 0..50 {
            // The removal fails if new files appear during it, as `rm -r` does.
            drop(std::fs::remove_dir_all(&path));
        }
    });
    let mut last = 3;
    while !remover.is_finished() {
        last += 1;
        writer.append(&last, &[last]).unwrap();
    }
    remover.join().unwrap();
    writer.append(&(last + 1), &[last + 1]).unwrap();
    drop(writer);
    let loaded = dir.load();
    assert_eq!(loaded.head, Some(last + 1));
    assert!(loaded.events.iter().eq(&(1..=last + 1).collect::<Vec<_>>()));
}

/// The path belongs to another store now, and that store stays unchanged.
#[test]
fn x128e_replaced_store_fences_the_writer() {
    for ended in [true, false] {
        let dir = Dir::new();
        let mut writer = filled(&dir);
        std::fs::remove_dir_all(&dir.path).unwrap();
        let (mut other, _) = dir.open();
        other.append(&9, &[9]).unwrap();
        let other = (!ended).then_some(other);
        let before = files(&dir.path);
        assert!(writer.append(&4, &[4]).unwrap_err().is_fenced());
        assert!(writer.append(&4, &[4]).unwrap_err().is_fenced());
        assert_eq!(files(&dir.path), before);
        drop(other);
        assert_eq!(
            dir.open().1.head,
            Some(9),
            "the other store is not locked either"
        );
    }
}

/// A file is in the place of the directory, so the writer acknowledges nothing.
#[test]
fn unrepairable_store_ends_its_writer() {
    let dir = Dir::new();
    let mut writer = filled(&dir);
    std::fs::remove_dir_all(&dir.path).unwrap();
    std::fs::write(&dir.path, "in the way").unwrap();
    let err = writer.append(&4, &[4]).unwrap_err();
    assert!(err.is_poisoned() && err.is_vanished(), "{err}");
    assert!(writer.append(&4, &[4]).unwrap_err().is_poisoned());
}

/// Both stores number their epochs from 1 on, so the other store has the same epoch.
#[test]
fn x128e_replaced_store_of_the_same_epoch_fences_the_writer() {
    type Removal = fn(&std::path::Path);
    let removals: [Removal; 2] = [
        |dir| std::fs::remove_dir_all(dir).unwrap(),
        |dir| {
            for name in files(dir).into_keys() {
                std::fs::remove_file(dir.join(name)).unwrap();
            }
        },
    ];
    for (removal, saved, ended) in [
        (0, true, true),
        (0, false, true),
        (1, true, true),
        (1, false, true),
        (1, false, false),
    ] {
        let dir = Dir::new();
        let (mut writer, _) = dir.open();
        if saved {
            writer.append(&1, &[1]).unwrap();
        }
        removals[removal](&dir.path);
        let (mut other, _) = dir.open();
        assert_eq!(other.fencing_token(), writer.fencing_token());
        other.save_phase("p", &9, PhaseMeta::default()).unwrap();
        let other = (!ended).then_some(other);
        let before = files(&dir.path);
        let err = writer.append(&2, &[2]).unwrap_err();
        assert!(err.is_fenced(), "{err}");
        assert_eq!(files(&dir.path), before);
        drop(other);
        assert_eq!(dir.open().1.head, Some(9));
    }
}

/// The file still exists under another name, where no load searches for it.
#[test]
fn x128b_x128d_moved_or_backed_up_file_is_detected() {
    for prefix in [
        "progress-00000002-0000000000000004",
        "phase-0000000000000004",
    ] {
        let dir = Dir::new();
        let mut writer = filled(&dir);
        let found = files(&dir.path);
        let name = found.keys().find(|name| name.starts_with(prefix)).unwrap();
        std::fs::rename(dir.path.join(name), dir.path.with_extension("away")).unwrap();
        writer.append(&4, &[4]).unwrap();
        assert!(writer.last_repair().is_some(), "{name}");
        let loaded = dir.load();
        assert_eq!((loaded.head, loaded.events), (Some(4), vec![1, 2, 3, 4]));
        assert!(loaded.report.is_undamaged(), "{}", loaded.report);
    }
}

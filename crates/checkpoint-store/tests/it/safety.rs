//! Directories and files that other users could have changed: refused, not followed, or set aside.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use checkpoint_store::retention::RetentionPolicy;
use checkpoint_store::{Options, Store, reader};

use crate::support::{Dir, Log, files, pipe};

fn mode(path: &std::path::Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn files_are_private_from_their_creation() {
    let dir = Dir::new();
    let path = dir.path.join("deep/store");
    let (mut writer, _) = Log::open(&path, Options::default()).unwrap();
    writer.append(&1, &[1]).unwrap();
    writer.save_phase("p", &2, Default::default()).unwrap();
    writer.put_blob("b", b"x").unwrap();
    for directory in [
        &dir.path,
        &dir.path.join("deep"),
        &path,
        &path.join("blobs"),
    ] {
        assert_eq!(mode(directory), 0o700, "{}", directory.display());
    }
    let names = files(&path);
    assert_eq!(names.len(), 4, "{:?}", names.keys());
    for name in names.keys() {
        assert_eq!(mode(&path.join(name)), 0o600, "{name}");
    }
    assert_eq!(mode(&path.join("blobs/b")), 0o600);
}

#[test]
fn directories_writable_by_others_are_refused() {
    let dir = Dir::new();
    dir.open();
    for open_to in [0o720, 0o702, 0o777] {
        std::fs::set_permissions(&dir.path, std::fs::Permissions::from_mode(open_to)).unwrap();
        let err = Log::open(&dir.path, Options::default()).unwrap_err();
        assert!(err.to_string().contains("chmod go-w"), "{err}");
        assert!(reader::load::<u64, u64>(&dir.path).is_err());
    }
    std::fs::set_permissions(&dir.path, std::fs::Permissions::from_mode(0o755)).unwrap();
    dir.open();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&dir.path, Some(12345), None).unwrap();
        let err = Log::open(&dir.path, Options::default()).unwrap_err();
        assert!(err.to_string().contains("another user"), "{err}");
    } else {
        println!("skipped: only root can change the owner of a directory");
    }
}

#[test]
fn links_are_not_followed() {
    let dir = Dir::new();
    dir.open();
    let link = dir.path.with_file_name("link");
    symlink(&dir.path, &link).unwrap();
    assert!(Store::open(&link).is_err());
    assert!(
        Store::open(link.join("")).is_err(),
        "a slash at the end changes nothing"
    );
    assert!(reader::load::<u64, u64>(&link).is_err());

    let secret = dir.path.with_file_name("secret");
    std::fs::write(&secret, "x").unwrap();
    symlink(&secret, dir.path.join("phase-0000000000000001.ckpt")).unwrap();
    let err = reader::load::<u64, u64>(&dir.path).unwrap_err();
    assert!(err.to_string().contains("symbolic link"), "{err}");
    std::fs::remove_file(dir.path.join("phase-0000000000000001.ckpt")).unwrap();
    std::fs::remove_file(dir.path.join("LOCK")).unwrap();
    symlink(&secret, dir.path.join("LOCK")).unwrap();
    assert!(Store::open(&dir.path).is_err());
    assert_eq!(std::fs::read(&secret).unwrap(), b"x");
}

/// Foreign entries, under names that the store could use for its files.
#[test]
fn c63b_c63c_non_files_are_skipped_and_set_aside() {
    let dir = Dir::new();
    let (mut writer, _) = dir.open();
    writer.append(&1, &[1]).unwrap();
    writer.save_phase("p", &2, Default::default()).unwrap();
    writer.append(&3, &[3]).unwrap();
    drop(writer);
    let foreign = [
        "phase-0000000000000004.ckpt",
        "phase-0000000000000009.ckpt",
        "progress-00000007-0000000000000002.ckj",
    ];
    pipe(&dir.path.join(foreign[0]));
    std::fs::create_dir(dir.path.join(foreign[1])).unwrap();
    std::fs::write(dir.path.join(foreign[1]).join("mine"), "x").unwrap();
    drop(UnixListener::bind(dir.path.join(foreign[2])).unwrap());

    let loaded = dir.load();
    assert_eq!((loaded.head, loaded.events), (Some(3), vec![1, 3]));
    let skipped: Vec<_> = loaded
        .report
        .skipped
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        skipped,
        foreign.map(|name| format!("{name}: it is not a regular file"))
    );
    for name in foreign {
        assert!(dir.path.join(name).exists(), "a load moves no file");
    }
    let strict = Options {
        strict: true,
        ..Options::default()
    };
    assert!(Log::open(&dir.path, strict).unwrap_err().is_corrupt());

    let (mut writer, loaded) = dir.open();
    assert_eq!(loaded.head, Some(3));
    let aside = loaded.report.set_aside;
    assert_eq!(aside.len(), 3);
    writer.save_phase("q", &4, Default::default()).unwrap();
    let clean = RetentionPolicy {
        keep: 0,
        max_age: Duration::ZERO,
        quarantine_bytes: 0,
        ..RetentionPolicy::default()
    };
    writer.clean(clean).unwrap();
    drop(writer);
    let loaded = dir.load();
    assert!(loaded.report.is_undamaged(), "{}", loaded.report);
    assert_eq!((loaded.head, loaded.events), (Some(4), vec![1, 3]));
    for name in &aside {
        assert!(dir.path.join(name).exists(), "{name} is never deleted");
    }
    let mine = aside.iter().find(|name| name.contains(foreign[1])).unwrap();
    assert_eq!(
        std::fs::read(dir.path.join(mine).join("mine")).unwrap(),
        b"x"
    );
}

/// An epoch that no writer can have reached.
#[test]
fn store_with_exhausted_numbers_gives_a_hint() {
    let dir = Dir::new();
    let (mut writer, _) = dir.open();
    writer.append(&1, &[1]).unwrap();
    drop(writer);
    let marker = dir.path.join("epoch-ffffffffffffffff");
    std::fs::write(&marker, "").unwrap();
    let err = Log::open(&dir.path, Options::default()).unwrap_err();
    assert!(!err.is_locked(), "there is no other writer: {err}");
    assert!(err.to_string().contains("ffffffffffffffff"), "{err}");
    assert!(err.to_string().contains("move them away, or fork"), "{err}");
    std::fs::remove_file(marker).unwrap();
    assert_eq!(dir.open().1.head, Some(1));
}

#[test]
fn x117g_directories_without_a_name_are_refused() {
    for path in ["..", ".", "/", "a/..", "a\u{1b}b"] {
        assert!(Store::open(path).is_err(), "{path:?}");
    }
}

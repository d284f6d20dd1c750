use std::os::unix::fs::{PermissionsExt, symlink};

use checkpoint_store::{Options, Store, reader};

use crate::support::{Dir, Log, files};

fn mode(path: &std::path::Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn everything_is_private_from_the_start() {
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
fn places_that_others_can_change_are_refused() {
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
    }
}

#[test]
fn links_and_pipes_are_not_followed() {
    let dir = Dir::new();
    dir.open();
    let link = dir.path.with_file_name("link");
    symlink(&dir.path, &link).unwrap();
    assert!(Store::open(&link).is_err());
    assert!(
        Store::open(link.join("")).is_err(),
        "not with a slash at the end either"
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
    std::fs::remove_file(dir.path.join("LOCK")).unwrap();

    let pipe = dir.path.join("phase-0000000000000002.ckpt");
    let made = std::process::Command::new("mkfifo")
        .arg(&pipe)
        .status()
        .unwrap();
    assert!(made.success());
    let err = reader::load::<u64, u64>(&dir.path).unwrap_err();
    assert!(err.to_string().contains("not a regular file"), "{err}");
}

#[test]
fn x117_directories_without_a_name_are_refused() {
    for path in ["..", ".", "/", "a/..", "a\u{1b}b"] {
        assert!(Store::open(path).is_err(), "{path:?}");
    }
}

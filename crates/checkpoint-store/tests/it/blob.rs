//! Blobs: a stored blob never changes, and no name leads outside the directory.

use checkpoint_store::reader;

use crate::support::Dir;

#[test]
fn blobs_never_change() {
    let dir = Dir::new();
    let (mut writer, _) = dir.open();
    assert!(
        reader::blob(&dir.path, "prompt", u64::MAX)
            .unwrap_err()
            .is_not_found()
    );
    writer.put_blob("prompt", b"one").unwrap();
    writer.put_blob("prompt", b"one").unwrap();
    assert!(writer.put_blob("prompt", b"two").is_err());
    writer.put_blob("empty", b"").unwrap();
    assert_eq!(reader::blob(&dir.path, "prompt", u64::MAX).unwrap(), b"one");
    assert_eq!(reader::blob(&dir.path, "empty", u64::MAX).unwrap(), b"");
    assert!(
        reader::blob(&dir.path, "absent", u64::MAX)
            .unwrap_err()
            .is_not_found()
    );
    let names: Vec<_> = std::fs::read_dir(&dir.path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(
        !names.iter().any(|name| name.starts_with(".tmp-")),
        "{names:?}"
    );
}

#[test]
fn x117c_blob_names_stay_inside_the_directory() {
    let dir = Dir::new();
    let (mut writer, _) = dir.open();
    for name in ["../LOCK", "a/b", "", ".hidden", "a\nb"] {
        assert!(writer.put_blob(name, b"x").is_err(), "{name:?}");
        assert!(reader::blob(&dir.path, name, u64::MAX).is_err(), "{name:?}");
    }
}

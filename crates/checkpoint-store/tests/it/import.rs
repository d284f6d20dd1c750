//! Whole-state files of other programs: they are read, never changed, and refused if they are damaged.

use std::io::Write;

use checkpoint_store::import;
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};

use crate::support::files;

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn old_files_are_read_and_never_touched() {
    let root = tempfile::tempdir().unwrap();
    let text = br#"{"iteration": 4, "state": {"messages": ["a"]}, "at": "2025-01-01T00:00:00Z"}"#;
    std::fs::write(root.path().join("plain.json"), text).unwrap();
    std::fs::write(root.path().join("packed.json.gz"), gzip(text)).unwrap();
    let members = [gzip(&text[..9]), gzip(&text[9..])].concat();
    std::fs::write(root.path().join("members"), members).unwrap();
    let before = files(root.path());
    assert_eq!(before.len(), 3, "{:?}", before.keys());
    for name in before.keys() {
        let value: Value = import::json(root.path().join(name)).unwrap();
        assert_eq!(value["state"], json!({"messages": ["a"]}), "{name}");
    }
    assert_eq!(files(root.path()), before);
}

#[test]
fn truncated_or_changed_old_files_are_an_error() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("old.json.gz");
    let read = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        import::json::<Value>(&path)
    };
    let whole = gzip(br#"{"iteration": 4}"#);
    assert!(read(&whole).is_ok());
    for len in 0..whole.len() {
        assert!(
            read(&whole[..len]).unwrap_err().is_corrupt(),
            "truncated to {len} bytes"
        );
    }
    // The header and the padding do not affect the value; everything else is checked.
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(
            read(&bytes).map_or(true, |value| value == json!({"iteration": 4})),
            "bit {bit}"
        );
    }
    std::fs::write(&path, "[1]").unwrap();
    let err = import::json::<String>(&path).unwrap_err();
    assert!(
        !err.is_corrupt() && err.to_string().contains("requested type"),
        "{err}"
    );
    let missing = import::json::<Value>(root.path().join("other"));
    assert!(missing.unwrap_err().is_not_found());
    let bomb = gzip(&vec![b' '; 130 << 20]);
    assert!(
        read(&bomb)
            .unwrap_err()
            .to_string()
            .contains("the limit is")
    );
}

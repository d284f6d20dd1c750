use std::path::Path;

use checkpoint_store::{Meta, Options, Writer, reader};

use crate::support::{Dir, Log, files};

fn options(schema: &str, schema_version: u32) -> Options {
    Options {
        schema: schema.into(),
        schema_version,
        ..Options::default()
    }
}

#[test]
fn c64_a_newer_schema_is_an_error_that_names_both_versions() {
    let dir = Dir::new();
    let (mut writer, _) = Log::open(&dir.path, options("loop", 7)).unwrap();
    writer.append(&1, &[1]).unwrap();
    writer.save_phase("p", &2, Meta::default()).unwrap();
    drop(writer);
    let before: Vec<_> = files(&dir.path).into_keys().collect();

    let err = Log::open(&dir.path, options("loop", 6)).unwrap_err();
    assert!(err.is_unsupported_version());
    assert!(
        err.to_string().contains("version 7") && err.to_string().contains("up to 6"),
        "{err}"
    );
    let err = Log::open(&dir.path, options("other", 7)).unwrap_err();
    assert!(
        err.to_string().contains("`loop`") && err.to_string().contains("`other`"),
        "{err}"
    );
    let after: Vec<_> = files(&dir.path).into_keys().collect();
    assert_eq!(
        before, after,
        "a store that cannot be read is left as it is"
    );

    let (_, loaded) = Log::open(&dir.path, options("loop", 8)).unwrap();
    assert_eq!(loaded.head, Some(2));
    assert_eq!(loaded.report.schema, Some(("loop".into(), 7)));
}

#[test]
fn c64_a_newer_container_is_an_error_and_never_passed_over() {
    let dir = Dir::new();
    let (mut writer, _) = dir.open();
    writer.save_phase("old", &1, Meta::default()).unwrap();
    writer.append(&2, &[]).unwrap();
    drop(writer);
    let newest = dir.only("progress-");
    let mut bytes = std::fs::read(&newest).unwrap();
    bytes[8] = 9;
    let crc = crc32c::crc32c(&bytes[..28]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&newest, bytes).unwrap();
    let err = reader::load::<u64, u64>(&dir.path).unwrap_err();
    assert!(err.is_unsupported_version());
    assert!(err.to_string().contains("container version 9"), "{err}");
    assert!(
        Log::open(&dir.path, Options::default())
            .unwrap_err()
            .is_unsupported_version()
    );
}

#[test]
fn new_fields_may_come_and_go() {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Old {
        a: u8,
    }
    #[derive(serde::Serialize, serde::Deserialize)]
    struct New {
        a: u8,
        #[serde(default)]
        b: Option<u8>,
    }
    let dir = Dir::new();
    let (mut writer, _) = Writer::<Old, Old>::open(&dir.path, Options::default()).unwrap();
    writer.append(&Old { a: 1 }, &[Old { a: 2 }]).unwrap();
    drop(writer);
    let (mut writer, loaded) = Writer::<New, New>::open(&dir.path, Options::default()).unwrap();
    assert_eq!(loaded.head.map(|head| (head.a, head.b)), Some((1, None)));
    writer.append(&New { a: 3, b: Some(4) }, &[]).unwrap();
    assert_eq!(
        reader::load::<Old, Old>(&dir.path).unwrap().head.unwrap().a,
        3
    );
}

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/container-1");

fn write_golden(dir: &Path) {
    let (mut writer, _) = Writer::<u64, String>::open(dir, options("golden", 1)).unwrap();
    writer.append(&1, &["one".into()]).unwrap();
    writer.append(&2, &["two".repeat(300)]).unwrap();
    let meta = Meta {
        git_commit: Some("0".repeat(40)),
        git_dirty: Some(false),
        errors: vec!["a gate failed".into()],
        extra: [("k".into(), "v".into())].into(),
        ..Meta::default()
    };
    writer.save_phase("plan", &3, meta).unwrap();
    let four = writer.append(&4, &["four".into()]).unwrap();
    writer.append(&5, &["five".into()]).unwrap();
    writer.truncate_to(four).unwrap();
    writer.append(&6, &["six".into()]).unwrap();
}

/// Run with `--ignored` after a change of the format, into a new directory.
#[test]
#[ignore = "writes the golden files"]
fn write_golden_files() {
    let dir = Dir::new();
    write_golden(&dir.path);
    std::fs::create_dir_all(GOLDEN).unwrap();
    for (name, bytes) in files(&dir.path) {
        if name != "LOCK" {
            std::fs::write(Path::new(GOLDEN).join(name), bytes).unwrap();
        }
    }
}

#[cfg(feature = "zstd")]
#[test]
fn golden_files_load() {
    let dir = Dir::new();
    // Makes the directory, so that its mode is right whatever the checkout's is.
    drop(Log::open(&dir.path, Options::default()).unwrap());
    for (name, bytes) in files(Path::new(GOLDEN)) {
        std::fs::write(dir.path.join(name), bytes).unwrap();
    }
    let loaded = reader::load::<u64, String>(&dir.path).unwrap();
    assert_eq!(loaded.head, Some(6));
    assert_eq!(
        loaded.events,
        ["one".into(), "two".repeat(300), "four".into(), "six".into()]
    );
    let info = loaded.report.phase.clone().unwrap();
    assert_eq!(info.meta.errors, ["a gate failed"]);
    insta::assert_snapshot!(loaded.report);
    let (mut writer, _) = Writer::<u64, String>::open(&dir.path, options("golden", 1)).unwrap();
    writer.append(&7, &[]).unwrap();
}

#[cfg(not(feature = "zstd"))]
#[test]
fn compressed_frames_are_refused_with_the_reason() {
    let dir = Dir::new();
    drop(Log::open(&dir.path, Options::default()).unwrap());
    for (name, bytes) in files(Path::new(GOLDEN)) {
        std::fs::write(dir.path.join(name), bytes).unwrap();
    }
    let err = reader::load::<u64, String>(&dir.path).unwrap_err();
    assert!(
        !err.is_corrupt() && err.to_string().contains("`zstd` feature"),
        "{err}"
    );
}

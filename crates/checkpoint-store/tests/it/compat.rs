//! Newer and older versions: golden files load for ever; files that are too new are refused with their version.

use std::path::Path;

use checkpoint_store::{Options, PhaseMeta, Writer, reader};

use crate::support::{Dir, Log, files};

fn options(schema: &str, schema_version: u32) -> Options {
    Options {
        schema: schema.into(),
        schema_version,
        ..Options::default()
    }
}

#[test]
fn c64a_c64c_newer_schema_error_names_both_versions() {
    let dir = Dir::new();
    let (mut writer, _) = Log::open(&dir.path, options("loop", 7)).unwrap();
    writer.append(&1, &[1]).unwrap();
    writer.save_phase("p", &2, PhaseMeta::default()).unwrap();
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
    assert_eq!(before, after, "a store that cannot be read is unchanged");

    let (_, loaded) = Log::open(&dir.path, options("loop", 8)).unwrap();
    assert_eq!(loaded.head, Some(2));
    assert_eq!(loaded.report.schema, Some(("loop".into(), 7)));
}

#[test]
fn c64a_newer_container_is_an_error_and_never_skipped() {
    let dir = Dir::new();
    let (mut writer, _) = dir.open();
    writer.save_phase("old", &1, PhaseMeta::default()).unwrap();
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
    let both = "container version 9, this program reads up to 1";
    assert!(err.to_string().contains(both), "{err}");
    assert!(
        Log::open(&dir.path, Options::default())
            .unwrap_err()
            .is_unsupported_version()
    );
}

#[test]
fn fields_can_be_added_and_removed() {
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

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
/// The newest format. Older formats stay, and are loaded for ever.
const NEWEST: &str = "container-1-room";

fn write_golden(dir: &Path) {
    let options = Options {
        min_reader_version: 1,
        ..options("golden", 1)
    };
    let (mut writer, _) = Writer::<u64, String>::open(dir, options).unwrap();
    writer.append(&1, &["one".into()]).unwrap();
    writer.append(&2, &["two".repeat(300)]).unwrap();
    let meta = PhaseMeta {
        extra: [("k".into(), "v".into())].into(),
        finished: true,
    };
    writer.save_phase("plan", &3, meta).unwrap();
    let four = writer.append(&4, &["four".into()]).unwrap();
    writer.append(&5, &["five".into()]).unwrap();
    writer.truncate_to(four).unwrap();
    writer.append(&6, &["six".into()]).unwrap();
}

/// Run this after a change of the format, with a new name for the newest format.
#[test]
#[ignore = "writes the golden files: cargo test -p checkpoint-store --test it write_golden_files -- --ignored"]
fn write_golden_files() {
    let dir = Dir::new();
    write_golden(&dir.path);
    let golden = Path::new(GOLDEN).join(NEWEST);
    std::fs::create_dir(&golden).unwrap();
    for (name, mut bytes) in files(&dir.path) {
        if name.ends_with(".ckj") {
            // Less reserved room than a writer leaves, so that the repository stays small.
            bytes.truncate(crate::support::without_room(&bytes).len() + 700);
        }
        if name != "LOCK" {
            std::fs::write(golden.join(name), bytes).unwrap();
        }
    }
}

/// Every format that ever existed, each in its own directory.
fn golden() -> Vec<Dir> {
    let formats = std::fs::read_dir(GOLDEN).unwrap();
    let copy = |format: std::io::Result<std::fs::DirEntry>| {
        let dir = Dir::new();
        // Makes the directory, so that its mode is right whatever mode the checkout has.
        drop(Log::open(&dir.path, Options::default()).unwrap());
        for (name, bytes) in files(&format.unwrap().path()) {
            std::fs::write(dir.path.join(name), bytes).unwrap();
        }
        dir
    };
    let copies: Vec<Dir> = formats.map(copy).collect();
    assert!(copies.len() >= 2, "every format must be tested");
    copies
}

#[cfg(feature = "zstd")]
#[test]
fn d10_golden_files_of_every_format_load() {
    for dir in golden() {
        let loaded = reader::load::<u64, String>(&dir.path).unwrap();
        assert_eq!(loaded.head, Some(6));
        assert_eq!(
            loaded.events,
            ["one".into(), "two".repeat(300), "four".into(), "six".into()]
        );
        let info = loaded.report.phase.clone().unwrap();
        // These files have more keys in the metadata, such as `git_commit`, which are skipped.
        assert_eq!(info.meta.extra, [("k".into(), "v".into())].into());
        insta::assert_snapshot!("golden_files_load", loaded.report);
        let verified = checkpoint_store::verify::verify(&dir.path).unwrap();
        let whole = checkpoint_store::verify::FileCondition::Valid;
        assert!(verified.files.len() > 2, "{:?}", verified.files);
        assert!(verified.files.iter().all(|file| file.condition == whole));
        for (seq, head) in [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 4), (7, 6)] {
            let options = options("golden", 1);
            let seq = checkpoint_store::Seq::new(seq);
            let at = reader::load_at::<u64, String>(&dir.path, seq, &options);
            assert_eq!(at.unwrap().head, Some(head), "save {seq}");
        }
        let (mut writer, _) = Writer::<u64, String>::open(&dir.path, options("golden", 1)).unwrap();
        writer.append(&7, &[]).unwrap();
    }
}

#[cfg(not(feature = "zstd"))]
#[test]
fn d10_compressed_frames_are_refused_with_the_reason() {
    for dir in golden() {
        let err = reader::load::<u64, String>(&dir.path).unwrap_err();
        assert!(
            !err.is_corrupt() && err.to_string().contains("`zstd` feature"),
            "{err}"
        );
    }
}

//! Files with frames that no writer makes. A reader must check the sizes before it unpacks anything.
#![cfg(feature = "zstd")]

use std::path::{Path, PathBuf};

use crate::codec::{self, CompressionEffort};
use crate::frame::{
    DELTA, Frame, HEADER, MAX_META, MAX_RAW, META, TRUNCATE, decode, decode_header, without_zeros,
};
use crate::raw_writer::RawWriter;
use crate::saves::PackedFrame;
use crate::{Error, Options, Seq, reader, verify};

/// Encodes a head.
fn head(n: u64) -> Vec<u8> {
    let mut raw = Vec::new();
    codec::encode(&mut raw, &n).unwrap();
    raw
}

/// Returns `len` bytes that compress as well as a reader allows: zeros, with noise at the end.
fn payload(len: u32) -> Vec<u8> {
    let mut state = 1_u64;
    let noise = (0..len / 400).map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    });
    let mut raw = vec![0; (len - len / 400) as usize];
    raw.extend(noise);
    raw
}

/// Returns a frame with a right checksum that unpacks to `len` bytes.
fn bomb(kind: u8, seq: u64, len: u32, salt: u64) -> Vec<u8> {
    let (flags, stored) = codec::pack(payload(len), CompressionEffort::Save);
    assert!(
        flags != 0 && stored.len() < len as usize / 100,
        "the frame must compress 100 to 1"
    );
    let frame = Frame {
        kind,
        flags,
        raw_len: len,
        head_len: 0,
        seq,
        offset: 0,
        stored_len: stored.len() as u32,
    };
    let mut bytes = Vec::new();
    frame.encode(&mut bytes, salt, &stored);
    bytes
}

/// Makes a store with one save, and returns its journal without the reserved room.
fn store(dir: &Path) -> (PathBuf, Vec<u8>) {
    let (mut writer, _) = RawWriter::open(dir, Options::default()).unwrap();
    writer.append(head(1), 1).unwrap();
    drop(writer);
    let names = std::fs::read_dir(dir).unwrap();
    let mut names = names.map(|entry| entry.unwrap().path());
    let journal = names.find(|path| path.to_string_lossy().contains("progress-"));
    let journal = journal.unwrap();
    let mut bytes = std::fs::read(&journal).unwrap();
    bytes.truncate(without_zeros(&bytes, 0));
    (journal, bytes)
}

/// Checks that no reader accepts this file, and that each error names the file and the limit.
#[track_caller]
fn expect_refused(dir: &Path, journal: &Path, limit: u32) {
    let before = std::fs::read(journal).unwrap();
    let check = |err: Error| {
        assert!(err.is_corrupt(), "{err}");
        assert_eq!(err.path(), journal, "{err}");
        let text = format!("no writer makes a frame of more than {limit} bytes");
        assert!(err.to_string().contains(&text), "{err}");
    };
    check(reader::load::<u64, u64>(dir).unwrap_err());
    check(
        RawWriter::open(dir, Options::default())
            .map(drop)
            .unwrap_err(),
    );
    let name = journal.file_name().unwrap().to_string_lossy();
    let listed = reader::list(dir.parent().unwrap()).unwrap();
    let health = format!("{:?}", listed[0].health);
    assert!(
        health.contains(&*name) && health.contains("unpacks to"),
        "{health}"
    );
    let verified = verify::verify(dir).unwrap().to_string();
    assert!(
        verified.contains(&*name) && verified.contains("unpacks to"),
        "{verified}"
    );
    assert!(
        std::fs::read(journal).unwrap() == before,
        "the file is unchanged"
    );
}

#[test]
fn d8_save_that_unpacks_beyond_the_limit_is_refused_with_its_file_name() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("s");
    let (journal, good) = store(&dir);
    let salt = decode_header(&good).unwrap();
    for (kind, limit) in [(DELTA, MAX_RAW), (TRUNCATE, 1 << 10)] {
        // The limit of an undo is too small for a frame that compresses 100 to 1, so the payload has at least 4 MiB.
        let len = limit.max(4 << 20) + 1;
        let bytes = [&good[..], &bomb(kind, 2, len, salt)].concat();
        std::fs::write(&journal, bytes).unwrap();
        expect_refused(&dir, &journal, limit);
    }
    std::fs::write(&journal, &good).unwrap();
    let loaded = reader::load::<u64, u64>(&dir).unwrap();
    assert_eq!((loaded.head, loaded.seq), (Some(1), Seq::new(1)));
}

#[test]
fn d8_metadata_that_unpacks_beyond_the_limit_is_refused_with_its_file_name() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("s");
    let (journal, good) = store(&dir);
    let salt = decode_header(&good).unwrap();
    let first = decode(&good, HEADER, salt).unwrap();
    let bomb = bomb(META, first.seq, 100 << 20, salt);
    let bytes = [&good[..HEADER], &bomb, &good[first.end()..]].concat();
    std::fs::write(&journal, bytes).unwrap();
    expect_refused(&dir, &journal, MAX_META);
}

#[test]
fn d8_writer_and_reader_share_the_limit_of_a_save() {
    let raw = payload(MAX_RAW + 1);
    let refused = PackedFrame::pack(DELTA, 1, 0, raw, CompressionEffort::Save).unwrap_err();
    assert!(refused.to_string().contains("the limit is"), "{refused}");
    let bytes = bomb(DELTA, 1, MAX_RAW, 7);
    assert_eq!(decode(&bytes, 0, 7).unwrap().raw_len, MAX_RAW);
}

//! Records as bytes: any change of a record is noticed.

use super::*;
use crate::codec::CompressionEffort;
use crate::frame::{MAX_RAW, MAX_STORED};
use crate::meta::FileMeta;
use crate::options::Options;
use crate::test_disk::TestDisk;

fn record(raw: Vec<u8>, head_len: usize) -> Record {
    let root = tempfile::tempdir().unwrap();
    let disk = TestDisk::open(root.path(), 0, |_| Ok(()));
    let mut meta = FileMeta::new(&Options::default(), 1, &*disk);
    meta.seq = 7;
    let kept = PackedFrame::pack(DELTA, 7, head_len, raw, CompressionEffort::Save).unwrap();
    Record::new(meta, &kept, 5).unwrap()
}

fn small() -> Record {
    // The number 1, and the events [2, 3].
    record(vec![1, 0x82, 2, 3], 1)
}

#[test]
fn parsed_record_equals_the_record() {
    let record = small();
    let parsed = Record::parse(record.as_bytes().to_vec(), "place").unwrap();
    assert_eq!(parsed, record);
    assert_eq!((parsed.seq(), parsed.previous), (Seq::new(7), 6));
    assert_eq!(parsed.packed().unpack().unwrap(), [1, 0x82, 2, 3]);
}

#[test]
fn every_bit_flip_of_a_record_is_an_error() {
    let bytes = small().as_bytes().to_vec();
    for at in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[at / 8] ^= 1 << (at % 8);
        let err = Record::parse(flipped, "place").unwrap_err();
        assert!(err.is_corrupt(), "bit {at}: {err}");
        assert_eq!(err.path(), Path::new("place"));
    }
}

#[test]
fn every_truncation_and_extension_of_a_record_is_an_error() {
    let bytes = small().as_bytes().to_vec();
    for len in 0..bytes.len() {
        let err = Record::parse(bytes[..len].to_vec(), "place").unwrap_err();
        assert!(err.is_corrupt(), "{len} bytes: {err}");
    }
    for more in [&[0][..], &[0; 64], &bytes[HEADER..]] {
        let longer = [&bytes[..], more].concat();
        assert!(Record::parse(longer, "place").unwrap_err().is_corrupt());
    }
}

#[test]
fn record_of_a_newer_container_is_an_error_with_its_version() {
    let mut bytes = small().as_bytes().to_vec();
    bytes[8] = 9;
    let crc = crc32c::crc32c(&bytes[..28]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    let err = Record::parse(bytes, "place").unwrap_err();
    assert!(err.is_unsupported_version(), "{err}");
    let text = "place: was written as container version 9, this program reads up to 1";
    assert!(err.to_string().contains(text), "{err}");
}

#[test]
fn save_that_does_not_follow_the_stated_one_is_refused() {
    let record = small();
    let mut image = FileBuilder::new(&record.meta, 4, 5).unwrap();
    image.push_stored(&record.packed());
    let err = Record::parse(image.bytes, "place").unwrap_err();
    assert!(err.to_string().contains("out of sequence"), "{err}");
}

/// Returns a record whose second frame states these lengths, with a right checksum.
fn with_lengths(stored: &[u8], raw_len: u32) -> Vec<u8> {
    let record = small();
    let mut bytes = record.as_bytes()[..record.frame.offset].to_vec();
    let frame = Frame {
        flags: crate::frame::ZSTD,
        raw_len,
        stored_len: stored.len() as u32,
        ..record.frame
    };
    frame.encode(&mut bytes, 5, stored);
    bytes
}

#[test]
fn record_that_unpacks_to_more_than_a_save_is_refused_before_it_is_unpacked() {
    let bytes = with_lengths(&vec![0; 1 << 20], MAX_RAW + 1);
    let err = Record::parse(bytes, "place").unwrap_err();
    let text = format!("it unpacks to {} bytes, but no writer makes", MAX_RAW + 1);
    assert!(err.is_corrupt() && err.to_string().contains(&text), "{err}");
    let err = Record::parse(with_lengths(&[0; 9], 9 * 1001), "place").unwrap_err();
    assert!(err.to_string().contains("lengths contradict"), "{err}");
    let mut bytes = small().as_bytes().to_vec();
    let at = small().frame.offset + 8;
    bytes[at..at + 4].copy_from_slice(&(MAX_STORED + 1).to_le_bytes());
    let err = Record::parse(bytes, "place").unwrap_err();
    assert!(err.to_string().contains("larger than allowed"), "{err}");
}

#[cfg(feature = "zstd")]
#[test]
fn record_whose_payload_is_no_compressed_data_is_refused() {
    let err = Record::parse(with_lengths(&[7; 90], 900), "place").unwrap_err();
    assert!(err.to_string().contains("cannot be decompressed"), "{err}");
}

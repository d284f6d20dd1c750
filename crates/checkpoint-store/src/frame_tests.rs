//! The container's bytes: a layout that never changes, damage and torn tails, and arbitrary bytes.

use super::*;

fn frame(seq: u64, payload: &[u8]) -> Frame {
    let len = payload.len() as u32;
    Frame {
        kind: DELTA,
        flags: 0,
        raw_len: len,
        head_len: 0,
        seq,
        offset: 0,
        stored_len: len,
    }
}

fn file(salt: u64, payloads: &[&[u8]]) -> Vec<u8> {
    let mut out = encode_header(salt);
    for (index, payload) in payloads.iter().enumerate() {
        frame(7 + index as u64, payload).encode(&mut out, salt, payload);
    }
    out
}

#[test]
fn layout_is_fixed() {
    let hex: Vec<String> = file(0x0123_4567_89ab_cdef, &[b"hello"])
        .chunks(16)
        .map(|row| row.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    insta::assert_snapshot!(hex.join("\n"));
}

#[test]
fn a_frame_of_another_file_does_not_validate() {
    let mut bytes = file(1, &[b"a"]);
    let other = file(2, &[b"a", b"b"]);
    let second = decode(&other, HEADER, 2).unwrap().end();
    bytes.extend_from_slice(&other[second..]);
    let (frames, tail) = scan(&bytes, 1).unwrap();
    assert_eq!(frames.len(), 1);
    assert!(matches!(tail, Tail::Torn { .. }));
}

#[test]
fn only_zeros_after_the_last_frame_are_reserved_space() {
    let mut bytes = file(1, &[b"a\0\0"]);
    let end = bytes.len();
    for len in [1, 31, 32, 4095, 9000] {
        bytes.truncate(end);
        bytes.resize(end + len, 0);
        let (frames, tail) = scan(&bytes, 1).unwrap();
        assert_eq!((frames.len(), tail), (1, Tail::Clean));
        *bytes.last_mut().unwrap() = 1;
        assert_eq!(scan(&bytes, 1).unwrap().1, Tail::Torn { offset: end });
        assert_eq!(without_zeros(&bytes, end), end + len);
    }
    // A frame whose first sectors are missing, followed by a valid frame.
    let late = file(1, &[b"b"]);
    let mut bytes = bytes[..end + 512].to_vec();
    bytes.extend_from_slice(&late[HEADER..]);
    bytes.resize(1 << 14, 0);
    assert!(
        matches!(scan(&bytes, 1).unwrap().1, Tail::Torn { .. }),
        "a frame with a lower number is not a later save"
    );
}

#[test]
fn a_repeated_frame_is_damage() {
    let mut bytes = file(1, &[b"a"]);
    let again = bytes[HEADER..].to_vec();
    let offset = bytes.len();
    bytes.extend_from_slice(&again);
    let (frames, tail) = scan(&bytes, 1).unwrap();
    assert_eq!(frames.len(), 1);
    assert_eq!(
        tail,
        Tail::Damaged {
            offset,
            reason: "the frame is out of sequence"
        }
    );
}

#[test]
fn a_bad_frame_before_a_good_one_is_damage_and_not_a_torn_tail() {
    let mut bytes = file(1, &[b"aaaa", b"bbbb", b"cccc"]);
    let second = HEADER + HEADER + 4;
    bytes[second + HEADER] ^= 1;
    let (frames, tail) = scan(&bytes, 1).unwrap();
    assert_eq!(frames.len(), 1);
    assert!(matches!(tail, Tail::Damaged { offset, .. } if offset == second));
}

#[test]
fn unknown_kinds_are_skipped_unless_they_are_critical() {
    let with_flags = |flags| {
        let mut bytes = encode_header(1);
        Frame {
            kind: 9,
            flags,
            ..frame(1, b"x")
        }
        .encode(&mut bytes, 1, b"x");
        scan(&bytes, 1)
    };
    assert_eq!(with_flags(0).unwrap().1, Tail::Clean);
    assert_eq!(
        with_flags(CRITICAL).unwrap_err(),
        FrameFault::NewerFrame { kind: 9 }
    );
}

#[test]
fn frame_with_excessive_unpacked_size_is_damage() {
    for raw_len in [4_001, MAX_RAW, MAX_RAW + 1, u32::MAX] {
        let mut bytes = encode_header(1);
        Frame {
            raw_len,
            ..frame(1, b"abcd")
        }
        .encode(&mut bytes, 1, b"abcd");
        assert!(decode(&bytes, HEADER, 1).is_err(), "{raw_len}");
    }
}

#[test]
fn many_excessive_size_claims_cost_bounded_work() {
    // Each magic starts a frame that claims a large size: 4 bytes of input cost megabytes of checking.
    let mut bytes = file(1, &[b"a"]);
    let mut claim = Vec::new();
    claim.extend_from_slice(&FRAME_MAGIC);
    claim.extend_from_slice(&[DELTA, 0, 0, 0]);
    claim.extend_from_slice(&(1u32 << 20).to_le_bytes());
    claim.extend_from_slice(&(1u32 << 20).to_le_bytes());
    for _ in 0..100_000 {
        bytes.extend_from_slice(&claim);
    }
    assert!(matches!(scan(&bytes, 1).unwrap().1, Tail::Damaged { .. }));
}

#[test]
fn data_that_looks_like_long_frames_is_a_torn_tail() {
    let mut bytes = file(1, &[b"a"]);
    let offset = bytes.len();
    for len in [MAX_STORED, u32::MAX] {
        for _ in 0..200 {
            bytes.extend_from_slice(b"CKF1 is no frame");
            let claim = bytes.len() - 8;
            bytes[claim..claim + 4].copy_from_slice(&len.to_le_bytes());
        }
    }
    assert_eq!(scan(&bytes, 1).unwrap().1, Tail::Torn { offset });
}

#[test]
fn foreign_header_is_refused_with_a_reason() {
    let header = encode_header(u64::MAX - 7);
    assert_eq!(decode_header(&header), Ok(u64::MAX - 7));
    let cut = decode_header(&header[..HEADER - 1]);
    assert_eq!(
        cut,
        Err(damaged(HEADER - 1, "the file header is truncated"))
    );
    for (at, bit) in (0..HEADER).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut other = header.clone();
        other[at] ^= 1 << bit;
        let reason = match at {
            0..8 => "the file header has no magic number",
            _ => "the file header has a wrong checksum",
        };
        assert_eq!(decode_header(&other), Err(damaged(0, reason)), "byte {at}");
    }
    let mut newer = header.clone();
    newer[8] = MAJOR as u8 + 1;
    let crc = crc32c(&newer[..28]);
    newer[28..].copy_from_slice(&crc.to_le_bytes());
    let found = MAJOR + 1;
    assert_eq!(
        decode_header(&newer),
        Err(FrameFault::NewerContainer { found })
    );
}

/// No bit flip makes one valid frame into another.
#[test]
fn bit_flip_in_a_frame_is_detected() {
    let bytes = file(1, &[b"hello"]);
    for (at, bit) in (HEADER..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut other = bytes.clone();
        other[at] ^= 1 << bit;
        let found = decode(&other, HEADER, 1);
        assert!(
            matches!(found, Err(FrameFault::Damaged { offset: HEADER, .. })),
            "byte {at}: {found:?}"
        );
    }
}

#[test]
fn frame_limits_match_the_writer() {
    let decoded = |frame: Frame| {
        let mut bytes = encode_header(1);
        frame.encode(&mut bytes, 1, b"abcd");
        decode(&bytes, HEADER, 1)
    };
    let usual = frame(1, b"abcd");
    let of_raw = |raw_len, head_len| Frame {
        raw_len,
        head_len,
        ..usual
    };
    let of_stored = |stored_len| Frame {
        stored_len,
        ..usual
    };
    let of_kind = |kind, flags| Frame {
        kind,
        flags,
        ..usual
    };
    for good in [
        of_raw(4000, 4000),
        of_raw(0, 0),
        of_kind(LAST_KIND, CRITICAL),
        of_kind(LAST_KIND + 1, !CRITICAL),
    ] {
        let read = Frame {
            offset: HEADER,
            ..good
        };
        assert_eq!(decoded(good), Ok(read));
    }
    let large = "the frame is larger than allowed";
    let lengths = "the frame's lengths contradict each other";
    for (bad, reason) in [
        (of_raw(4001, 0), lengths),
        (of_raw(4, 5), lengths),
        (of_raw(MAX_RAW, 0), lengths),
        (of_raw(MAX_RAW + 1, 0), lengths),
        (of_stored(5), "the frame is truncated"),
        (of_stored(MAX_STORED), "the frame is truncated"),
        (of_stored(MAX_STORED + 1), large),
        (of_stored(3), "the frame has a wrong checksum"),
    ] {
        assert_eq!(decoded(bad), Err(damaged(HEADER, reason)), "{bad:?}");
    }
}

#[test]
fn damage_is_located_in_its_file() {
    assert_eq!(damaged(5, "cut").after(7), damaged(12, "cut"));
    let newer = FrameFault::NewerFrame { kind: 9 };
    assert_eq!(newer.clone().after(7), newer);
    let large = |offset| FrameFault::TooLarge {
        offset,
        bytes: 9,
        limit: 8,
    };
    assert_eq!(large(5).after(7), large(12));
}

proptest::proptest! {
    /// A frame can be read at any offset in its file.
    #[test]
    fn frame_round_trips(
        before in proptest::collection::vec(proptest::num::u8::ANY, 0..80),
        payload in proptest::collection::vec(proptest::num::u8::ANY, 0..80),
        (kind, flags) in (0..=LAST_KIND, proptest::num::u8::ANY),
        (seq, salt) in (proptest::num::u64::ANY, proptest::num::u64::ANY),
    ) {
        let mut bytes = before;
        let offset = bytes.len();
        let written = Frame { kind, flags, offset, ..frame(seq, &payload) };
        written.encode(&mut bytes, salt, &payload);
        bytes.extend_from_slice(b"and more");
        let read = decode(&bytes, offset, salt);
        proptest::prop_assert_eq!(&read, &Ok(written));
        proptest::prop_assert_eq!(read.unwrap().stored(&bytes), payload);
        proptest::prop_assert_eq!(offset + len(&bytes[offset..]), written.end());
        proptest::prop_assert_eq!(&bytes[written.end()..], b"and more");
        let other = decode(&bytes, offset, salt.wrapping_add(1));
        proptest::prop_assert_eq!(other, Err(damaged(offset, "the frame has a wrong checksum")));
    }

    /// Arbitrary bytes cause no panic and are never a frame.
    #[test]
    fn arbitrary_bytes_never_panic(junk in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
        let mut bytes = file(1, &[b"a", b"b"]);
        bytes.extend_from_slice(&junk);
        let (frames, tail) = scan(&bytes, 1).unwrap();
        proptest::prop_assert_eq!(frames.len(), 2);
        // Zeros are the room that is reserved for the next frame.
        proptest::prop_assert_eq!(tail == Tail::Clean, junk.iter().all(|byte| *byte == 0));
        proptest::prop_assert!(decode_header(&junk).is_err());
    }
}

//! CBOR and compression. No other module uses either library.

use ciborium::de::{self, from_reader_with_recursion_limit};
use ciborium::ser;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

#[cfg(feature = "zstd")]
use std::io::{self, Read as _};
#[cfg(feature = "zstd")]
use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(feature = "zstd")]
use crate::frame::MAX_RATIO;
use crate::frame::{Frame, FrameFault, ZSTD, damaged};
use crate::sabotage::{self, Sabotage};

/// Deepest nesting that is written. A read allows twice as much, because a typed reader counts enums and an untyped one does not.
const MAX_DEPTH: usize = 128;
/// Below this many bytes compression costs more than it saves.
#[cfg(feature = "zstd")]
const COMPRESS_FROM: usize = 512;
/// A payload of up to this size is unpacked into memory of its stated size. A larger one is rare; its memory grows as its bytes arrive.
#[cfg(feature = "zstd")]
const AT_ONCE: usize = 8 << 20;
/// Level 7 makes a phase about 10 % smaller than the default level, at three times the cost.
#[cfg(feature = "zstd")]
const PHASE_LEVEL: i32 = 7;

/// Appends `value` to `out`, or returns the reason why it cannot be encoded in a form that can be read again.
pub(crate) fn encode<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) -> Result<(), String> {
    let start = out.len();
    ciborium::into_writer(value, &mut *out).map_err(|err| match err {
        ser::Error::Value(reason) => reason,
        ser::Error::Io(err) => err.to_string(),
    })?;
    from_reader_with_recursion_limit::<IgnoredAny, _>(&out[start..], MAX_DEPTH).map_err(reason)?;
    Ok(())
}

/// Decodes one value from the front of `bytes` and moves `bytes` past it.
pub(crate) fn decode_next<T: DeserializeOwned>(bytes: &mut &[u8]) -> Result<T, String> {
    from_reader_with_recursion_limit(bytes, 2 * MAX_DEPTH).map_err(reason)
}

/// Decodes one array from the front of `bytes`, passes its elements to `each` one at a time, and moves `bytes` past it.
pub(crate) fn decode_each<T: DeserializeOwned>(
    bytes: &mut &[u8],
    mut each: impl FnMut(T),
) -> Result<(), String> {
    let Some((len, rest)) = array_len(bytes) else {
        // This crate writes the length of each array. Another form is valid too, and rare.
        decode_next::<Vec<T>>(bytes)?.into_iter().for_each(each);
        return Ok(());
    };
    *bytes = rest;
    for _ in 0..len {
        // The array is one level of the nesting.
        let element = from_reader_with_recursion_limit(&mut *bytes, 2 * MAX_DEPTH - 1);
        each(element.map_err(reason)?);
    }
    Ok(())
}

/// Returns the length of an array from its first bytes, and the bytes after it; `None` if the length is not given or the value is no array.
fn array_len(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    let width = match first {
        0x80..=0x97 => return Some((u64::from(first - 0x80), rest)),
        0x98..=0x9b => 1 << (first - 0x98),
        _ => return None,
    };
    let (len, rest) = rest.split_at_checked(width)?;
    let len = len.iter().fold(0, |len, byte| len << 8 | u64::from(*byte));
    Some((len, rest))
}

/// Returns a reason that people understand; the library's own messages have its internal names.
fn reason(err: de::Error<std::io::Error>) -> String {
    match err {
        de::Error::Semantic(_, reason) => reason,
        de::Error::RecursionLimitExceeded => "it is nested too deeply".into(),
        de::Error::Syntax(at) => format!("byte {at} is not valid CBOR"),
        de::Error::Io(_) => "it ends too early".into(),
    }
}

/// Decodes one value from `bytes`, which must contain nothing else.
pub(crate) fn decode<T: DeserializeOwned>(mut bytes: &[u8]) -> Result<T, String> {
    let value = decode_next(&mut bytes)?;
    if bytes.is_empty() || sabotage::is_on(Sabotage::IgnoreTrailing) {
        Ok(value)
    } else {
        Err(format!("{} bytes follow the value", bytes.len()))
    }
}

/// How hard to compress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CompressionEffort {
    /// A save, for which the caller waits.
    Save,
    /// The state of a phase, which stays on disk for a long time.
    Phase,
}

/// Compresses a payload where that pays; returns the frame flags and the bytes to store.
pub(crate) fn pack(raw: Vec<u8>, effort: CompressionEffort) -> (u8, Vec<u8>) {
    #[cfg(feature = "zstd")]
    if raw.len() > COMPRESS_FROM
        && let Some(stored) = deflate(&raw, effort)
        && stored.len() < raw.len()
        && raw.len() as u64 <= stored.len() as u64 * MAX_RATIO
    {
        return (ZSTD, stored);
    }
    #[cfg(not(feature = "zstd"))]
    let _ = effort;
    (0, raw)
}

/// A context of the compression library that is reused for the next frame, because making one costs more than compressing a small frame. There is one for each
/// process, not for each thread: a writer moves between the threads of a pool, and each thread would retain up to 1 MB.
#[cfg(feature = "zstd")]
struct ContextPool<C>(Mutex<Option<C>>);

#[cfg(feature = "zstd")]
static PACKER: ContextPool<zstd::bulk::Compressor<'static>> = ContextPool(Mutex::new(None));
#[cfg(feature = "zstd")]
static UNPACKER: ContextPool<zstd::bulk::Decompressor<'static>> = ContextPool(Mutex::new(None));

#[cfg(feature = "zstd")]
impl<C> ContextPool<C> {
    /// Takes the stored context, or makes one while another thread uses the stored one.
    fn take(&self, make: impl FnOnce() -> io::Result<C>) -> io::Result<C> {
        let kept = self.lock().take();
        kept.map_or_else(make, Ok)
    }

    fn put_back(&self, context: C) {
        *self.lock() = Some(context);
    }

    fn lock(&self) -> MutexGuard<'_, Option<C>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(feature = "zstd")]
fn deflate(raw: &[u8], effort: CompressionEffort) -> Option<Vec<u8>> {
    if effort == CompressionEffort::Phase {
        return zstd::bulk::compress(raw, PHASE_LEVEL).ok();
    }
    let make = || zstd::bulk::Compressor::new(zstd::DEFAULT_COMPRESSION_LEVEL);
    let mut packer = PACKER.take(make).ok()?;
    let stored = packer.compress(raw).ok();
    PACKER.put_back(packer);
    stored
}

/// Reverses [`pack`] for one frame; `offset` is the place of the frame, for the fault.
pub(crate) fn unpack(
    flags: u8,
    stored: &[u8],
    raw_len: u32,
    offset: usize,
) -> Result<Vec<u8>, FrameFault> {
    Unpacker::default().unpack(flags, stored, raw_len, offset)
}

/// Reverses [`pack`] for many frames. It takes one context at the first compressed frame, and gives it back when it is dropped.
#[derive(Default)]
pub(crate) struct Unpacker {
    #[cfg(feature = "zstd")]
    context: Option<zstd::bulk::Decompressor<'static>>,
}

impl Unpacker {
    pub(crate) fn unpack_frame(
        &mut self,
        file: &[u8],
        frame: &Frame,
    ) -> Result<Vec<u8>, FrameFault> {
        self.unpack(frame.flags, frame.stored(file), frame.raw_len, frame.offset)
    }

    /// See [`unpack`].
    pub(crate) fn unpack(
        &mut self,
        flags: u8,
        stored: &[u8],
        raw_len: u32,
        offset: usize,
    ) -> Result<Vec<u8>, FrameFault> {
        let raw = match flags & 0x7f {
            0 => stored.to_vec(),
            ZSTD => self.inflate(stored, raw_len as usize, offset)?,
            // The checksum is right, so this is a newer format and not damage.
            found => return Err(FrameFault::NewerPacking { found }),
        };
        if raw.len() == raw_len as usize {
            Ok(raw)
        } else {
            Err(damaged(offset, "the frame's payload has a wrong length"))
        }
    }

    #[cfg(feature = "zstd")]
    fn inflate(
        &mut self,
        stored: &[u8],
        raw_len: usize,
        offset: usize,
    ) -> Result<Vec<u8>, FrameFault> {
        let inflated = match raw_len <= AT_ONCE {
            true => self
                .context()
                .and_then(|context| context.decompress(stored, raw_len)),
            false => inflate_growing(stored, raw_len),
        };
        inflated.map_err(|_| damaged(offset, "the frame's payload cannot be decompressed"))
    }

    #[cfg(feature = "zstd")]
    fn context(&mut self) -> io::Result<&mut zstd::bulk::Decompressor<'static>> {
        if self.context.is_none() {
            self.context = Some(UNPACKER.take(zstd::bulk::Decompressor::new)?);
        }
        Ok(self.context.as_mut().expect("it was just stored"))
    }

    #[cfg(not(feature = "zstd"))]
    fn inflate(&mut self, _: &[u8], _: usize, _: usize) -> Result<Vec<u8>, FrameFault> {
        Err(FrameFault::NoZstd)
    }
}

#[cfg(feature = "zstd")]
impl Drop for Unpacker {
    fn drop(&mut self) {
        if let Some(context) = self.context.take() {
            UNPACKER.put_back(context);
        }
    }
}

/// Unpacks at most one byte more than `raw_len`, so that the caller notices a payload that is too long.
#[cfg(feature = "zstd")]
fn inflate_growing(stored: &[u8], raw_len: usize) -> io::Result<Vec<u8>> {
    let mut raw = Vec::new();
    let decoder = zstd::stream::read::Decoder::with_buffer(stored)?;
    decoder.take(raw_len as u64 + 1).read_to_end(&mut raw)?;
    Ok(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_after_a_value_are_an_error() {
        let mut raw = Vec::new();
        encode(&mut raw, "a value").unwrap();
        assert_eq!(decode::<String>(&raw).unwrap(), "a value");
        raw.push(0);
        assert!(decode::<String>(&raw).is_err());
        let mut rest = &raw[..];
        assert_eq!(decode_next::<String>(&mut rest).unwrap(), "a value");
        assert_eq!(rest, [0], "the reader consumes only the value");
    }

    #[test]
    fn hostile_values_are_errors() {
        let deep = vec![0x81; 1 << 20];
        assert!(decode::<IgnoredAny>(&deep).is_err());
        // An array with a stated length of 2^63 elements.
        let long = [0x9b, 0x80, 0, 0, 0, 0, 0, 0, 0];
        assert!(decode::<Vec<u64>>(&long).is_err());
    }

    #[test]
    fn c64a_newer_packing_is_an_error_and_no_damage() {
        let newer = FrameFault::NewerPacking { found: 2 };
        assert_eq!(unpack(2, b"x", 1, 0), Err(newer.clone()));
        let err = crate::Error::fault("s", newer);
        assert!(err.is_unsupported_version(), "{err}");
        let text = "version 2, this program reads up to 1";
        assert!(err.to_string().contains(text), "{err}");
    }

    /// Returns the elements one at a time, and the number of bytes that are left.
    fn one_at_a_time<T: DeserializeOwned>(mut bytes: &[u8]) -> Option<(Vec<T>, usize)> {
        let mut elements = Vec::new();
        decode_each(&mut bytes, |element| elements.push(element)).ok()?;
        Some((elements, bytes.len()))
    }

    fn all_at_once<T: DeserializeOwned>(mut bytes: &[u8]) -> Option<(Vec<T>, usize)> {
        let elements = decode_next(&mut bytes).ok()?;
        Some((elements, bytes.len()))
    }

    #[test]
    fn elements_of_an_array_nest_as_deeply_one_at_a_time_as_all_at_once() {
        for depth in 2 * MAX_DEPTH - 4..2 * MAX_DEPTH + 4 {
            let deep = [vec![0x81; depth], vec![0]].concat();
            let one = one_at_a_time::<IgnoredAny>(&deep).map(|it| it.1);
            assert_eq!(
                one,
                all_at_once::<IgnoredAny>(&deep).map(|it| it.1),
                "{depth}"
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn array_decodes_one_element_at_a_time_as_all_at_once(
            values in proptest::collection::vec("\\PC{0,3}", 0..300),
            bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..12),
            header in 0x7f..=0x9f_u8,
            cut in 0..400_usize,
        ) {
            let mut raw = Vec::new();
            encode(&mut raw, &values).unwrap();
            raw.extend(&bytes);
            proptest::prop_assert_eq!(one_at_a_time(&raw), Some((values, bytes.len())));
            raw.truncate(cut);
            proptest::prop_assert_eq!(one_at_a_time::<String>(&raw), all_at_once(&raw));
            // Small numbers are whole elements, so many of these arrays are valid.
            let small = bytes.iter().map(|byte| byte % 0x18);
            let any: Vec<u8> = [header].into_iter().chain(small).chain([0xff]).collect();
            proptest::prop_assert_eq!(one_at_a_time::<u64>(&any), all_at_once(&any));
            proptest::prop_assert_eq!(one_at_a_time::<u64>(&bytes), all_at_once(&bytes));
        }

        #[test]
        fn packed_bytes_unpack_to_the_same(raw in proptest::collection::vec(0..4u8, 0..2000)) {
            let (flags, stored) = pack(raw.clone(), CompressionEffort::Save);
            let len = raw.len() as u32;
            proptest::prop_assert!(stored.len() <= raw.len());
            proptest::prop_assert_eq!(unpack(flags, &stored, len, 0).unwrap(), raw);
            proptest::prop_assert!(unpack(flags, &stored, len + 1, 0).is_err());
        }
    }

    #[cfg(feature = "zstd")]
    #[test]
    fn d8_a_large_payload_takes_no_more_memory_than_it_has_bytes() {
        // The header claims 100 MiB; the payload has a tenth of that, and compresses badly.
        let raw: Vec<u8> = (0..10_u32 << 20)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        let (flags, stored) = pack(raw.clone(), CompressionEffort::Save);
        assert_eq!(flags, ZSTD);
        assert!(unpack(flags, &stored, 100 << 20, 0).is_err());
        let grown = inflate_growing(&stored, 100 << 20).unwrap();
        assert!(grown.capacity() <= 2 * raw.len(), "{}", grown.capacity());
        let raw_len = raw.len() as u32;
        assert!(unpack(flags, &stored, raw_len, 0) == Ok(raw));
        assert!(unpack(flags, &stored, raw_len - 1, 0).is_err());
        let truncated = &stored[..stored.len() - 1];
        assert!(unpack(flags, truncated, raw_len, 0).is_err());
        let with_junk = [&stored[..], b"junk"].concat();
        assert!(unpack(flags, &with_junk, raw_len, 0).is_err());
    }
}

//! Unpacks the frames of a file, on several threads where that pays.

use std::num::NonZero;

use crate::codec;
use crate::frame::{Fault, Frame, damaged};
use crate::replay::MAX_STATE;

/// So many stored bytes are worth a thread.
const SHARE: usize = 512 << 10;
const MOST_THREADS: usize = 4;

/// Returns the payloads of `frames`, in their order. Of frames that together take more
/// than a state may, the first one too many is a fault and ends the row.
pub(crate) fn unpacked(file: &[u8], frames: &[Frame]) -> Vec<Result<Vec<u8>, Fault>> {
    let mut total = 0;
    let within = frames.iter().position(|frame| {
        total += u64::from(frame.raw_len);
        total > MAX_STATE
    });
    let fits = &frames[..within.unwrap_or(frames.len())];
    let stored: usize = fits.iter().map(|frame| frame.stored_len as usize).sum();
    // Asking for the cores reads files of the system.
    let cores = || std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = match stored / SHARE {
        0 | 1 => 1,
        shares => shares.min(MOST_THREADS).min(cores()),
    };
    let mut raws: Vec<_> = if threads < 2 {
        fits.iter().map(|frame| unpack(file, frame)).collect()
    } else {
        std::thread::scope(|scope| {
            let parts = fits.chunks(fits.len().div_ceil(threads));
            let workers: Vec<_> = parts
                .map(|part| {
                    scope.spawn(move || -> Vec<_> {
                        part.iter().map(|frame| unpack(file, frame)).collect()
                    })
                })
                .collect();
            let join = |worker: std::thread::ScopedJoinHandle<'_, Vec<_>>| {
                worker.join().expect("unpacking does not panic")
            };
            workers.into_iter().flat_map(join).collect()
        })
    };
    if let Some(frame) = within.map(|at| &frames[at]) {
        let reason = "the state is larger than allowed";
        raws.push(Err(damaged(frame.offset, reason)));
    }
    raws
}

fn unpack(file: &[u8], frame: &Frame) -> Result<Vec<u8>, Fault> {
    codec::unpack(frame.flags, frame.stored(file), frame.raw_len, frame.offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Effort;
    use crate::frame::DELTA;
    use crate::kept::Kept;

    #[test]
    fn threads_change_nothing() {
        let mut file = Vec::new();
        let mut frames = Vec::new();
        for n in 0..40_u8 {
            // Bytes that compress badly, so that there is work for several threads.
            let raw: Vec<u8> = (0..60_000_u32)
                .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8 ^ n)
                .collect();
            let mut kept = Kept::pack(DELTA, u64::from(n), 0, raw, Effort::Save).unwrap();
            kept.frame.offset = file.len();
            kept.frame.encode(&mut file, 7, &kept.stored);
            frames.push(kept.frame);
        }
        let together = unpacked(&file, &frames);
        let alone: Vec<_> = frames.iter().map(|frame| unpack(&file, frame)).collect();
        assert_eq!(together, alone);
        assert!(alone.iter().all(Result::is_ok));
        frames[20].raw_len += 1;
        assert!(unpacked(&file, &frames)[20].is_err());
        frames.iter_mut().for_each(|frame| frame.raw_len = 1 << 28);
        let bomb = unpacked(&file, &frames);
        assert_eq!(bomb.len(), 17, "4 GiB are 16 times 256 MiB");
    }
}

//! The target `records`: changed records of a replica. Its code is in `lab/crash/src/fuzzing.rs`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rlm_crash::counting::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fuzz_target!(|data: &[u8]| rlm_crash::fuzzing::records(data));

//! The set of known states, so that each state is counted once and not run twice.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, PoisonError};

const SHARDS: usize = 64;

/// A set of fingerprints that threads share.
#[derive(Debug)]
pub struct FingerprintSet(Vec<Mutex<HashSet<u64, BuildHasherDefault<IdentityHasher>>>>);

impl Default for FingerprintSet {
    fn default() -> Self {
        Self((0..SHARDS).map(|_| Mutex::default()).collect())
    }
}

impl FingerprintSet {
    /// Adds a fingerprint; returns true if it is new.
    pub fn add(&self, fingerprint: u64) -> bool {
        let shard = &self.0[fingerprint as usize % SHARDS];
        shard
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(fingerprint)
    }

    /// Returns the number of fingerprints.
    pub fn len(&self) -> u64 {
        let lens = self
            .0
            .iter()
            .map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).len());
        lens.sum::<usize>() as u64
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Returns the fingerprint itself as the hash, because its bits are already well mixed.
#[derive(Debug, Default)]
pub struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

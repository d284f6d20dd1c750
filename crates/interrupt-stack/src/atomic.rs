//! The atomics of `press_word`. The model checker's tests include that file with an `atomic` of their own.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

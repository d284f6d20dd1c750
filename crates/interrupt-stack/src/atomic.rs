//! The atomics of `press_word`. The model checker's tests include that file with their own `atomic` module.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

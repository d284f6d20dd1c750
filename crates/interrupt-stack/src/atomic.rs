//! What `word` is made of. A model checker includes that file beside an `atomic` of its own.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

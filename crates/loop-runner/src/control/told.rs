//! The messages to programs that watch a run from outside its process.

use loop_state::Timestamp;
use serde::{Deserialize, Serialize};

use crate::news::News;
use crate::view::View;

/// A line for those who look at a run. A program of another version passes over what it does not know.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(crate) enum Told {
    /// How the run stands. The first line, and again when that changes.
    View(Box<View>),
    /// Something happened.
    News { at: Timestamp, news: Box<News> },
}

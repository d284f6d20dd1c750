//! The result of the lab: scores with cells, each with a verdict, and the same as JSON.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::Tool;

/// The version of the JSON.
const VERSION: u32 = 1;

/// One promise of a loop runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ScoreName {
    /// No process outlives a stop.
    Stop,
    /// A crash costs at most the iteration in flight.
    Resume,
    /// The tool reports finished work only if the work is finished.
    Done,
    /// The loop survives everything that happens in a night.
    Night,
    /// A message reaches the agent.
    Control,
}

impl ScoreName {
    /// All scores, in the order of the output.
    pub const ALL: [Self; 5] = [
        Self::Stop,
        Self::Resume,
        Self::Done,
        Self::Night,
        Self::Control,
    ];

    /// Returns the name in the output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Resume => "resume",
            Self::Done => "done",
            Self::Night => "night",
            Self::Control => "control",
        }
    }
}

/// The verdict of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The fault landed, and the tool kept the promise.
    Kept,
    /// The fault landed, and the tool broke the promise.
    Broken,
    /// The fault did not land, so the cell shows nothing.
    NotShown,
    /// The tool or the machine doesn't allow the fault.
    Skipped,
}

impl Verdict {
    /// Returns the words in the table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Broken => "broken",
            Self::NotShown => "not shown",
            Self::Skipped => "skipped",
        }
    }
}

/// One fault and its result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// The name of the fault.
    pub cell: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The number of faults that are proven to have landed.
    pub landed: u32,
    /// The details, for people.
    pub why: String,
    /// The counts, by name.
    pub figures: BTreeMap<&'static str, f64>,
}

impl Cell {
    /// Returns the cell of a fault that landed.
    pub(crate) fn judged(cell: &str, landed: u32, is_kept: bool, why: impl Into<String>) -> Self {
        let verdict = match is_kept {
            true => Verdict::Kept,
            false => Verdict::Broken,
        };
        Self {
            cell: cell.into(),
            verdict,
            landed,
            why: why.into(),
            figures: BTreeMap::new(),
        }
    }

    pub(crate) fn not_shown(cell: &str, why: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::NotShown,
            ..Self::judged(cell, 0, false, why)
        }
    }

    pub(crate) fn skipped(cell: &str, why: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Skipped,
            ..Self::judged(cell, 0, false, why)
        }
    }

    /// Adds a count.
    pub(crate) fn figure(mut self, name: &'static str, value: impl Into<f64>) -> Self {
        self.figures.insert(name, value.into());
        self
    }
}

/// All cells of one promise.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Score {
    /// The promise.
    pub score: ScoreName,
    /// The cells, in a fixed order.
    pub cells: Vec<Cell>,
}

/// The machine and the time, without which the figures mean little.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Circumstances {
    /// The system and the processor, such as `Linux x86_64`.
    pub system: String,
    /// The number of processor cores.
    pub cores: usize,
    /// The seed of the random moments.
    pub seed: u64,
    /// The duration of the measurement.
    pub seconds: f64,
}

/// The result of the lab for one tool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The version of this format.
    pub version: u32,
    /// The tool with its verbs.
    pub tool: Tool,
    /// The circumstances.
    pub circumstances: Circumstances,
    /// Whether no cell is broken and none is without a result.
    pub kept: bool,
    /// The scores, in the order of [`ScoreName::ALL`].
    pub scores: Vec<Score>,
}

impl Report {
    /// Returns the report of these scores.
    #[must_use]
    pub fn new(tool: Tool, circumstances: Circumstances, scores: Vec<Score>) -> Self {
        let mut cells = scores.iter().flat_map(|score| &score.cells);
        let kept = cells.all(|cell| matches!(cell.verdict, Verdict::Kept | Verdict::Skipped));
        Self {
            version: VERSION,
            tool,
            circumstances,
            kept,
            scores,
        }
    }
}

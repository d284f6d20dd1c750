//! A workload as a line of text: the actions of a program on its store, step by step.

use std::fmt;
use std::str::FromStr;

/// One action of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// `a2:40` appends two events of 40 letters each.
    Append {
        /// The number of events.
        events: u8,
        /// The length of each event.
        letters: u16,
    },
    /// `h200` saves a head of 200 letters and no events.
    Head(u16),
    /// `u1` returns to the save before the newest.
    Undo(u8),
    /// `p` saves a phase.
    Phase,
    /// `r` closes the store and opens it again.
    Reopen,
    /// `l` loads without a lock.
    Load,
    /// `b` stores a blob.
    Blob,
    /// `g` loads every save to which the writer can return.
    LookBack,
    /// `V` verifies the whole store.
    Verify,
    /// `k` closes the store and removes the files that retention may remove.
    Clean,
    /// `c` makes the open writer remove the files that retention may remove.
    CleanOpen,
    /// `F` forks a new store from the newest save.
    Fork,
    /// `f100` fills the disk; 100 bytes stay free.
    Full(u16),
    /// `e` frees the disk again.
    Room,
    /// `x` removes the newest journal while the writer has it open.
    LoseJournal,
    /// `X` removes the whole directory while the writer has it open.
    LoseAll,
    /// `v40` saves a value of 40 letters with a `Store`; such a workload has no other saves.
    Value(u16),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Append { events, letters } => write!(f, "a{events}:{letters}"),
            Self::Head(letters) => write!(f, "h{letters}"),
            Self::Undo(back) => write!(f, "u{back}"),
            Self::Phase => f.write_str("p"),
            Self::Reopen => f.write_str("r"),
            Self::Load => f.write_str("l"),
            Self::Blob => f.write_str("b"),
            Self::LookBack => f.write_str("g"),
            Self::Verify => f.write_str("V"),
            Self::Clean => f.write_str("k"),
            Self::CleanOpen => f.write_str("c"),
            Self::Fork => f.write_str("F"),
            Self::Full(room) => write!(f, "f{room}"),
            Self::Room => f.write_str("e"),
            Self::LoseJournal => f.write_str("x"),
            Self::LoseAll => f.write_str("X"),
            Self::Value(letters) => write!(f, "v{letters}"),
        }
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = |_| format!("`{text}` is not a step");
        let (kind, rest) = text.split_at_checked(1).ok_or("the step is empty")?;
        Ok(match kind {
            "a" => {
                let (events, letters) =
                    rest.split_once(':').ok_or(format!("`{text}` has no `:`"))?;
                let (events, letters) =
                    (events.parse().map_err(bad)?, letters.parse().map_err(bad)?);
                Self::Append { events, letters }
            }
            "h" => Self::Head(rest.parse().map_err(bad)?),
            "u" => Self::Undo(rest.parse().map_err(bad)?),
            "p" => Self::Phase,
            "r" => Self::Reopen,
            "l" => Self::Load,
            "b" => Self::Blob,
            "g" => Self::LookBack,
            "V" => Self::Verify,
            "k" => Self::Clean,
            "c" => Self::CleanOpen,
            "F" => Self::Fork,
            "f" => Self::Full(rest.parse().map_err(bad)?),
            "e" => Self::Room,
            "x" => Self::LoseJournal,
            "X" => Self::LoseAll,
            "v" => Self::Value(rest.parse().map_err(bad)?),
            _ => return Err(format!("`{text}` is not a step")),
        })
    }
}

/// The steps of a program, and the disk on which it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// Number of bytes that a power cut keeps or loses together.
    pub sector: usize,
    /// Number of bytes by which a journal grows ahead of its saves; 0 switches this off.
    pub ahead: u64,
    /// The seed for the random choices of the layer, and for the program's steps after a crash.
    pub seed: u64,
    /// The steps of the program.
    pub steps: Vec<Step>,
}

impl Workload {
    /// Returns whether the workload uses a `Store`, not a `Writer`.
    pub fn is_store(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Value(_)))
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/", self.sector, self.ahead, self.seed)?;
        let steps: Vec<String> = self.steps.iter().map(Step::to_string).collect();
        f.write_str(&steps.join(","))
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.splitn(4, '/');
        let mut number = |what: &str| {
            let number = parts.next().and_then(|part| part.parse::<u64>().ok());
            number.ok_or_else(|| format!("`{text}` has no {what}"))
        };
        let (sector, ahead, seed) = (number("sector")?, number("reserved room")?, number("seed")?);
        let steps = parts
            .next()
            .unwrap_or_default()
            .split(',')
            .filter(|step| !step.is_empty());
        Ok(Self {
            sector: usize::try_from(sector)
                .ok()
                .filter(|&sector| sector > 0)
                .ok_or("a sector must have at least one byte")?,
            ahead,
            seed,
            steps: steps.map(str::parse).collect::<Result<_, _>>()?,
        })
    }
}

//! A workload as a line of text: what a program does with its store, step by step.

use std::fmt;
use std::str::FromStr;

/// One thing that a program does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// `a2:40` appends two events of 40 letters each.
    Append {
        /// How many.
        events: u8,
        /// How long each is.
        letters: u16,
    },
    /// `h200` saves a head of 200 letters and no events.
    Head(u16),
    /// `u1` returns to the save before the newest.
    Undo(u8),
    /// `p` seals a phase.
    Phase,
    /// `r` closes and opens again.
    Reopen,
    /// `l` loads without a lock.
    Load,
    /// `b` stores a blob.
    Blob,
    /// `g` loads every save that can be returned to.
    LookBack,
    /// `V` verifies the whole store.
    Verify,
    /// `k` closes the store and removes all that retention may remove.
    Clean,
    /// `c` has the writer that is open remove all that retention may remove.
    CleanOpen,
    /// `F` makes a store of its own from the newest save.
    Fork,
    /// `f100` fills the disk up to 100 bytes.
    Full(u16),
    /// `e` makes room again.
    Room,
    /// `x` removes the newest journal behind the writer's back.
    LoseJournal,
    /// `X` removes the whole directory behind the writer's back.
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
        let bad = |_| format!("`{text}` is no step");
        let (kind, rest) = text.split_at_checked(1).ok_or("a step is empty")?;
        Ok(match kind {
            "a" => {
                let (events, letters) = rest
                    .split_once(':')
                    .ok_or(format!("`{text}` lacks a `:`"))?;
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
            _ => return Err(format!("`{text}` is no step")),
        })
    }
}

/// Steps, and the disk that they run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// Bytes that a power cut keeps or loses together.
    pub sector: usize,
    /// By how many bytes a journal grows ahead of its saves; 0 for not.
    pub ahead: u64,
    /// What the layer draws its choices from, and how the program goes on after a crash.
    pub seed: u64,
    /// What the program does.
    pub steps: Vec<Step>,
}

impl Workload {
    /// Tells whether it uses a `Store` and not a `Writer`.
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
            number.ok_or_else(|| format!("`{text}` lacks the {what}"))
        };
        let (sector, ahead, seed) = (number("sector")?, number("room ahead")?, number("seed")?);
        let steps = parts
            .next()
            .unwrap_or_default()
            .split(',')
            .filter(|step| !step.is_empty());
        Ok(Self {
            sector: usize::try_from(sector)
                .ok()
                .filter(|&sector| sector > 0)
                .ok_or("a sector needs bytes")?,
            ahead,
            seed,
            steps: steps.map(str::parse).collect::<Result<_, _>>()?,
        })
    }
}

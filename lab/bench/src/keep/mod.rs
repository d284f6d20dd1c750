//! The ways to save a transcript on disk that the store benches compare.

mod floor;
mod keeper;
mod ours;
mod python;
#[cfg(feature = "sqlite")]
mod rows;
mod whole;

use std::path::Path;

use crate::harness::{Result, Role};
use crate::transcript::Delta;

use floor::{Append, Overwrite};
pub(crate) use keeper::Keeper;
pub(crate) use ours::Ours;
use python::Python;
#[cfg(feature = "sqlite")]
use rows::Rows;
use whole::Whole;

/// One way to save: its name, its role, and the function that begins it in an empty directory with a transcript.
pub(crate) struct Way {
    pub(crate) name: &'static str,
    pub(crate) role: Role,
    pub(crate) begin: Begin,
}

type Begin = fn(&Path, &[Delta]) -> Result<Box<dyn Keeper>>;

pub(crate) const OURS: Way = Way {
    name: "checkpoint-store",
    role: Role::Ours,
    begin: |dir, base| Ok(Box::new(Ours::begin(dir, base)?)),
};
pub(crate) const APPEND: Way = Way {
    name: "append + fdatasync",
    role: Role::Floor,
    begin: |dir, base| Ok(Box::new(Append::begin(dir, base)?)),
};
pub(crate) const OVERWRITE: Way = Way {
    name: "overwrite + fdatasync",
    role: Role::Floor,
    begin: |dir, base| Ok(Box::new(Overwrite::begin(dir, base)?)),
};
pub(crate) const WHOLE: Way = Way {
    name: "whole CBOR + rename",
    role: Role::Peer,
    begin: |dir, base| Ok(Box::new(Whole::begin(dir, base)?)),
};
pub(crate) const JSON_GZIP: Way = Way {
    name: "Python json.gz + rename",
    role: Role::Peer,
    begin: |dir, base| Ok(Box::new(Python::begin(python::JSON_GZIP, dir, base)?)),
};
pub(crate) const LANGGRAPH: Way = Way {
    name: "LangGraph SqliteSaver",
    role: Role::Peer,
    begin: |dir, base| Ok(Box::new(Python::begin(python::LANGGRAPH, dir, base)?)),
};
pub(crate) const ROWS: Way = Way {
    name: "SQLite rows, WAL FULL",
    role: Role::Peer,
    #[cfg(feature = "sqlite")]
    begin: |dir, base| Ok(Box::new(Rows::begin(dir, base)?)),
    #[cfg(not(feature = "sqlite"))]
    begin: |_, _| Err(NO_SQLITE.into()),
};

#[cfg(not(feature = "sqlite"))]
const NO_SQLITE: &str = "built without the feature `sqlite`";

/// Returns the number of events that a resume from SQLite's rows loads.
pub(crate) fn load_rows(dir: &Path) -> Result<usize> {
    #[cfg(feature = "sqlite")]
    return Rows::load(dir);
    #[cfg(not(feature = "sqlite"))]
    return Err(format!("{}: {NO_SQLITE}", dir.display()).into());
}

//! How a store is opened: schema, versions and strictness, with the defaults.

use crate::migrate::Migrations;

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// Names the kind of value. A store that holds another kind is refused. Default: empty.
    pub schema: String,
    /// Version of that kind. A writer refuses a store with a newer one. Default: 1.
    pub schema_version: u32,
    /// The oldest version whose programs may still read what this one writes; they ignore
    /// what they do not know. None may write: they would drop it. Default: 0, which stands
    /// for `schema_version`.
    pub min_reader_version: u32,
    /// What makes values of older versions into those of `schema_version`. Without a step
    /// they are read as they are, so new fields need `#[serde(default)]`. Default: none.
    pub migrations: Migrations,
    /// Makes damage an error instead of going on from the good state before it.
    /// Default: false.
    pub strict: bool,
    /// Creates the directory, and those above it, if it is missing. Default: true.
    pub create: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            schema: String::new(),
            schema_version: 1,
            min_reader_version: 0,
            migrations: Migrations::default(),
            strict: false,
            create: true,
        }
    }
}

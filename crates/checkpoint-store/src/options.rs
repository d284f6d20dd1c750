/// How a store is opened for writing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Names the kind of value. A store that holds another kind is refused. Default: empty.
    pub schema: String,
    /// Version of that kind. A store with a newer one is refused; one with an older
    /// version is read as it is, so new fields need `#[serde(default)]`. Default: 1.
    pub schema_version: u32,
    /// Creates the directory, and those above it, if it is missing. Default: true.
    pub create: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            schema: String::new(),
            schema_version: 1,
            create: true,
        }
    }
}

//! The error of `mcp`, apart from the crate's: it names servers and variables and never a value, which may be a secret.

/// Says what is wrong with the description of an MCP server, and what to do about it. It holds no value of one.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(#[from] Kind);

#[derive(Debug, thiserror::Error)]
pub(super) enum Kind {
    #[error(
        "`{}` is no name of an MCP server: use 1 to 64 letters, digits, `_` or `-`",
        .name.escape_debug()
    )]
    Name { name: String },
    #[error("MCP server `{server}`: {what}")]
    Server { server: String, what: String },
    #[error(
        "MCP server `{server}` needs the environment variable `{variable}` for {place}, which is not set: set it, or write \
         `${{{variable}:-DEFAULT}}`"
    )]
    Missing {
        server: String,
        variable: String,
        place: String,
    },
    #[error(
        "line {line}: {what}; it should look like {{\"mcpServers\": {{\"NAME\": {{\"command\": \"…\"}}}}}}"
    )]
    File { line: usize, what: String },
    #[error("at most {limit} MCP servers can be handed on: name fewer")]
    TooMany { limit: usize },
    #[error("the description of the MCP servers is larger than {limit} bytes: shorten it")]
    TooLarge { limit: usize },
}

impl Error {
    /// Returns the name of the environment variable that is not set, if that is what is wrong.
    pub fn missing_variable(&self) -> Option<&str> {
        match &self.0 {
            Kind::Missing { variable, .. } => Some(variable),
            _ => None,
        }
    }
}

//! MCP servers that drivers give to their agents: a program to start or a URL, by name and in order.
//!
//! The texts can contain `${VARIABLE}` and `${VARIABLE:-default}`. A driver expands them only when it starts an agent, so that the saved state of a
//! run names secrets but does not contain them. [`Debug`](std::fmt::Debug) shows no value: it shows the number of arguments, the names of variables
//! and headers, and the host of a URL.
//!
//! # Limits
//! At most 64 servers and 1 MiB of text.
//!
//! # Examples
//! ```
//! use agent_drivers::mcp::{McpServer, McpServers};
//!
//! let project = McpServers::from_json(r#"{"mcpServers": {"docs": {"type": "http", "url": "http://localhost:8000"}}}"#)?;
//! let mut servers = McpServers::default();
//! let tracker = McpServer::stdio("tracker-mcp").env("TRACKER_TOKEN", "${TRACKER_TOKEN}");
//! servers.insert("tracker", tracker)?;
//! // If both lists have a name, the server of `servers` is used.
//! let servers = servers.merged_over(project);
//! assert_eq!(servers.names().collect::<Vec<_>>(), ["docs", "tracker"]);
//! # Ok::<(), agent_drivers::mcp::Error>(())
//! ```

mod server;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};

pub use server::McpServer;

/// The largest number of servers for one agent.
const SERVERS: usize = 64;
/// The largest description of all servers, in bytes.
const TEXT: usize = 1 << 20;

/// MCP servers by name, in the order of insertion.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct McpServers(Vec<(String, McpServer)>);

impl McpServers {
    /// Reads the servers of a file in the format of a project's `.mcp.json`: an object whose `mcpServers` has one member per server. A server without
    /// `type` is a program, or an HTTP server if it has a URL.
    ///
    /// # Errors
    /// When the format is wrong or the description of a server is invalid. The error contains no value.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        #[derive(serde::Deserialize)]
        #[serde(expecting = "an object with `mcpServers`")]
        struct File {
            #[serde(rename = "mcpServers")]
            servers: McpServers,
        }
        if text.len() > TEXT {
            return Err(ErrorKind::TooLarge { limit: TEXT }.into());
        }
        let file = serde_json::from_str::<File>(text.trim_start_matches('\u{feff}'));
        file.map(|file| file.servers).map_err(|e| {
            let (line, what) = (e.line(), without_value(&e.to_string()));
            let place = format!(" at line {line} column {}", e.column());
            let what = what.trim_end_matches(&place).to_owned();
            ErrorKind::File { line, what }.into()
        })
    }

    /// Adds a server, or replaces the server of the same name in its position.
    ///
    /// # Errors
    /// When the name is not 1 to 64 letters, digits, `_` and `-`, the description of the server is invalid, or there are too many servers.
    pub fn insert(&mut self, name: impl Into<String>, server: McpServer) -> Result<(), Error> {
        let name = name.into();
        let is_good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_good) {
            return Err(ErrorKind::Name { name }.into());
        }
        server.check(&name)?;
        match self.0.iter().position(|(known, _)| *known == name) {
            Some(n) => self.0[n].1 = server,
            None if self.0.len() == SERVERS => {
                return Err(ErrorKind::TooMany { limit: SERVERS }.into());
            }
            None => self.0.push((name, server)),
        }
        Ok(())
    }

    /// Merges these servers over those of a file: a server replaces the file's server of the same name; the others follow at the end.
    #[must_use]
    pub fn merged_over(self, mut file: Self) -> Self {
        for (name, server) in self.0 {
            match file.0.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => *known = server,
                None => file.0.push((name, server)),
            }
        }
        file
    }

    /// Whether there are no servers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the servers with their names, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &McpServer)> {
        self.0.iter().map(|(name, server)| (name.as_str(), server))
    }

    /// Expands `${VARIABLE}` in all texts. A driver does this when it starts an agent; an earlier call reports missing variables early.
    ///
    /// # Errors
    /// [`Error::missing_variable`] names the variable that is not set.
    pub fn expanded(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        if self.0.len() > SERVERS {
            return Err(ErrorKind::TooMany { limit: SERVERS }.into());
        }
        let expand = |(name, server): &(String, McpServer)| {
            let server = server.expanded(name, &variable)?;
            server.check(name)?;
            Ok((name.clone(), server))
        };
        self.0
            .iter()
            .map(expand)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Returns these servers without their values, so that they can be shown: `…` replaces each argument, each value of a variable or header, and
    /// the part of a URL after its host.
    #[doc(hidden)] // only `rlm` shows them
    #[must_use]
    pub fn without_values(mut self) -> Self {
        self.0
            .iter_mut()
            .for_each(|(_, server)| server.redact_values());
        self
    }

    /// Returns the content of a file in the format of `.mcp.json`.
    ///
    /// # Errors
    /// When the file would be larger than 1 MiB.
    pub fn to_json(&self) -> Result<String, Error> {
        #[derive(serde::Serialize)]
        struct File<'a> {
            #[serde(rename = "mcpServers")]
            servers: &'a McpServers,
        }
        let json = serde_json::to_string(&File { servers: self });
        let json = json.expect("server descriptions are valid JSON");
        match json.len() > TEXT {
            true => Err(ErrorKind::TooLarge { limit: TEXT }.into()),
            false => Ok(json),
        }
    }
}

/// Removes the value from serde's error about a wrong type: the value can be a secret in the wrong place.
#[doc(hidden)] // only `rlm` reads a configuration file
#[must_use]
pub fn without_value(message: &str) -> String {
    const MARKS: [&str; 2] = ["invalid type: ", "invalid value: "];
    const KINDS: [&str; 6] = [
        "string",
        "integer",
        "boolean",
        "floating point",
        "character",
        "byte array",
    ];
    let found = MARKS
        .iter()
        .find_map(|mark| Some(message.find(mark)? + mark.len()));
    let Some(start) = found else {
        return message.to_owned();
    };
    let rest = &message[start..];
    let kind = KINDS.iter().find(|kind| rest.starts_with(**kind));
    match (kind, rest.rfind(", expected ")) {
        (Some(kind), Some(end)) => format!("{}{kind}{}", &message[..start], &rest[end..]),
        _ => message.to_owned(),
    }
}

impl fmt::Debug for McpServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl Serialize for McpServers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for McpServers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Map;
        impl<'de> Visitor<'de> for Map {
            type Value = McpServers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("MCP servers by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<McpServers, A::Error> {
                let mut servers = McpServers::default();
                while let Some((name, server)) = map.next_entry::<String, McpServer>()? {
                    if servers.names().any(|known| known == name) {
                        return Err(de::Error::custom(format!("two servers are named `{name}`")));
                    }
                    servers.insert(name, server).map_err(de::Error::custom)?;
                }
                Ok(servers)
            }
        }
        deserializer.deserialize_map(Map)
    }
}

/// An error in the description of an MCP server, with the fix. It contains no value of the description.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(#[from] ErrorKind);

#[derive(Debug, thiserror::Error)]
enum ErrorKind {
    #[error(
        "`{}` is not an MCP server name: use 1 to 64 letters, digits, `_` or `-`",
        .name.escape_debug()
    )]
    Name { name: String },
    #[error("MCP server `{server}`: {what}")]
    Server { server: String, what: String },
    #[error(
        "MCP server `{server}` needs the environment variable `{variable}` for {place}, but it is not set: set it, or write \
         `${{{variable}:-DEFAULT}}`"
    )]
    Missing {
        server: String,
        variable: String,
        place: String,
    },
    #[error(
        "line {line}: {what}; the format is {{\"mcpServers\": {{\"NAME\": {{\"command\": \"…\"}}}}}}"
    )]
    File { line: usize, what: String },
    #[error("more than {limit} MCP servers: remove some")]
    TooMany { limit: usize },
    #[error("the description of the MCP servers is larger than {limit} bytes: shorten it")]
    TooLarge { limit: usize },
}

impl Error {
    /// Returns the name of the environment variable that is not set, if that is the error.
    pub fn missing_variable(&self) -> Option<&str> {
        match &self.0 {
            ErrorKind::Missing { variable, .. } => Some(variable),
            _ => None,
        }
    }
}

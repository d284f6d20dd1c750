//! MCP servers as drivers hand them to their agents: what to start or where to reach it, by name and in order.
//!
//! The texts may hold `${VARIABLE}` and `${VARIABLE:-default}`, which are filled in when an agent is started and not before,
//! so that what is kept of a run names secrets and does not hold them. [`Debug`](std::fmt::Debug) shows no value either:
//! arguments are counted, of variables and headers there are the names, and of an address there is the host.
//!
//! # Limits
//! 64 servers, 1 MiB of text.
//!
//! # Examples
//! ```
//! use agent_drivers::mcp::{McpServer, McpServers};
//!
//! let project = McpServers::from_json(r#"{"mcpServers": {"docs": {"type": "http", "url": "http://localhost:8000"}}}"#)?;
//! let mut servers = McpServers::default();
//! let tracker = McpServer::stdio("tracker-mcp").env("TRACKER_TOKEN", "${TRACKER_TOKEN}");
//! servers.insert("tracker", tracker)?;
//! // Where both have a name, that of `servers` counts.
//! let servers = servers.over(project);
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

/// How many servers an agent may be handed.
const SERVERS: usize = 64;
/// How large their description may be.
const TEXT: usize = 1 << 20;

/// MCP servers by name, in the order in which they were named.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct McpServers(Vec<(String, McpServer)>);

impl McpServers {
    /// Reads the servers of a file in the shape of a project's `.mcp.json`: an object whose `mcpServers` has a member a
    /// server. One without `type` is a program, or at a URL one that speaks HTTP.
    ///
    /// # Errors
    /// When it is no such file, or a server is not described well. No value stands in the error.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        #[derive(serde::Deserialize)]
        #[serde(expecting = "an object with `mcpServers`")]
        struct File {
            #[serde(rename = "mcpServers")]
            servers: McpServers,
        }
        if text.len() > TEXT {
            return Err(Kind::TooLarge { limit: TEXT }.into());
        }
        let file = serde_json::from_str::<File>(text.trim_start_matches('\u{feff}'));
        file.map(|file| file.servers).map_err(|e| {
            let (line, what) = (e.line(), without_value(&e.to_string()));
            let place = format!(" at line {line} column {}", e.column());
            let what = what.trim_end_matches(&place).to_owned();
            Kind::File { line, what }.into()
        })
    }

    /// Adds a server, or replaces the one of that name where it stands.
    ///
    /// # Errors
    /// When the name is not 1 to 64 letters, digits, `_` and `-`, the server is not described well, or there are too many.
    pub fn insert(&mut self, name: impl Into<String>, server: McpServer) -> Result<(), Error> {
        let name = name.into();
        let is_good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_good) {
            return Err(Kind::Name { name }.into());
        }
        server.check(&name)?;
        match self.0.iter().position(|(known, _)| *known == name) {
            Some(n) => self.0[n].1 = server,
            None if self.0.len() == SERVERS => {
                return Err(Kind::TooMany { limit: SERVERS }.into());
            }
            None => self.0.push((name, server)),
        }
        Ok(())
    }

    /// Puts these over those of a file: a server of the same name takes the place of the file's, the others follow it.
    #[must_use]
    pub fn over(self, mut file: Self) -> Self {
        for (name, server) in self.0 {
            match file.0.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => *known = server,
                None => file.0.push((name, server)),
            }
        }
        file
    }

    /// Tells whether there are none.
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

    /// Fills in what `${VARIABLE}` stands for. A driver does it when an agent is started; done before, it tells early what
    /// would be missing then.
    ///
    /// # Errors
    /// [`Error::missing_variable`] names the variable that is not set.
    pub fn expanded(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        if self.0.len() > SERVERS {
            return Err(Kind::TooMany { limit: SERVERS }.into());
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

    /// Returns these servers as they may be shown to anybody: `…` stands for each argument and for each value of a variable or
    /// a header, and for what of an address comes behind its host.
    #[must_use]
    pub fn without_values(mut self) -> Self {
        self.0
            .iter_mut()
            .for_each(|(_, server)| server.hide_values());
        self
    }

    /// Returns the content of a file in the shape of `.mcp.json`.
    ///
    /// # Errors
    /// When it would be larger than 1 MiB.
    pub fn to_json(&self) -> Result<String, Error> {
        #[derive(serde::Serialize)]
        struct File<'a> {
            #[serde(rename = "mcpServers")]
            servers: &'a McpServers,
        }
        let json = serde_json::to_string(&File { servers: self });
        let json = json.expect("names and texts make JSON");
        match json.len() > TEXT {
            true => Err(Kind::TooLarge { limit: TEXT }.into()),
            false => Ok(json),
        }
    }
}

/// Takes the value out of what serde says about one of a wrong type: it may be a secret in the wrong place.
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

/// Says what is wrong with the description of an MCP server, and what to do about it. It holds no value of one.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(#[from] Kind);

#[derive(Debug, thiserror::Error)]
enum Kind {
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

//! One MCP server: a program that the agent starts, or a URL to which it connects.

use super::{Error, ErrorKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The way in which an agent reaches an MCP server.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", try_from = "Flat")]
#[non_exhaustive]
pub enum McpServer {
    /// A program that the agent starts, and with which it communicates over standard input and output.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        args: Vec<String>,
        /// Variables of its environment.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        env: BTreeMap<String, String>,
    },
    /// A server that speaks HTTP.
    Http {
        /// Its URL.
        url: String,
        /// The headers of each request.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        headers: BTreeMap<String, String>,
    },
    /// A server that sends events over HTTP (SSE), the older transport.
    Sse {
        /// Its URL.
        url: String,
        /// The headers of each request.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        headers: BTreeMap<String, String>,
    },
}

/// A server as the file describes it; each key is optional.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a server with `command` or `url`")]
struct Flat {
    r#type: Option<Type>,
    command: Option<String>,
    args: Option<Vec<String>>,
    env: Option<BTreeMap<String, String>>,
    url: Option<String>,
    headers: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Type {
    Stdio,
    Http,
    Sse,
}

impl TryFrom<Flat> for McpServer {
    type Error = &'static str;

    fn try_from(flat: Flat) -> Result<Self, Self::Error> {
        let by_url = flat.r#type.is_none() && flat.url.is_some() && flat.command.is_none();
        let assumed = if by_url { Type::Http } else { Type::Stdio };
        let headers = flat.headers;
        match (flat.r#type.unwrap_or(assumed), flat.command, flat.url) {
            (Type::Stdio, Some(command), None) if headers.is_none() => Ok(Self::Stdio {
                command,
                args: flat.args.unwrap_or_default(),
                env: flat.env.unwrap_or_default(),
            }),
            (Type::Stdio, ..) => {
                Err("a server of type stdio has `command`, `args` and `env`, and nothing else")
            }
            (kind, None, Some(url)) if flat.args.is_none() && flat.env.is_none() => {
                let headers = headers.unwrap_or_default();
                Ok(match kind {
                    Type::Sse => Self::Sse { url, headers },
                    _ => Self::Http { url, headers },
                })
            }
            _ => Err("a server of type http or sse has `url` and `headers`, and nothing else"),
        }
    }
}

impl McpServer {
    /// Describes a program.
    pub fn stdio(command: impl Into<String>) -> Self {
        Self::Stdio {
            command: command.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
        }
    }

    /// Describes a server that speaks HTTP.
    pub fn http(url: impl Into<String>) -> Self {
        Self::Http {
            url: url.into(),
            headers: BTreeMap::new(),
        }
    }

    /// Describes a server that sends events over HTTP.
    pub fn sse(url: impl Into<String>) -> Self {
        Self::Sse {
            url: url.into(),
            headers: BTreeMap::new(),
        }
    }

    /// Adds an argument. Does nothing to a server at a URL.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        if let Self::Stdio { args, .. } = &mut self {
            args.push(arg.into());
        }
        self
    }

    /// Sets a variable of a program's environment. Does nothing to a server at a URL.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let Self::Stdio { env, .. } = &mut self {
            env.insert(name.into(), value.into());
        }
        self
    }

    /// Sets a header of each request. Does nothing to a program.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let Self::Http { headers, .. } | Self::Sse { headers, .. } = &mut self {
            headers.insert(name.into(), value.into());
        }
        self
    }

    /// Refuses a description that no agent could use, or that an agent would misread.
    pub(super) fn check(&self, server: &str) -> Result<(), Error> {
        let refuse = |what: String| {
            let server = server.to_owned();
            Err(ErrorKind::Server { server, what }.into())
        };
        let has_control = |text: &String| text.chars().any(char::is_control);
        match self {
            Self::Stdio { command, args, env } => {
                let bad = |name: &&String| name.is_empty() || name.contains(['=', '\0']);
                if command.trim().is_empty() {
                    return refuse("its command is empty; name the program to start".to_owned());
                } else if [command]
                    .into_iter()
                    .chain(args)
                    .chain(env.values())
                    .any(|t| t.contains('\0'))
                {
                    return refuse("its description contains a NUL byte; remove it".to_owned());
                } else if let Some(name) = env.keys().find(bad) {
                    let name = name.escape_debug();
                    return refuse(format!("`{name}` is not a variable name; correct it"));
                }
            }
            Self::Http { url, headers } | Self::Sse { url, headers } => {
                let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
                let bad = |name: &&String| name.is_empty() || !name.chars().all(is_token);
                let is_url = ["http://", "https://", "${"]
                    .iter()
                    .any(|begin| url.starts_with(begin));
                if !is_url || url.contains(char::is_whitespace) || has_control(url) {
                    return refuse(
                        "its url must begin with http:// or https:// and contain no spaces"
                            .to_owned(),
                    );
                } else if let Some(name) = headers.keys().find(bad) {
                    let name = name.escape_debug();
                    return refuse(format!("`{name}` is not a header name; correct it"));
                } else if let Some((name, _)) = headers.iter().find(|(_, value)| has_control(value))
                {
                    return refuse(format!(
                        "the header `{name}` contains a control character; remove it"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Returns whether a text of the server contains `${variable}`, perhaps with a default.
    #[cfg(feature = "api")]
    pub(crate) fn names(&self, variable: &str) -> bool {
        let references = [format!("${{{variable}}}"), format!("${{{variable}:-")];
        let names = |text: &String| references.iter().any(|it| text.contains(it));
        match self {
            Self::Stdio { command, args, env } => {
                names(command) || args.iter().chain(env.values()).any(names)
            }
            Self::Http { url, headers } | Self::Sse { url, headers } => {
                names(url) || headers.values().any(names)
            }
        }
    }

    pub(super) fn redact_values(&mut self) {
        let hide = |text: &mut String| "…".clone_into(text);
        match self {
            Self::Stdio { args, env, .. } => args.iter_mut().chain(env.values_mut()).for_each(hide),
            Self::Http { url, headers } | Self::Sse { url, headers } => {
                *url = place(url);
                headers.values_mut().for_each(hide);
            }
        }
    }

    pub(super) fn expanded(
        &self,
        server: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Error> {
        let fill = |text: &String, place: &dyn Fn() -> String| {
            expand(text, &variable).map_err(|variable| {
                let (server, place) = (server.to_owned(), place());
                Error::from(ErrorKind::Missing {
                    server,
                    variable,
                    place,
                })
            })
        };
        let fill_all = |map: &BTreeMap<String, String>, what: &str| {
            map.iter()
                .map(|(name, value)| {
                    let value = fill(value, &|| format!("{what} `{name}`"))?;
                    Ok::<_, Error>((name.clone(), value))
                })
                .collect::<Result<BTreeMap<_, _>, _>>()
        };
        Ok(match self {
            Self::Stdio { command, args, env } => Self::Stdio {
                command: fill(command, &|| "its command".to_owned())?,
                args: { args.iter() }
                    .map(|arg| fill(arg, &|| "an argument".to_owned()))
                    .collect::<Result<_, _>>()?,
                env: fill_all(env, "its variable")?,
            },
            Self::Http { url, headers } => Self::Http {
                url: fill(url, &|| "its url".to_owned())?,
                headers: fill_all(headers, "its header")?,
            },
            Self::Sse { url, headers } => Self::Sse {
                url: fill(url, &|| "its url".to_owned())?,
                headers: fill_all(headers, "its header")?,
            },
        })
    }
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |map: &BTreeMap<String, String>| map.keys().cloned().collect::<Vec<_>>();
        match self {
            Self::Stdio { command, args, env } => f
                .debug_struct("Stdio")
                .field("command", command)
                .field("args", &args.len())
                .field("env", &names(env))
                .finish(),
            Self::Http { url, headers } | Self::Sse { url, headers } => {
                let name = match self {
                    Self::Http { .. } => "Http",
                    _ => "Sse",
                };
                f.debug_struct(name)
                    .field("url", &place(url))
                    .field("headers", &names(headers))
                    .finish()
            }
        }
    }
}

/// Returns a URL without its possible secrets: the user, and everything after the host. Some services put the user's secret into the path.
fn place(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (host, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = host.rsplit('@').next().unwrap_or_default();
    let mark = if scheme.is_empty() { "" } else { "://" };
    let path = if matches!(path, "" | "/") {
        path
    } else {
        "/…"
    };
    format!("{scheme}{mark}{host}{path}")
}

/// Expands `${VARIABLE}` and `${VARIABLE:-default}` in one pass: a value is not expanded again. If the text between the braces is not a variable
/// name, it stays unchanged.
pub(super) fn expand(
    text: &str,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, behind) = rest.split_at(start);
        filled.push_str(before);
        let reference = behind[2..].split_once('}');
        let named = reference.and_then(|(inside, tail)| {
            let (name, default) = match inside.split_once(":-") {
                Some((name, default)) => (name, Some(default)),
                None => (inside, None),
            };
            is_variable(name).then_some((name, default, tail))
        });
        let Some((name, default, tail)) = named else {
            filled.push_str("${");
            rest = &behind[2..];
            continue;
        };
        let value = variable(name).filter(|value| default.is_none() || !value.is_empty());
        match value.or(default.map(str::to_owned)) {
            Some(value) => filled.push_str(&value),
            None => return Err(name.to_owned()),
        }
        rest = tail;
    }
    filled.push_str(rest);
    Ok(filled)
}

fn is_variable(text: &str) -> bool {
    let mut chars = text.chars();
    let first = chars
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    first && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

//! The environment of an agent: the inherited variables of the host, and the configured ones.

use crate::convert::no_descriptor;
use crate::host_variables;
use agent_duplex::Error;
use agent_subprocess::{ProcessContext, StdinMode, TreeCommand};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;

/// The longest line of an agent. A longer line would lose its middle and then can't be parsed. One line can hold a whole message twice.
const MAX_LINE: usize = 64 << 20;

/// The variables that every agent needs. A name that ends with `*` stands for all names that begin with the part before the `*`.
const REQUIRED_ENV: [&str; 23] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "XDG_*",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
];

/// The configured environment of an agent. `Debug` shows no values.
#[derive(Clone, Default)]
pub(crate) struct Environment {
    set: Vec<(OsString, OsString)>,
    /// The host's variables that the agent inherits; `None` means all.
    allowed: Option<Vec<String>>,
}

impl Environment {
    /// Makes an environment that sets the variables of `env`. The agent inherits the host's variables that `allowed` names; without a list, it
    /// inherits all.
    pub(crate) fn new(env: &BTreeMap<String, String>, allowed: Option<&[String]>) -> Self {
        let set = env.iter().map(|(name, value)| (name.into(), value.into()));
        Environment {
            set: set.collect(),
            allowed: allowed.map(<[String]>::to_vec),
        }
    }

    pub(crate) fn set(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) {
        self.set.push((name.into(), value.into()));
    }

    /// Refuses an empty variable name, and a name with `=` or NUL, because the system would misread it.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let mut names = self.set.iter().map(|(name, _)| name.to_string_lossy());
        match names.find(|name| name.is_empty() || name.contains(['=', '\0'])) {
            None => Ok(()),
            Some(name) => {
                let name = name.escape_debug();
                let what = format!("`{name}` is not a variable name: write one without `=`");
                Err(Error::start(what, None))
            }
        }
    }

    /// Begins the command of an agent. `program` is the program and its leading arguments. The agent inherits the allowed variables of the host and
    /// those that `more` names. The variables of the context replace inherited ones, and configured variables replace both.
    pub(crate) fn command(
        &self,
        program: &[OsString],
        more: &[&str],
        context: &ProcessContext,
    ) -> Result<TreeCommand, Error> {
        let Some((program, words)) = program.split_first() else {
            let what = "no agent given: name the program to run";
            return Err(Error::start(what, None));
        };
        let command = TreeCommand::new(program)
            .args(words)
            .stdin(StdinMode::Piped)
            .max_line(MAX_LINE);
        let command = self.inherit(command, more).context(context);
        let mut command = command.map_err(no_descriptor)?;
        for (name, value) in &self.set {
            command = command.env(name, value);
        }
        // If the path can't be made absolute, the agent can't start there either, and the spawn reports that.
        if let Ok(cwd) = std::path::absolute(&context.cwd) {
            command = command.env("PWD", cwd);
        }
        Ok(command)
    }

    fn inherit(&self, command: TreeCommand, more: &[&str]) -> TreeCommand {
        if self.allowed.is_none() {
            return host_variables::restored(command);
        }
        let inherited = host_variables::all().into_iter();
        let inherited = inherited.filter(|(name, _)| self.inherits(&name.to_string_lossy(), more));
        inherited.fold(command.env_clear(), |command, (name, value)| {
            command.env(name, value)
        })
    }

    /// Returns whether the agent inherits a variable of the host, if it is set. `more` names variables that this agent needs.
    fn inherits(&self, name: &str, more: &[&str]) -> bool {
        let Some(allowed) = &self.allowed else {
            return true;
        };
        let needed = REQUIRED_ENV.iter().chain(more).copied();
        let mut patterns = needed.chain(allowed.iter().map(String::as_str));
        patterns.any(|pattern| match pattern.strip_suffix('*') {
            Some(begin) => name.starts_with(begin),
            None => name == pattern,
        })
    }

    /// Looks up a variable for an MCP server. The variable need not be in the list of allowed variables, because the user named it explicitly. But an
    /// erased one, which holds the key of another agent, reaches the server only if this agent inherits it too.
    pub(crate) fn variable(
        &self,
        name: &str,
        more: &[&str],
        context: &ProcessContext,
    ) -> Option<String> {
        let is_excluded = || host_variables::is_erased(name) && !self.inherits(name, more);
        let inherited = || host_variables::value(name).filter(|_| !is_excluded());
        let configured = self.configured(name, context);
        configured.or_else(inherited)?.into_string().ok()
    }

    /// Looks up a variable that the agent doesn't inherit: a configured one, or one of the context.
    pub(crate) fn configured(&self, name: &str, context: &ProcessContext) -> Option<OsString> {
        let mut newest_first = { self.set.iter().rev() }.chain(context.env.iter().rev());
        let found = newest_first.find(|(known, _)| known == OsStr::new(name));
        found.map(|(_, value)| value.clone())
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.set.iter().map(|(name, _)| name).collect();
        f.debug_struct("Environment")
            .field("set", &names)
            .field("allowed", &self.allowed)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(environment: &Environment) -> Vec<String> {
        let mut context = ProcessContext::new(".", ".");
        context.env.push(("OURS".into(), "context".into()));
        let program = ["agent".into()];
        let command = environment.command(&program, &["CARGO_PKG_*"], &context);
        let command = command.unwrap();
        let names = command
            .env_names()
            .map(|name| name.to_string_lossy().into());
        names.collect()
    }

    #[test]
    fn p32a_required_and_named_variables_are_inherited() {
        let mut environment = Environment::default();
        environment.set("MINE", "1");
        assert_eq!(names(&environment), ["MINE", "OURS", "PWD"]);
        environment.allowed = Some(vec!["CARGO_MANIFEST_DIR".to_owned()]);
        let all = names(&environment);
        for name in [
            "PATH",
            "CARGO_PKG_NAME",
            "CARGO_MANIFEST_DIR",
            "OURS",
            "MINE",
        ] {
            assert!(all.iter().any(|known| known == name), "{name}: {all:?}");
        }
        assert!(!all.iter().any(|name| name == "CARGO"), "{all:?}");
    }

    #[test]
    fn p32a_p32c_last_value_wins_and_no_name_is_empty() {
        let mut context = ProcessContext::new(".", ".");
        context.env.push(("A".into(), "context".into()));
        let mut environment = Environment::default();
        assert_eq!(environment.variable("A", &[], &context).unwrap(), "context");
        environment.set("A", "1");
        environment.set("A", "2");
        assert_eq!(environment.variable("A", &[], &context).unwrap(), "2");
        environment.check().unwrap();
        for name in ["", "A=B", "A\0"] {
            let mut environment = environment.clone();
            environment.set(name, "hush");
            let error = environment.check().unwrap_err().to_string();
            assert!(error.contains("not a variable name"), "{error}");
            assert!(!error.contains("hush"));
        }
    }
}

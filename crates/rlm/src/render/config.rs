//! The settings and their sources.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use rlm_store::{Program, Project};
use rlm_terminal::style::{DIM, styled};
use rlm_text::escape::plain;
use serde_json::{Value, json};

use super::programs::{self, visible};
use crate::config::{self, EffectiveValue, Layers, SettingsGroup, ValueOrigin};

/// The maximum width of a value before the next column moves to the right.
const WIDE: usize = 40;

/// The effective settings, as TOML or with the source of each value.
#[derive(Debug)]
pub(crate) struct Configuration {
    groups: Vec<SettingsGroup>,
    /// The files that were searched, and whether they exist.
    files: Vec<(PathBuf, bool)>,
    /// The directory of the project's file.
    root: PathBuf,
    home: Option<PathBuf>,
    explain: bool,
    /// All programs that such a run starts; empty if they are shown elsewhere.
    programs: Vec<Program>,
}

impl Configuration {
    /// Returns the effective settings of these layers; `words` is the command after `--`.
    pub(crate) fn of(
        layers: &Layers,
        words: &[OsString],
        project: &Project,
        explain: bool,
    ) -> Self {
        let files = layers.files();
        Self {
            groups: config::groups(layers, words, project.directory()),
            files: files.map(|path| (path.clone(), path.exists())).collect(),
            root: project.root().to_owned(),
            home: std::env::var_os("HOME").map(PathBuf::from),
            explain,
            programs: Vec::new(),
        }
    }

    /// Adds the programs that such a run starts.
    pub(crate) fn with_programs(self, programs: Vec<Program>) -> Self {
        Self { programs, ..self }
    }

    fn place(&self, path: &Path) -> String {
        if let Ok(own) = path.strip_prefix(&self.root) {
            return own.display().to_string();
        }
        match self
            .home
            .as_ref()
            .and_then(|home| path.strip_prefix(home).ok())
        {
            Some(own) => format!("~/{}", own.display()),
            None => path.display().to_string(),
        }
    }

    fn origin(&self, origin: &ValueOrigin) -> String {
        match origin {
            ValueOrigin::Flag(name) => name.clone(),
            ValueOrigin::Variable(name) => (*name).to_owned(),
            ValueOrigin::File { path, line } => format!("{}:{line}", self.place(path)),
            ValueOrigin::Found => "found on PATH".into(),
            ValueOrigin::Default => "default".into(),
        }
    }

    fn explained(&self, f: &mut fmt::Formatter<'_>, group: &SettingsGroup) -> fmt::Result {
        let wide = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0).min(WIDE);
        let value = |row: &EffectiveValue| visible(row.value.to_string().trim_end());
        let keys = wide(&mut group.rows.iter().map(|row| row.key.chars().count()));
        let values = wide(&mut group.rows.iter().map(|row| value(row).chars().count()));
        for row in &group.rows {
            let (value, origin) = (value(row), self.origin(&row.origin));
            write!(
                f,
                "{:keys$}  {value:values$}  {}",
                plain(&row.key),
                plain(&origin)
            )?;
            let over = row.overridden.iter();
            let over: Vec<_> = over
                .map(|(value, origin)| format!("{value} ({})", self.origin(origin)))
                .collect();
            if !over.is_empty() {
                write!(
                    f,
                    "  {}",
                    styled(DIM, format!("overrides {}", plain(&over.join(", "))))
                )?;
            }
            writeln!(f)?;
        }
        match group.unset_keys.is_empty() {
            true => Ok(()),
            false => writeln!(
                f,
                "{}",
                styled(DIM, format!("not set: {}", group.unset_keys.join(", ")))
            ),
        }
    }

    /// Returns the settings as JSON.
    pub(crate) fn json(&self) -> Value {
        let origin = |origin: &ValueOrigin| match origin {
            ValueOrigin::Flag(name) => json!({"kind": "option", "name": name}),
            ValueOrigin::Variable(name) => json!({"kind": "environment", "name": name}),
            ValueOrigin::File { path, line } => {
                json!({"kind": "file", "path": path.to_string_lossy(), "line": line})
            }
            ValueOrigin::Found => json!({"kind": "found"}),
            ValueOrigin::Default => json!({"kind": "default"}),
        };
        let value = |value: &toml::Value| {
            serde_json::to_value(value).expect("a TOML value converts to JSON")
        };
        let settings = self.groups.iter().flat_map(|group| {
            group.rows.iter().map(move |row| {
                let over = row.overridden.iter();
                let over = over.map(|(it, from)| json!({"value": value(it), "from": origin(from)}));
                json!({
                    "phase": group.phase,
                    "key": row.key,
                    "value": value(&row.value),
                    "from": origin(&row.origin),
                    "overrides": over.collect::<Vec<_>>(),
                })
            })
        });
        let files = self
            .files
            .iter()
            .map(|(path, read)| json!({"path": path.to_string_lossy(), "read": read}));
        json!({
            "settings": settings.collect::<Vec<_>>(),
            "programs": self.programs,
            "files": files.collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, group) in self.groups.iter().enumerate() {
            if n > 0 {
                writeln!(f)?;
            }
            match (&group.phase, self.explain) {
                (Some(phase), true) => writeln!(f, "phase {phase}")?,
                (Some(phase), false) => writeln!(f, "[[phase]]\nname = \"{phase}\"")?,
                (None, _) => {}
            }
            if let Some(why) = &group.unknown_agent {
                writeln!(f, "# agent: {}", plain(why))?;
            }
            if self.explain {
                self.explained(f, group)?;
                continue;
            }
            for row in &group.rows {
                writeln!(
                    f,
                    "{} = {}",
                    row.key,
                    rlm_text::escape::safe(&row.value.to_string())
                )?;
            }
        }
        if !self.programs.is_empty() {
            writeln!(f, "\n{}", styled(DIM, "# programs that a run starts:"))?;
        }
        for line in programs::lines(&self.programs) {
            writeln!(f, "{}", styled(DIM, format!("# {line}")))?;
        }
        if self.explain {
            writeln!(f)?;
            for (path, read) in &self.files {
                let place = plain(&self.place(path));
                let read = if *read { "read" } else { "doesn't exist" };
                writeln!(f, "{}", styled(DIM, format!("{place}: {read}")))?;
            }
        }
        Ok(())
    }
}

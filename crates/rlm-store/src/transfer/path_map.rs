//! The paths in a run's settings, and their adaptation to another machine.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use agent_drivers::mcp::{McpServer, McpServers};

use crate::{PhaseSettings, PromptSource, Settings};

/// The mapping from the project's old place to its new one.
#[derive(Debug)]
pub(super) struct PathMap<'a> {
    /// The old and the new paths, the longer ones first.
    pub(super) pairs: Vec<(PathBuf, &'a Path)>,
}

impl PathMap<'_> {
    /// Returns the new path for an old one, if it was in the project.
    fn now(&self, path: &Path) -> Option<PathBuf> {
        if !path.is_absolute() {
            return None;
        }
        self.pairs.iter().find_map(|(old, new)| {
            let mut now = new.to_path_buf();
            let within = path.strip_prefix(old).ok()?;
            let leads_out = within.components().any(|it| it == Component::ParentDir);
            now.extend(within);
            (!leads_out).then_some(now)
        })
    }

    fn path(&self, path: &mut PathBuf) {
        if let Some(now) = self.now(path) {
            *path = now;
        }
    }

    fn word(&self, word: &mut OsString) {
        if let Some(now) = self.now(Path::new(&*word)) {
            *word = now.into();
        }
    }

    fn text(&self, text: &mut String) {
        let now = self.now(Path::new(&*text));
        if let Some(now) = now.as_deref().and_then(Path::to_str) {
            now.clone_into(text);
        }
    }

    /// Replaces all paths that are inside the old project.
    pub(super) fn relocate(&self, settings: &mut Settings) {
        self.path(&mut settings.directory);
        for phase in &mut settings.phases {
            self.phase(phase);
        }
    }

    fn phase(&self, phase: &mut PhaseSettings) {
        if let PromptSource::File(path) = &mut phase.prompt {
            self.path(path);
        }
        let agent = &mut phase.agent;
        let words = agent.program.iter_mut().chain(&mut agent.args);
        words.for_each(|word| self.word(word));
        let directories = agent.directories_mut().iter_mut();
        directories.for_each(|path| self.path(path));
        let mut servers = McpServers::default();
        for (name, server) in phase.mcp_servers.iter() {
            let mut server = server.clone();
            if let McpServer::Stdio { command, args, .. } = &mut server {
                self.text(command);
                args.iter_mut().for_each(|arg| self.text(arg));
            }
            // The server was valid before, and only its paths differ.
            if servers.insert(name, server).is_err() {
                return;
            }
        }
        phase.mcp_servers = servers;
    }
}

/// Names the files that the settings need and `is_there` does not find, with the fix.
pub(super) fn missing(settings: &Settings, is_there: impl Fn(&Path) -> bool) -> Vec<String> {
    let mut missing = Vec::new();
    let mut need = |path: &Path, what: &str, fix: &str| {
        let line = format!("not found here: {what} `{}`; {fix}", path.display());
        if path.as_os_str().as_bytes().contains(&b'/')
            && !is_there(path)
            && !missing.contains(&line)
        {
            missing.push(line);
        }
    };
    for phase in &settings.phases {
        if let PromptSource::File(path) = &phase.prompt {
            need(
                path,
                "the prompt file",
                "until then the run uses its last text",
            );
        }
        if let Some(program) = phase.agent.program.first() {
            need(
                Path::new(program),
                "the agent",
                "install it there, or choose another one with resume --agent-bin PATH",
            );
        }
        for path in phase.agent.directories() {
            need(path, "the agent's directory", "create it");
        }
        for (_, server) in phase.mcp_servers.iter() {
            if let McpServer::Stdio { command, .. } = server {
                need(Path::new(command), "the MCP server", "install it there");
            }
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_drivers::AgentConfig;

    #[test]
    fn x112j_project_paths_are_rewritten_and_others_named() {
        let argv = ["/old/agent.sh", "--in=/old", "/older/x"].map(OsString::from);
        let agent = AgentConfig::command(argv.into());
        let prompt = PromptSource::File("/old/PROMPT.md".into());
        let mut phase = PhaseSettings::new("main", prompt, agent);
        phase.required_checks = vec!["cat /old/x".into()];
        let mut settings = Settings::new("/old/.rlm/worktrees/r1/sub", vec![phase]);
        let (tree, root) = (Path::new("/new/tree"), Path::new("/new"));
        let places = PathMap {
            pairs: vec![
                ("/old/.rlm/worktrees/r1".into(), tree),
                ("/old".into(), root),
            ],
        };
        places.relocate(&mut settings);
        assert_eq!(settings.directory, Path::new("/new/tree/sub"));
        let phase = &settings.phases[0];
        assert_eq!(phase.prompt, PromptSource::File("/new/PROMPT.md".into()));
        let argv: [OsString; 3] = [
            "/new/agent.sh".into(),
            "--in=/old".into(),
            "/older/x".into(),
        ];
        assert_eq!(phase.agent.program, argv);
        let missing = missing(&settings, |path| path.ends_with("PROMPT.md"));
        assert_eq!(missing.len(), 1, "{missing:?}");
        assert!(
            missing[0].contains("not found here: the agent `/new/agent.sh`"),
            "{missing:?}"
        );
    }
}

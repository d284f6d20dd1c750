//! Reading the files of the configuration, and variables of the environment.

use std::io::Read as _;
use std::path::Path;

use agent_drivers::mcp::McpServers;
use rlm_store::state_dir;

use crate::exit::Failure;

pub(crate) const FILE_NAME: &str = "rlm.toml";
const MAX_MCP_BYTES: u64 = 1 << 20;

/// Reads a variable of the environment.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|text| text.to_string_lossy().into_owned())
}

/// Reads the MCP servers of a project.
pub(crate) fn read_mcp(path: &Path) -> Result<McpServers, Failure> {
    let shown = path.display();
    let Some(text) = content(path, MAX_MCP_BYTES)? else {
        let what =
            format!("`{shown}` is not there; write it, or take mcp-config out of {FILE_NAME}");
        return Err(Failure::usage(what));
    };
    McpServers::from_json(&text).map_err(|e| Failure::usage(format!("`{shown}`, {e}")))
}

/// Reads a whole file; `None` if there is none.
pub(super) fn content(path: &Path, most: u64) -> Result<Option<String>, Failure> {
    let refuse = |why: String| Err(Failure::usage(format!("`{}` {why}", path.display())));
    let file = match state_dir::open_named(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Ok(None) => return refuse("is not a file; move it away".into()),
        Ok(Some(file)) => Ok(file),
        Err(e) => Err(e),
    };
    let read = file.and_then(|file| {
        let bytes = file.metadata()?.len();
        let mut text = String::new();
        if bytes > most {
            return Ok((bytes, text));
        }
        let read = file.take(most + 1).read_to_string(&mut text)?;
        Ok((read as u64, text))
    });
    match read {
        Ok((bytes, _)) if bytes > most => {
            refuse(format!("has {bytes} bytes; at most {most} are read"))
        }
        Ok((_, text)) => Ok(Some(text)),
        Err(e) => refuse(format!(
            "can't be read: {}; mend it or move it away",
            e.kind()
        )),
    }
}

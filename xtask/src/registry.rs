//! A registry on loopback, to publish to and to take from before it is done in earnest.

mod index;
mod server;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fs_err as fs;

pub(crate) use self::index::digest;
pub(crate) use self::server::{Options, Registry};
use crate::tally::Tally;
use crate::workspace::Workspace;

/// What the registry does.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Action {
    /// Serves `target/registry` until it is interrupted.
    Serve {
        /// The port, 0 for any.
        #[arg(long, value_name = "PORT", default_value_t = 0)]
        port: u16,
    },
}

pub(crate) fn run(workspace: &Workspace, action: &Action) -> Tally {
    let Action::Serve { port } = action;
    match serve(workspace, *port) {
        Ok(()) => Tally::default(),
        Err(why) => Tally::failed(format!("registry: {why}")),
    }
}

fn serve(workspace: &Workspace, port: u16) -> Result<(), String> {
    let folder = workspace.target.join("registry");
    let own = workspace
        .packages
        .iter()
        .map(|it| it.name.clone())
        .collect();
    let registry = Registry::serve(port, options(&workspace.root, folder.clone(), own)?)?;
    let config = folder.join("config.toml");
    registry.configure(&config)?;
    println!(
        "registry `local` at {}, kept in {}",
        registry.url(),
        folder.display()
    );
    println!(
        "to it:   cargo xtask release publish --registry local --config {} --execute",
        config.display()
    );
    println!("from it: cargo --config {} add CRATE", config.display());
    registry.join();
    Ok(())
}

/// A registry for a workspace, that offers of others what its lock file names or cargo has fetched.
pub(crate) fn options(
    root: &Path,
    folder: PathBuf,
    own: BTreeSet<String>,
) -> Result<Options, String> {
    Ok(Options {
        folder,
        own,
        home: home()?,
        lock: fs::read_to_string(root.join("Cargo.lock")).map_err(|error| error.to_string())?,
        room: None,
    })
}

/// Where cargo keeps what it fetched.
pub(crate) fn home() -> Result<PathBuf, String> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    home.ok_or_else(|| "neither CARGO_HOME nor HOME is set".into())
}

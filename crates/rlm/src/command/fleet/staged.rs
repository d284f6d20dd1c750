//! A place for a run on its way to the fleet or from it.

use std::path::PathBuf;

use rlm_store::state_dir;

use crate::exit::Failure;

/// A temporary directory in which a run is saved before it is packed, or after it was fetched. Dropping it removes the directory.
pub(super) struct StagedProject(pub(super) PathBuf);

impl StagedProject {
    pub(super) fn new() -> Result<Self, Failure> {
        let name = format!("rlm-fleet-{}", uuid::Uuid::new_v4().simple());
        let path = std::env::temp_dir().join(name);
        let made = state_dir::make_private_directory(&path);
        made.map_err(|e| Failure::failed(format!("can't create `{}`: {e}", path.display())))?;
        Ok(Self(path))
    }
}

impl Drop for StagedProject {
    fn drop(&mut self) {
        let _stays = state_dir::remove_tree(&self.0);
    }
}

//! One file a command.

pub(crate) mod checkpoints;
pub(crate) mod demo;
pub(crate) mod init;
pub(crate) mod logs;
pub(crate) mod resume;
pub(crate) mod run;
pub(crate) mod status;

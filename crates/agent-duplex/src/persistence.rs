//! The store of a conversation, which outlives its process. The stores and the persistence thread use `record`, and it uses none of them.

mod keeper;
mod memory;
mod record;
#[cfg(feature = "sqlite")]
mod sqlite;

pub(crate) use keeper::Keeper;
pub use memory::MemoryPersistence;
pub use record::{Interrupted, Persistence, Record, Recovered};
#[cfg(feature = "sqlite")]
pub use sqlite::SqlitePersistence;

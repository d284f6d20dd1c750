//! Where a conversation is kept, so that it outlives its process. The places and the keeper take from `record`, and it from none of them.

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

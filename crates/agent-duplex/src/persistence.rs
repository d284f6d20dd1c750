//! The store of a conversation, which outlives its process. The stores and the persistence thread use `record`, and it uses none of them.

mod memory;
mod record;
#[cfg(feature = "sqlite")]
mod sqlite;
mod thread;

pub use memory::MemoryPersistence;
pub use record::{InterruptedTurn, PersistedRecord, Persistence, RecoveredConversation};
#[cfg(feature = "sqlite")]
pub use sqlite::SqlitePersistence;
pub(crate) use thread::PersistenceThread;

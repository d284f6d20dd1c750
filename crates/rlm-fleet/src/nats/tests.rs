//! Tests against a real NATS server on loopback. Without a server they skip themselves: `cargo xtask tools --install` downloads one.

mod appends;
mod budgets;
mod removals;
mod requests;
mod runs;
mod server;
mod versions;
mod workers;

//! Tests of the decisions: explorations of all short histories, properties, and single steps.

mod appends;
mod budgets;
mod explore;
mod handovers;
mod leases;
mod owners;
mod takeover;

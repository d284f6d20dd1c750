//! Sleeps under paused time: what ends them, what they say, and that no wake is lost.

mod gate;
mod kicks;
mod model;
mod trace;

//! End-to-end tests: the `rlm` binary as a user runs it, with a scripted agent.
//!
//! The name of a test that shows an item of `acceptance.md` begins with the item's number. The other tests show that the harness itself is correct.

#![expect(
    clippy::unwrap_used,
    reason = "clippy does not count the helpers of tests as tests"
)]

mod agents;
mod background;
mod bombs;
mod checkpoints;
mod claims;
mod cleaning;
mod contained;
mod control;
mod countdown;
mod crashes;
mod damage;
mod demo;
mod detached;
mod disarmed;
mod doctor;
mod duplex;
mod editor;
mod face;
mod fakes;
mod fixed;
mod floods;
mod forced;
mod git;
mod git_refused;
mod git_stops;
mod handover;
mod harness;
mod hidden_text;
mod holding;
mod hostile_files;
mod hurry;
mod idle;
mod init;
mod input;
mod inside;
mod jobs;
mod journey;
mod kept;
mod kills;
mod layers;
mod lost_output;
mod menu;
mod models;
mod money;
mod moved;
mod moving;
mod moving_back;
mod moving_bad;
mod moving_killed;
mod newest;
mod nights;
mod notify;
mod options;
mod permissions;
mod phases;
mod picture;
mod presses;
mod project;
mod promises;
mod prompts;
mod report;
mod resume;
mod room;
mod runs;
mod scene;
mod schedulers;
mod schema;
mod sessions;
mod sets;
mod shown;
mod smoke;
mod space;
mod standing;
mod steering;
mod stopping;
mod stops;
mod story;
mod talk;
mod talks;
mod ulimits;
mod unrun;
mod vanished;
mod view;

use std::time::Duration;

/// The deadline for steps that take a second at most: ten times that, plus a margin for a loaded machine.
const LONG: Duration = Duration::from_secs(20);

const RLM: &str = env!("CARGO_BIN_EXE_rlm-under-test");
const FAKE_AGENT: &str = env!("CARGO_BIN_EXE_fake-agent");
const FAKE_MODEL: &str = env!("CARGO_BIN_EXE_fake-model");

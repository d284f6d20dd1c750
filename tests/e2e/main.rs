//! End-to-end tests: the `rlm` binary as a user runs it, with a scripted agent.
//!
//! The name of a test that shows an item of `acceptance.md` begins with the item's number. The other tests show that the harness itself is correct.

#![expect(
    clippy::unwrap_used,
    reason = "clippy does not count the helpers of tests as tests"
)]

mod abort;
mod agents;
mod background;
mod bombs;
mod check_not_run;
mod checkpoints;
mod claims;
mod clean;
mod containment;
mod control;
mod conversations;
mod countdown;
mod crashes;
mod ctrl_c_turned_off;
mod damage;
mod demo;
mod detached;
mod doctor;
mod duplex;
mod editor;
mod fakes;
mod floods;
mod git;
mod git_refused;
mod git_stops;
mod handover;
mod harness;
mod held_output;
mod hidden_text;
mod hostile_files;
mod idle;
mod init;
mod input;
mod jobs;
mod journey;
mod kills;
mod layers;
mod live_status;
mod log_to_file;
mod lost_output;
mod menu;
mod message_stream;
mod models;
mod money;
mod moved_tree;
mod nested_runs;
mod newer_program;
mod nights;
mod notify;
mod options;
mod permissions;
mod phases;
mod picture;
mod press_actions;
mod presses;
mod program_list;
mod project;
mod promises;
mod prompts;
mod removed_state;
mod report;
mod resume;
mod retained_leftovers;
mod runs;
mod scene;
mod schedulers;
mod schema;
mod sessions;
mod sets;
mod smoke;
mod space;
mod steering;
mod stop_force;
mod stop_progress;
mod stops;
mod story;
mod transcript_quota;
mod transfer;
mod transfer_back;
mod transfer_hostile;
mod transfer_killed;
mod ulimits;
mod view;

use std::time::Duration;

/// The deadline for steps that take a second at most: ten times that, plus a margin for a loaded machine.
const LONG: Duration = Duration::from_secs(20);

const RLM: &str = env!("CARGO_BIN_EXE_rlm-under-test");
const FAKE_AGENT: &str = env!("CARGO_BIN_EXE_fake-agent");
const FAKE_MODEL: &str = env!("CARGO_BIN_EXE_fake-model");

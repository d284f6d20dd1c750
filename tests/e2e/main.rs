//! End-to-end tests: the `rlm` binary as a user runs it, with a scripted agent.
//!
//! The name of a test that shows an item of `acceptance.md` begins with the item's number. The other tests show that the harness itself is correct.

#![expect(
    clippy::unwrap_used,
    reason = "clippy does not count the helpers of tests as tests"
)]

mod abort;
mod agent_pipes;
mod agents;
mod api;
mod api_sessions;
mod background;
mod bombs;
mod browser;
mod changed_limits;
mod check_not_run;
mod checkpoints;
mod clean;
mod combined_guarantees;
mod completion;
mod completion_promises;
mod containment;
mod control;
mod conversations;
mod countdown;
mod crashes;
mod ctrl_c_turned_off;
mod damage;
mod demo;
mod desktop;
mod detached;
mod doctor;
mod duplex;
mod editor;
mod fakes;
mod first_check;
mod first_day;
mod first_day_story;
mod fleet;
mod fleet_cluster;
mod fleet_limits;
mod fleet_many;
mod fleet_users;
mod fleet_versions;
mod floods;
mod full_disk;
mod git;
mod git_refused;
mod git_stops;
mod handover;
mod harness;
mod hidden_text;
mod hostile_files;
mod idle;
mod input;
mod iteration_changes;
mod job_control;
mod journey;
#[cfg(target_os = "linux")]
mod keep_awake;
mod kills;
mod layers;
mod live_status;
mod long_loop;
mod lost_output;
mod menu;
mod models;
mod money;
mod nested_runs;
mod newest_run;
mod notify;
mod notify_delivery;
mod options;
mod permissions;
mod phases;
mod pick;
mod picture;
mod pid_1;
mod press_actions;
mod presses;
mod program_list;
mod project;
mod prompts;
mod removed_state;
mod report;
mod resume;
mod retained_leftovers;
mod runs;
#[cfg(target_os = "linux")]
mod sandboxed_agent;
mod scene;
mod schedulers;
mod schema;
mod sessions;
mod shell_integration;
mod smoke;
mod space;
mod steering;
mod stop_force;
mod stop_progress;
mod stops;
mod story;
mod transfer;
mod transfer_back;
mod transfer_hostile;
mod transfer_killed;
mod transferred_run;
mod ulimits;
mod view;
mod view_attacks;
mod view_pages;
mod view_remote;
mod view_run;
mod warm_guard;
mod working_tree_lock;
mod worktree_result;

use std::time::Duration;

/// The deadline for steps that take a second at most: ten times that, plus a margin for a loaded machine.
const LONG: Duration = Duration::from_secs(20);

const RLM: &str = env!("CARGO_BIN_EXE_rlm-under-test");
const FAKE_AGENT: &str = env!("CARGO_BIN_EXE_fake-agent");
const FAKE_MODEL: &str = env!("CARGO_BIN_EXE_fake-model");

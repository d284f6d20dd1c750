//! Sends a test notification by each channel, and shows whether it is acknowledged.

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::find::DoctorScope;
use super::within;
use crate::agents;
use crate::config::FILE_NAME;
use crate::exit::Failure;
use crate::hint::program_command;
use crate::notify::{Channel, ChannelKind};
use crate::render::{ChannelHealth, Health};

/// The running test of a channel, with its name.
pub(super) type ChannelTest = (String, JoinHandle<(Health, String)>);

/// Starts the test of each channel. A command that only the project's own file names runs only with `runs_project`.
pub(super) fn start_tests(
    found: &DoctorScope,
    runs_project: bool,
    begin: Instant,
) -> Result<Vec<ChannelTest>, Failure> {
    let (all, of_user) = (found.layers.run(), found.layers.without_project().run());
    Channel::refuse_missing(&all.config())?;
    let channels = Channel::of(&all.config());
    if channels.is_empty() {
        return Err(Failure::usage(format!(
            "no channel is configured; add for example notify = [\"desktop\"] to {FILE_NAME} or to ~/.config/rlm/config.toml"
        )));
    }
    let commands: Vec<String> = { Channel::of(&of_user.config()).into_iter() }
        .filter_map(|channel| match channel.kind {
            ChannelKind::Command(command) => Some(command),
            _ => None,
        })
        .collect();
    let directory = found.project.directory();
    let tests = channels.into_iter().map(|channel| {
        let is_foreign = match &channel.kind {
            ChannelKind::Command(command) => !runs_project && !commands.contains(command),
            _ => false,
        };
        let name = channel.name.clone();
        let context = agents::query_context(directory, "notify");
        let directory = directory.to_owned();
        let test = async move {
            if is_foreign {
                let again = format!("{} doctor --notify --run-project-agent", program_command());
                let why = format!(
                    "only {FILE_NAME} names this command, so doctor doesn't run it; if you trust it: {again}"
                );
                return (Health::Warning, why);
            }
            match within(begin, channel.test(&directory, context)).await {
                Ok(Ok(answer)) => (Health::Ok, format!("acknowledged: {answer}")),
                Ok(Err(why)) | Err(why) => (Health::Problem, format!("not acknowledged: {why}")),
            }
        };
        (name, tokio::spawn(test))
    });
    Ok(tests.collect())
}

/// Waits for the tests.
pub(super) async fn results(tests: Vec<ChannelTest>) -> Result<Vec<ChannelHealth>, Failure> {
    let mut results = Vec::new();
    for (channel, test) in tests {
        let (health, detail) = test.await.map_err(|e| Failure::failed(e.to_string()))?;
        results.push(ChannelHealth {
            channel,
            health,
            detail,
        });
    }
    Ok(results)
}

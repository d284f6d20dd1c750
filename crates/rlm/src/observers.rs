//! The companions of a run besides the screen: the receivers of its events (the channels of notifications, a heartbeat file, the bell), and the program that keeps
//! the computer awake. They are not saved with the run; each process configures them.

use std::path::{Path, PathBuf};

use interrupt_stack::Interrupts;
use loop_runner::{Hook, Runner};
use rlm_store::Program;
use rlm_store::ProgramKind;
use rlm_store::Project;

use crate::config::{NotifyChannel, NotifyEvent, SettingsTree, ValueOrigin};
use crate::exit::Failure;
use crate::notify::{self, Channel, ChannelKind};
use crate::render::{self, NotifyContext};

/// The configuration of the companions.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunObservers {
    channels: Vec<Channel>,
    on: Vec<NotifyEvent>,
    view_url: Option<String>,
    heartbeat: Option<PathBuf>,
    pub(crate) bell: bool,
    keep_awake: bool,
}

impl RunObservers {
    /// Reads the configuration of a run. A path on the command line is relative to `directory`, a path in the project's file to `root`.
    pub(crate) fn of(tree: &SettingsTree, root: &Path, directory: &Path) -> Self {
        let config = tree.config();
        let leaf = tree.leaf("heartbeat");
        let is_flag = leaf.is_some_and(|leaf| matches!(leaf.origin, ValueOrigin::Flag(_)));
        let from = if is_flag { directory } else { root };
        Self {
            channels: Channel::of(&config),
            on: notify::events(&config),
            bell: { config.notify.iter().flatten() }.any(|it| *it == NotifyChannel::Bell),
            view_url: config.view_url,
            heartbeat: config.heartbeat.map(|path| from.join(path)),
            keep_awake: config.keep_awake.unwrap_or_default(),
        }
    }

    /// Refuses channels that can't deliver.
    pub(crate) fn refuse_unusable(&self, tree: &SettingsTree) -> Result<(), Failure> {
        Channel::refuse_missing(&tree.config())?;
        self.channels
            .iter()
            .try_for_each(|it| it.target().map(drop))
    }

    /// Lists the commands and the heartbeat file as programs.
    pub(crate) fn programs(&self) -> Vec<Program> {
        let Self {
            channels,
            on: _,
            view_url: _,
            heartbeat,
            bell: _,
            // A fixed program of the operating system.
            keep_awake: _,
        } = self;
        let notify = channels.iter().filter_map(|channel| match &channel.kind {
            ChannelKind::Command(command) => {
                Some(Program::new(None, ProgramKind::Notify, command.clone()))
            }
            // A fixed program of the operating system, and no program.
            ChannelKind::Desktop | ChannelKind::Webhook(_) => None,
        });
        let heartbeat = heartbeat.as_ref().map(|path| {
            let file = path.display().to_string();
            Program::new(None, ProgramKind::Heartbeat, file)
        });
        notify.chain(heartbeat).collect()
    }

    /// Adds the companions to the runner.
    pub(crate) fn watch(
        &self,
        mut runner: Runner,
        project: &Project,
        interrupts: &Interrupts,
    ) -> Result<Runner, Failure> {
        if let Some(path) = &self.heartbeat {
            runner = runner.with_heartbeat(path.clone(), render::heartbeat);
        }
        for channel in &self.channels {
            let (on, interrupts) = (self.on.clone(), interrupts.clone());
            let context = NotifyContext {
                project: project.directory().to_owned(),
                root: project.root().to_owned(),
                title: runner.head().settings.title.clone(),
                view_url: self.view_url.clone(),
            };
            let of_channel = channel.clone();
            let input_of = move |moment: &loop_runner::HookEvent<'_>| {
                let occasion = render::notify_event(moment).filter(|it| on.contains(it))?;
                let cause = interrupts.cause();
                let notification = render::notification(occasion, moment, &context, cause);
                Some(of_channel.input(notification))
            };
            let hook = Hook::new(channel.name.clone(), channel.target()?, input_of);
            runner = runner.with_hook(hook);
        }
        if self.keep_awake {
            runner = runner.with_keep_awake();
        }
        Ok(runner)
    }
}

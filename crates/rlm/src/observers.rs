//! The companions of a run besides the screen: the receivers of its events (the user's command, a heartbeat file, the bell), and the program that keeps
//! the computer awake. They are not saved with the run; each process configures them.

use std::path::{Path, PathBuf};

use interrupt_stack::Interrupts;
use loop_runner::{Hook, Runner};
use rlm_store::Program;
use rlm_store::ProgramKind;
use rlm_store::Project;

use crate::config::NotifyEvent;
use crate::config::{SettingsTree, ValueOrigin};
use crate::render;

/// The configuration of the companions.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunObservers {
    notify: Option<String>,
    on: Vec<NotifyEvent>,
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
            notify: config.notify.filter(|text| !text.trim().is_empty()),
            on: config.notify_on.unwrap_or(NotifyEvent::DEFAULT.into()),
            heartbeat: config.heartbeat.map(|path| from.join(path)),
            bell: config.bell.unwrap_or_default(),
            keep_awake: config.keep_awake.unwrap_or_default(),
        }
    }

    /// Lists the command and the heartbeat file as programs.
    pub(crate) fn programs(&self) -> Vec<Program> {
        let Self {
            notify,
            on: _,
            heartbeat,
            bell: _,
            // A fixed program of the operating system.
            keep_awake: _,
        } = self;
        let notify = notify.as_ref();
        let notify = notify.map(|it| Program::new(None, ProgramKind::Notify, it.clone()));
        let heartbeat = heartbeat.as_ref().map(|path| {
            let file = path.display().to_string();
            Program::new(None, ProgramKind::Heartbeat, file)
        });
        notify.into_iter().chain(heartbeat).collect()
    }

    /// Adds the companions to the runner.
    pub(crate) fn watch(
        &self,
        mut runner: Runner,
        project: &Project,
        interrupts: &Interrupts,
    ) -> Runner {
        if let Some(path) = &self.heartbeat {
            runner = runner.with_heartbeat(path.clone(), render::heartbeat);
        }
        if let Some(command) = &self.notify {
            let (on, place) = (self.on.clone(), project.directory().to_owned());
            let interrupts = interrupts.clone();
            let input_of = move |moment: &loop_runner::HookEvent<'_>| {
                let occasion = render::notify_event(moment).filter(|it| on.contains(it))?;
                Some(render::hook_input(
                    occasion,
                    moment,
                    &place,
                    interrupts.cause(),
                ))
            };
            runner = runner.with_hook(Hook::new(command.clone(), input_of));
        }
        if self.keep_awake {
            runner = runner.with_keep_awake();
        }
        runner
    }
}

//! Who else is told how a run goes: a command of the user's, a file, the bell. None of it is saved with the run: each process says it anew.

use std::path::{Path, PathBuf};

use interrupt_stack::Interrupts;
use loop_runner::{Hook, Runner};
use rlm_store::Program;
use rlm_store::ProgramKind;
use rlm_store::Project;

use crate::config::Occasion;
use crate::config::{Origin, Tree};
use crate::render;

/// What was said of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watchers {
    notify: Option<String>,
    on: Vec<Occasion>,
    heartbeat: Option<PathBuf>,
    pub(crate) bell: bool,
}

impl Watchers {
    /// Takes what is said for a run. A path of the command line counts from `directory`, one of the project's file from `root`.
    pub(crate) fn of(tree: &Tree, root: &Path, directory: &Path) -> Self {
        let config = tree.config();
        let leaf = tree.leaf("heartbeat");
        let is_flag = leaf.is_some_and(|leaf| matches!(leaf.origin, Origin::Flag(_)));
        let from = if is_flag { directory } else { root };
        Self {
            notify: config.notify.filter(|text| !text.trim().is_empty()),
            on: config.notify_on.unwrap_or(Occasion::DEFAULT.into()),
            heartbeat: config.heartbeat.map(|path| from.join(path)),
            bell: config.bell.unwrap_or_default(),
        }
    }

    /// Lists what of them is a program, and the file that is written.
    pub(crate) fn programs(&self) -> Vec<Program> {
        let Self {
            notify,
            on: _,
            heartbeat,
            bell: _,
        } = self;
        let notify = notify.as_ref();
        let notify = notify.map(|it| Program::new(None, ProgramKind::Notify, it.clone()));
        let heartbeat = heartbeat.as_ref().map(|path| {
            let file = path.display().to_string();
            Program::new(None, ProgramKind::Heartbeat, file)
        });
        notify.into_iter().chain(heartbeat).collect()
    }

    /// Has the run tell them.
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
            let telling = move |moment: &loop_runner::Moment<'_>| {
                let occasion = render::occasion(moment).filter(|it| on.contains(it))?;
                Some(render::telling(
                    occasion,
                    moment,
                    &place,
                    interrupts.cause(),
                ))
            };
            runner = runner.with_hook(Hook::new(command.clone(), telling));
        }
        runner
    }
}

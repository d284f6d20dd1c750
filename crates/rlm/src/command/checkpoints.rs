//! `rlm checkpoints`: lists, shows, verifies and forks saved runs, and transfers them to other machines through a file or a pipe.

use std::fs::File;
use std::io;
use std::io::{IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use cancellable_sleep::SleepGate;
use checkpoint_store::Seq;
use rlm_store::transfer::{
    ExportOptions, ExportTarget, ForkPoint, ImportOptions, Imported, TransferProgress,
};
use rlm_store::{Project, StateSelector};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::args::{CheckpointsCommand, ExportArgs, ForkArgs, ImportArgs, RunsArgs, ShowArgs};
use crate::command::run::new_id;
use crate::command::{pick, select};
use crate::config::Layers;
use crate::exit::{Code, Failure};
use crate::observers::RunObservers;
use crate::render::{Export, Fork, Import, List, StateView, Verified, print};
use crate::session::{Session, refuse_inside};
use crate::{config, programs};

pub(crate) fn execute(directory: &Path, what: &CheckpointsCommand) -> Result<ExitCode, Failure> {
    let project = || Project::find(directory);
    match what {
        CheckpointsCommand::List(args) => {
            let run = pick::named(directory, !args.json, args.run.as_deref())?;
            list(project()?, args, run.as_deref())
        }
        CheckpointsCommand::Show(args) => {
            let run = pick::named(directory, !args.json, args.run.as_deref())?;
            show(&project()?, args, run.as_deref())
        }
        CheckpointsCommand::Verify(args) => {
            let run = pick::named(directory, !args.json, args.run.as_deref())?;
            verify(project()?, args, run.as_deref())
        }
        CheckpointsCommand::Fork(args) => {
            refuse_inside("checkpoints fork", args.nested)?;
            fork(directory, args)
        }
        CheckpointsCommand::Export(args) => {
            refuse_inside("checkpoints export", args.nested)?;
            export(directory, args)
        }
        CheckpointsCommand::Import(args) => {
            refuse_inside("checkpoints import", args.nested)?;
            import(directory, args)
        }
    }
}

fn list(here: Project, args: &RunsArgs, run: Option<&str>) -> Result<ExitCode, Failure> {
    let (project, runs) = select::named_or_all(here, run)?;
    let (mut damaged, commit) = (false, project.head_commit());
    for run in &runs {
        let list = List::of(&project, run, commit.as_deref(), jiff::Timestamp::now());
        damaged |= list.is_damaged();
        if !print(args.json, &list) {
            break;
        }
    }
    Ok(Code::of_state(damaged && args.run.is_some()).into())
}

fn show(project: &Project, args: &ShowArgs, run: Option<&str>) -> Result<ExitCode, Failure> {
    let place = match (args.at, args.save) {
        (Some(iteration), _) => StateSelector::AtIteration(iteration),
        (None, Some(save)) => StateSelector::AtSave(Seq::new(save)),
        (None, None) => StateSelector::Newest,
    };
    let run = select::run_id(project, run.unwrap_or("last"))?;
    let state = project.state_at(&run, place)?;
    let shown = StateView::of(&state, jiff::Timestamp::now());
    print(args.json, &shown);
    Ok(Code::Done.into())
}

fn verify(here: Project, args: &RunsArgs, run: Option<&str>) -> Result<ExitCode, Failure> {
    let mut damaged = false;
    let (project, runs) = select::named_or_all(here, run)?;
    for run in &runs {
        let verified = Verified::of(&project, run);
        damaged |= !verified.is_valid();
        if !print(args.json, &verified) {
            break;
        }
    }
    Ok(Code::of_state(damaged).into())
}

fn fork(directory: &Path, args: &ForkArgs) -> Result<ExitCode, Failure> {
    let run = pick::named(directory, !args.json, Some(&args.run))?;
    let name = run.as_deref().unwrap_or(&args.run);
    let session = Session::begin(true, false)?;
    let (project, parent) = select::of_any_project(Project::find(directory)?, name)?;
    let project = project.in_project_tree();
    let point = ForkPoint {
        iteration: args.at,
        phase: args.phase.clone(),
        run: args.run_id.clone().unwrap_or_else(new_id),
    };
    let gate = session.gate();
    let forked = session.run_with_rollback(project.fork(&parent.id, point, &gate))?;
    print(args.json, &Fork::of(&forked));
    Ok(Code::Done.into())
}

fn export(directory: &Path, args: &ExportArgs) -> Result<ExitCode, Failure> {
    let run = pick::named(directory, !args.json, Some(&args.run))?;
    let name = run.as_deref().unwrap_or(&args.run);
    let session = Session::begin(true, false)?;
    let project = Project::find(directory)?.in_project_tree();
    let run = select::run_id(&project, name)?;
    let is_printed = args.output.as_deref() == Some(Path::new("-"));
    let default = || format!("rlm-{run}.tar.zst").into();
    let file = named(directory, &args.output.clone().unwrap_or_else(default));
    if is_printed && std::io::stdout().is_terminal() {
        return Err(Failure::usage(
            "an archive can't be written to a terminal: use -o FILE, or a pipe",
        ));
    }
    let gate = session.gate();
    let to = match is_printed {
        true => ExportTarget::Stream(Box::new(CancellableFile::output(&gate)?)),
        false => ExportTarget::File(file.clone()),
    };
    let how = ExportOptions {
        copy: args.copy,
        allow_dirty: args.allow_dirty,
        state_only: args.state_only,
        repeat: args.force,
    };
    let exported = session.run_with_rollback(async {
        let meter = TransferProgress::default();
        let _shown = Progress::new("exported", meter.clone());
        project.export(&run, to, how, &gate, meter).await
    })?;
    let file: Option<PathBuf> = (!is_printed).then_some(file);
    let export = Export::of(&exported, file.as_deref());
    match is_printed {
        // Standard output already has the archive.
        true => anstream::eprintln!("{export}"),
        false => {
            print(args.json, &export);
        }
    }
    Ok(Code::Done.into())
}

fn import(directory: &Path, args: &ImportArgs) -> Result<ExitCode, Failure> {
    let session = Session::begin(true, false)?;
    let project = Project::find(directory)?.in_project_tree();
    let gate = session.gate();
    let is_piped = args.file == Path::new("-");
    if is_piped && std::io::stdin().is_terminal() {
        return Err(Failure::usage(
            "an archive can't be read from a terminal: name a file",
        ));
    }
    let (from, name): (Box<dyn Read + Send>, _) = match is_piped {
        true => (
            Box::new(CancellableFile::input(&gate)?),
            "standard input".into(),
        ),
        false => {
            let file = named(directory, &args.file);
            // Opening a named pipe waits for its writer.
            let opened = (file.clone(), gate.clone());
            let piped = session.prepare(move || CancellableFile::file(&opened.0, &opened.1))?;
            (Box::new(piped), file)
        }
    };
    let how = ImportOptions {
        run: args.run_id.clone(),
        default_run: new_id(),
    };
    let imported = session.run_with_rollback(async {
        let meter = TransferProgress::default();
        let _shown = Progress::new("imported", meter.clone());
        project.import(from, &name, how, &gate, meter).await
    })?;
    let shown = session.prepare(move || Ok(import_view(project, &imported)))?;
    print(args.json, &shown);
    Ok(Code::Done.into())
}

/// Returns the imported run with all programs that a resume would start, and the other programs in the `rlm.toml` that came with it.
fn import_view(project: Project, imported: &Imported) -> Import {
    let settings = &imported.head.settings;
    let place = match &settings.worktree {
        Some(own) => project.in_worktree(own).unwrap_or(project),
        None => project,
    };
    let layers =
        Layers::read(place.root()).and_then(|layers| layers.with_environment(config::variable));
    let (layers, unread) = match layers {
        Ok(layers) => (layers, None),
        Err(why) => (Layers::default(), Some(why.message)),
    };
    let watchers = RunObservers::of(&layers.run(), place.root(), place.directory());
    let starts = programs::all(settings, &watchers);
    let mut of_file = programs::of_project(&layers, &[], &place);
    of_file.retain(|program| !starts.contains(program));
    Import::of(imported, starts, of_file, unread)
}

/// How often to check whether the work must end.
const POLL: Duration = Duration::from_millis(100);
/// The number of bytes that a writable pipe always accepts.
const PIECE: usize = 4096;
/// The number of checks after which the progress is shown.
const SOON: u32 = 5;

/// Returns the path of a file that is relative to this directory.
fn named(directory: &Path, file: &Path) -> PathBuf {
    match directory == Path::new(".") {
        true => file.to_owned(),
        false => directory.join(file),
    }
}

/// A file or a pipe whose reads and writes fail once the work must end.
struct CancellableFile {
    file: File,
    gate: SleepGate,
}

impl CancellableFile {
    fn input(gate: &SleepGate) -> Result<Self, Failure> {
        Self::of(io::stdin(), gate)
    }

    fn output(gate: &SleepGate) -> Result<Self, Failure> {
        Self::of(io::stdout(), gate)
    }

    fn file(path: &Path, gate: &SleepGate) -> Result<Self, Failure> {
        let is_file = fs_err::metadata(path).and_then(|meta| match meta.is_dir() {
            true => Err(io::Error::other(format!(
                "`{}` is a directory",
                path.display()
            ))),
            false => fs_err::File::open(path),
        });
        let file = is_file.map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => Failure::not_found(e.to_string()),
            _ => Failure::failed(e.to_string()),
        })?;
        Ok(Self {
            file: file.into_parts().0,
            gate: gate.clone(),
        })
    }

    fn of(stream: impl AsFd, gate: &SleepGate) -> Result<Self, Failure> {
        let file = stream.as_fd().try_clone_to_owned();
        let file = file.map_err(|e| Failure::failed(format!("can't duplicate the pipe: {e}")))?;
        Ok(Self {
            file: file.into(),
            gate: gate.clone(),
        })
    }

    fn wait(&self, what: PollFlags) -> io::Result<()> {
        let look = Timespec::try_from(POLL).expect("the time is short");
        loop {
            if self.gate.token().is_cancelled() {
                return Err(io::Error::other("the command was stopped"));
            }
            match poll(&mut [PollFd::new(&self.file, what)], Some(&look)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        }
    }
}

impl Read for CancellableFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.wait(PollFlags::IN)?;
        self.file.read(buffer)
    }
}

impl Write for CancellableFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait(PollFlags::OUT)?;
        self.file.write(&bytes[..bytes.len().min(PIECE)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A progress line on a terminal. Dropping it clears the line.
struct Progress {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    fn new(what: &'static str, meter: TransferProgress) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let show = move || {
            let mut looks = 0;
            while !over.load(Ordering::Acquire) {
                std::thread::park_timeout(POLL);
                looks += 1;
                if looks > SOON {
                    let (done, all) = meter.read();
                    let [done, all] = [done, all].map(|bytes| bytes >> 20);
                    eprint_line(&format!("{done} of {all} MiB {what}"));
                }
            }
            if looks > SOON {
                eprint_line("");
            }
        };
        let thread = io::stderr().is_terminal().then(|| std::thread::spawn(show));
        Self { is_over, thread }
    }
}

fn eprint_line(text: &str) {
    // A failed write to the terminal doesn't stop the work.
    let _unseen = write!(io::stderr(), "\r{text}\x1b[K");
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _panicked = thread.join();
        }
    }
}

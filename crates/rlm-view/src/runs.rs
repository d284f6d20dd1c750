//! The runs of all projects, and the detection of their changes.
//!
//! A scan finds changed runs by their files. While a page is open, the scan repeats, and each live run is also watched through its control socket,
//! which reports a change at once.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use agent_duplex::PermissionRequest;
use loop_runner::RunEvent;
use loop_runner::control::{ConnectOutcome, LiveRun, ProcessHealth};
use loop_state::Timestamp;
use rlm_store::deadline::sleep_until;
use rlm_store::{Project, RunEntry, RunId, index, state_dir};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::Instant as Clock;

use crate::login::Role;
use crate::program::Program;
use crate::row::{LiveParts, RunKey, RunRow};

/// The interval between two scans while a page is open.
const SCAN_INTERVAL: Duration = Duration::from_millis(500);
/// The longest wait of a page for the first scan.
const FIRST_SCAN: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(10);
/// The greatest age of a row. The process of a live run may not respond any more, and damage changes no directory.
const MAX_AGE: Duration = Duration::from_secs(5);
/// The time in which a live run must respond before its row shows that it doesn't.
const HEALTH_TIMEOUT: Duration = Duration::from_millis(500);
/// The time for which a closed page counts as open.
const LINGER: Duration = Duration::from_secs(15);
/// The shortest time between two connections to the same run.
const ATTACH_AGAIN: Duration = Duration::from_secs(1);
/// The largest number of runs; the rest is left out, and the page says so.
const MAX_RUNS: usize = 20_000;

pub(crate) fn now() -> Timestamp {
    SystemTime::now().into()
}

/// The identity of a run's files: while it is the same, the saved state is the same.
type Signature = Vec<(PathBuf, u64, SystemTime)>;

#[derive(Debug)]
struct Known {
    row: Arc<RunRow>,
    signature: Signature,
    read_at: Instant,
    /// The number of the read that this row comes from.
    read: u64,
    /// The first line of the first prompt.
    prompt: Option<String>,
    /// The open permission requests of the live run.
    asks: Vec<PermissionRequest>,
    /// Whether the live run reported a change since it was read.
    is_stale: bool,
}

#[derive(Debug, Default)]
struct State {
    projects: HashMap<PathBuf, Project>,
    /// Projects that can't be read, with the reason.
    problems: BTreeMap<PathBuf, String>,
    known: BTreeMap<RunKey, Known>,
    watched: HashSet<RunKey>,
    /// The number of reads so far.
    reads: u64,
    scanned: Option<Instant>,
    is_incomplete: bool,
}

/// The people whose pages are open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Presence {
    viewers: usize,
    operators: usize,
}

impl Presence {
    fn count(&mut self, role: Role) -> &mut usize {
        match role {
            Role::Viewer => &mut self.viewers,
            Role::Operator => &mut self.operators,
        }
    }

    fn is_anybody(self) -> bool {
        self.viewers + self.operators > 0
    }

    /// Returns whether a run can ask for a permission or a review.
    fn can_answer(self) -> bool {
        self.operators > 0
    }
}

/// An open page. While one is open, changes are detected.
#[derive(Debug)]
pub(crate) struct OpenPage {
    runs: Arc<Runs>,
    role: Role,
}

impl Drop for OpenPage {
    fn drop(&mut self) {
        let (runs, role) = (Arc::clone(&self.runs), self.role);
        let close = move |presence: &mut Presence| *presence.count(role) -= 1;
        // A page that is loaded again, or whose connection was lost for a moment, counts as open.
        drop(self.runs.handle.spawn(async move {
            sleep_until(Clock::now() + LINGER).await;
            runs.presence.send_modify(close);
        }));
    }
}

/// All runs of the user.
pub(crate) struct Runs {
    program: Arc<dyn Program>,
    handle: Handle,
    state: Mutex<State>,
    /// Only one scan runs at a time.
    scanning: Mutex<()>,
    /// Increases with each change of a row.
    version: watch::Sender<u64>,
    /// Increases with each event of a live run, such as its output.
    events: watch::Sender<u64>,
    presence: watch::Sender<Presence>,
}

impl std::fmt::Debug for Runs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runs").finish_non_exhaustive()
    }
}

impl Runs {
    /// Must be called in a tokio runtime.
    pub(crate) fn new(program: Arc<dyn Program>) -> Arc<Self> {
        Arc::new(Self {
            program,
            handle: Handle::current(),
            state: Mutex::default(),
            scanning: Mutex::default(),
            version: watch::channel(0).0,
            events: watch::channel(0).0,
            presence: watch::channel(Presence::default()).0,
        })
    }

    pub(crate) fn program(&self) -> Arc<dyn Program> {
        Arc::clone(&self.program)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers an open page.
    pub(crate) fn open_page(self: &Arc<Self>, role: Role) -> OpenPage {
        let open = |presence: &mut Presence| *presence.count(role) += 1;
        self.presence.send_modify(open);
        OpenPage {
            runs: Arc::clone(self),
            role,
        }
    }

    /// Returns a receiver that changes with each change of a row.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Returns a receiver that changes with each event of a live run.
    pub(crate) fn events(&self) -> watch::Receiver<u64> {
        self.events.subscribe()
    }

    /// Returns all rows: the live runs first, and then the runs that were active last.
    pub(crate) fn rows(&self) -> Vec<Arc<RunRow>> {
        let known = |known: &Known| Arc::clone(&known.row);
        let mut rows: Vec<_> = self.lock().known.values().map(known).collect();
        rows.sort_by(|a, b| {
            // The order of live runs must not change while they work.
            let order = |row: &RunRow| match row.state.is_live() {
                true => (0, Reverse(row.started_at.unwrap_or(row.last_at))),
                false => (1, Reverse(row.last_at)),
            };
            (order(a), &a.key).cmp(&(order(b), &b.key))
        });
        rows
    }

    /// Returns the number of runs that wait for a person.
    pub(crate) fn waiting(&self) -> usize {
        let now = now();
        let state = self.lock();
        let rows = state.known.values().map(|it| &it.row);
        rows.filter(|row| row.waits_for_person(now)).count()
    }

    /// Returns the projects that can't be read, with the reasons.
    pub(crate) fn problems(&self) -> Vec<(PathBuf, String)> {
        self.lock().problems.clone().into_iter().collect()
    }

    /// Returns whether there are more runs than the list has.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.lock().is_incomplete
    }

    pub(crate) fn row(&self, key: &str) -> Option<Arc<RunRow>> {
        Some(Arc::clone(&self.lock().known.get(key)?.row))
    }

    /// Returns the tops of the projects that have a run, in the order of the list.
    pub(crate) fn roots(&self) -> Vec<PathBuf> {
        let mut known = HashSet::new();
        let roots = self.rows().into_iter().map(|row| row.root.clone());
        roots.filter(|root| known.insert(root.clone())).collect()
    }

    /// Returns the project with this top.
    pub(crate) fn project_at(&self, root: &Path) -> Option<Project> {
        self.lock().projects.get(root).cloned()
    }

    /// Returns the project of a run.
    pub(crate) fn project(&self, row: &RunRow) -> Option<Project> {
        self.project_at(&row.root)
    }

    /// Scans while pages are open, until the task is dropped.
    pub(crate) async fn keep_fresh(self: Arc<Self>) {
        let mut presence = self.presence.subscribe();
        loop {
            // The sender is in `self`.
            drop(presence.wait_for(|it| it.is_anybody()).await);
            let runs = Arc::clone(&self);
            let _scanned = spawn_blocking(move || runs.refresh(SCAN_INTERVAL)).await;
            sleep_until(Clock::now() + SCAN_INTERVAL).await;
        }
    }

    /// Scans, unless the last scan is at most this old. Blocks.
    pub(crate) fn refresh(self: &Arc<Self>, age: Duration) {
        let is_fresh = || { self.lock().scanned }.is_some_and(|at| at.elapsed() < age);
        if is_fresh() {
            return;
        }
        // If another thread scans, the known rows will do: it can hang on a dead file system. Only the first rows are worth a wait.
        let by = Instant::now() + FIRST_SCAN;
        let _one = loop {
            match self.scanning.try_lock() {
                Ok(one) => break one,
                Err(_) if self.lock().scanned.is_some() || Instant::now() >= by => return,
                Err(_) => std::thread::park_timeout(POLL),
            }
        };
        if !is_fresh() {
            self.scan();
        }
    }

    /// Returns a row. If it isn't known, scans first, since a scan of another thread can have begun before the run. Blocks.
    pub(crate) fn find(self: &Arc<Self>, key: &str) -> Option<Arc<RunRow>> {
        let by = Instant::now() + FIRST_SCAN;
        while self.row(key).is_none() && Instant::now() < by {
            if let Ok(_one) = self.scanning.try_lock() {
                self.scan();
                break;
            }
            std::thread::park_timeout(POLL);
        }
        self.row(key)
    }

    fn scan(self: &Arc<Self>) {
        let mut roots = index::projects();
        let live = index::live().into_iter();
        roots.extend(live.map(|(project, _)| project.root().to_owned()));
        roots.sort();
        roots.dedup();
        let mut problems = BTreeMap::new();
        let mut found = HashSet::new();
        let (mut is_changed, mut is_incomplete) = (false, false);
        for root in roots {
            let listed = self.open(root.clone()).and_then(|project| match project {
                Some(project) => {
                    let ids = project.run_ids().map_err(|e| e.to_string())?;
                    Ok(Some((project, ids)))
                }
                None => Ok(None),
            });
            let (project, ids) = match listed {
                Ok(Some(listed)) => listed,
                Ok(None) => continue,
                Err(why) => {
                    problems.insert(root, why);
                    continue;
                }
            };
            for run in ids {
                if found.len() >= MAX_RUNS {
                    is_incomplete = true;
                    break;
                }
                let key = index::key(project.root(), &run);
                is_changed |= self.scan_run(&project, &run, &key);
                found.insert(key);
            }
        }
        let mut state = self.lock();
        let before = state.known.len();
        state.known.retain(|key, _| found.contains(key));
        is_changed |= before != state.known.len() || state.problems != problems;
        state.problems = problems;
        state.is_incomplete = is_incomplete;
        state.scanned = Some(Instant::now());
        drop(state);
        if is_changed {
            self.version.send_modify(|version| *version += 1);
        }
    }

    /// Opens a project; `None` if the user removed it or its state.
    fn open(&self, root: PathBuf) -> Result<Option<Project>, String> {
        let known = { self.lock().projects.get(&root).cloned() };
        let project = match known {
            Some(project) => project,
            None if !root.exists() => return Ok(None),
            None => {
                let project = Project::at(&root).map_err(|e| e.to_string())?;
                let mut state = self.lock();
                // A run knows the root without links.
                let own = project.root().to_owned();
                state.projects.insert(own, project.clone());
                state.projects.insert(root, project.clone());
                project
            }
        };
        Ok(state_dir::exists(&project.state_dir()).then_some(project))
    }

    /// Reads a run, unless its row is up to date. Returns whether the row changed.
    fn scan_run(self: &Arc<Self>, project: &Project, run: &RunId, key: &str) -> bool {
        let is_live = project.is_live(run);
        // Only a process that works on the run changes its files; it also changes the directory. So this needs no look at each file.
        let directory = state_dir::metadata(&project.run_dir(run)).map(|it| it.modified());
        let known = |state: &State| {
            let known = state.known.get(key)?;
            let is_same = !known.is_stale
                && known.row.state.is_live() == is_live
                && known.read_at.elapsed() < MAX_AGE;
            is_same.then(|| known.signature.clone())
        };
        let known = known(&self.lock());
        let directory_of = |known: &Signature| known.first().map(|(_, _, modified)| *modified);
        if let Some(known) = &known
            && !is_live
            && directory_of(known) == directory.ok()
        {
            return false;
        }
        let signature = signature(project, run);
        if known.as_ref() == Some(&signature) {
            return false;
        }
        self.read_run(project, run, key, signature)
    }

    fn read_run(
        self: &Arc<Self>,
        project: &Project,
        run: &RunId,
        key: &str,
        signature: Signature,
    ) -> bool {
        let read_at = Instant::now();
        let (read, mut prompt, asks) = {
            let mut state = self.lock();
            state.reads += 1;
            let read = state.reads;
            let known = state.known.get_mut(key);
            known.map_or((read, None, Vec::new()), |known| {
                // A report that arrives from now on makes the row stale again.
                known.is_stale = false;
                (read, known.prompt.clone(), known.asks.clone())
            })
        };
        // The run was removed meanwhile.
        let Ok(entry) = project.run(run) else {
            return false;
        };
        if prompt.is_none() {
            prompt = first_prompt(project, &entry);
        }
        let is_live = entry.is_live();
        let health = is_live.then(|| {
            let holder = project.holder_of(&entry);
            ProcessHealth::of(project, run, holder.as_ref(), HEALTH_TIMEOUT)
        });
        let live = LiveParts {
            health: health.as_ref(),
            asks: if is_live { &asks } else { &[] },
            prompt: prompt.clone(),
            texts: self.program.describe(project, &entry, health.as_ref()),
        };
        let root = project.root().to_owned();
        let row = Arc::new(RunRow::new(key.to_owned(), root, &entry, live));
        let mut state = self.lock();
        // A read that began later already wrote a newer row.
        if state.known.get(key).is_some_and(|it| it.read > read) {
            return false;
        }
        let before = state.known.remove(key);
        let is_changed = before.as_ref().is_none_or(|it| it.row != row);
        let known = Known {
            row,
            signature,
            read_at,
            read,
            prompt,
            is_stale: before.as_ref().is_some_and(|it| it.is_stale),
            asks: before.map_or(asks, |it| it.asks),
        };
        state.known.insert(key.to_owned(), known);
        let is_open = self.presence.borrow().is_anybody();
        let begins = is_live && is_open && state.watched.insert(key.to_owned());
        drop(state);
        if begins {
            let target = LiveRun::of(project.clone(), run.clone());
            let watching = watch_run(Arc::downgrade(self), target, key.to_owned());
            drop(self.handle.spawn(watching));
        }
        is_changed
    }

    /// Reads a live run that reported a change.
    fn reported(self: &Arc<Self>, target: &LiveRun, key: &str, asks: Vec<PermissionRequest>) {
        if let Some(known) = self.lock().known.get_mut(key) {
            known.asks = asks;
            known.is_stale = true;
        }
        let signature = signature(&target.project, &target.run);
        if self.read_run(&target.project, &target.run, key, signature) {
            self.version.send_modify(|version| *version += 1);
        }
        self.note_event();
    }

    fn note_event(&self) {
        self.events.send_modify(|events| *events += 1);
    }
}

/// Watches a live run until it ends, or until no page is open.
async fn watch_run(runs: Weak<Runs>, target: LiveRun, key: RunKey) {
    let began = Clock::now();
    follow(&runs, &target, &key).await;
    // Wait, so that a run that closes each connection causes no busy loop.
    sleep_until(began + ATTACH_AGAIN).await;
    if let Some(runs) = runs.upgrade() {
        runs.lock().watched.remove(&key);
        // The end of the run, or of its process, is shown at once.
        let read = move || runs.reported(&target, &key, Vec::new());
        let _read = spawn_blocking(read).await;
    }
}

async fn follow(runs: &Weak<Runs>, target: &LiveRun, key: &RunKey) -> Option<()> {
    let mut presence = runs.upgrade()?.presence.subscribe();
    let attended = presence.borrow_and_update().can_answer();
    let to = target.clone();
    let attach = move || to.attach(attended, now());
    let Ok(Ok(ConnectOutcome::Connected(mut attached))) = spawn_blocking(attach).await else {
        return None;
    };
    let (mut view, mut events) = (attached.view(), attached.events()?);
    view.mark_changed();
    loop {
        tokio::select! {
            changed = view.changed() => {
                changed.ok()?;
                let asks = view.borrow_and_update().agent.permission_requests.clone();
                let (runs, target, key) = (runs.upgrade()?, target.clone(), key.clone());
                let read = move || runs.reported(&target, &key, asks);
                spawn_blocking(read).await.ok()?;
            }
            event = events.recv() => match event? {
                (_, RunEvent::EventsMissed(_)) => {}
                _ => runs.upgrade()?.note_event(),
            },
            changed = presence.changed() => {
                changed.ok()?;
                let now = *presence.borrow_and_update();
                // The run must know whether a person can answer it.
                if !now.is_anybody() || now.can_answer() != attended {
                    return None;
                }
            }
        }
    }
}

/// Returns the facts about the directory of a run, and then about each file in it.
fn signature(project: &Project, run: &RunId) -> Signature {
    let directory = project.run_dir(run);
    let mut entries = state_dir::entries_if_any(&directory).unwrap_or_default();
    entries.sort();
    let facts = |path: PathBuf| {
        let meta = state_dir::metadata(&path).ok()?;
        Some((path, meta.len(), meta.modified()))
    };
    std::iter::once(directory)
        .chain(entries)
        .filter_map(facts)
        .collect()
}

fn first_prompt(project: &Project, entry: &RunEntry) -> Option<String> {
    let prompts = project.prompts(entry.head.as_ref().ok()?).ok()?;
    let first = prompts.into_iter().next()?;
    let line = first.lines().find(|line| !line.trim().is_empty())?;
    Some(line.chars().take(1000).collect())
}

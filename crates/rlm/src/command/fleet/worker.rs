//! `rlm fleet worker`: claims runs, makes their working trees, and supervises a process for each.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_subprocess::{Exit, ProcessId, ProcessTree, Signal, StdinMode, StopPolicy, TreeCommand};
use cancellable_sleep::SleepGate;
use checkpoint_store::Record;
use rlm_fleet::nats::{
    ClaimDecision, Claimed, Error as FleetError, Fleet, Pool, ReplicaStart, RunCode, RunParts,
    RunProcess, SupervisionEnd, now,
};
use rlm_fleet::{BUDGET_INTERVAL, FailedClaim, FailureCause, Moment, pause_after_failed_starts};
use rlm_store::transfer::{ReplicatedRun, UnpackedRun};
use rlm_store::{Project, RunId, state_dir};
use tokio::task::{JoinSet, spawn_blocking};
use tokio_util::sync::CancellationToken;

use super::budget;
use super::server::address;
use super::show::describe;
use super::work::WorkSpec;
use crate::args::{FLEET_WORK, FleetServerArgs, FleetWorkerArgs};
use crate::exit::{Code, Failure};
use crate::output;
use crate::session::{Session, refuse_nested};
use crate::{agents, config};

/// The stop budget of a run's process. The worker kills it 1.5 s after SIGTERM, and the guards need a part of that time.
const RUN_STOP: &str = "1200ms";
/// The interval between two looks at processes that could not be ended.
const SURVIVORS: Duration = Duration::from_secs(10);
/// The number of printed lines of a run that the evidence of a failure has.
const LAST_LINES: usize = 5;
/// The wait after a failed request to the fleet.
const RETRY: Duration = Duration::from_secs(1);

pub(crate) fn execute(directory: &Path, args: FleetWorkerArgs) -> Result<ExitCode, Failure> {
    let session = Session::begin(true, false)?;
    refuse_nested(false)?;
    let pools = pools(&args)?;
    let place = directory.join(&args.place);
    let made = state_dir::make_private_directory(&place).and_then(|()| std::path::absolute(&place));
    let place =
        made.map_err(|e| Failure::failed(format!("can't create `{}`: {e}", place.display())))?;
    // The directory can be in a repository, whose commits must not contain it.
    if let Ok(mut file) = state_dir::create_new(&place.join(".gitignore")) {
        let _unlikely = file.write_all(b"*\n");
    }
    let program = std::env::current_exe()
        .map_err(|e| Failure::failed(format!("can't find the program file of rlm: {e}")))?;
    let pid = std::process::id().to_string();
    // Its waits end only when the hand-overs have ended, so it does not depend on the gate of the session.
    let over = CancellationToken::new();
    let gate = SleepGate::from_token(over.clone());
    let shutdown = CancellationToken::new();
    session.run_until_shutdown(&shutdown, async {
        let fleet = Fleet::connect(&address(&args.server), gate.clone()).await?;
        // A pool that does not exist is an error now, not with each request for a run.
        for (pool, _) in &pools {
            fleet.permitted(fleet.lease_of(pool)).await?;
        }
        let name = args.name.unwrap_or_else(|| pid.clone());
        for (pool, slots) in &pools {
            let runs = match slots {
                1 => "1 run".into(),
                _ => format!("{slots} runs at a time"),
            };
            output::line(&format!(
                "worker {name} is ready for the runs of pool {pool}: {runs}"
            ));
        }
        let worker = Worker {
            fleet,
            server: args.server,
            name,
            place,
            program,
            shutdown: shutdown.clone(),
            health: Arc::default(),
            gate,
        };
        let mut requests = worker.fleet.drain_requests(&worker.name).await?;
        let drain = async {
            loop {
                requests.next().await;
                shutdown.cancel();
            }
        };
        let mut slots = JoinSet::new();
        for (pool, count) in pools {
            let worker = Worker {
                health: Arc::default(),
                ..worker.clone()
            };
            for _ in 0..count {
                slots.spawn(worker.clone().serve(pool.clone()));
            }
        }
        drop(worker);
        let ends = tokio::select! {
            ends = slots.join_all() => ends,
            never = drain => match never {},
        };
        over.cancel();
        ends.into_iter().collect::<Result<(), FleetError>>()
    })?;
    Ok(Code::Done.into())
}

/// The largest number of runs of a pool at a time.
const MAX_SLOTS: u32 = 64;

/// Returns the pools of a worker, each with the number of its runs at a time.
fn pools(args: &FleetWorkerArgs) -> Result<Vec<(Pool, u32)>, Failure> {
    let mut pools: Vec<(Pool, u32)> = Vec::new();
    for given in &args.pools {
        let (name, slots) = match given.split_once('=') {
            None => (given.as_str(), args.slots),
            Some((name, slots)) => {
                let slots = slots.parse().ok().filter(|it| (1..=MAX_SLOTS).contains(it));
                let wrong = || {
                    let most = MAX_SLOTS;
                    Failure::usage(format!(
                        "--pool {given}: expected 1 to {most} slots after ="
                    ))
                };
                (name, slots.ok_or_else(wrong)?)
            }
        };
        let pool: Pool = name.parse()?;
        if pools.iter().any(|(known, _)| *known == pool) {
            return Err(Failure::usage(format!("--pool {pool} is given twice")));
        }
        pools.push((pool, slots));
    }
    Ok(pools)
}

/// The reason why a record could not be read.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// One worker. Each slot has a clone.
#[derive(Clone)]
struct Worker {
    fleet: Fleet,
    server: FleetServerArgs,
    name: String,
    place: PathBuf,
    program: PathBuf,
    shutdown: CancellationToken,
    /// Shared by the slots of a pool.
    health: Arc<Mutex<WorkerHealth>>,
    /// Is shut when all slots have ended.
    gate: SleepGate,
}

/// Why a worker asks for no run.
#[derive(Debug, Default)]
struct WorkerHealth {
    /// The starts of runs that failed, in a row.
    failed_starts: u32,
    /// When it asks again: after failed starts, or when its connection is old enough.
    pause_until: Moment,
    /// Whether the budget of the fleet is spent.
    is_budget_spent: bool,
}

impl Worker {
    /// Claims one run of a pool after the other until the shutdown. A run that waits, for example for a rate limit, keeps only a slot of its pool. Fails if
    /// the server refuses the first request for a run to the user of this worker.
    async fn serve(self, pool: Pool) -> Result<(), FleetError> {
        let mut is_first = true;
        while !self.shutdown.is_cancelled() {
            self.wait_while_paused().await;
            if self.is_budget_spent().await {
                self.sleep(BUDGET_INTERVAL).await;
                continue;
            }
            let pulled = tokio::select! {
                biased;
                () = self.shutdown.cancelled() => break,
                pulled = self.fleet.permitted(self.fleet.pull(&pool)) => pulled,
            };
            let is_first = std::mem::take(&mut is_first);
            let delivery = match pulled {
                Ok(Some(delivery)) => delivery,
                Ok(None) => continue,
                Err(e) if e.is_refused() && is_first => return Err(e),
                Err(e) => {
                    self.wait_after(&e).await;
                    continue;
                }
            };
            match self.fleet.permitted(delivery.decide(&self.name)).await {
                Ok(ClaimDecision::Claimed(claimed)) => self.work(*claimed).await,
                Ok(ClaimDecision::Over | ClaimDecision::LeftAlone) => {}
                Ok(ClaimDecision::Returned { until }) => self.pause(until),
                Err(e) => self.wait_after(&e).await,
            }
        }
        Ok(())
    }

    /// Waits while the slots of this pool ask for no run.
    async fn wait_while_paused(&self) {
        let until = self.health().pause_until;
        self.sleep(until.since(now())).await;
    }

    /// Returns whether the budget of the fleet is spent, and says so once.
    async fn is_budget_spent(&self) -> bool {
        // A worker without an answer gets no run either.
        let Ok((budget, state)) = self.fleet.budget().await else {
            return false;
        };
        let is_spent = state.is_spent();
        let was_spent = std::mem::replace(&mut self.health().is_budget_spent, is_spent);
        if is_spent && !was_spent {
            let budget = budget::in_words(&budget, &state);
            self.say(None, &format!("this worker takes no run: {budget}"));
        }
        is_spent
    }

    fn health(&self) -> MutexGuard<'_, WorkerHealth> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until the time is over, or the worker shuts down.
    async fn sleep(&self, time: Duration) {
        let gate = SleepGate::from_token(self.shutdown.child_token());
        let _elapsed_or_over = gate.sleep(time).await;
    }

    /// Counts the failed starts in a row. After one, the other workers of the pool get the runs for a while.
    fn count_start(&self, end: &SupervisionEnd, lease: Duration) {
        let is_failed = |failed: &FailedClaim| failed.cause == FailureCause::Start;
        let is_failed = match end {
            SupervisionEnd::GivenBack(failed) | SupervisionEnd::Parked(failed) => is_failed(failed),
            _ => false,
        };
        let mut health = self.health();
        health.failed_starts = match is_failed {
            true => health.failed_starts.saturating_add(1),
            false => 0,
        };
        let pause = pause_after_failed_starts(health.failed_starts, lease);
        drop(health);
        self.pause(now() + pause);
        if is_failed {
            let pause = rlm_text::duration::show(pause);
            let text = format!(
                "this worker asks for no run of this pool for {pause}, so that others get them"
            );
            self.say(None, &text);
        }
    }

    /// Lets the slots of this pool ask for no run before this moment.
    fn pause(&self, until: Moment) {
        let mut health = self.health();
        health.pause_until = health.pause_until.max(until);
    }

    async fn wait_after(&self, error: &FleetError) {
        self.say(None, &error.to_string());
        self.sleep(RETRY).await;
    }

    fn say(&self, run: Option<&RunId>, text: &str) {
        let text = rlm_text::escape::safe(text);
        match run {
            Some(run) => output::line(&format!("[{run}] {text}")),
            None => output::line(&text),
        };
    }

    /// Works on a claimed run.
    async fn work(&self, claimed: Claimed) {
        let (run, epoch) = (claimed.run().clone(), claimed.epoch());
        self.say(Some(&run), &format!("claim {epoch}"));
        // Workers of several fleets can share the directory.
        let unique = uuid::Uuid::new_v4().simple().to_string();
        let place = self.place.join(format!("{run}.{epoch}.{}", &unique[..8]));
        let lease = claimed.lease();
        let end = match self.start(&claimed, &place).await {
            Ok(Some(process)) => self.supervise(claimed, process, &place).await,
            Ok(None) => {
                let ended = claimed.end_stopped().await;
                let text = ended.map_or_else(|e| e.to_string(), |_| "stopped by a person".into());
                self.say(Some(&run), &text);
                remove(&place);
                return;
            }
            Err(why) => claimed.give_back_unstarted(&why.to_string()).await,
        };
        self.count_start(&end, lease);
        let text = match &end {
            SupervisionEnd::RunEnded(last) => {
                let reason = last.summary.as_ref().and_then(|it| it.reason.as_ref());
                reason.map_or("ended".to_owned(), ToString::to_string)
            }
            SupervisionEnd::HandedOver => "handed over".into(),
            SupervisionEnd::GivenBack(failed) => format!("given back: {}", describe(failed)),
            SupervisionEnd::Parked(failed) => format!("parked: {}", describe(failed)),
            SupervisionEnd::LeftAlone => {
                "its process ended; another claim follows when the lease ends".into()
            }
            SupervisionEnd::LeaseLost => "the lease is lost; its process was killed".into(),
            SupervisionEnd::Fenced { by } => format!("another worker owns it (claim {by})"),
        };
        self.say(Some(&run), &text);
        let is_over = matches!(end, SupervisionEnd::RunEnded(_));
        let at = place.clone();
        // The work in flight of a run that goes on is done again. That of a run that has ended is only here.
        let removed = spawn_blocking(move || {
            let is_kept = is_over && !is_committed(&at);
            if !is_kept {
                remove(&at);
            }
            !is_kept
        });
        if matches!(removed.await, Ok(false)) {
            let place = place.display();
            self.say(
                Some(&run),
                &format!("uncommitted changes of the ended run stay in {place}"),
            );
        }
    }

    /// Works on a run until its process is gone, and stores its transcripts meanwhile.
    async fn supervise(
        &self,
        claimed: Claimed,
        process: WorkProcess,
        place: &Path,
    ) -> SupervisionEnd {
        let run = claimed.run().clone();
        let run_dir = Project::find(place).map(|project| project.run_dir(&run));
        let upload = run_dir
            .map_err(Failure::from)
            .and_then(|run_dir| Ok(claimed.transcripts(run_dir)?));
        let say = |why: &dyn std::fmt::Display| {
            self.say(
                Some(&run),
                &format!("its transcripts are not stored in the fleet: {why}"),
            );
        };
        let mut supervised = Box::pin(claimed.supervise(process, self.shutdown.cancelled()));
        let upload = match upload {
            Ok(upload) => upload,
            Err(why) => {
                say(&why.message);
                return supervised.await;
            }
        };
        let end = tokio::select! {
            biased;
            end = &mut supervised => end,
            why = upload.serve() => {
                say(&why);
                return supervised.await;
            }
        };
        let shutdown = async {
            self.shutdown.cancelled().await;
            let _elapsed = self.gate.sleep(RETRY).await;
        };
        tokio::select! {
            biased;
            finished = upload.finish() => {
                let _said = finished.map_err(|why| say(&why));
            }
            () = shutdown => say(&"the server does not answer"),
        }
        end
    }

    /// Makes the working tree of a claimed run, and starts its process; `None` if a person has requested a stop, so that nothing has to start.
    async fn start(&self, claimed: &Claimed, place: &Path) -> Result<Option<WorkProcess>, Failure> {
        let parts = self.fleet.permitted(claimed.parts()).await?;
        let (run, epoch) = (claimed.run().clone(), claimed.epoch());
        let start = ReplicaStart {
            fleet: address(&self.server),
            run: run.clone(),
            epoch,
            claim: claimed.seq(),
            newest: parts.newest.get(),
            base_commit: parts.code.as_ref().map(|code| code.base.clone()),
            stored_blobs: parts.stored_blobs.clone(),
            applied: 0,
            resumed_at: parts.resumed_at,
            give_up: claimed.lease(),
        };
        let (taken_over, changes) = (parts.taken_over, parts.changes.clone());
        let at = place.to_owned();
        let unpacked = spawn_blocking(move || unpack(&at, &run, epoch, parts)).await;
        let unpacked = unpacked.map_err(|e| Failure::failed(e.to_string()))??;
        let applied = unpacked.head.last_request;
        let stop = claimed.has_stop(applied, start.resumed_at);
        if self.fleet.permitted(stop).await? {
            return Ok(None);
        }
        let spec = WorkSpec {
            start: ReplicaStart {
                newest: unpacked.seq.get(),
                applied,
                ..start
            },
            worker: ProcessId::current(),
            project: place.to_owned(),
            root: unpacked.root,
            taken_over,
            changes,
        };
        let spec = serde_json::to_vec(&spec).map_err(|e| Failure::failed(e.to_string()))?;
        let lost = || Failure::failed("the lease was lost before the process began");
        let kill_at = claimed.kill_at().ok_or_else(lost)?;
        let command = TreeCommand::new(&self.program)
            .args(["-C", ".", "--color", "never", FLEET_WORK])
            .env(config::SHUTDOWN_TIMEOUT, RUN_STOP)
            // The agent of the run must not get the address of the fleet.
            .env_remove("RLM_FLEET_NATS")
            .current_dir(place)
            // From its first moment, and although this worker can freeze.
            .kill_at(Duration::from_millis(kill_at.as_millis()))
            .stdin(StdinMode::Bytes(spec));
        let tree = command.spawn().await;
        let tree = tree.map_err(|e| Failure::failed(e.to_string()))?;
        let run = claimed.run().clone();
        Ok(Some(WorkProcess {
            tree,
            run,
            printed: VecDeque::new(),
            exit: None,
            policy: StopPolicy::default(),
            gate: self.gate.clone(),
        }))
    }
}

/// Makes the working tree of a run, with its directory.
fn unpack(place: &Path, run: &RunId, epoch: u64, parts: RunParts) -> Result<UnpackedRun, Failure> {
    let project = check_out(place, run, parts.code.as_ref())?;
    let unpacked = project.unpack_claimed(run, epoch, replicated(parts))?;
    refuse_missing_agents(&project, run)?;
    Ok(unpacked)
}

/// Makes a new working tree with the code of a run.
pub(super) fn check_out(
    place: &Path,
    run: &RunId,
    code: Option<&RunCode>,
) -> Result<Project, Failure> {
    match code {
        Some(code) => Project::check_out_bundles(place, &format!("rlm/{run}"), &code.commits())?,
        None => {
            let made = state_dir::make_private_directory(place);
            made.map_err(|e| Failure::failed(e.to_string()))?;
        }
    }
    Ok(Project::find(place)?)
}

/// Returns the parts from which the directory of a run is made.
pub(super) fn replicated(
    parts: RunParts,
) -> ReplicatedRun<io::Cursor<Vec<u8>>, impl Iterator<Item = Result<Record, BoxError>>> {
    ReplicatedRun {
        base: io::Cursor::new(parts.base),
        records: parts.records.into_iter().map(Ok),
        blobs: parts.blobs,
    }
}

/// Refuses a run whose agents this machine doesn't have. The run itself would end.
fn refuse_missing_agents(project: &Project, run: &RunId) -> Result<(), Failure> {
    let Ok(head) = project.run(run)?.head else {
        // The process of the run reports it.
        return Ok(());
    };
    let path = std::env::var_os("PATH");
    for phase in &head.settings.phases {
        let program = agents::program(&phase.agent);
        let is_missing = phase.agent.has_program()
            && which::which_in(program, path.as_ref(), project.tree()).is_err();
        if is_missing {
            let (program, phase) = (Path::new(program).display(), &phase.name);
            return Err(Failure::failed(format!(
                "phase {phase} needs the program `{program}`, which is not on this machine"
            )));
        }
    }
    Ok(())
}

/// Returns whether git has all files of a working tree.
fn is_committed(place: &Path) -> bool {
    let project = Project::find(place).ok();
    let changes = project.and_then(|project| project.git().query(&["status", "--porcelain"]));
    changes.is_some_and(|changes| changes.is_empty())
}

fn remove(place: &Path) {
    // A rest does no harm: each claim has its own directory.
    let _stays = state_dir::remove_tree(place);
}

/// The process of a claimed run. Its guard holds the whole process tree, with the guards and agents of the run.
struct WorkProcess {
    tree: ProcessTree,
    run: RunId,
    /// The last lines that it printed.
    printed: VecDeque<String>,
    exit: Option<Exit>,
    policy: StopPolicy,
    gate: SleepGate,
}

impl RunProcess for WorkProcess {
    fn kill_at(&mut self, at: Moment) {
        let time = Duration::from_millis(at.as_millis());
        if self.tree.kill_at(time).is_err() {
            self.kill();
        }
    }

    fn stop(&mut self) {
        // If the signal can't be sent, the process is killed after its time.
        let _not_sent = self.tree.signal(Signal::Terminate);
    }

    fn kill(&mut self) {
        self.policy = StopPolicy::kill();
        // If the guard is gone, the stop below sweeps.
        let _gone = self.tree.kill_at(Duration::ZERO);
    }

    fn last_words(&self) -> String {
        let exit = self.exit.map_or(String::new(), |exit| exit.to_string());
        let lines = self.printed.iter().map(String::as_str);
        lines.chain([exit.as_str()]).collect::<Vec<_>>().join("\n")
    }

    async fn gone(&mut self) {
        loop {
            tokio::select! {
                biased;
                Some(printed) = self.tree.next_output() => {
                    let text = rlm_text::escape::safe(&printed.line.text());
                    output::line(&format!("[{}] {text}", self.run));
                    if self.printed.len() == LAST_LINES {
                        self.printed.pop_front();
                    }
                    self.printed.push_back(text);
                }
                else => break,
            }
        }
        self.exit = Some(self.tree.wait().await);
        let report = self.tree.stop(&self.policy).await;
        if report.is_proven() {
            return;
        }
        // This worker keeps the run, so that no second agent starts beside what is left of the first.
        loop {
            let left = self.tree.leftovers().await;
            if left.is_empty() || self.gate.is_shutdown() {
                return;
            }
            let names: Vec<String> = left.iter().map(ToString::to_string).collect();
            let names = rlm_text::escape::safe(&names.join(", "));
            output::line(&format!(
                "[{}] these processes can't be ended: {names}; no other worker continues the run until they are gone",
                self.run
            ));
            let _woken = self.gate.sleep(SURVIVORS).await;
        }
    }
}

//! One scene: a sandbox with a job, the scripted agent with its receipts, and the tool. Every wait has a limit.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fs_err as fs;
use rlm_survivors::quoted;
use rlm_tests::agent::{AgentStart, FakeAgent};
use rlm_tests::live::OneShotAgent;
use rlm_tests::model::{FakeModel, Request};
use rlm_tests::{Ended, Process, Running, Sandbox, poll_until};
use rustix::process::Signal;

use crate::Tool;
use crate::small_disk::SmallDisk;
use crate::tool::{Places, filled};

/// The time limit of the commands that the lab itself needs.
const COMMAND: Duration = Duration::from_secs(15);
/// The time limit for the end of a killed process.
const GONE: Duration = Duration::from_secs(10);
/// Runs its argument as a command; a tool with endless output ends at 256 MiB, before the disk is full.
const BOUNDED: &str = r#"ulimit -c 0 -f 262144; exec bash -c "$0""#;
/// Runs its argument as a command without its output; each file has at most 1.5 GiB.
const SILENT: &str = r#"ulimit -c 0 -f 1572864; exec bash -c "$0" >/dev/null 2>&1"#;
/// The number of processes after which a scene ends.
const CROWD: usize = 300;
/// The bytes, and the number of files, after which a scene ends.
const LARGEST: (u64, usize) = (4 << 30, 50_000);
/// The number of polls between two counts of the processes and the bytes, because a count is expensive.
const BETWEEN_COUNTS: u32 = 10;
/// The number of shown output lines.
const TAIL: usize = 2;
/// The longest shown output.
const SHOWN: usize = 160;

/// The effort of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// A first score in under two minutes.
    Quick,
    /// All repetitions.
    Full,
}

/// A measurement: the tool, the scripted agent, and its circumstances.
#[derive(Debug, Clone, Copy)]
pub struct Lab<'a> {
    /// The tool.
    pub tool: &'a Tool,
    /// The program of the scripted agent.
    pub agent: &'a Path,
    /// A real agent CLI that plays instead of the scripted agent, with a scripted model.
    pub cli: Option<&'a OneShotAgent>,
    /// The number of repetitions.
    pub effort: Effort,
    /// The seed of the random moments.
    pub seed: u64,
    /// Ends the measurement when it becomes true.
    pub given_up: &'a AtomicBool,
}

/// The work of a scene.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    /// The agent's script; `{lab}` is the folder of the receipts, `{repo}` the repository, and `{promise}` the line that reports finished work.
    pub(crate) script: String,
    /// Shell lines that the agent's program runs before the script, with the same places.
    pub(crate) before: String,
    /// The text of the prompt file, with the same places.
    pub(crate) prompt: String,
    /// The number of iterations that the tool is asked for.
    pub(crate) iterations: u32,
    /// The number of steps after which the check passes.
    pub(crate) steps: u32,
}

impl Job {
    /// Returns a job whose check never passes.
    pub(crate) fn endless(script: impl Into<String>, iterations: u32) -> Self {
        Self {
            script: script.into(),
            before: String::new(),
            prompt: "Do the next step of the work.\n".into(),
            iterations,
            steps: u32::MAX,
        }
    }

    /// Returns a job that is done after two steps.
    pub(crate) fn two_steps(script: impl Into<String>, iterations: u32) -> Self {
        Self {
            steps: 2,
            ..Self::endless(script, iterations)
        }
    }
}

/// The script of an honest iteration: it works, makes one step, and ends. `starts` selects the agent's starts, such as `@2..`.
pub(crate) fn step(starts: &str, milliseconds: u64) -> String {
    let lines = [
        format!("delay {milliseconds}"),
        "print made step {start}".into(),
        "append {repo}/work.txt step {start}".into(),
        "append {lab}/steps {start}".into(),
    ];
    lines
        .map(|line| format!("{starts} {line}\n").trim_start().to_owned())
        .concat()
}

/// The result of a wait for something while the tool runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited<T> {
    Found(T),
    /// The tool ended before.
    Ended,
    /// The time limit has passed, or the measurement was given up.
    Late,
    /// The tool started too many processes, or wrote too much.
    Outgrown,
}

/// A sandbox with a job; dropping it kills all of its processes.
pub(crate) struct Scene<'a> {
    lab: Lab<'a>,
    agent: FakeAgent,
    program: PathBuf,
    iterations: u32,
    folder: PathBuf,
    disk: Option<SmallDisk>,
    model: Option<FakeModel>,
    pub(crate) sandbox: Sandbox,
}

impl<'a> Scene<'a> {
    pub(crate) fn new(lab: Lab<'a>, job: &Job) -> Self {
        let sandbox = Sandbox::new();
        let folder = sandbox.path().join("lab");
        fs::create_dir_all(&folder).expect("a directory can be made");
        let place = folder.display().to_string();
        let repo = sandbox.repo().display().to_string();
        let with_places = |text: &str| {
            { text.replace("{lab}", &place).replace("{repo}", &repo) }
                .replace("{promise}", lab.tool.promise())
        };
        let program = sandbox.path().join("bin").join(lab.tool.agent_name());
        let mut before = receipts(&place) + &with_places(&job.before);
        // For a real agent, the script is the script of its model.
        let model = lab.cli.map(|cli| {
            let model = FakeModel::start(&with_places(&job.script));
            cli.prepare(&sandbox, &model);
            before += &cli.shell_lines(&model);
            model
        });
        let own_script = match model {
            Some(_) => String::new(),
            None => with_places(&job.script),
        };
        let agent = sandbox.fake_agent(lab.agent, &own_script);
        agent.install(&sandbox, &program, &before);
        let this = Self {
            lab,
            agent,
            program,
            iterations: job.iterations,
            folder,
            disk: None,
            model,
            sandbox,
        };
        this.install_check(&place, job.steps);
        fs::write(this.prompt(), with_places(&job.prompt)).expect("a file can be written");
        this.sandbox.git(&["add", "PROMPT.md"]);
        this.sandbox.git(&["commit", "-q", "-m", "prompt"]);
        this
    }

    /// Writes the check, which records each of its results.
    fn install_check(&self, place: &str, steps: u32) {
        let text = format!(
            "#!/bin/sh\nif [ \"$(cat {place}/steps 2>/dev/null | wc -l)\" -ge {steps} ]; then echo passed >>{place}/checks; exit 0; fi\necho failed >>{place}/checks\nexit 1\n"
        );
        let write = r#"cat >"$0" && chmod +x "$0""#;
        let written = self.sandbox.rlm("/bin/sh").args(["-c", write]);
        written
            .args([self.check()])
            .input(text)
            .run(COMMAND)
            .expect_code(0);
    }

    pub(crate) fn lab(&self) -> Lab<'a> {
        self.lab
    }

    /// Returns the path of the prompt file.
    pub(crate) fn prompt(&self) -> PathBuf {
        self.sandbox.repo().join("PROMPT.md")
    }

    fn check(&self) -> PathBuf {
        self.folder.join("check")
    }

    /// Moves the repository to a small disk of its own, which outlives all processes of the scene.
    ///
    /// # Errors
    /// The reason why this machine doesn't allow it.
    pub(crate) fn on_small_disk(self, size: &str) -> Result<Self, String> {
        let disk = SmallDisk::mount(self.sandbox.path(), &self.sandbox.repo(), size)?;
        Ok(Self {
            disk: Some(disk),
            ..self
        })
    }

    pub(crate) fn disk(&self) -> Option<&SmallDisk> {
        self.disk.as_ref()
    }

    pub(crate) fn lines(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.folder.join(file)).unwrap_or_default();
        let end = text.rfind('\n').map_or(0, |at| at + 1);
        text[..end].lines().map(str::to_owned).collect()
    }

    /// Leaves a receipt for the agent's program.
    ///
    /// # Errors
    /// If the file can't be written.
    pub(crate) fn receipt(&self, name: &str) -> Result<(), String> {
        fs::write(self.folder.join(name), "").map_err(|error| error.to_string())
    }

    fn count(&self, file: &str) -> u32 {
        u32::try_from(self.lines(file).len()).unwrap_or(u32::MAX)
    }

    /// Returns the requests of a real agent for replies, without its side requests such as titles.
    pub(crate) fn requests(&self) -> Vec<Request> {
        let requests = self.model.iter().flat_map(FakeModel::requests);
        requests.filter(|request| request.tools > 0).collect()
    }

    /// Returns the number of steps that agents made.
    pub(crate) fn steps(&self) -> u32 {
        self.count("steps")
    }

    /// Returns the number of agents that began while another agent was alive.
    pub(crate) fn overlaps(&self) -> u32 {
        self.count("overlaps")
    }

    /// Returns whether the agent's script wrote the receipt of its fault.
    pub(crate) fn landed(&self) -> u32 {
        self.count("landed")
    }

    /// Returns the number of checks with this result.
    pub(crate) fn checks(&self, result: &str) -> u32 {
        let lines = self.lines("checks");
        let count = lines.iter().filter(|line| *line == result).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Returns the starts of the agent.
    pub(crate) fn starts(&self) -> Vec<AgentStart> {
        self.agent.starts()
    }

    pub(crate) fn start_count(&self) -> u32 {
        u32::try_from(self.starts().len()).unwrap_or(u32::MAX)
    }

    /// Returns the text that a start of the agent received: its standard input, its arguments, and the files that the arguments name.
    pub(crate) fn received(&self, start: &AgentStart) -> String {
        let words = self.folder.join(format!("words-{}", start.pid));
        let words = fs::read(words).unwrap_or_default();
        let stdin = start.stdin.clone().unwrap_or_default();
        stdin + &String::from_utf8_lossy(&words)
    }

    /// Returns the pids of the agents that are alive.
    pub(crate) fn agents_alive(&self) -> Vec<i32> {
        let agents: Vec<i32> = self.starts().iter().map(|start| start.pid).collect();
        let alive = self.sandbox.survivors().scan();
        let agents = alive
            .iter()
            .filter(|it| agents.contains(&it.pid) && !it.is_zombie());
        agents.map(|it| it.pid).collect()
    }

    /// Kills an agent of this scene. Returns whether it was alive before and is gone now.
    pub(crate) fn kill_agent(&self, pid: i32) -> bool {
        let alive = self.sandbox.survivors().scan();
        let agent = alive.iter().find(|it| it.pid == pid && !it.is_zombie());
        let gone = || (!self.agents_alive().contains(&pid)).then_some(());
        agent.is_some_and(Process::kill) && poll_until(GONE, gone).is_some()
    }

    /// Kills every process of this scene at once, as a loss of power does. Returns their number.
    pub(crate) fn kill_all(&self) -> u32 {
        let mut killed = 0;
        poll_until(GONE, || {
            let alive = self.sandbox.survivors().scan();
            let alive = alive.iter().filter(|it| !it.is_zombie());
            let mut is_empty = true;
            for process in alive {
                is_empty = false;
                killed += u32::from(process.kill());
            }
            is_empty.then_some(())
        });
        killed
    }

    fn command(&self, verb: &str) -> String {
        let (prompt, check) = (self.prompt(), self.check());
        filled(
            verb,
            Places {
                agent: &self.program,
                prompt: &prompt,
                check: &check,
                iterations: self.iterations,
            },
        )
    }

    /// Returns the search path of the tool, on which the agent comes first.
    fn search_path(&self) -> String {
        let path = self.sandbox.environment();
        let path = path.iter().find(|(name, _)| name == "PATH");
        let path = path.map_or("/usr/bin:/bin", |(_, path)| path);
        format!("{}:{path}", self.program.with_file_name("").display())
    }

    fn spawn(&self, script: &str, command: &str) -> Running {
        let tool = match &self.disk {
            None => self.sandbox.rlm("bash").args(["-c", script, command]),
            Some(disk) => {
                let script = format!("cd {}; {script}", quoted(&self.sandbox.repo()));
                let words = [&disk.namespace(), "bash", "-c", &script, command];
                self.sandbox.rlm("nsenter").args(words)
            }
        };
        tool.env("PATH", self.search_path()).own_session().spawn()
    }

    /// Starts the tool.
    pub(crate) fn start(&self) -> Running {
        self.run(&self.lab.tool.start)
    }

    /// Starts the tool without a reader of its output.
    pub(crate) fn start_silently(&self) -> Running {
        self.run_silently(&self.lab.tool.start)
    }

    /// Starts the tool with a command of its verbs, without a reader of its output.
    pub(crate) fn run_silently(&self, verb: &str) -> Running {
        self.spawn(SILENT, &self.command(verb))
    }

    /// Returns whether a shell can have its own mounts, which end with it.
    pub(crate) fn has_mounts(&self) -> bool {
        let mount = ["-m", "mount", "-t", "tmpfs", "none", "/mnt"];
        let mounted = self.sandbox.rlm("unshare").args(mount).spawn();
        self.end(mounted, COMMAND)
            .is_some_and(|it| it.code() == Some(0))
    }

    /// Starts the tool in a repository on a small disk of its own. After some seconds the file `ballast` is removed. A tool that fails is then started
    /// again.
    pub(crate) fn start_on_small_disk(&self, size: &str, seconds: u32) -> Running {
        let tool = self.lab.tool;
        let (start, again) = (self.command(&tool.start), self.command(tool.again()));
        let disk = self.sandbox.path().join("disk");
        fs::create_dir_all(&disk).expect("a directory can be made");
        let script = format!(
            "ulimit -c 0 -f 262144; set -e; mount -t tmpfs -o size={size} none {disk}; cp -a . {disk}; mount --bind {disk} .; cd \"$PWD\"\n\
             (sleep {seconds}; rm -f ballast) & set +e\n\
             bash -c \"$0\" && exit 0\n\
             wait; exec bash -c \"$1\"",
            disk = disk.display()
        );
        let words = ["-m", "bash", "-c", &script, &start, &again];
        let tool = self.sandbox.rlm("unshare").args(words);
        tool.env("PATH", self.search_path()).own_session().spawn()
    }

    /// Starts the tool again after a kill.
    pub(crate) fn restart(&self) -> Running {
        self.run(self.lab.tool.again())
    }

    /// Starts the tool with a command of its verbs.
    pub(crate) fn run(&self, verb: &str) -> Running {
        self.spawn(BOUNDED, &self.command(verb))
    }

    /// Starts the tool again several times. All of them begin at the same moment.
    ///
    /// # Errors
    /// The number of processes that were ready, if it is too low.
    pub(crate) fn race(&self, count: usize) -> Result<Vec<Running>, usize> {
        let place = self.folder.display();
        let script = format!(
            "echo $$ >>{place}/racers; until [ -e {place}/go ]; do sleep 0.01; done; {BOUNDED}"
        );
        let command = self.command(self.lab.tool.again());
        let racers = (0..count).map(|_| self.spawn(&script, &command));
        let racers: Vec<Running> = racers.collect();
        let ready = || (self.lines("racers").len() == count).then_some(());
        if poll_until(COMMAND, ready).is_none() {
            return Err(self.lines("racers").len());
        }
        self.receipt("go").expect("a file can be written");
        Ok(racers)
    }

    /// Waits for something while the tool runs.
    pub(crate) fn wait<T>(
        &self,
        tool: &mut Running,
        limit: Duration,
        mut poll: impl FnMut() -> Option<T>,
    ) -> Waited<T> {
        let mut polls = 0_u32;
        let found = poll_until(limit, || {
            // The check for the end comes first, so that actions of the tool just before its end count.
            let ended = tool.has_ended();
            if let Some(value) = poll() {
                return Some(Waited::Found(value));
            }
            polls += 1;
            if ended {
                Some(Waited::Ended)
            } else if self.lab.given_up.load(Ordering::Relaxed) {
                Some(Waited::Late)
            } else if polls.is_multiple_of(BETWEEN_COUNTS) && self.is_outgrown() {
                Some(Waited::Outgrown)
            } else {
                None
            }
        });
        found.unwrap_or(Waited::Late)
    }

    /// Returns whether the scene has too many processes, bytes or files.
    fn is_outgrown(&self) -> bool {
        if self.sandbox.survivors().scan().len() > CROWD {
            return true;
        }
        let (mut bytes, mut files) = (0, 0);
        let mut folders = vec![self.sandbox.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let Ok(about) = entry.metadata() else {
                    continue;
                };
                if about.is_dir() {
                    folders.push(entry.path());
                }
                (bytes, files) = (bytes + about.len(), files + 1);
                if bytes > LARGEST.0 || files > LARGEST.1 {
                    return true;
                }
            }
        }
        false
    }

    /// Waits until the tool ends. Returns `None`, and kills everything, if the tool is still running at the time limit or outgrows its bounds.
    pub(crate) fn end(&self, mut tool: Running, limit: Duration) -> Option<Ended> {
        match self.wait(&mut tool, limit, || None::<()>) {
            Waited::Ended => Some(tool.wait(Duration::ZERO)),
            _ => {
                self.kill_all();
                None
            }
        }
    }

    /// Kills the tool.
    ///
    /// # Errors
    /// The reason why it is unknown that the kill hit the tool.
    pub(crate) fn kill(&self, mut tool: Running) -> Result<(), String> {
        let pid = tool.pid();
        if tool.has_ended() {
            return Err("the tool ended before the kill".into());
        }
        match &self.lab.tool.kill {
            Some(kill) => {
                let kill = kill.replace("{pid}", &pid.to_string());
                let killed = self.end(self.run(&kill), COMMAND);
                if killed.is_none_or(|it| it.code() != Some(0)) {
                    return Err("the kill command failed".into());
                }
            }
            None => {
                let _sent = tool.signal_unless_reaped(Signal::KILL);
            }
        }
        if poll_until(GONE, || tool.has_ended().then_some(())).is_none() {
            return Err("the tool outlived the kill".into());
        }
        match tool.wait(Duration::ZERO).signal() {
            None if self.lab.tool.kill.is_none() => Err("the tool ended before the kill".into()),
            _ => Ok(()),
        }
    }

    /// Returns whether the tool reports that the work is done.
    pub(crate) fn reports_done(&self, ended: &Ended) -> bool {
        match &self.lab.tool.finish {
            None => ended.code() == Some(0),
            Some(finish) => {
                let ended = self.end(self.run(finish), COMMAND);
                ended.is_some_and(|it| it.code() == Some(0))
            }
        }
    }

    /// Returns the names and pids of the processes that are still alive after a short time.
    pub(crate) fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        poll_until(Duration::from_secs(3), || {
            left = self.sandbox.survivors().scan();
            left.is_empty().then_some(())
        });
        left.iter()
            .map(|it| format!("{} {}", it.pid, it.name))
            .collect()
    }

    /// Sends a message to the agent.
    ///
    /// # Errors
    /// The reason why the tool did not take it.
    pub(crate) fn send(&self, text: &str) -> Result<(), String> {
        let Some(message) = &self.lab.tool.message else {
            let mut prompt = fs::read_to_string(self.prompt()).unwrap_or_default();
            let _infallible = writeln!(prompt, "{text}");
            return fs::write(self.prompt(), prompt).map_err(|error| error.to_string());
        };
        let message = message.replace("{message}", text);
        match self.end(self.run(&message), COMMAND) {
            Some(ended) if ended.code() == Some(0) => Ok(()),
            Some(ended) => Err(format!("the message command failed{}", tail(&ended))),
            None => Err("the message command did not end".into()),
        }
    }
}

/// Returns the shell lines with which each agent records its arguments, and whether another agent is alive: each agent holds a lock as long as it
/// lives. The lock has a free descriptor, because the tool may have given a lock of its own to the agent.
fn receipts(place: &str) -> String {
    format!(
        "echo $$ >>{place}/calls\nfor fd in 9 8 7 6 5 4 3; do [ -e /proc/$$/fd/$fd ] || break; done\n\
         eval \"exec $fd>>{place}/agent.lock\"\n\
         flock -n $fd || echo $$ >>{place}/overlaps\n\
         for word; do printf '%s\\n' \"$word\"; [ -f \"$word\" ] && head -c 65536 \"$word\"; done >{place}/words-$$\n"
    )
}

/// Returns the exit status of a tool, and the end of its output.
pub(crate) fn tail(ended: &Ended) -> String {
    let status = match (ended.code(), ended.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, signal) => format!("signal {}", signal.unwrap_or_default()),
    };
    let text = match ended.stderr.trim() {
        "" => ended.stdout.trim(),
        stderr => stderr,
    };
    let lines: Vec<&str> = text.lines().collect();
    let lines = lines[lines.len().saturating_sub(TAIL)..].join(" | ");
    let shown: String = lines
        .chars()
        .filter(|it| !it.is_control())
        .take(SHOWN)
        .collect();
    match shown.as_str() {
        "" => format!(" ({status})"),
        shown => format!(" ({status}: {shown})"),
    }
}

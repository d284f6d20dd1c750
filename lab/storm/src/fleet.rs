//! The fleet of a storm: servers, workers with a proxy before each server, and the commands of a person.

use std::time::Duration;

use rlm_tests::nats::{NatsServers, Proxy, address};
use rlm_tests::{Rlm, Running, Sandbox, poll_until};

use crate::plan::{MISTAKES, Plan};

/// The time in which a new fleet must be ready.
const READY: Duration = Duration::from_secs(60);
const PROMPT: &str = "Do the next step.";

/// The state of a worker, as the storm left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkerState {
    Up,
    Frozen,
    CutOff,
    /// It got a signal that ends it.
    Ending,
}

/// One worker.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) name: String,
    pub(crate) running: Running,
    pub(crate) proxies: Vec<Proxy>,
    pub(crate) state: WorkerState,
}

/// The fleet. Dropping it ends all its processes.
#[derive(Debug)]
pub(crate) struct Fleet {
    // These end before the sandbox, which waits for all processes.
    pub(crate) workers: Vec<Worker>,
    pub(crate) servers: NatsServers,
    pub(crate) sandbox: Sandbox,
    started: usize,
    plan: Plan,
}

impl Fleet {
    /// Starts the servers, and creates the fleet. An error says what did not become ready.
    pub(crate) fn start(plan: &Plan) -> Result<Self, String> {
        let sandbox = Sandbox::new();
        let identity = "[user]\nname = A. Tester\nemail = tester@localhost\n";
        let config = sandbox.home().join(".gitconfig");
        fs_err::write(config, identity).map_err(|e| e.to_string())?;
        fs_err::create_dir(sandbox.path().join("workers")).map_err(|e| e.to_string())?;
        let servers = NatsServers::start(&sandbox, &plan.nats_server, plan.servers);
        let this = Self {
            workers: Vec::new(),
            servers,
            sandbox,
            started: 0,
            plan: plan.clone(),
        };
        let lease = format!("{}ms", plan.lease.as_millis());
        let replicas = plan.servers.to_string();
        let mut last = String::new();
        let ready = poll_until(READY, || {
            let words = ["init", "--lease", &lease, "--replicas", &replicas];
            let init = this.command(&words).run(READY);
            last.clone_from(&init.stderr);
            (init.code() == Some(0)).then_some(())
        });
        match ready {
            Some(()) => Ok(this),
            None => Err(format!("the fleet did not become ready: {last}")),
        }
    }

    /// Prepares `rlm fleet ARGUMENTS`, as a person calls it.
    pub(crate) fn command(&self, arguments: &[&str]) -> Rlm<'_> {
        let rlm = self.sandbox.rlm(&self.plan.rlm).args(["fleet"]);
        rlm.args(arguments)
            .env("RLM_FLEET_NATS", self.servers.address())
    }

    /// Starts a worker with a name of its own.
    pub(crate) fn start_worker(&mut self) {
        self.started += 1;
        let name = format!("w{}", self.started);
        let place = self.sandbox.path().join("workers").join(&name);
        let proxies: Vec<Proxy> = { self.servers.ports().into_iter() }
            .map(Proxy::start)
            .collect();
        let words = [
            "fleet", "worker", "--slots", "2", "--name", &name, "--place",
        ];
        let worker = self.sandbox.rlm(&self.plan.rlm).args(words).args([place]);
        let running = worker
            .env("RLM_FLEET_NATS", address(proxies.iter().map(Proxy::port)))
            .env(MISTAKES, &self.plan.mistakes)
            .own_session()
            .spawn();
        self.workers.push(Worker {
            name,
            running,
            proxies,
            state: WorkerState::Up,
        });
    }

    /// Starts to submit a run.
    pub(crate) fn submit(&self, run: &str) -> Running {
        let iterations = self.plan.iterations.to_string();
        let (least, most) = self.plan.agent_works;
        let words = ["run", "--run-id", run, "-n", &iterations, "--sleep", "0"];
        let submit = self.command(&words).args(["--prompt", PROMPT, "--"]);
        let place = self.sandbox.path();
        let agent = [self.plan.agent.as_os_str(), place.as_os_str()];
        let times = [least, most].map(|time| time.as_millis().to_string());
        submit.args(agent).args(times).spawn()
    }
}

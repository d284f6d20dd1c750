//! B16: a fleet on a real NATS server: the takeover of a dead worker's run, a save, a message to an owner, and the saves of several runs a second. Each
//! beside a bare client of the same server in the same round.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use async_nats::jetstream;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::context::Context;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, RetentionPolicy};
use async_nats::{Client, ConnectOptions};
use cancellable_sleep::SleepGate;
use checkpoint_store::{Options, Record, Replica, ReplicaError, Seq, Writer};
use futures_core::Stream as _;
use rlm_fleet::nats::{
    ClaimDecision, Claimed, Fleet, FleetAddress, FleetOptions, NatsReplica, NewRun, Pool,
    ReplicaStart, RunSummary, Submitted,
};
use rlm_store::RemoteMessage;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::harness::{
    Bench, Outcome, Plan, Process, Progress, Random, Result, Role, Series, Turn, in_turn, workers,
};

pub(crate) const BENCH: Bench = Bench {
    id: "b16",
    title: "a fleet on a NATS server",
    run,
    measured: None,
};

const OURS: &str = "rlm-fleet";
const BARE: &str = "bare async-nats";
const TAKEOVER: &str = "death of an owner to the next claim, lease 2 s";
const SAVE: &str = "one save of 3 KB";
const CONTROL: &str = "request to an owner, recorded, and its answer";
const EVENTS: &str = "saves of 8 runs at a time";
/// The shortest lease that a fleet allows.
const LEASE: Duration = Duration::from_secs(2);
/// The saves of one sample.
const SAVES: usize = 20;
/// The size of a typical save.
const SIZE: usize = 3_000;
/// The runs that save at the same time.
const RUNS: usize = 8;
/// Ten times the longest wait.
const LIMIT: Duration = Duration::from_secs(60);
const PASSWORD: &str = "bench";

fn run(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    let Some(program) = rlm_tests::nats::server_program() else {
        let why = "there is no NATS server; run `cargo xtask tools --install`";
        outcome.skip("b16", &why);
        return Ok(());
    };
    let runtime = workers()?;
    // A client of JetStream starts its task when it is made.
    let _reactor = runtime.enter();
    let server = Server::start(&program, &plan.scratch.join("b16"))?;
    let place = Place::new(&runtime, &server, plan)?;
    takeovers(&runtime, &place, plan, outcome)?;
    saves(&runtime, &place, plan, outcome)?;
    control(&runtime, &place, plan, outcome)?;
    events(&runtime, &place, plan, outcome)
}

/// A server that writes each record to its disk before it confirms it.
struct Server {
    address: String,
    _process: Process,
}

impl Server {
    fn start(program: &Path, dir: &Path) -> Result<Self> {
        fs_err::create_dir_all(dir)?;
        let port = { TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()? }.port();
        let store = dir.join("store");
        let config = dir.join("nats.conf");
        let text = format!(
            "listen: 127.0.0.1:{port}\njetstream {{ store_dir: {store:?}, sync_interval: always }}\n\
             authorization {{ user: rlm, password: {PASSWORD} }}\n"
        );
        fs_err::write(&config, text)?;
        let mut command = Command::new(program);
        command.arg("-c").arg(&config);
        let (log, _) = fs_err::File::create(dir.join("log"))?.into_parts();
        command.stderr(Stdio::from(log));
        let (process, _input, _output) = Process::piped(command)?;
        Ok(Self {
            address: format!("nats://rlm:{PASSWORD}@127.0.0.1:{port}"),
            _process: process,
        })
    }
}

/// A fleet, a bare client, and the record that both store.
struct Place {
    address: String,
    fleet: Fleet,
    bare: Client,
    record: Record,
}

const NAMESPACE: &str = "bench";

async fn connect(address: &str) -> Result<Fleet> {
    let begun = Instant::now();
    loop {
        let address = FleetAddress::new(address, NAMESPACE);
        match Fleet::connect(&address, SleepGate::new()).await {
            Err(e) if begun.elapsed() > LIMIT => return Err(e.into()),
            Err(_) => tokio::task::yield_now().await,
            Ok(fleet) => return Ok(fleet),
        }
    }
}

async fn bare(address: &str) -> Result<Client> {
    let options = ConnectOptions::with_user_and_password("rlm".into(), PASSWORD.into());
    Ok(options.connect(address).await?)
}

fn pool() -> Result<Pool> {
    Ok("main".parse()?)
}

impl Place {
    fn new(runtime: &Runtime, server: &Server, plan: &Plan) -> Result<Self> {
        let address = server.address.clone();
        let record = record(&plan.scratch.join("b16-store"))?;
        runtime.block_on(async {
            let fleet = connect(&address).await?;
            let options = FleetOptions {
                replicas: 1,
                lease: LEASE,
                pools: vec![pool()?],
            };
            let begun = Instant::now();
            // JetStream is ready a moment after the port.
            while let Err(e) = fleet.init(&options).await {
                if begun.elapsed() > LIMIT {
                    return Err(e.into());
                }
                tokio::task::yield_now().await;
            }
            let bare = bare(&address).await?;
            let context = jetstream::new(bare.clone());
            for (name, retention) in [
                ("bare-runs", RetentionPolicy::Limits),
                ("bare-work", RetentionPolicy::WorkQueue),
            ] {
                let config = Config {
                    name: name.into(),
                    subjects: vec![format!("{}.>", name.replace('-', "."))],
                    retention,
                    ..Config::default()
                };
                context.create_stream(config).await?;
            }
            Ok(Self {
                address,
                fleet,
                bare,
                record,
            })
        })
    }
}

/// Makes the record of a save, as a store with files passes it to its replica.
fn record(dir: &Path) -> Result<Record> {
    #[derive(Debug)]
    struct Collected(std::sync::mpsc::SyncSender<Record>);
    impl Replica for Collected {
        fn newest(&self) -> Seq {
            Seq::ZERO
        }

        fn append(&mut self, record: &Record) -> std::result::Result<(), ReplicaError> {
            let sent = self.0.try_send(record.clone());
            sent.map_err(|e| ReplicaError::Unconfirmed(e.into()))
        }

        fn put_blob(&mut self, _: &str, _: &[u8]) -> std::result::Result<(), ReplicaError> {
            Ok(())
        }
    }
    let (mut writer, _) = Writer::<Vec<u64>, u64>::open(dir, Options::default())?;
    let (sender, records) = std::sync::mpsc::sync_channel(1);
    writer.set_replica(Box::new(Collected(sender)))?;
    let mut random = Random::seeded(16);
    // Each number takes nine bytes.
    let head: Vec<u64> = (0..SIZE / 9).map(|_| random.next()).collect();
    writer.append(&head, &[])?;
    Ok(records.try_recv()?)
}

/// Submits a run, which waits for a worker.
async fn submit(fleet: &Fleet, name: &str) -> Result<()> {
    let new = NewRun {
        run: name.parse()?,
        pool: pool()?,
        base: vec![0; 1000],
        code: None,
        summary: RunSummary {
            title: None,
            phase: "main".into(),
            iteration: 0,
            attempts: 0,
            usage: Default::default(),
            last_check: None,
            reason: None,
            commit: None,
            paused: None,
        },
    };
    match fleet.submit(new).await? {
        Submitted::New => Ok(()),
        Submitted::Exists => Err(format!("the fleet has a run {name} already").into()),
    }
}

/// Waits for a run, and claims it.
async fn claim(fleet: &Fleet) -> Result<Box<Claimed>> {
    let begun = Instant::now();
    while begun.elapsed() < LIMIT {
        let Some(delivery) = fleet.pull(&pool()?).await? else {
            continue;
        };
        if let ClaimDecision::Claimed(claimed) = delivery.decide("bench").await? {
            return Ok(claimed);
        }
    }
    Err("no run was delivered".into())
}

/// A claimed run, and the replica for its saves. Dropping it gives nothing back.
struct Owner {
    claimed: Box<Claimed>,
    replica: NatsReplica,
    messages: mpsc::Receiver<RemoteMessage>,
}

impl Owner {
    fn new(runtime: &Runtime, place: &Place, name: &str) -> Result<Self> {
        let claimed = runtime.block_on(async {
            submit(&place.fleet, name).await?;
            claim(&place.fleet).await
        })?;
        let start = ReplicaStart {
            fleet: FleetAddress::new(place.address.clone(), NAMESPACE),
            run: claimed.run().clone(),
            epoch: claimed.epoch(),
            claim: claimed.seq(),
            newest: 0,
            base_commit: None,
            stored_blobs: BTreeMap::new(),
            applied: 0,
            resumed_at: 0,
            give_up: LIMIT,
        };
        let (replica, messages) = NatsReplica::open(start, Box::new(|_, _| Ok(None)))?;
        Ok(Self {
            claimed,
            replica,
            messages,
        })
    }

    fn save(&mut self, record: &Record) -> Result<()> {
        for _ in 0..SAVES {
            self.replica.append(record)?;
        }
        Ok(())
    }
}

/// A stream of a bare client, and the number of its last record.
struct BareRun {
    context: Context,
    subject: String,
    last: u64,
}

impl BareRun {
    async fn new(place: &Place, name: &str) -> Result<Self> {
        let client = bare(&place.address).await?;
        Ok(Self {
            context: jetstream::new(client),
            subject: format!("bare.runs.{name}"),
            last: 0,
        })
    }

    async fn save(&mut self, bytes: &[u8]) -> Result<()> {
        for _ in 0..SAVES {
            let publish = PublishMessage::build()
                .payload(bytes.to_vec().into())
                .expected_last_subject_sequence(self.last);
            let sent = self.context.send_publish(self.subject.clone(), publish);
            self.last = sent.await?.await?.sequence;
        }
        Ok(())
    }
}

fn takeovers(runtime: &Runtime, place: &Place, plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    let context = jetstream::new(place.bare.clone());
    let config = pull::Config {
        durable_name: Some("bare".into()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: LEASE,
        ..pull::Config::default()
    };
    let consumer: PullConsumer = runtime.block_on(async {
        let stream = context.get_stream("bare-work").await?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(stream.create_consumer(config).await?)
    })?;
    // An owner that is dropped would give its run to a later round.
    let mut owners = Vec::new();
    let turns = vec![
        Turn::new(OURS, Role::Ours, |round| {
            let (owner, took) = runtime.block_on(async {
                submit(&place.fleet, &format!("takeover{round}")).await?;
                let first = connect(&place.address).await?;
                let dead = claim(&first).await?;
                let begun = Instant::now();
                drop((dead, first));
                let owner = claim(&place.fleet).await?;
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>((owner, begun.elapsed()))
            })?;
            owners.push(owner);
            Ok(Some(took.as_secs_f64() * 1e3))
        }),
        Turn::new(BARE, Role::Floor, |round| {
            let took = runtime.block_on(async {
                let sent = context.publish(format!("bare.work.{round}"), "x".into());
                sent.await?.await?;
                drop(next(&consumer).await?);
                let begun = Instant::now();
                let again = next(&consumer).await?;
                let took = begun.elapsed();
                again.double_ack().await?;
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(took)
            })?;
            Ok(Some(took.as_secs_f64() * 1e3))
        }),
    ];
    let rounds = plan.scale.pick(15, 4, 1);
    let found = in_turn(0..rounds, turns, &Progress::of("b16 takeover"))?;
    let series = Series::new(TAKEOVER, "ms", found);
    let slowest = series
        .get(OURS)
        .and_then(|it| it.summary())
        .map(|it| it.max);
    let over = series.median(OURS).zip(series.median(BARE));
    outcome
        .at_most("the slowest takeover, lease 2 s", slowest, 5000.0, "ms")
        .about(TAKEOVER, OURS);
    outcome
        .at_most(
            "a takeover over a bare redelivery",
            over.map(|(ours, bare)| ours - bare),
            500.0,
            "ms",
        )
        .about(TAKEOVER, OURS);
    outcome.series.push(series);
    Ok(())
}

/// Waits for the next message of a consumer.
async fn next(consumer: &PullConsumer) -> Result<jetstream::Message> {
    let batch = consumer.batch().max_messages(1).expires(LIMIT).messages();
    let mut batch = Box::pin(batch.await?);
    let message = std::future::poll_fn(|cx| batch.as_mut().poll_next(cx)).await;
    message.ok_or("no message was delivered")?
}

fn saves(runtime: &Runtime, place: &Place, plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    let mut owner = Owner::new(runtime, place, "save")?;
    let mut other = runtime.block_on(BareRun::new(place, "save"))?;
    let each = |time: Duration| Some(time.as_secs_f64() * 1e3 / SAVES as f64);
    let turns = vec![
        Turn::new(OURS, Role::Ours, |_| {
            let begun = Instant::now();
            owner.save(&place.record)?;
            Ok(each(begun.elapsed()))
        }),
        Turn::new(BARE, Role::Floor, |_| {
            let begun = Instant::now();
            runtime.block_on(other.save(place.record.as_bytes()))?;
            Ok(each(begun.elapsed()))
        }),
    ];
    let rounds = plan.scale.pick(100, 20, 1);
    let found = in_turn(0..rounds, turns, &Progress::of("b16 save"))?;
    let series = Series::new(SAVE, "ms", found);
    outcome
        .at_most(
            "a save over a bare publish",
            series.paired(OURS, BARE),
            1.5,
            "×",
        )
        .about(SAVE, OURS);
    outcome.series.push(series);
    Ok(())
}

fn control(runtime: &Runtime, place: &Place, plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    let Owner {
        claimed,
        replica,
        mut messages,
    } = Owner::new(runtime, place, "control")?;
    let run = claimed.run();
    let owner = runtime.spawn(async move {
        while let Some(message) = messages.recv().await {
            // The benchmark fails if an answer is missing.
            drop(message.to.send(b"{}".to_vec()).await);
        }
    });
    let client = runtime.block_on(bare(&place.address))?;
    let listening = runtime.block_on(client.subscribe("bare.ctl"))?;
    let answering = runtime.spawn(async move {
        let mut requests = Box::pin(listening);
        while let Some(request) = std::future::poll_fn(|cx| requests.as_mut().poll_next(cx)).await {
            if let Some(to) = request.reply {
                // The benchmark fails if an answer is missing.
                drop(client.publish(to, "x".into()).await);
            }
        }
    });
    let millis = |begun: Instant| Some(begun.elapsed().as_secs_f64() * 1e3);
    let turns = vec![
        Turn::new(OURS, Role::Ours, |_| {
            let begun = Instant::now();
            runtime.block_on(async {
                let recorded = place.fleet.record_request(run, b"{}".to_vec(), LIMIT);
                let answer = recorded.await?.next(LIMIT).await;
                answer.ok_or("the owner did not answer")?;
                Result::Ok(())
            })?;
            Ok(millis(begun))
        }),
        Turn::new(BARE, Role::Floor, |_| {
            let begun = Instant::now();
            let asked = place.bare.request("bare.ctl", "{}".into());
            runtime.block_on(asked)?;
            Ok(millis(begun))
        }),
    ];
    let rounds = plan.scale.pick(2000, 200, 1);
    let found = in_turn(0..rounds, turns, &Progress::of("b16 control"))?;
    answering.abort();
    owner.abort();
    drop(replica);
    let series = Series::new(CONTROL, "ms", found);
    let slow = series
        .get(OURS)
        .and_then(|it| it.summary())
        .map(|it| it.p99);
    outcome
        .at_most("an answer of an owner, p99", slow, 250.0, "ms")
        .about(CONTROL, OURS);
    outcome.series.push(series);
    Ok(())
}

/// Saves by all runs at the same time, each in a thread, and returns the saves a second.
fn saves_a_second<T: Send>(
    runs: &mut [T],
    save: impl Fn(&mut T) -> Result<()> + Sync,
) -> Result<Option<f64>> {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let save = &save;
        let saving = { runs.iter_mut() }.map(|run| scope.spawn(move || save(run)));
        let saving: Vec<_> = saving.collect();
        saving.into_iter().try_for_each(|saving| {
            let ended = saving.join();
            ended.map_err(|_| "a thread of saves panicked")?
        })
    })?;
    Ok(Some((RUNS * SAVES) as f64 / begun.elapsed().as_secs_f64()))
}

fn events(runtime: &Runtime, place: &Place, plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    let mut owners = Vec::new();
    let mut others = Vec::new();
    for number in 0..RUNS {
        let name = format!("events{number}");
        owners.push(Owner::new(runtime, place, &name)?);
        others.push(runtime.block_on(BareRun::new(place, &name))?);
    }
    let turns = vec![
        Turn::new(OURS, Role::Ours, |_| {
            saves_a_second(&mut owners, |owner| owner.save(&place.record))
        }),
        Turn::new(BARE, Role::Floor, |_| {
            let record = place.record.as_bytes();
            saves_a_second(&mut others, |other| runtime.block_on(other.save(record)))
        }),
    ];
    let rounds = plan.scale.pick(60, 12, 1);
    let found = in_turn(0..rounds, turns, &Progress::of("b16 events"))?;
    let series = Series::new(EVENTS, "/s", found);
    outcome
        .at_least(
            "saves a second over bare publishes",
            series.paired(OURS, BARE),
            0.6,
            "×",
        )
        .about(EVENTS, OURS);
    outcome.series.push(series);
    Ok(())
}

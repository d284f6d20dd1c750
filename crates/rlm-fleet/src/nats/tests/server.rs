//! A NATS server of the test's own, and a proxy that loses answers.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cancellable_sleep::SleepGate;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::nats::{Fleet, FleetAddress, FleetOptions};

/// Ten times the longest time that one step of a test takes.
pub(super) const DEADLINE: Duration = Duration::from_secs(60);
/// The lease of the tests: the shortest.
pub(super) const LEASE: Duration = Duration::from_secs(2);
const PASSWORD: &str = "s3c@r%t";
/// The user and the password in a URL.
const LOGIN: &str = "rlm:s3c%40r%25t";

/// Finds the server that `cargo xtask test` passes, or the one that `cargo xtask tools --install` downloaded.
fn program() -> Option<PathBuf> {
    if let Some(given) = std::env::var_os("NATS_SERVER_OF_TESTS") {
        return Some(given.into());
    }
    let own = std::env::current_exe().ok()?;
    let places = own.ancestors();
    let mut places = places.map(|place| place.join("tools/nats-server/nats-server"));
    places.find(|place| place.is_file())
}

/// A server that ends when this is dropped.
pub(super) struct Server {
    program: PathBuf,
    dir: TempDir,
    port: u16,
    child: Child,
}

impl Server {
    /// Starts a server with file storage; `None` if there is no server program, and then the test is skipped.
    pub(super) fn start() -> Option<Self> {
        let Some(program) = program() else {
            println!("skipped: there is no NATS server: cargo xtask tools --install");
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        let port = {
            let free = StdListener::bind("127.0.0.1:0").unwrap();
            free.local_addr().unwrap().port()
        };
        let child = spawn(&program, dir.path(), port);
        Some(Self {
            program,
            dir,
            port,
            child,
        })
    }

    pub(super) fn address(&self) -> String {
        format!("nats://{LOGIN}@127.0.0.1:{}", self.port)
    }

    /// Connects, as soon as the server is ready.
    pub(super) async fn connect(&self) -> Fleet {
        connect(&self.address()).await
    }

    /// Connects, and creates the assets.
    pub(super) async fn fleet(&self) -> Fleet {
        let fleet = self.connect().await;
        let options = FleetOptions {
            replicas: 1,
            lease: LEASE,
            pools: vec!["main".parse().unwrap()],
        };
        let begun = Instant::now();
        // JetStream is ready a moment after the port.
        while let Err(e) = fleet.init(&options).await {
            assert!(begun.elapsed() < DEADLINE, "{e}");
            tokio::task::yield_now().await;
        }
        fleet
    }

    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(super) fn restart(&mut self) {
        self.child = spawn(&self.program, self.dir.path(), self.port);
    }
}

pub(super) async fn connect(address: &str) -> Fleet {
    let begun = Instant::now();
    loop {
        match Fleet::connect(&FleetAddress::new(address, "test"), SleepGate::new()).await {
            Ok(fleet) => return fleet,
            Err(e) => assert!(begun.elapsed() < DEADLINE, "{e}"),
        }
        tokio::task::yield_now().await;
    }
}

fn spawn(program: &Path, dir: &Path, port: u16) -> Child {
    let store = dir.join("store");
    let config = dir.join("nats.conf");
    let text = format!(
        "listen: 127.0.0.1:{port}\njetstream {{ store_dir: {store:?}, sync_interval: always }}\n\
         authorization {{ user: rlm, password: {PASSWORD:?} }}\n"
    );
    let mut file = std::fs::File::create(&config).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let log = std::fs::File::create(dir.join("log")).unwrap();
    let mut command = Command::new(program);
    command.arg("-c").arg(&config).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(log);
    command.spawn().unwrap()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A proxy before the server. After [`lose_next_answer`](Self::lose_next_answer) it closes the connection instead of passing on the next bytes from the
/// server.
pub(super) struct Proxy {
    address: SocketAddr,
    loses: Arc<AtomicBool>,
    lost: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub(super) async fn start(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (loses, lost) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (port, its) = (server.port, (Arc::clone(&loses), Arc::clone(&lost)));
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await {
                    for stream in [&client, &server] {
                        stream.set_nodelay(true).unwrap();
                    }
                    tokio::spawn(pass_on(client, server, its.0.clone(), its.1.clone()));
                }
            }
        });
        Self {
            address,
            loses,
            lost,
            task,
        }
    }

    pub(super) fn address(&self) -> String {
        format!("nats://{LOGIN}@{}", self.address)
    }

    pub(super) fn lose_next_answer(&self) {
        self.lost.store(false, Ordering::SeqCst);
        self.loses.store(true, Ordering::SeqCst);
    }

    /// Returns whether an answer was lost since the last call of [`lose_next_answer`](Self::lose_next_answer).
    pub(super) fn has_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass_on(
    mut client: TcpStream,
    mut server: TcpStream,
    loses: Arc<AtomicBool>,
    lost: Arc<AtomicBool>,
) {
    let (mut up, mut down) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        tokio::select! {
            read = client.read(&mut up) => match read {
                Ok(count) if count > 0 => {
                    if server.write_all(&up[..count]).await.is_err() {
                        return;
                    }
                }
                _ => return,
            },
            read = server.read(&mut down) => match read {
                Ok(count) if count > 0 => {
                    // Pings and other control lines are no answers.
                    let is_message = down.starts_with(b"MSG") || down.starts_with(b"HMSG");
                    if is_message && loses.swap(false, Ordering::SeqCst) {
                        lost.store(true, Ordering::SeqCst);
                        return;
                    }
                    if client.write_all(&down[..count]).await.is_err() {
                        return;
                    }
                }
                _ => return,
            },
        }
    }
}

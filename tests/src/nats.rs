//! The NATS servers of a test: one, or a cluster of three, on loopback. And a proxy that cuts their clients off.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use fs_err as fs;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::http::{HttpRequest, HttpResponse};
use crate::rlm::{Ended, Running};
use crate::sandbox::Sandbox;

/// The time that a server has to end after a kill.
const END: Duration = Duration::from_secs(10);
/// The longest wait for an answer of a server.
const ANSWER: Duration = Duration::from_secs(30);
/// The user and the password in a URL. The password has a character that a URL must escape.
const LOGIN: &str = "rlm:s3c%40ret";

/// Finds the server program that `cargo xtask test` passes, or the one that `cargo xtask tools --install` downloaded.
#[must_use]
pub fn server_program() -> Option<PathBuf> {
    if let Some(given) = std::env::var_os("NATS_SERVER_OF_TESTS") {
        return Some(given.into());
    }
    let own = std::env::current_exe().ok()?;
    let places = own.ancestors();
    let mut places = places.map(|place| place.join("tools/nats-server/nats-server"));
    places.find(|place| place.is_file())
}

/// Returns a port of this machine that was free a moment ago.
///
/// # Panics
///
/// If the system has no free port.
#[must_use]
pub fn free_port() -> u16 {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    free.local_addr().unwrap().port()
}

/// One server, or the servers of a cluster. Dropping it kills them.
#[derive(Debug)]
pub struct NatsServers {
    program: PathBuf,
    nodes: Vec<Node>,
}

/// One server of a cluster.
#[derive(Debug)]
struct Node {
    name: String,
    port: u16,
    monitor: u16,
    arguments: Vec<OsString>,
    environment: Vec<(String, String)>,
    running: Option<Running>,
}

impl NatsServers {
    /// Starts one server, or the number of servers of a cluster. They write each save to the disk before they confirm it.
    ///
    /// The streams of a cluster are ready only some seconds later.
    ///
    /// # Panics
    ///
    /// If a file can't be written, or a server can't be started.
    #[must_use]
    pub fn start(sandbox: &Sandbox, program: &Path, count: usize) -> Self {
        let place = sandbox.path();
        let routes: Vec<u16> = (0..count).map(|_| free_port()).collect();
        let all: Vec<String> = routes
            .iter()
            .map(|port| format!("nats-route://127.0.0.1:{port}"))
            .collect();
        let nodes = routes.iter().enumerate().map(|(number, route)| {
            let (port, monitor) = (free_port(), free_port());
            let store = place.join(format!("nats-{number}"));
            let config = place.join(format!("nats-{number}.conf"));
            // Clients must not learn the addresses behind their proxy.
            let cluster = match count {
                1 => String::new(),
                _ => format!(
                    "cluster {{ name: test, listen: \"127.0.0.1:{route}\", no_advertise: true, routes: [{}] }}\n",
                    all.join(", ")
                ),
            };
            let text = format!(
                "server_name: n{number}\nlisten: \"127.0.0.1:{port}\"\nhttp: \"127.0.0.1:{monitor}\"\n\
                 jetstream {{ store_dir: {store:?}, sync_interval: always }}\n\
                 authorization {{ user: rlm, password: \"s3c@ret\" }}\n{cluster}"
            );
            fs::write(&config, text).unwrap();
            Node {
                name: format!("n{number}"),
                port,
                monitor,
                arguments: vec!["-c".into(), config.into()],
                environment: Vec::new(),
                running: None,
            }
        });
        let nodes = nodes.collect();
        Self::start_all(sandbox, program, nodes)
    }

    /// Starts one server with a configuration file. The server logs each message, and listens on a free port of this machine.
    #[must_use]
    pub fn start_configured(
        sandbox: &Sandbox,
        program: &Path,
        config: &Path,
        environment: &[(&str, &str)],
    ) -> Self {
        let (port, monitor) = (free_port(), free_port());
        let (text, http) = (port.to_string(), monitor.to_string());
        let words = ["-DV", "-a", "127.0.0.1", "-p", &text, "-m", &http, "-c"];
        let mut arguments = Vec::from(words.map(OsString::from));
        arguments.push(config.into());
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let node = Node {
            name: String::new(),
            port,
            monitor,
            arguments,
            environment: environment.iter().map(owned).collect(),
            running: None,
        };
        Self::start_all(sandbox, program, vec![node])
    }

    fn start_all(sandbox: &Sandbox, program: &Path, nodes: Vec<Node>) -> Self {
        let count = nodes.len();
        let mut this = Self {
            program: program.into(),
            nodes,
        };
        for number in 0..count {
            this.start_again(sandbox, number);
        }
        this
    }

    /// Starts a server that was killed.
    pub fn start_again(&mut self, sandbox: &Sandbox, number: usize) {
        let node = &mut self.nodes[number];
        let mut server = sandbox.rlm(&self.program).args(&node.arguments);
        for (name, value) in &node.environment {
            server = server.env(name, value);
        }
        node.running = Some(server.own_session().spawn());
    }

    /// Kills a server, and returns its end.
    ///
    /// # Panics
    ///
    /// If it does not run, or does not end.
    #[track_caller]
    pub fn kill(&mut self, number: usize) -> Ended {
        let running = self.nodes[number].running.take().expect("it runs");
        running.signal(Signal::KILL);
        running.wait(END)
    }

    /// Kills all servers that run.
    pub fn kill_all(&mut self) {
        for node in &mut self.nodes {
            // The drop kills the process.
            node.running = None;
        }
    }

    /// Returns whether a server accepts connections.
    #[must_use]
    pub fn is_reachable(&self, number: usize) -> bool {
        TcpStream::connect((Ipv4Addr::LOCALHOST, self.nodes[number].port)).is_ok()
    }

    /// Returns whether the first server and its streams are ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let asked = self.nodes[0].ask("/healthz");
        asked.is_ok_and(|answer| answer.status == 200)
    }

    /// Returns all streams of the first server: their settings, their consumers, and the numbers of their messages.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    #[must_use]
    pub fn streams(&self) -> Vec<Value> {
        let path = "/jsz?streams=true&consumers=true&config=true";
        let asked = self.nodes[0].ask(path);
        let value: Value = serde_json::from_str(&asked.unwrap().body).unwrap();
        let accounts = value["account_details"].as_array().into_iter().flatten();
        let streams = accounts.flat_map(|it| it["stream_detail"].as_array().into_iter().flatten());
        let mut streams: Vec<Value> = streams
            .map(|stream| {
                let consumers = stream["consumer_detail"].as_array().into_iter().flatten();
                let consumers: Vec<&Value> = consumers.map(|it| &it["config"]).collect();
                json!({"name": stream["name"], "config": stream["config"], "state": stream["state"], "consumers": consumers})
            })
            .collect();
        streams.sort_by_key(|stream| stream["name"].to_string());
        streams
    }

    /// Returns the lines with this text in the log of the first server.
    #[must_use]
    pub fn log(&self, text: &str) -> Vec<String> {
        let log = self.nodes[0].running.as_ref().map(Running::stderr);
        let log = log.unwrap_or_default();
        let lines = log.lines().filter(|line| line.contains(text));
        lines.map(ToOwned::to_owned).collect()
    }

    /// Returns the ports of all servers.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        self.nodes.iter().map(|node| node.port).collect()
    }

    /// Returns the addresses of all servers for a client.
    #[must_use]
    pub fn address(&self) -> String {
        address(self.ports())
    }

    /// Returns the number of the server that leads a stream, and the number of other servers that have all its records, as the leader reports them;
    /// `None` if there is no leader now.
    #[must_use]
    pub fn leader(&self, stream: &str) -> Option<(usize, usize)> {
        let alive = { self.nodes.iter().enumerate() }.filter(|(_, node)| node.running.is_some());
        let mut leaders = alive.filter_map(|(number, node)| Some((number, node.leads(stream)?)));
        leaders.next()
    }
}

impl Node {
    /// Asks the monitor of the server.
    fn ask(&self, path: &str) -> io::Result<HttpResponse> {
        let request = HttpRequest::new(self.monitor, "GET", path);
        request.header("host", "localhost").send()
    }

    /// Returns the number of other servers that have all records of a stream; `None` if another server leads it.
    fn leads(&self, stream: &str) -> Option<usize> {
        let asked = self.ask("/jsz?streams=true");
        let value: Value = serde_json::from_str(&asked.ok()?.body).ok()?;
        let accounts = value["account_details"].as_array()?.iter();
        let mut streams =
            accounts.flat_map(|it| it["stream_detail"].as_array().into_iter().flatten());
        let found = &streams.find(|it| it["name"] == stream)?["cluster"];
        let names_me = found["leader"].as_str() == Some(&self.name);
        let others = found["replicas"].as_array().into_iter().flatten();
        names_me.then(|| others.filter(|it| it["current"] == true).count())
    }
}

/// Returns the addresses of servers at these ports, or of proxies before them, for a client.
#[must_use]
pub fn address(ports: impl IntoIterator<Item = u16>) -> String {
    let addresses = ports
        .into_iter()
        .map(|port| format!("nats://{LOGIN}@127.0.0.1:{port}"));
    addresses.collect::<Vec<_>>().join(",")
}

/// A proxy before a server that can be cut. Dropping it closes its connections and refuses new ones.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    is_cut: AtomicBool,
    is_over: AtomicBool,
    refused: AtomicUsize,
    open: Mutex<Vec<TcpStream>>,
}

impl Shared {
    fn close(&self) -> usize {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let closed = open.drain(..).filter(|stream| {
            // A stream that the other side closed has no peer.
            stream.shutdown(Shutdown::Both).is_ok()
        });
        closed.count()
    }
}

impl Proxy {
    /// Starts a proxy before the server at a port of this machine.
    ///
    /// # Panics
    ///
    /// If the system has no free port.
    #[must_use]
    pub fn start(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::<Shared>::default();
        let its = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if its.is_over.load(Ordering::SeqCst) {
                    return;
                }
                if its.is_cut.load(Ordering::SeqCst) {
                    its.refused.fetch_add(1, Ordering::SeqCst);
                    continue;
                }
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)) else {
                    continue;
                };
                for stream in [&client, &server] {
                    let _delayed = stream.set_nodelay(true);
                }
                pass_on(client, server, &its);
            }
        });
        Self { port, shared }
    }

    /// Returns the port of the proxy.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Closes all connections, and refuses new ones. Returns the number of sockets that it closed.
    pub fn cut(&self) -> usize {
        self.shared.is_cut.store(true, Ordering::SeqCst);
        self.shared.close()
    }

    /// Accepts connections again.
    pub fn heal(&self) {
        self.shared.is_cut.store(false, Ordering::SeqCst);
    }

    /// Returns the number of connections that it refused.
    #[must_use]
    pub fn refused(&self) -> usize {
        self.shared.refused.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.cut();
        // Wakes the thread, which ends.
        let _woken = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

/// Copies the bytes of a connection in both directions.
fn pass_on(client: TcpStream, server: TcpStream, shared: &Shared) {
    let clones = (client.try_clone(), server.try_clone());
    let (Ok(to_client), Ok(to_server)) = clones else {
        return;
    };
    let mut open = shared.open.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|stream| stream.peer_addr().is_ok());
    for stream in [&client, &server] {
        open.extend(stream.try_clone());
    }
    drop(open);
    // A cut between the check and this point closed nothing of this connection.
    if shared.is_cut.load(Ordering::SeqCst) {
        shared.close();
    }
    copy(client, to_server);
    copy(server, to_client);
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count) = from.read(&mut bytes) {
            if count == 0 || to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        for stream in [&from, &to] {
            let _closed = stream.shutdown(Shutdown::Both);
        }
    });
}

/// A client that speaks the protocol by hand, for messages that `rlm` never sends.
#[derive(Debug)]
pub struct RawClient {
    stream: BufReader<TcpStream>,
}

impl RawClient {
    /// Connects as a user.
    ///
    /// # Panics
    ///
    /// If the server does not accept the user.
    #[must_use]
    #[track_caller]
    pub fn connect(port: u16, (user, password): (&str, &str)) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_read_timeout(Some(ANSWER)).unwrap();
        let mut this = Self {
            stream: BufReader::new(stream),
        };
        assert!(this.line().starts_with("INFO "));
        let login = format!(
            "CONNECT {{\"verbose\":false,\"user\":\"{user}\",\"pass\":\"{password}\"}}\r\n"
        );
        assert_eq!(this.refusal(login), None);
        this
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line
    }

    /// Sends a command of the protocol, and returns the error with which the server answers it; `None` if it has none.
    ///
    /// # Panics
    ///
    /// If the server closes the connection.
    #[track_caller]
    pub fn refusal(&mut self, command: impl Into<Vec<u8>>) -> Option<String> {
        let mut sent = command.into();
        sent.extend(b"PING\r\n");
        self.stream.get_mut().write_all(&sent).unwrap();
        let mut refused = None;
        loop {
            let line = self.line();
            match line.trim_end() {
                "PONG" => return refused,
                "PING" => self.stream.get_mut().write_all(b"PONG\r\n").unwrap(),
                "" => panic!("the server closed the connection"),
                line if line.starts_with("-ERR") => refused = Some(line.to_owned()),
                _ => {}
            }
        }
    }
}

//! A desktop for notifications: a D-Bus daemon with a private socket, and a server for `org.freedesktop.Notifications`.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use fs_err as fs;
use rlm_tests::wait_for;
use tokio::sync::oneshot;
use zbus::connection::Builder;
use zbus::wire::Variant;

use crate::LONG;

/// The name and the path of the server, as the specification of the desktop has them.
const NAME: &str = "org.freedesktop.Notifications";
const PATH: &str = "/org/freedesktop/Notifications";

/// The D-Bus daemon, without services that it could start.
const CONFIG: &str = "<busconfig><type>session</type><listen>unix:path=SOCKET</listen><auth>EXTERNAL</auth>\
    <policy context=\"default\"><allow send_destination=\"*\" eavesdrop=\"true\"/><allow eavesdrop=\"true\"/><allow own=\"*\"/></policy></busconfig>";

/// A D-Bus daemon. Dropping it ends the daemon.
#[derive(Debug)]
pub(crate) struct Bus {
    daemon: Child,
    pub(crate) address: String,
}

/// A notification that the desktop showed.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) title: String,
    pub(crate) body: String,
}

/// A server for notifications on a [`Bus`]. Dropping it ends the server.
#[derive(Debug)]
pub(crate) struct Desktop {
    shown: Arc<Mutex<Vec<Shown>>>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Bus {
    /// Starts a daemon with its socket in `place`; `None` if the program is not installed.
    pub(crate) fn start(place: &Path) -> Option<Self> {
        let (socket, config) = (place.join("bus"), place.join("bus.conf"));
        fs::write(&config, CONFIG.replace("SOCKET", socket.to_str().unwrap())).unwrap();
        let daemon = Command::new("dbus-daemon")
            .arg("--nofork")
            .arg(format!("--config-file={}", config.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let daemon = match daemon {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return None,
            daemon => daemon.unwrap(),
        };
        let this = Self {
            daemon,
            address: format!("unix:path={}", socket.display()),
        };
        // The socket exists before the daemon listens.
        wait_for("the D-Bus daemon", LONG, || {
            UnixStream::connect(&socket).ok()
        });
        Some(this)
    }

    /// Starts a server that refuses this number of notifications, and shows the later ones.
    pub(crate) fn desktop(&self, refused: u32) -> Desktop {
        let shown = Arc::default();
        let server = Server {
            refused,
            shown: Arc::clone(&shown),
        };
        let address = self.address.clone();
        let (end, ended) = oneshot::channel();
        let (is_ready, ready) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async {
                let builder = Builder::address(address.as_str()).name(NAME);
                let connection = builder.serve_at(PATH, server).build().await;
                is_ready.send(()).unwrap();
                drop(ended.await);
                drop(connection.unwrap());
            });
        });
        ready.recv_timeout(LONG).expect("the server starts");
        Desktop {
            shown,
            end: Some(end),
            thread: Some(thread),
        }
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        let _ended = self.daemon.kill();
        let _reaped = self.daemon.wait();
    }
}

impl Desktop {
    /// Returns the notifications that the desktop showed. The id of the first one is 1.
    pub(crate) fn shown(&self) -> Vec<Shown> {
        self.shown.lock().unwrap().clone()
    }
}

impl Drop for Desktop {
    fn drop(&mut self) {
        drop(self.end.take());
        let _joined = self.thread.take().map(JoinHandle::join);
    }
}

struct Server {
    refused: u32,
    shown: Arc<Mutex<Vec<Shown>>>,
}

#[zbus::interface(name = "org.freedesktop.Notifications")]
impl Server {
    #[expect(clippy::too_many_arguments, reason = "the specification has them")]
    fn notify(
        &mut self,
        _app_name: &str,
        _replaces_id: u32,
        _app_icon: &str,
        summary: &str,
        body: &str,
        _actions: Vec<String>,
        _hints: HashMap<String, Variant<'_>>,
        _expire_timeout: i32,
    ) -> zbus::fdo::Result<u32> {
        if self.refused > 0 {
            self.refused -= 1;
            return Err(zbus::fdo::Error::LimitsExceeded("not now".into()));
        }
        let mut shown = self.shown.lock().unwrap();
        shown.push(Shown {
            title: summary.to_owned(),
            body: body.to_owned(),
        });
        Ok(u32::try_from(shown.len()).unwrap())
    }
}

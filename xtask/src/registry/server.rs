//! A registry on loopback as cargo speaks to one: a sparse index, uploads, downloads. It keeps what it is given in a folder, and passes everything
//! else on: from what cargo kept of crates.io, else by a redirect to it. It refuses what crates.io refuses and that a rehearsal should find:
//! a version twice, a dependency that is not there yet, an upload without a token.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::SystemTime;

use fs_err as fs;
use serde_json::{Value, json};
use tiny_http::{Header, Method, Request, Response};

use super::index::{self, Kept};
use crate::workspace::{array, text};

/// As crates.io takes it.
const LARGEST: u64 = 10 << 20;

/// What a registry is made of.
#[derive(Debug)]
pub(crate) struct Options {
    /// Where it keeps what it is given.
    pub(crate) folder: PathBuf,
    /// The crates that are its own, which nobody else is asked for.
    pub(crate) own: BTreeSet<String>,
    /// Where cargo keeps what it fetched from crates.io, and the lock file that says which versions to offer of it.
    pub(crate) home: PathBuf,
    pub(crate) lock: String,
    /// Refuses uploads once it has so many crates: a rehearsal's failure half-way.
    pub(crate) room: Option<usize>,
}

/// A registry that answers until it is dropped.
#[must_use = "a registry that is dropped no longer answers"]
pub(crate) struct Registry {
    store: Arc<Store>,
    server: Arc<tiny_http::Server>,
    thread: Option<JoinHandle<()>>,
}

struct Store {
    url: String,
    /// Tells it from another that stood at the same address: cargo keeps packages by the address of their index, and looks at no digest again.
    id: String,
    folder: PathBuf,
    own: BTreeSet<String>,
    kept: Kept,
    room: Mutex<Option<usize>>,
    /// The lines of each crate that was uploaded.
    index: Mutex<BTreeMap<String, Vec<Value>>>,
}

/// What a request is answered.
#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Body(Vec<u8>),
    /// Elsewhere.
    See(String),
    Absent,
    Refused(u16, String),
}

impl Registry {
    /// Serves a folder on loopback; port 0 is any.
    pub(crate) fn serve(port: u16, options: Options) -> Result<Self, String> {
        let server =
            tiny_http::Server::http(("127.0.0.1", port)).map_err(|error| error.to_string())?;
        let server = Arc::new(server);
        let address = server.server_addr().to_ip().ok_or("no address")?;
        let store = Arc::new(Store::open(format!("http://{address}"), options)?);
        let (requests, answers) = (Arc::clone(&server), Arc::clone(&store));
        let thread = std::thread::spawn(move || {
            // It ends when the server is unblocked.
            while let Ok(request) = requests.recv() {
                answers.answer_to(request);
            }
        });
        Ok(Self {
            store,
            server,
            thread: Some(thread),
        })
    }

    /// Writes the configuration with which cargo takes this registry, named `local`, in place of crates.io.
    pub(crate) fn configure(&self, file: &Path) -> Result<(), String> {
        let text = format!(
            "[source.crates-io]\nreplace-with = \"local\"\n\n[registries.local]\nindex = \"sparse+{}/index/{}/\"\ntoken = \"rehearsal\"\n",
            self.store.url, self.store.id
        );
        fs::write(file, text).map_err(|error| error.to_string())
    }

    pub(crate) fn url(&self) -> &str {
        &self.store.url
    }

    /// Takes any number of uploads from here on.
    pub(crate) fn make_room(&self) {
        *locked(&self.store.room) = None;
    }

    /// Waits until the server ends, which only the end of the process brings about.
    pub(crate) fn join(mut self) {
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

impl Store {
    fn open(url: String, options: Options) -> Result<Self, String> {
        let wrong = |error: std::io::Error| error.to_string();
        let lines = options.folder.join("index");
        fs::create_dir_all(&lines).map_err(wrong)?;
        fs::create_dir_all(options.folder.join("crates")).map_err(wrong)?;
        let id = id(&options.folder.join("id")).map_err(wrong)?;
        let mut index = BTreeMap::new();
        for entry in fs::read_dir(&lines).map_err(wrong)?.flatten() {
            let text = fs::read_to_string(entry.path()).map_err(wrong)?;
            let lines = text
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok())
                .collect();
            index.insert(entry.file_name().to_string_lossy().into_owned(), lines);
        }
        Ok(Self {
            url,
            id,
            own: options.own,
            kept: Kept::new(&options.home, &options.lock),
            folder: options.folder,
            room: Mutex::new(options.room),
            index: Mutex::new(index),
        })
    }

    fn answer_to(&self, mut request: Request) {
        let mut body = Vec::new();
        // Never to the end of the stream: curl offers another protocol with its requests, and then there is none.
        let length = request.body_length().map_or(0, |it| it as u64);
        let mut reader = request.as_reader().take(length.min(LARGEST + 1));
        let whole = reader.read_to_end(&mut body);
        let has_token = request
            .headers()
            .iter()
            .any(|it| it.field.equiv("Authorization"));
        let reply = match whole {
            Ok(_) => self.answer(request.method(), request.url(), has_token, &body),
            Err(error) => Reply::Refused(400, error.to_string()),
        };
        // Who asked may be gone: nobody is left to be told.
        let _gone = request.respond(reply.response());
    }

    fn answer(&self, method: &Method, path: &str, has_token: bool, body: &[u8]) -> Reply {
        let words: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        match (method, words.as_slice()) {
            (Method::Get, ["index", .., "config.json"]) => {
                let (api, dl) = (&self.url, format!("{}/dl/{{crate}}/{{version}}", self.url));
                Reply::Body(json!({ "api": api, "dl": dl }).to_string().into_bytes())
            }
            (Method::Get, ["index", .., name]) => self.lines(name),
            (Method::Get, ["dl", name, version]) => self.package(name, version),
            (Method::Put, ["api", "v1", "crates", "new"]) if !has_token => {
                Reply::Refused(403, "this action requires authentication".into())
            }
            (Method::Put, ["api", "v1", "crates", "new"]) => self.take(body),
            _ => Reply::Absent,
        }
    }

    fn lines(&self, name: &str) -> Reply {
        if let Some(lines) = locked(&self.index).get(name) {
            let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
            return Reply::Body(lines.join("\n").into_bytes());
        }
        if self.is_own(name) {
            return Reply::Absent;
        }
        match self.kept.lines(name) {
            Some(lines) => Reply::Body(lines.join("\n").into_bytes()),
            None => Reply::See(format!("https://index.crates.io/{}", index::path_of(name))),
        }
    }

    /// Also by its name in code, under which cargo asks once more for what it did not find.
    fn is_own(&self, name: &str) -> bool {
        self.own.contains(&name.replace('_', "-"))
    }

    fn package(&self, name: &str, version: &str) -> Reply {
        let stem = format!("{name}-{version}");
        let file = match locked(&self.index).contains_key(name) {
            true => Some(self.folder.join("crates").join(format!("{stem}.crate"))),
            false => self.kept.package(&stem),
        };
        match file.and_then(|file| fs::read(file).ok()) {
            Some(package) => Reply::Body(package),
            None if self.is_own(name) => Reply::Absent,
            None => Reply::See(format!(
                "https://static.crates.io/crates/{name}/{stem}.crate"
            )),
        }
    }

    fn take(&self, body: &[u8]) -> Reply {
        match self.try_take(body) {
            Ok(name) => {
                println!("registry: took {name}");
                let none: [&str; 0] = [];
                let warnings =
                    json!({ "invalid_categories": none, "invalid_badges": none, "other": none });
                Reply::Body(json!({ "warnings": warnings }).to_string().into_bytes())
            }
            Err((status, why)) => Reply::Refused(status, why),
        }
    }

    fn try_take(&self, body: &[u8]) -> Result<String, (u16, String)> {
        let refused = |why: String| (400, why);
        if u64::try_from(body.len()).is_ok_and(|length| length > LARGEST) {
            return Err((413, format!("it is larger than {LARGEST} bytes")));
        }
        let (told, package) =
            index::upload(body).ok_or_else(|| refused("the upload is not whole".into()))?;
        let (name, version) = (text(&told["name"]), text(&told["vers"]));
        let plain = |word: &str| {
            let parts = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
            !word.is_empty() && !word.starts_with('.') && word.chars().all(parts)
        };
        if !plain(&name) || !plain(&version) {
            return Err(refused("the crate has no proper name or version".into()));
        }
        for field in ["description", "license"] {
            if told[field].as_str().unwrap_or_default().is_empty() {
                return Err(refused(format!("missing or empty metadata field: {field}")));
            }
        }
        let mut index = locked(&self.index);
        let is_new = |line: &Value| line["vers"] != version.as_str();
        if !index
            .get(&name)
            .is_none_or(|lines| lines.iter().all(is_new))
        {
            return Err(refused(format!(
                "crate version `{version}` is already uploaded"
            )));
        }
        let mut needed = array(&told["deps"]).map(|it| text(&it["name"]));
        if let Some(missing) = needed.find(|it| self.own.contains(it) && !index.contains_key(it)) {
            return Err(refused(format!("no known crate named `{missing}`")));
        }
        if locked(&self.room).is_some_and(|room| index.len() >= room) {
            return Err((
                429,
                "you have published too many new crates in a short period of time".into(),
            ));
        }
        let failed = |error: std::io::Error| (500, error.to_string());
        let stem = format!("{name}-{version}");
        fs::write(
            self.folder.join("crates").join(format!("{stem}.crate")),
            package,
        )
        .map_err(failed)?;
        let lines = index.entry(name.clone()).or_default();
        lines.push(index::line(&told, package));
        let text: Vec<String> = lines.iter().map(ToString::to_string).collect();
        fs::write(self.folder.join("index").join(&name), text.join("\n")).map_err(failed)?;
        Ok(stem)
    }
}

/// What was written when the folder was made, which is another time for each.
fn id(file: &Path) -> std::io::Result<String> {
    if !file.exists() {
        let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        fs::write(file, since.as_nanos().to_string())?;
    }
    fs::read_to_string(file)
}

impl Reply {
    fn response(self) -> Response<std::io::Cursor<Vec<u8>>> {
        let (status, body) = match self {
            Self::Body(body) => (200, body),
            Self::Absent => (404, b"not found".to_vec()),
            Self::Refused(status, why) => (
                status,
                json!({ "errors": [{ "detail": why }] })
                    .to_string()
                    .into_bytes(),
            ),
            Self::See(url) => {
                let location = Header::from_bytes("Location", url).expect("a URL is plain ASCII");
                return Response::from_data(Vec::new())
                    .with_status_code(302)
                    .with_header(location);
            }
        };
        Response::from_data(body).with_status_code(status)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;

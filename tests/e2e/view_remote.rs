//! `rlm view` for browsers of other machines: encrypted and with a password, or behind a reverse proxy.

use std::io::BufRead as _;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use rlm_tests::Running;
use rlm_tests::http::{HttpRequest, HttpResponse};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::LONG;
use crate::scene::Scene;
use crate::view_pages::Browser;

const NAME: &str = "runs.example";
const URL: &str = "https://runs.example";
const PASSWORD: &str = "correct horse battery";
const FORM: &str = "application/x-www-form-urlencoded";

/// Writes a file that only this user can read.
fn private(scene: &Scene, name: &str, text: &str) {
    let path = scene.file(name);
    fs_err::write(&path, text).unwrap();
    fs_err::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
}

/// Writes a certificate, its key and the password, and returns the certificate.
fn prepare(scene: &Scene) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
    fs_err::write(scene.file("cert.pem"), made.cert.pem()).unwrap();
    private(scene, "key.pem", &made.signing_key.serialize_pem());
    private(scene, "password", &format!("{PASSWORD}\n"));
    made.cert.der().clone()
}

const ENCRYPTED: [&str; 8] = [
    "--public-url",
    URL,
    "--tls-cert",
    "cert.pem",
    "--tls-key",
    "key.pem",
    "--password-file",
    "password",
];

/// A server that browsers of other machines can reach.
struct Remote {
    server: Running,
    port: u16,
    link: String,
}

impl Remote {
    fn new(scene: &Scene, listen: &str, arguments: &[&str]) -> Self {
        let view = ["view", "--no-open", "--listen", listen];
        let mut server = scene.rlm(&[&view, arguments].concat()).spawn();
        let (port, link) = server.until("the address and the link", LONG, |it| {
            let stderr = it.stderr();
            let (_, address) = stderr.split_once("listening on ")?;
            let (address, _) = address.split_once('\n')?;
            let port = address.rsplit_once(':')?.1.parse().ok()?;
            Some((port, it.stdout().strip_suffix('\n')?.to_owned()))
        });
        Self { server, port, link }
    }

    fn request(&self, method: &str, path: &str) -> HttpRequest {
        HttpRequest::new(self.port, method, path).header("host", NAME)
    }

    /// Returns the path of the login link.
    fn path(&self) -> &str {
        self.link.strip_prefix(URL).unwrap()
    }
}

/// Sends a request over TLS, to an address of this machine that is not 127.0.0.1.
fn send(root: &CertificateDer<'static>, port: u16, request: &HttpRequest) -> HttpResponse {
    let mut roots = RootCertStore::empty();
    roots.add(root.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(NAME).unwrap();
    let client = ClientConnection::new(Arc::new(config), name).unwrap();
    let stream = TcpStream::connect(("127.0.0.2", port)).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    request.send_over(StreamOwned::new(client, stream)).unwrap()
}

fn cookie_of(login: &HttpResponse) -> &str {
    assert_eq!((login.status, login.header("location")), (303, Some("/")));
    let cookie = login.header("set-cookie").unwrap();
    let (cookie, rest) = cookie.split_once("; ").unwrap();
    assert!(cookie.starts_with("__Host-rlm-view="), "{cookie}");
    assert_eq!(rest, "Path=/; HttpOnly; SameSite=Lax; Secure");
    cookie
}

/// Sends the form of a new run, as a page of this machine does.
fn expect_no_new_run(
    scene: &Scene,
    own: &impl Fn(&str, &str) -> HttpRequest,
    send: &impl Fn(HttpRequest) -> HttpResponse,
) {
    let runs = scene.statuses().len();
    let page = send(own("GET", "/inbox")).body;
    let (_, secret) = page.split_once("<meta name=\"csrf\" content=\"").unwrap();
    let (secret, _) = secret.split_once('"').unwrap();
    let project = fs_err::canonicalize(scene.file(".")).unwrap();
    let project = project.display();
    let form = format!("csrf={secret}&action=start&project={project}&prompt=x&iterations=1");
    let request = own("POST", "/new").header("origin", URL).body(FORM, form);
    let refused = send(request);
    assert!(
        refused.status == 403 && refused.body.contains("starts no runs"),
        "{refused:?}"
    );
    assert_eq!(scene.statuses().len(), runs);
}

#[test]
fn v11_with_tls_and_a_password_the_page_works_from_other_addresses() {
    let scene = Scene::new("print ready");
    scene.run(&["--once"]).run(LONG).expect_code(0);
    let root = prepare(&scene);
    let remote = Remote::new(&scene, "0.0.0.0:0", &ENCRYPTED);
    let send = |request: HttpRequest| send(&root, remote.port, &request);
    let enter = |password: &str, origin: &str| {
        let body = format!("password={}", password.replace(' ', "+"));
        let request = remote.request("POST", "/login").header("origin", origin);
        send(request.body(FORM, body))
    };

    let closed = send(remote.request("GET", "/"));
    assert_eq!(closed.status, 401);
    assert!(closed.body.contains("type=\"password\""), "{closed:?}");
    assert!(!closed.body.contains(&scene.run_id()), "{closed:?}");
    let form = send(remote.request("GET", "/login"));
    assert!(
        form.status == 200 && form.body.contains("type=\"password\""),
        "{form:?}"
    );
    assert_eq!(enter("correct horse", URL).status, 403);
    assert_eq!(enter(PASSWORD, "https://evil.example").status, 403);
    let entered = enter(PASSWORD, URL);
    let own = |method: &str, path: &str| {
        let request = remote.request(method, path);
        request.header("cookie", cookie_of(&entered))
    };
    let list = send(own("GET", "/"));
    assert_eq!(list.status, 200);
    assert!(list.body.contains(&scene.run_id()), "{list:?}");
    // A new run may execute any command.
    assert!(!list.body.contains("href=\"/new\""), "{list:?}");
    assert_eq!(send(own("GET", "/new")).status, 403);
    expect_no_new_run(&scene, &own, &send);
    let other = HttpRequest::new(remote.port, "GET", "/").header("host", "other.example");
    assert_eq!(send(other).status, 421);
    // Without encryption there is no answer.
    assert!(remote.request("GET", "/").send().is_err());

    let by_link = send(remote.request("GET", remote.path()));
    assert_ne!(cookie_of(&by_link), cookie_of(&entered));
    // Guesses lock the password, and neither the sessions nor the links.
    let guesses: Vec<u16> = (0..12).map(|_| enter("guess", URL).status).collect();
    assert_eq!((guesses[0], guesses[11]), (403, 429), "{guesses:?}");
    assert_eq!(enter(PASSWORD, URL).status, 429);
    assert_eq!(send(own("GET", "/")).status, 200);
    let pair = scene.rlm(&["view", "pair"]).run(LONG).expect_code(0);
    let path = pair.stdout.trim().strip_prefix(URL).unwrap();
    cookie_of(&send(remote.request("GET", path)));
    remote.server.signal(rustix::process::Signal::TERM);
}

#[test]
fn v11_secrets_that_are_missing_weak_or_readable_are_refused() {
    let scene = Scene::new("print ready");
    prepare(&scene);
    let refused = |part: &str| {
        let view = ["view", "--no-open", "--listen", "127.0.0.1:0"];
        let ended = scene.rlm(&[&view[..], &ENCRYPTED].concat()).run(LONG);
        let ended = ended.expect_code(2);
        assert!(ended.stderr.contains(part), "{part}: {ended}");
        assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
    };
    for name in ["key.pem", "password"] {
        let path = scene.file(name);
        fs_err::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        refused(&format!("chmod 600 {name}"));
        fs_err::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    }
    private(&scene, "password", "short\n");
    refused("at least 12 bytes");
    private(&scene, "password", PASSWORD);
    private(&scene, "key.pem", "no key");
    refused("`key.pem`");
    fs_err::write(scene.file("cert.pem"), "").unwrap();
    refused("`cert.pem`: it has no PEM certificate");
    fs_err::remove_file(scene.file("cert.pem")).unwrap();
    refused("`cert.pem`: No such file");
    fs_err::create_dir(scene.file("cert.pem")).unwrap();
    refused("`cert.pem`: it is not a file");
    let alone = scene.rlm(&["view", "--tls-cert", "cert.pem"]).run(LONG);
    assert!(alone.expect_code(2).stderr.contains("--tls-key"));
    let url = ["view", "--no-open", "--public-url", "http://runs.example"];
    let url = scene.rlm(&url).run(LONG).expect_code(2);
    assert!(url.stderr.contains("https://"), "{url}");
}

#[test]
fn v11_page_behind_a_proxy_has_the_public_address() {
    let scene = Scene::new("print ready");
    scene.run(&["--once"]).run(LONG).expect_code(0);
    let remote = Remote::new(&scene, "0", &["--public-url", URL]);
    let send = |request: HttpRequest| request.send().unwrap();
    let closed = send(remote.request("GET", "/"));
    assert_eq!(closed.status, 401);
    assert!(!closed.body.contains("password"), "{closed:?}");
    let login = send(remote.request("GET", remote.path()));
    let own = |method: &str, path: &str| {
        let request = remote.request(method, path);
        request.header("cookie", cookie_of(&login))
    };
    assert_eq!(send(own("GET", "/")).status, 200);
    expect_no_new_run(&scene, &own, &send);
    // A proxy that collects an answer before it passes it on would hold the live changes back.
    let mut events = own("GET", "/events?topic=inbox").open().unwrap();
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(events.read_line(&mut head).unwrap() > 0, "{head}");
    }
    assert!(head.contains("x-accel-buffering: no"), "{head}");
    let address = format!("127.0.0.1:{}", remote.port);
    for host in [address.as_str(), "other.example"] {
        let request = HttpRequest::new(remote.port, "GET", "/").header("host", host);
        let refused = send(request);
        assert!(
            refused.status == 421 && refused.body.contains("pass it on"),
            "{refused:?}"
        );
    }
    remote.server.signal(rustix::process::Signal::TERM);
}

#[test]
fn pair_shows_a_code_for_a_phone_if_it_can_reach_the_page() {
    let scene = Scene::new("print ready");
    let browser = Browser::new(&scene, &[]);
    let (running, terminal) = scene.rlm(&["view", "pair"]).spawn_on_terminal();
    terminal.sees("a phone can't reach this page", LONG);
    running.wait(LONG).expect_code(0);
    drop(browser);
    let remote = Remote::new(&scene, "0", &["--public-url", URL]);
    let (running, terminal) = scene.rlm(&["view", "pair"]).spawn_on_terminal();
    // The upper edges of the two upper corners, dark beside the light border.
    terminal.sees("████ ▄▄▄▄▄ █", LONG);
    terminal.sees("█ ▄▄▄▄▄ ████", LONG);
    running.wait(LONG).expect_code(0);
    remote.server.signal(rustix::process::Signal::TERM);
}

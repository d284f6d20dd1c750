//! Attacks on `rlm view`: other sites, other users, guesses, hostile requests, and too many of them.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use rlm_tests::Effort;
use rlm_tests::http::HttpRequest;
use rustix::process::Signal;

use crate::LONG;
use crate::scene::{Scene, stop};
use crate::view_pages::{Browser, parts_of};

/// The number of connections of a flood.
const V8_CONNECTIONS: Effort = Effort {
    ci: 1000,
    nightly: 10_000,
};
/// The number of connections that are open at once.
const OPEN: usize = 400;

#[test]
fn v8_hostile_requests_are_refused_and_change_nothing() {
    let scene = Scene::new("print ready\nhang");
    let running = scene.ready(&["--once"]);
    let browser = Browser::new(&scene, &[]);
    let key = browser.key(&scene.run_id());
    let act = format!("/runs/{key}/act");
    let origin = format!("http://{}", browser.host);
    let secret = browser.form_secret();
    let form = "application/x-www-form-urlencoded";
    let stop_body = |secret: &str| format!("csrf={secret}&action=stop&confirmed=yes");
    let plain = |method: &str, path: &str| HttpRequest::new(browser.port, method, path);
    let own = |method: &str, path: &str| browser.request(method, path);
    let host = |request: HttpRequest| request.header("host", &browser.host);
    let post = |request: HttpRequest| request.body(form, stop_body(&secret));
    let address = format!("127.0.0.1:{}", browser.port);
    let localhost = format!("localhost:{}", browser.port);
    let cookie = &browser.cookie;
    let cases: Vec<(&str, u16, HttpRequest)> = vec![
        (
            "rebinding",
            421,
            plain("GET", "/")
                .header("host", "evil.example")
                .header("cookie", cookie),
        ),
        (
            "the address",
            421,
            plain("GET", "/")
                .header("host", &address)
                .header("cookie", cookie),
        ),
        (
            "localhost",
            421,
            plain("GET", "/")
                .header("host", &localhost)
                .header("cookie", cookie),
        ),
        ("no host", 421, plain("GET", "/").header("cookie", cookie)),
        ("two hosts", 421, host(own("GET", "/"))),
        ("no cookie", 401, host(plain("GET", "/"))),
        ("no cookie, inbox", 401, host(plain("GET", "/inbox"))),
        (
            "no cookie, run",
            401,
            host(plain("GET", &format!("/runs/{key}"))),
        ),
        (
            "no cookie, records",
            401,
            host(plain("GET", &format!("/runs/{key}/records?attempt=1-1"))),
        ),
        (
            "no cookie, report",
            401,
            host(plain("GET", &format!("/runs/{key}/report"))),
        ),
        (
            "no cookie, changes",
            401,
            host(plain("GET", &format!("/runs/{key}/changes"))),
        ),
        (
            "no cookie, figures",
            401,
            host(plain("GET", &format!("/runs/{key}/figures"))),
        ),
        (
            "no cookie, export",
            401,
            post(host(plain("POST", &format!("/runs/{key}/export"))).header("origin", &origin)),
        ),
        (
            "other site exports",
            403,
            post(
                own("POST", &format!("/runs/{key}/export"))
                    .header("origin", "http://evil.example")
                    .header("sec-fetch-site", "cross-site"),
            ),
        ),
        (
            "export by GET",
            405,
            own("GET", &format!("/runs/{key}/export?csrf={secret}")),
        ),
        (
            "changes of an attempt with a path",
            200,
            own("GET", &format!("/runs/{key}/changes?attempt=..%2f1-1")),
        ),
        (
            "no cookie, stream",
            401,
            host(plain("GET", "/events?topic=inbox")),
        ),
        (
            "no cookie, action",
            401,
            post(host(plain("POST", &act)).header("origin", &origin)),
        ),
        (
            "guessed cookie",
            401,
            host(plain("GET", "/")).header("cookie", &format!("rlm-view={}", "0".repeat(64))),
        ),
        (
            "odd cookie",
            401,
            host(plain("GET", "/")).header("cookie", "rlm-view=\u{ff}; x"),
        ),
        (
            "other site posts",
            403,
            post(
                own("POST", &act)
                    .header("origin", "http://evil.example")
                    .header("sec-fetch-site", "cross-site"),
            ),
        ),
        ("post without origin", 403, post(own("POST", &act))),
        (
            "post of a sandboxed frame",
            403,
            post(own("POST", &act).header("origin", "null")),
        ),
        (
            "post of another port",
            403,
            post(
                own("POST", &act)
                    .header("origin", "http://localhost:1")
                    .header("sec-fetch-site", "same-site"),
            ),
        ),
        (
            "other site streams",
            403,
            own("GET", "/events?topic=inbox")
                .header("sec-fetch-site", "cross-site")
                .header("sec-fetch-mode", "cors"),
        ),
        (
            "other site frames",
            403,
            own("GET", "/")
                .header("sec-fetch-site", "cross-site")
                .header("sec-fetch-mode", "navigate")
                .header("sec-fetch-dest", "iframe"),
        ),
        (
            "other site loads the script",
            403,
            own("GET", "/assets/page.js")
                .header("sec-fetch-site", "cross-site")
                .header("sec-fetch-mode", "no-cors"),
        ),
        (
            "no form secret",
            403,
            own("POST", &act)
                .header("origin", &origin)
                .body(form, "action=stop&confirmed=yes"),
        ),
        (
            "wrong form secret",
            403,
            own("POST", &act)
                .header("origin", &origin)
                .body(form, stop_body(&"0".repeat(64))),
        ),
        (
            "form as JSON",
            415,
            own("POST", &act)
                .header("origin", &origin)
                .body("application/json", "{}"),
        ),
        (
            "form as text",
            415,
            own("POST", &act)
                .header("origin", &origin)
                .body("text/plain", stop_body(&secret)),
        ),
        (
            "action by GET",
            405,
            own(
                "GET",
                &format!("{act}?csrf={secret}&action=stop&confirmed=yes"),
            ),
        ),
        (
            "guessed link",
            403,
            host(plain("GET", &format!("/login?link={}", "0".repeat(64)))),
        ),
        ("no link", 403, host(plain("GET", "/login"))),
        ("path traversal", 404, own("GET", "/runs/../../etc/passwd")),
        (
            "encoded traversal",
            404,
            own("GET", "/runs/..%2f..%2fetc%2fpasswd"),
        ),
        (
            "traversal in an asset",
            404,
            own("GET", "/assets/..%2f..%2fCargo.toml"),
        ),
        (
            "attempt with a path",
            404,
            own("GET", &format!("/runs/{key}/records?attempt=..%2f1-1")),
        ),
        (
            "position beyond the end",
            200,
            own(
                "GET",
                &format!("/runs/{key}/records?attempt=1-1&after=999999999"),
            ),
        ),
        ("unknown run", 404, own("GET", "/runs/none")),
        (
            "unknown action",
            200,
            own("POST", &act)
                .header("origin", &origin)
                .body(form, format!("csrf={secret}&action=rm")),
        ),
        ("unknown method", 403, own("DELETE", "/")),
        (
            "large body",
            413,
            own("POST", &act)
                .header("origin", &origin)
                .body(form, format!("csrf={secret}&text={}", "x".repeat(2 << 20))),
        ),
        (
            "large header",
            431,
            own("GET", "/").header("x", &"x".repeat(128 << 10)),
        ),
    ];
    for (what, status, request) in cases {
        // A server may close the connection before it read a large request.
        match request.send() {
            Ok(response) => assert_eq!(response.status, status, "{what}: {response:?}"),
            Err(e) => assert!(what.starts_with("large"), "{what}: {e}"),
        }
    }
    assert_eq!(scene.status()["state"], "running");
    assert_eq!(
        scene
            .rlm(&["report", "--json"])
            .run(LONG)
            .stdout
            .matches("\"kind\":\"stop")
            .count(),
        0
    );
    stop(running, Signal::INT);
}

#[test]
fn v8_link_logs_in_once_and_revoke_ends_every_session() {
    let scene = Scene::new("print ready");
    let browser = Browser::new(&scene, &[]);
    let link = scene.rlm(&["view", "pair"]).run(LONG).expect_code(0).stdout;
    let second = Browser::log_in(&link);
    let (_, _, path) = parts_of(&link);
    let used = HttpRequest::new(browser.port, "GET", &path).header("host", &browser.host);
    assert_eq!(used.send().unwrap().status, 403);
    let mut events = second.events("inbox");
    let revoked = scene.rlm(&["view", "revoke"]).run(LONG).expect_code(0);
    assert!(revoked.stdout.contains("2 browsers"), "{revoked}");
    for browser in [&browser, &second] {
        assert_eq!(browser.get("/").status, 401);
    }
    assert!(
        events.by_ref().count() < 10,
        "the stream ends with the session"
    );
}

#[test]
fn v8_pages_forbid_scripts_frames_and_caches() {
    let scene = Scene::new("print ready");
    let browser = Browser::new(&scene, &[]);
    for path in ["/", "/inbox", "/none", "/assets/page.js"] {
        let page = browser.get(path);
        let policy = page.header("content-security-policy").unwrap();
        for part in [
            "default-src 'none'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
            "form-action 'self'",
            "connect-src 'self'",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(page.header("referrer-policy"), Some("same-origin"));
        assert!(page.header("cache-control").unwrap().starts_with("no-"));
        assert_eq!(page.header("access-control-allow-origin"), None);
    }
    let nonce = |page: &str| page.split("nonce=\"").nth(1).unwrap()[..64].to_owned();
    assert_ne!(nonce(&browser.page("/")), nonce(&browser.page("/")));
}

#[test]
fn v8_page_answers_during_a_flood_of_connections() {
    let scene = Scene::new("print ready\nhang");
    let running = scene.ready(&["--once"]);
    let browser = Browser::new(&scene, &[]);
    let mut events = browser.events("list:show=all");
    events.next().unwrap();
    let mut open = std::collections::VecDeque::new();
    for number in 0..V8_CONNECTIONS.number() {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, browser.port)).unwrap();
        // A request whose header never ends.
        let _sent = stream.write_all(b"GET / HTTP/1.1\r\nhost: x");
        open.push_back(stream);
        if open.len() > OPEN {
            open.pop_front();
        }
        if number.is_multiple_of(500) {
            assert!(browser.page("/").contains(">running<"));
        }
    }
    assert!(browser.page("/").contains(">running<"));
    // The stream of the logged-in browser was not dropped for them.
    assert_eq!(browser.act(&scene.run_id(), "stop-after", &[]).0, "done");
    assert!(events.any(|event| event.to_string().contains("stopping")));
    stop(running, Signal::INT);
}

#[test]
fn v8_slow_request_ends() {
    let scene = Scene::new("print ready");
    let browser = Browser::new(&scene, &[]);
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, browser.port)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(100)))
        .unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    let mut rest = Vec::new();
    // The server closes the connection; otherwise the read times out.
    stream.read_to_end(&mut rest).unwrap();
}

#[test]
fn v10_another_user_can_read_nothing() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can start a process of another user");
    }
    let scene = Scene::new("print ready");
    let browser = Browser::new(&scene, &[]);
    fs_err::set_permissions(scene.sandbox.path(), PermissionsExt::from_mode(0o755)).unwrap();
    for folder in [
        "home",
        "home/.local",
        "home/.local/state",
        "home/.local/state/rlm",
    ] {
        let path = scene.sandbox.path().join(folder);
        fs_err::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let place = scene.sandbox.home().join(".local/state/rlm/view");
    let socket = place.join("view.sock");
    let mode = |path| fs_err::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&place), mode(&socket)), (0o700, 0o600));
    // Even if the directory were open to all.
    fs_err::set_permissions(&place, PermissionsExt::from_mode(0o755)).unwrap();
    let connects = "use Socket; socket(S, AF_UNIX, SOCK_STREAM, 0) or die; connect(S, sockaddr_un($ARGV[0])) or exit 7; exit 0";
    let stranger = Command::new("setpriv")
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "perl",
            "-e",
            connects,
        ])
        .arg(&socket)
        .status()
        .unwrap();
    assert_eq!(stranger.code(), Some(7));
    // A browser also tries the other address of this machine, so the server has the port there too.
    for address in ["127.0.0.1", "::1"] {
        let address: IpAddr = address.parse().unwrap();
        let taken = TcpListener::bind((address, browser.port)).unwrap_err();
        assert!(
            [ErrorKind::AddrInUse, ErrorKind::AddrNotAvailable].contains(&taken.kind()),
            "{address}: {taken}"
        );
    }
    let guess = HttpRequest::new(browser.port, "GET", "/").header("host", &browser.host);
    let refused = guess.send().unwrap();
    assert_eq!(refused.status, 401);
    assert!(!refused.body.contains("repo"), "{refused:?}");
}

#[test]
fn v11_address_that_other_machines_reach_is_refused_with_the_safe_way() {
    let scene = Scene::new("print ready");
    for address in ["0.0.0.0:8080", "[::]:8080", "192.0.2.1:8080"] {
        let refused = scene.rlm(&["view", "--no-open", "--listen", address]);
        let refused = refused.run(LONG).expect_code(2);
        assert!(
            refused.stderr.contains("ssh -L 8080:127.0.0.1:8080"),
            "{refused}"
        );
        assert_eq!(refused.stderr.lines().count(), 1, "{refused}");
    }
}

#[test]
fn agent_gets_no_link_to_the_page() {
    let scene = Scene::new("print ready");
    let browser = Browser::new(&scene, &[]);
    let rlm = crate::RLM;
    let script = format!(
        "cat >/dev/null; {rlm} view pair > pair.txt 2>&1; {rlm} view revoke > revoke.txt 2>&1; true"
    );
    let run = ["run", "--once", "--prompt", "go", "--", "sh", "-c", &script];
    scene.rlm(&run).run(LONG).expect_code(0);
    for name in ["pair.txt", "revoke.txt"] {
        let answer = fs_err::read_to_string(scene.file(name)).unwrap();
        assert!(answer.contains("runs inside an agent"), "{answer}");
        assert!(!answer.contains("http://"), "{answer}");
    }
    assert_eq!(browser.get("/").status, 200);
}

//! The registry on loopback: what it refuses, what it keeps, and that the real cargo can publish to it.

use std::process::Command;

use super::*;
use crate::command::{self, Show};

fn options(folder: &Path, own: &[&str]) -> Options {
    Options {
        folder: folder.join("registry"),
        own: own.iter().map(|it| (*it).to_owned()).collect(),
        home: folder.join("kept"),
        lock: String::new(),
        room: None,
    }
}

fn store(folder: &Path, own: &[&str]) -> Store {
    Store::open("http://127.0.0.1:1".into(), options(folder, own)).unwrap()
}

fn upload(name: &str, version: &str, needs: &[&str]) -> Vec<u8> {
    let told = json!({
        "name": name, "vers": version, "description": "Does it", "license": "MIT", "features": {},
        "deps": needs.iter().map(|it| json!({ "name": it, "version_req": "^0.1" })).collect::<Vec<_>>(),
    });
    index::tests::body(&told, b"package")
}

fn detail(reply: Reply) -> String {
    match reply {
        Reply::Refused(status, why) => format!("{status} {why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_crates_io_refuses_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), &["leaf", "app"]);
    let put = |body: &[u8], token| store.answer(&Method::Put, "/api/v1/crates/new", token, body);
    assert_eq!(
        detail(put(&upload("leaf", "0.1.0", &[]), false)),
        "403 this action requires authentication"
    );
    assert_eq!(
        detail(put(&upload("app", "0.1.0", &["leaf"]), true)),
        "400 no known crate named `leaf`"
    );
    assert_eq!(
        detail(put(b"\x05\0\0\0{}", true)),
        "400 the upload is not whole"
    );
    assert!(detail(put(&upload("../leaf", "0.1.0", &[]), true)).contains("proper name"));
    assert!(matches!(
        put(&upload("leaf", "0.1.0", &[]), true),
        Reply::Body(_)
    ));
    assert!(detail(put(&upload("leaf", "0.1.0", &[]), true)).contains("already uploaded"));
    assert!(matches!(
        put(&upload("leaf", "0.1.1", &[]), true),
        Reply::Body(_)
    ));
    assert!(matches!(
        put(&upload("app", "0.1.0", &["leaf", "serde"]), true),
        Reply::Body(_)
    ));
    *locked(&store.room) = Some(2);
    assert!(detail(put(&upload("third", "0.1.0", &[]), true)).starts_with("429 "));
}

#[test]
fn what_was_uploaded_is_there_after_a_restart_and_the_rest_is_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let body = upload("leaf", "0.1.0", &[]);
    store(folder.path(), &["leaf", "app"]).answer(&Method::Put, "/api/v1/crates/new", true, &body);
    let store = store(folder.path(), &["leaf", "app", "two-words"]);
    let get = |path: &str| store.answer(&Method::Get, path, false, b"");
    let Reply::Body(line) = get("/index/le/af/leaf") else {
        panic!("it has no line")
    };
    let line: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(line["cksum"], index::digest(b"package"));
    assert_eq!(get("/dl/leaf/0.1.0"), Reply::Body(b"package".to_vec()));
    // One's own crate is not sought elsewhere, or a stranger's of the same name would be taken for it.
    assert_eq!(get("/index/3/a/app"), Reply::Absent);
    assert_eq!(get("/dl/app/0.1.0"), Reply::Absent);
    assert_eq!(get("/index/tw/o_/two_words"), Reply::Absent);
    assert_eq!(
        get("/index/ot/he/other"),
        Reply::See("https://index.crates.io/ot/he/other".into())
    );
    assert_eq!(
        get("/dl/other/1.0.0"),
        Reply::See("https://static.crates.io/crates/other/other-1.0.0.crate".into())
    );
}

/// Cargo would build what it took from the first.
#[test]
fn a_registry_that_was_removed_is_not_taken_for_the_next_at_its_address() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.toml");
    let id = || {
        let registry = Registry::serve(0, options(folder.path(), &[])).unwrap();
        registry.configure(&config).unwrap();
        let text = fs::read_to_string(&config).unwrap();
        let (_, rest) = text.split_once("/index/").unwrap();
        rest.split('/').next().unwrap().to_owned()
    };
    let first = id();
    assert_eq!(id(), first);
    fs::remove_dir_all(folder.path().join("registry")).unwrap();
    assert_ne!(id(), first);
}

/// Cargo itself publishes to it, asks it, and builds what another project takes from it; no other host is needed.
#[test]
fn cargo_publishes_to_it_and_takes_from_it() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let registry = Registry::serve(0, options(root, &["leaf-of-a-test"])).unwrap();
    let config = root.join("config.toml");
    registry.configure(&config).unwrap();
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let manifest = |name: &str| {
        format!(
            "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\ndescription = \"x\"\nlicense = \"MIT\"\n\n[workspace]\n"
        )
    };
    write("leaf/Cargo.toml", &manifest("leaf-of-a-test"));
    write("leaf/src/lib.rs", "pub fn one() -> u8 { 1 }\n");
    write("app/Cargo.toml", &manifest("app"));
    write("app/src/lib.rs", "pub use leaf_of_a_test::one;\n");
    let cargo = |folder: &str, words: &[&str]| {
        let mut cargo = Command::new("cargo");
        cargo
            .args(words)
            .arg("--config")
            .arg(&config)
            .current_dir(root.join(folder));
        cargo
            .env("CARGO_HOME", root.join("home"))
            .env("CARGO_TARGET_DIR", root.join("target"));
        command::finish(&mut cargo, Show::Never)
    };
    let publish = [
        "publish",
        "--registry",
        "local",
        "--no-verify",
        "--allow-dirty",
    ];
    let published = cargo("leaf", &publish);
    assert!(published.success, "{}", published.output);
    let again = cargo("leaf", &publish);
    assert!(
        !again.success && again.output.contains("already"),
        "{}",
        again.output
    );
    for words in [
        &["info", "--registry", "local", "leaf-of-a-test@0.1.0"][..],
        &["add", "leaf-of-a-test"],
        &["check"],
    ] {
        let ended = cargo("app", words);
        assert!(ended.success, "{words:?}: {}", ended.output);
    }
}

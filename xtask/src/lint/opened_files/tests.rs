//! Tests the rule on small sources.

use std::str::FromStr as _;

use proc_macro2::TokenStream;

use super::*;

fn judged(files: &[(&str, &str)], allowed: &[AllowedCalls]) -> Vec<String> {
    let sources: Vec<Source> = files
        .iter()
        .map(|(path, text)| Source {
            path: path.into(),
            text: (*text).into(),
        })
        .collect();
    judge(&sources.iter().collect::<Vec<_>>(), allowed)
}

/// Returns the calls that the rule finds in a source.
fn found(text: &str) -> Vec<String> {
    let seen = shipped::seen(TokenStream::from_str(text).unwrap());
    calls(&seen).into_iter().map(|call| call.name).collect()
}

#[test]
fn call_that_takes_a_path_is_found_under_any_name() {
    for (text, name) in [
        ("fn f() { fs_err::read(path); }", "fs_err::read"),
        ("fn f() { std::fs::rename(a, b) }", "std::fs::rename"),
        ("fn f() { ::std::fs::rename(a, b) }", "std::fs::rename"),
        (
            "async fn f() { tokio::fs::write(a, b).await }",
            "tokio::fs::write",
        ),
        (
            "use fs_err as fs; fn f() { fs::copy(a, b) }",
            "fs_err::copy",
        ),
        ("use std::{io, fs}; fn f() { fs::read(a) }", "std::fs::read"),
        (
            "use std::fs::{self, Metadata}; fn f() { fs::read(a) }",
            "std::fs::read",
        ),
        (
            "fn f() { use std::fs::{File, Metadata}; File::open(a) }",
            "std::fs::File::open",
        ),
        (
            "use std::fs::File as F; fn f() { F::create_new(a) }",
            "std::fs::File::create_new",
        ),
        (
            "use std::fs::read as get; fn f() { a.map(get) }",
            "std::fs::read",
        ),
        (
            "use std::fs::OpenOptions; fn f() { OpenOptions::new() }",
            "std::fs::OpenOptions::new",
        ),
        (
            "fn f() { fs_err::File::options() }",
            "fs_err::File::options",
        ),
        (
            "fn f() { std::fs::DirBuilder::new() }",
            "std::fs::DirBuilder::new",
        ),
        ("use std::fs::*;", "std::fs::*"),
        ("use fs_err::PathExt; fn f() { PathExt }", "fs_err::PathExt"),
        (
            "fn f() { std::os::unix::fs::symlink(a, b) }",
            "std::os::unix::fs::symlink",
        ),
        (
            "use rustix::fs::{Mode, openat}; fn f() { openat(a, b) }",
            "rustix::fs::openat",
        ),
        (
            "use rustix::{fs, io}; fn f() { fs::unlinkat(a, b) }",
            "rustix::fs::unlinkat",
        ),
        ("fn f() { libc::open(a, b) }", "libc::open"),
        ("fn f() { nix::unistd::unlink(a) }", "nix::unistd::unlink"),
        ("fn f() { tempfile::tempdir() }", "tempfile::tempdir"),
        ("fn f() { path.read_dir() }", ".read_dir()"),
        ("fn f() { a.map(Path::read_dir) }", "Path::read_dir"),
        (
            "fn f() { println!(\"{:?}\", fs_err::read(path)) }",
            "fs_err::read",
        ),
        (
            "#[cfg(any(test, unix))] fn f() { fs_err::read(path) }",
            "fs_err::read",
        ),
        (
            "#[cfg(not(test))] fn f() { fs_err::read(path) }",
            "fs_err::read",
        ),
        (
            "#[cfg(test)] const A: u8 = 1; fn f() { fs_err::read(path) }",
            "fs_err::read",
        ),
    ] {
        assert_eq!(found(text), [name], "{text}");
    }
}

#[test]
fn comments_strings_types_descriptors_and_test_code_are_no_calls() {
    for text in [
        "// fs_err::read(path)\nfn f() {}",
        "/* fs_err::read(path) */ fn f() {}",
        "/// Like `fs_err::read(path)`.\nfn f() {}",
        "fn f() { g(\"fs_err::read(path)\", r#\"std::fs::read(a)\"#) }",
        "use std::fs::File; fn f(a: OwnedFd) -> File { File::from(a) }",
        "use std::os::unix::fs::MetadataExt as _; fn f(a: &std::fs::Metadata) {}",
        "fn f() { rustix::fs::fstat(file); rustix::fs::Dir::read_from(file) }",
        "fn f() { state_dir::read(path, 9); self.open(path); x.read(y) }",
        "fn read_dir() {} fn f() { x.read_dir; read_dir() }",
        "#[cfg(test)] mod tests { fn f() { fs_err::read(path) } }",
        "#[cfg(all(test, unix))] #[path = \"x.rs\"] mod x; ",
        "#[cfg(test)] fn f<A, B>(a: A) -> B { fs_err::read(path) }",
        "#[cfg(test)] use std::fs::*;",
        "#![cfg(test)] fn f() { fs_err::read(path) }",
    ] {
        assert!(found(text).is_empty(), "{text}: {:?}", found(text));
    }
}

#[test]
fn test_files_and_the_allowed_modules_are_skipped() {
    let call = "fn f() { fs_err::read(path) }";
    let (marked, plain) = ("#[cfg(test)] mod x;", "mod x;");
    let renamed = "#[cfg(test)] #[path = \"a_x.rs\"] mod x;";
    for (file, text, other) in [
        ("c/src/lib.rs", marked, "c/src/x.rs"),
        ("c/src/a/mod.rs", marked, "c/src/a/x/b.rs"),
        ("c/src/a.rs", marked, "c/src/a/x.rs"),
        ("c/src/a.rs", renamed, "c/src/a_x.rs"),
        ("c/src/a.rs", plain, MODULES[0]),
        ("c/src/a.rs", plain, "crates/rlm-store/src/state_dir/b.rs"),
    ] {
        let wrong = judged(&[(file, text), (other, call)], &[]);
        assert!(wrong.is_empty(), "{other}: {wrong:?}");
    }
    assert_eq!(
        judged(&[("c/src/a.rs", plain), ("c/src/a/x.rs", call)], &[]).len(),
        1
    );
    assert_eq!(
        judged(&[("c/src/a.rs", marked), ("c/src/x.rs", call)], &[]).len(),
        1
    );
}

#[test]
fn exception_covers_one_call_in_one_file_and_unused_one_is_reported() {
    let text = "fn f() {\n    fs_err::read(path)\n}";
    let allowed = |file, calls| {
        [AllowedCalls {
            file,
            calls,
            reason: "a test",
        }]
    };
    assert!(judged(&[("a.rs", text)], &allowed("a.rs", &["fs_err::read"])).is_empty());
    let refused = judged(&[("a.rs", text)], &[]);
    assert!(
        refused[0].starts_with("a.rs:2: fs_err::read takes a path"),
        "{refused:?}"
    );
    for (file, calls, lines) in [
        ("b.rs", &["fs_err::read"][..], 2),
        ("a.rs", &["fs_err::write"], 2),
        ("a.rs", &["fs_err::read", "fs_err::write"], 1),
    ] {
        let wrong = judged(&[("a.rs", text)], &allowed(file, calls));
        let unused = format!("{file}: {} is allowed but unused", calls[calls.len() - 1]);
        assert!(wrong.last().unwrap().starts_with(&unused), "{wrong:?}");
        assert_eq!(wrong.len(), lines, "{wrong:?}");
    }
}

#[test]
fn every_exception_has_a_reason_and_is_listed_once() {
    let mut files: Vec<&str> = ALLOWED.iter().map(|it| it.file).collect();
    assert!(files.is_sorted(), "in the order of their paths");
    files.dedup();
    assert_eq!(files.len(), ALLOWED.len());
    for AllowedCalls {
        file,
        calls,
        reason,
    } in ALLOWED
    {
        assert!(reason.starts_with("It") && !calls.is_empty(), "{file}");
    }
}

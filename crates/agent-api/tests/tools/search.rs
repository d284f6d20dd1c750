//! `grep` and `glob`.

use std::os::unix::fs::symlink;

use serde_json::json;

use crate::scene::{Scene, make_fifo};

#[tokio::test]
async fn a12_grep_is_sorted_and_leaves_out_what_git_ignores() {
    let scene = Scene::new();
    for path in [
        "b.rs",
        "a.rs",
        "a/c.rs",
        "a/.hidden.rs",
        "target/x.rs",
        ".git/x.rs",
        ".rlm/x.rs",
        "ü/✓.rs",
    ] {
        scene.write(path, "fn one() {}\r\nfn Two() {}\n");
    }
    scene.write(".gitignore", "target/\n");
    scene.write("binary.rs", b"fn one() {}\n\0");
    std::fs::create_dir(scene.outside("other")).unwrap();
    std::fs::write(scene.outside("other/d.rs"), "fn one").unwrap();
    symlink(scene.outside("other"), scene.path("link")).unwrap();
    symlink(scene.outside("other/d.rs"), scene.path("link.rs")).unwrap();
    make_fifo(&scene.path("fifo.rs"));
    let all = scene
        .ok("grep", json!({"pattern": r"^fn \w+\(\) \{\}"}))
        .await;
    let expected: String = ["a/.hidden.rs", "a/c.rs", "a.rs", "b.rs", "ü/✓.rs"]
        .map(|path| format!("{path}:1: fn one() {{}}\n{path}:2: fn Two() {{}}\n"))
        .concat();
    assert_eq!(all, expected);

    let one = scene
        .ok(
            "grep",
            json!({"pattern": "TWO", "ignore_case": "true", "path": "a", "glob": "c.*"}),
        )
        .await;
    assert_eq!(one, "a/c.rs:2: fn Two() {}\n");
    let file = scene
        .ok("grep", json!({"pattern": "one", "path": "target/x.rs"}))
        .await;
    assert_eq!(
        file, "target/x.rs:1: fn one() {}\n",
        "a file that is named is searched"
    );
    let none = scene.ok("grep", json!({"pattern": "three"})).await;
    assert!(none.starts_with("no line matches\n"), "{none}");
}

#[tokio::test]
async fn a12_grep_explains_wrong_calls() {
    let scene = Scene::new();
    scene.write("main.rs", "");
    for (arguments, reason) in [
        (json!({"pattern": "("}), "unclosed group"),
        (json!({"pattern": r"a\n"}), "is no regular expression"),
        (
            json!({"pattern": "x{1000}{1000}{1000}"}),
            "is no regular expression",
        ),
        (json!({"pattern": "x", "glob": "["}), "is no glob"),
        (
            json!({"pattern": "x", "path": "mian.rs"}),
            "similar names in `.`: main.rs",
        ),
        (json!({"pattern": "x", "path": ".git"}), "doesn't exist"),
        (
            json!({"pattern": "x", "limit": "many"}),
            "`limit` must be a whole number",
        ),
        (json!({}), "`pattern` is missing"),
    ] {
        let refused = scene.failed("grep", arguments).await;
        assert!(refused.contains(reason), "{refused}");
    }
}

#[tokio::test]
async fn a12_very_long_pattern_of_files_is_refused() {
    let scene = Scene::new();
    scene.write("a.rs", "fn one() {}\n");
    let longest = "*".repeat(1_000);
    let long = "{a,b}".repeat(100_000);
    for (tool, arguments) in [
        ("glob", json!({"pattern": long})),
        ("grep", json!({"pattern": "one", "glob": long})),
    ] {
        let refused = scene.failed(tool, arguments).await;
        assert_eq!(
            refused,
            "the pattern has more than 1000 bytes; use a shorter one"
        );
    }
    let all = scene.ok("glob", json!({"pattern": longest})).await;
    assert_eq!(all, "a.rs\n");
}

#[tokio::test]
async fn a12_grep_is_capped() {
    let scene = Scene::new();
    scene.write("a", "match\n".repeat(300));
    scene.write("b", "match\n");
    scene.write("wide", format!("{}\n", "wide ".repeat(1_000)).repeat(300));
    let text = scene.ok("grep", json!({"pattern": "match"})).await;
    assert_eq!(
        text.lines().filter(|line| line.starts_with("a:")).count(),
        200
    );
    assert!(
        text.contains("only the first 200 matching lines are shown; give a narrower"),
        "{text}"
    );
    let exact = scene
        .ok("grep", json!({"pattern": "match", "limit": 301}))
        .await;
    assert!(exact.ends_with("b:1: match\n"), "{exact}");
    let wide = scene
        .ok("grep", json!({"pattern": "wide", "limit": 300}))
        .await;
    assert!(wide.len() <= 50 << 10, "{}", wide.len());
    assert!(
        wide.contains("are omitted here; give a narrower `pattern`"),
        "{wide}"
    );

    let long = format!("start\n{}\n", "x".repeat(20 << 20));
    scene.write("long", long);
    let text = scene
        .ok("grep", json!({"pattern": "start", "path": "long"}))
        .await;
    assert!(
        text.contains("1 files can't be searched, such as long"),
        "{text}"
    );
}

#[tokio::test]
async fn a12_glob_is_sorted_and_capped() {
    let scene = Scene::new();
    for n in 0..1_200 {
        scene.write(&format!("many/{n:04}.txt"), "");
    }
    for path in [
        "src/b.rs",
        "src/a.rs",
        "src/deep/.c.rs",
        "target/d.rs",
        ".git/e.rs",
        "ü ✓.rs",
    ] {
        scene.write(path, "");
    }
    scene.write(".gitignore", "/target\n");
    symlink(scene.outside(""), scene.path("out")).unwrap();
    let all = scene.ok("glob", json!({"pattern": "*.rs"})).await;
    assert_eq!(all, "src/a.rs\nsrc/b.rs\nsrc/deep/.c.rs\nü ✓.rs\n");
    let some = scene
        .ok("glob", json!({"pattern": "*/*.rs", "path": "src"}))
        .await;
    assert_eq!(some, "src/deep/.c.rs\n");
    let many = scene.ok("glob", json!({"pattern": "many/*"})).await;
    assert_eq!(many.lines().count(), 1_001);
    assert!(
        many.contains("only the first 1000 of 1200 files are shown"),
        "{many}"
    );
    assert_eq!(
        scene.ok("glob", json!({"pattern": "*.py"})).await,
        "no file matches\n"
    );
    for (arguments, reason) in [
        (json!({"pattern": "*", "path": "missing"}), "doesn't exist"),
        (
            json!({"pattern": "*", "path": "src/a.rs"}),
            "is no directory",
        ),
        (json!({"pattern": "*", "path": ".git"}), "never searched"),
        (json!({"pattern": "/etc/*"}), "must be relative"),
    ] {
        let refused = scene.failed("glob", arguments).await;
        assert!(refused.contains(reason), "{refused}");
    }
}

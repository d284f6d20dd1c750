//! `read`, `write` and `edit`.

use std::fs::File;
use std::os::unix::fs::symlink;

use agent_api::{Access, Prepared};
use serde_json::json;

use crate::scene::{Scene, make_fifo, object, peak_memory, runs_in_own_process};

const MAX_BYTES: usize = 50 << 10;
const MAX_LINES: usize = 2_000;

#[tokio::test]
async fn a12_read_numbers_lines_and_continues_at_an_offset() {
    let scene = Scene::new();
    scene.write("ünïcode ✓.txt", "one\n\nünï ✓\nno line break");
    let path = "ünïcode ✓.txt";
    let all = scene.ok("read", json!({"path": path})).await;
    assert_eq!(all, "1\tone\n2\t\n3\tünï ✓\n4\tno line break\n");
    let part = scene
        .ok("read", json!({"path": path, "offset": "2", "limit": 2.0}))
        .await;
    assert_eq!(
        part,
        "2\t\n3\tünï ✓\n[the file has 28 bytes and more lines after line 3; continue with `offset` 4]"
    );
    let last = scene
        .ok("read", json!({"path": path, "offset": 4, "limit": 1}))
        .await;
    assert_eq!(last, "4\tno line break\n");
    let beyond = scene
        .failed("read", json!({"path": path, "offset": 5}))
        .await;
    assert_eq!(
        beyond,
        "`ünïcode ✓.txt` has 4 lines, so there is no line 5; give a smaller `offset`"
    );
}

#[tokio::test]
async fn a12_read_keeps_to_the_caps() {
    let scene = Scene::new();
    scene.write("many", "x\n".repeat(10_000));
    scene.write("wide", format!("{}\n", "é".repeat(90)).repeat(1_000));
    scene.write("long", format!("{}\nend\n", "漢".repeat(100_000)));
    for (path, next) in [("many", 1_991), ("wide", 267)] {
        let mut offset = 1;
        let text = scene.ok("read", json!({"path": path})).await;
        assert!(text.len() <= MAX_BYTES && text.lines().count() <= MAX_LINES);
        assert!(
            text.ends_with(&format!("continue with `offset` {next}]")),
            "{path}: {}",
            text.lines().last().unwrap()
        );
        // Each line is shown once.
        let mut lines = 0;
        loop {
            let text = scene
                .ok("read", json!({"path": path, "offset": offset}))
                .await;
            let shown = text.lines().filter(|line| line.contains('\t')).count();
            assert!(text.starts_with(&format!("{offset}\t")));
            lines += shown;
            offset += shown;
            if !text.contains("continue with") {
                break;
            }
        }
        assert_eq!(lines, if path == "many" { 10_000 } else { 1_000 });
    }
    let long = scene.ok("read", json!({"path": "long"})).await;
    let shown = format!(
        "1\t{}… [294000 more bytes in this line]\n2\tend\n",
        "漢".repeat(2_000)
    );
    assert_eq!(long, shown);
}

#[tokio::test]
async fn a12_read_explains_what_is_no_text() {
    let scene = Scene::new();
    scene.write("binary", b"ELF\0\x01\x02");
    scene.write("empty", "");
    scene.write("latin", b"caf\xe9\n");
    scene.write("crlf", "one\r\ntwo\r\n");
    scene.write("mixed", "one\r\ntwo\n");
    scene.write("src/main.rs", "");
    make_fifo(&scene.path("fifo"));
    symlink("missing", scene.path("dangling")).unwrap();
    let failed = |path: &'static str| {
        let scene = &scene;
        async move { scene.failed("read", json!({"path": path})).await }
    };
    assert!(
        failed("binary")
            .await
            .starts_with("`binary` is a binary file of 6 bytes")
    );
    assert!(failed("src").await.starts_with("`src` is a directory"));
    assert!(
        failed("fifo")
            .await
            .starts_with("`fifo` is no regular file")
    );
    assert!(failed("/dev/zero").await.contains("is no regular file"));
    assert!(
        failed("dangling")
            .await
            .contains("is a link to a file that doesn't exist")
    );
    assert!(
        failed("crlf/x").await.contains("no directory")
            || failed("crlf/x").await.contains("Not a directory")
    );
    assert_eq!(
        failed("src/mian.rs").await,
        "`src/mian.rs` doesn't exist; similar names in `src`: main.rs"
    );
    assert!(failed("a\0b").await.contains("NUL"));
    let ok = |path: &'static str| {
        let scene = &scene;
        async move { scene.ok("read", json!({"path": path})).await }
    };
    assert_eq!(ok("empty").await, "the file is empty");
    assert_eq!(
        ok("latin").await,
        "1\tcaf\u{fffd}\n[some bytes are not UTF-8, shown as \u{fffd}]"
    );
    assert_eq!(
        ok("crlf").await,
        "1\tone\n2\ttwo\n[the lines end with CRLF, shown as LF]"
    );
    assert_eq!(
        ok("mixed").await,
        "1\tone\n2\ttwo\n[1 of these 2 lines end with CRLF, shown as LF]"
    );
    let wrong = scene.failed("read", json!({"file": "x"})).await;
    assert!(
        wrong.starts_with("`path` is missing: it must be a string, as in {"),
        "{wrong}"
    );
}

#[test]
fn a12_file_of_100_mb_is_read_in_bounded_memory() {
    if runs_in_own_process("files::a12_file_of_100_mb_is_read_in_bounded_memory", &[]) {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let scene = Scene::new();
        let start = "one line\n".repeat(2_000);
        scene.write("sparse", &start);
        // The rest is a hole: one line of zeros.
        let file = File::options()
            .write(true)
            .open(scene.path("sparse"))
            .unwrap();
        file.set_len(100 << 20).unwrap();
        let warm = scene
            .ok("read", json!({"path": "sparse", "limit": 1}))
            .await;
        assert!(warm.contains("the file has 104857600 bytes"), "{warm}");
        let before = peak_memory();
        let hole = scene
            .ok("read", json!({"path": "sparse", "offset": 2_001}))
            .await;
        assert!(hole.contains("more bytes in this line]"), "{}", hole.len());
        let beyond = scene
            .failed("read", json!({"path": "sparse", "offset": 2_002}))
            .await;
        assert!(beyond.contains("has 2001 lines"), "{beyond}");
        let found = scene
            .ok("grep", json!({"pattern": "line", "path": "sparse"}))
            .await;
        assert!(
            found.contains("no line matches") || found.contains("one line"),
            "{found}"
        );
        let refused = scene
            .failed("edit", json!({"path": "sparse", "old": "a", "new": "b"}))
            .await;
        assert!(refused.contains("larger than 10 MB"), "{refused}");
        let refused = scene
            .failed("write", json!({"path": "sparse", "content": "x"}))
            .await;
        assert!(refused.contains("larger than 32 MB"), "{refused}");
        let used = peak_memory() - before;
        assert!(used < 80 << 20, "{used} bytes");
    });
}

#[tokio::test]
async fn a12_write_replaces_only_what_the_model_has_read() {
    let scene = Scene::new();
    let new = scene
        .ok(
            "write",
            json!({"path": "a/b/new.txt", "content": "one\ntwo\n"}),
        )
        .await;
    assert_eq!(new, "created `a/b/new.txt`: 2 lines, 8 bytes");
    let again = scene
        .ok("write", json!({"path": "a/b/new.txt", "content": "ü"}))
        .await;
    assert_eq!(again, "replaced `a/b/new.txt`: 1 lines, 2 bytes");
    assert_eq!(scene.content("a/b/new.txt"), "ü");

    scene.write("old", "a person's text");
    let write = json!({"path": "old", "content": "mine"});
    let refused = scene.failed("write", write.clone()).await;
    assert_eq!(refused, "`old` exists; read it first");
    scene.ok("read", json!({"path": "old"})).await;
    scene.write("old", "a person's change");
    let refused = scene.failed("write", write.clone()).await;
    assert_eq!(
        refused,
        "`old` was changed since you read it; read it again"
    );
    assert_eq!(scene.content("old"), "a person's change");
    scene.ok("read", json!({"path": "old"})).await;
    scene.ok("write", write).await;
    assert_eq!(scene.content("old"), "mine");

    scene.write("dir/file", "");
    for (path, reason) in [
        ("dir", "is a directory"),
        ("dir/file/x", "irectory"),
        ("", "empty"),
    ] {
        let refused = scene
            .failed("write", json!({"path": path, "content": ""}))
            .await;
        assert!(refused.contains(reason), "{path}: {refused}");
    }
    let wrong = scene
        .failed("write", json!({"path": "x", "content": 5}))
        .await;
    assert!(
        wrong.starts_with("`content` must be a string, not 5"),
        "{wrong}"
    );
}

#[tokio::test]
async fn a12_edit_refuses_a_file_that_changed_since_it_was_read() {
    let scene = Scene::new();
    scene.write("a.rs", "let a = 1;\nlet b = 2;\n");
    let edit = json!({"path": "a.rs", "old": "let a = 1;", "new": "let a = 9;"});
    // The exact text is enough for a file that was not read.
    scene.ok("edit", edit).await;
    assert_eq!(scene.content("a.rs"), "let a = 9;\nlet b = 2;\n");
    // The model knows the file after its own edit.
    let edit = json!({"path": "a.rs", "old": "let b = 2;", "new": "let b = 8;"});
    let result = scene.ok("edit", edit.clone()).await;
    assert!(result.contains("-let b = 2;\n+let b = 8;\n"), "{result}");
    scene.write("a.rs", "let a = 7;\nlet b = 2;\n");
    let refused = scene.failed("edit", edit.clone()).await;
    assert_eq!(
        refused,
        "`a.rs` was changed since you read it; read it again"
    );
    scene.ok("read", json!({"path": "a.rs"})).await;
    scene.ok("edit", edit).await;
    assert_eq!(scene.content("a.rs"), "let a = 7;\nlet b = 8;\n");
}

#[tokio::test]
async fn a12_file_that_changes_between_the_plan_and_the_change_is_kept() {
    let scene = Scene::new();
    scene.write("a.rs", "one\n");
    let edit = object(json!({"path": "a.rs", "old": "one", "new": "two"}));
    let prepared = scene
        .tool("edit")
        .prepare(&edit, &scene.context)
        .await
        .unwrap();
    assert_eq!(scene.content("a.rs"), "one\n", "a plan changes nothing");
    let write = object(json!({"path": "new", "content": "mine"}));
    let created = scene
        .tool("write")
        .prepare(&write, &scene.context)
        .await
        .unwrap();
    scene.write("a.rs", "a person's text");
    scene.write("new", "a person's file");
    for (prepared, path) in [(prepared, "a.rs"), (created, "new")] {
        let Prepared::Change(change) = prepared else {
            panic!("no change")
        };
        let refused = change.make().unwrap_err();
        assert!(refused.contains("changed by another program"), "{refused}");
        assert!(scene.content(path).starts_with("a person's"));
    }
}

#[tokio::test]
async fn a12_change_does_not_follow_a_link_that_replaced_a_directory() {
    let scene = Scene::new();
    for (tool, arguments) in [
        (
            "edit",
            json!({"path": "sub/deep/a", "old": "one", "new": "two"}),
        ),
        ("write", json!({"path": "sub/deep/b", "content": "two"})),
        ("write", json!({"path": "sub/new/deep/b", "content": "two"})),
    ] {
        scene.write("sub/deep/a", "one");
        let outside = scene.outside("other");
        std::fs::create_dir_all(outside.join("deep")).unwrap();
        std::fs::write(outside.join("deep/a"), "one").unwrap();
        let call = object(arguments);
        let prepared = scene.tool(tool).prepare(&call, &scene.context).await;
        let Prepared::Change(change) = prepared.unwrap() else {
            panic!("no change")
        };
        std::fs::remove_dir_all(scene.path("sub")).unwrap();
        symlink(&outside, scene.path("sub")).unwrap();
        let refused = change.make().unwrap_err();
        assert!(refused.contains("can't be written"), "{refused}");
        let other = std::fs::read_to_string(outside.join("deep/a")).unwrap();
        assert_eq!(other, "one");
        assert!(!outside.join("deep/b").exists() && !outside.join("new").exists());
        std::fs::remove_file(scene.path("sub")).unwrap();
    }
}

#[tokio::test]
async fn a12_edit_explains_what_is_no_text() {
    let scene = Scene::new();
    scene.write("binary", b"a\0b");
    scene.write("latin", b"a caf\xe9\n");
    scene.write("crlf", "one\r\ntwo\r\n");
    make_fifo(&scene.path("fifo"));
    for (path, reason) in [
        ("binary", "is a binary file"),
        ("latin", "is not UTF-8"),
        ("missing", "doesn't exist"),
        ("fifo", "is no regular file"),
        (".", "is a directory"),
    ] {
        let refused = scene
            .failed("edit", json!({"path": path, "old": "a", "new": "b"}))
            .await;
        assert!(refused.contains(reason), "{path}: {refused}");
    }
    scene
        .ok(
            "edit",
            json!({"path": "crlf", "old": "one\ntwo", "new": "1\n2\n3"}),
        )
        .await;
    assert_eq!(scene.content("crlf"), "1\r\n2\r\n3\r\n");
}

#[tokio::test]
async fn a12_links_and_dots_out_of_the_tree_need_more_access() {
    let scene = Scene::new();
    std::fs::create_dir(scene.outside("other")).unwrap();
    std::fs::write(scene.outside("other/secret"), "text").unwrap();
    symlink(scene.outside("other"), scene.path("out")).unwrap();
    symlink(scene.outside("other/secret"), scene.path("file")).unwrap();
    scene.write("in.txt", "text");
    symlink("in.txt", scene.path("inner")).unwrap();
    let absolute = scene.outside("other/secret").to_str().unwrap().to_owned();
    for tool in ["read", "write", "edit", "grep", "glob"] {
        let access = |path: &str| {
            let arguments =
                json!({"path": path, "pattern": "x", "old": "a", "new": "b", "content": ""});
            scene.tool(tool).access(&object(arguments), &scene.context)
        };
        let plain = match tool {
            "write" | "edit" => Access::Edits,
            _ => Access::Reads,
        };
        for path in ["in.txt", "inner", "sub/../in.txt", "./in.txt"] {
            std::fs::create_dir_all(scene.path("sub")).unwrap();
            assert_eq!(access(path), plain, "{tool} {path}");
        }
        for path in [
            "out/secret",
            "out",
            "file",
            "..",
            "../other/secret",
            &absolute,
            "/etc/passwd",
        ] {
            match access(path) {
                Access::Anything { reason } => {
                    assert!(
                        reason.ends_with("is outside of the working directory"),
                        "{reason}"
                    );
                }
                less => panic!("{tool} {path}: {less:?}"),
            }
        }
    }
    // A link in the tree stays a link; its target changes.
    scene
        .ok(
            "edit",
            json!({"path": "inner", "old": "text", "new": "new"}),
        )
        .await;
    assert_eq!(scene.content("in.txt"), "new");
    assert!(scene.path("inner").is_symlink());
}

#[tokio::test]
async fn a12_cancelled_call_changes_nothing() {
    let scene = Scene::new();
    scene.write("a.rs", "one\n");
    scene.context.cancel.cancel();
    for (tool, arguments) in [
        ("read", json!({"path": "a.rs"})),
        ("write", json!({"path": "new", "content": "x"})),
        ("edit", json!({"path": "a.rs", "old": "one", "new": "two"})),
        ("grep", json!({"pattern": "one"})),
        ("glob", json!({"pattern": "*"})),
        ("bash", json!({"command": "touch touched"})),
    ] {
        let output = scene.run(tool, arguments).await;
        assert!(output.is_error, "{tool}: {}", output.text);
    }
    assert_eq!(scene.content("a.rs"), "one\n");
    assert!(!scene.path("new").exists() && !scene.path("touched").exists());
}

#[test]
fn a12_tools_have_a_fixed_order_and_schemas() {
    let scene = Scene::new();
    assert_eq!(
        scene.names(),
        ["bash", "read", "write", "edit", "grep", "glob"]
    );
    for name in scene.names() {
        let tool = scene.tool(&name);
        let only_reads = matches!(name.as_str(), "read" | "grep" | "glob");
        assert_eq!(tool.only_reads(), only_reads, "{name}");
        assert_eq!(tool.definition(), tool.definition());
    }
    let call = object(json!({"command": "cargo test\necho"}));
    assert_eq!(scene.tool("bash").summary(&call), "cargo test\u{fffd}echo");
}

//! Tests of the first program of the pages: in a real process, and that all its copies are equal.

use std::{fs, os::unix::process::ExitStatusExt, path::Path};

use crate::child::Probe;

#[cfg(target_os = "linux")]
#[test]
fn hello_saves_on_ctrl_c_and_dies_by_it() {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hello-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let mut probe = Probe::start_by(&format!("cd '{}'; exec \"$@\"", folder.display()), "hello");
    probe.press();
    assert_eq!(probe.end().signal(), Some(2));
    let count = fs::read_to_string(folder.join("count")).unwrap();
    assert!(count.parse::<u32>().is_ok(), "{count}");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn first_program_of_each_page_is_the_tested_one() {
    let program = |text: &str| {
        let start = text.find("use std::{error").unwrap();
        let text = &text[start..];
        text[..text.find("\n}\n").unwrap()].to_owned()
    };
    let tested = program(include_str!("probe/hello.rs")).replace("pub(super) fn", "fn");
    assert_eq!(program(include_str!("../../examples/hello.rs")), tested);
    assert_eq!(program(include_str!("../../README.md")), tested);
    let page = include_str!("../../src/lib.rs").replace("\n//! ", "\n");
    assert_eq!(program(&page.replace("\n//!\n", "\n\n")), tested);
}

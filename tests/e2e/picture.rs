//! The picture in the README is a recording, and stays true.

use std::path::Path;

use crate::RLM;

/// A key that comes late, on a machine that is very busy, makes another picture, and says nothing about the program.
const ATTEMPTS: usize = 3;
/// What a page loads without being asked should be small.
const MOST: usize = 60 << 10;

#[test]
fn the_picture_shows_what_a_person_sees() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/rlm.svg");
    let kept = fs_err::read_to_string(file).unwrap();
    assert!(kept.len() < MOST, "{} bytes", kept.len());
    let mut different = None;
    for _ in 0..ATTEMPTS {
        let picture = rlm_tests::picture::picture(Path::new(RLM));
        let mut both = kept.lines().zip(picture.lines());
        if kept == picture {
            return;
        }
        different = both
            .find(|(kept, now)| kept != now)
            .map(|(kept, now)| format!("kept: {kept}\nnow:  {now}"));
    }
    panic!(
        "docs/rlm.svg is not what `rlm demo` shows; `cargo xtask picture` writes it anew:\n{}",
        different.unwrap_or_default()
    );
}

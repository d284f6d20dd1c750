//! The picture in the README is a recording that matches the program.

use std::path::Path;

use rlm_tests::picture::{SLOW_PACE, picture};

use crate::RLM;

/// The size limit of a picture that pages load automatically.
const MOST: usize = 60 << 10;

#[test]
fn picture_matches_the_screen() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/rlm.svg");
    let kept = fs_err::read_to_string(file).unwrap();
    assert!(kept.len() < MOST, "{} bytes", kept.len());
    let mut different = None;
    // A key that arrives too late on a very busy machine changes the picture without any fault of the program, so the second attempt is slower.
    for pace in [None, Some(SLOW_PACE)] {
        let picture = picture(Path::new(RLM), pace);
        let mut both = kept.lines().zip(picture.lines());
        if kept == picture {
            return;
        }
        different = both
            .find(|(kept, now)| kept != now)
            .map(|(kept, now)| format!("kept: {kept}\nnow:  {now}"));
    }
    panic!(
        "docs/rlm.svg differs from `rlm demo`; update it with `cargo xtask picture`:\n{}",
        different.unwrap_or_default()
    );
}

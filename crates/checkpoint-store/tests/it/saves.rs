//! The history of a store: the heads of its saves, in one pass.

use checkpoint_store::verify::{FileCondition, verify};
use checkpoint_store::{Options, Seq, reader};

use crate::support::{Dir, pipe};

fn heads(dir: &Dir) -> Vec<(u64, u64)> {
    let mut heads = Vec::new();
    let each = |seq: Seq, head: u64| heads.push((seq.get(), head));
    reader::history(&dir.path, &Options::default(), each).unwrap();
    heads
}

#[test]
fn history_shows_each_save_once_without_undone_ones() {
    let dir = Dir::new();
    let _writer = dir.with_history();
    let expected = [(1, 1), (3, 1), (4, 4), (6, 6), (7, 7)];
    assert_eq!(heads(&dir), expected, "this works while a writer is live");
    for (seq, head) in heads(&dir) {
        let options = Options::default();
        let loaded = reader::load_at::<u64, u64>(&dir.path, Seq::new(seq), &options).unwrap();
        assert_eq!(loaded.head, Some(head));
    }
}

#[test]
fn history_of_a_damaged_journal_ends_before_the_damage() {
    let dir = Dir::new();
    let (mut writer, _) = dir.open();
    for number in 1..=9 {
        writer.append(&number, &[number]).unwrap();
    }
    drop(writer);
    let path = dir.only("progress");
    let mut bytes = std::fs::read(&path).unwrap();
    let end = bytes.iter().rposition(|&byte| byte != 0).unwrap();
    bytes[end * 4 / 5] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let left = heads(&dir);
    assert!((1..9).contains(&left.len()), "{left:?}");
    assert!(
        left.iter()
            .zip(1..)
            .all(|(&it, number)| it == (number, number))
    );
    std::fs::write(path, "not a journal").unwrap();
    assert_eq!(heads(&dir), []);
}

#[test]
fn verify_names_a_pipe_and_checks_the_other_files() {
    let dir = Dir::new();
    let (mut writer, _) = dir.open();
    writer.append(&1, &[1]).unwrap();
    drop(writer);
    pipe(&dir.path.join("phase-0000000000000009.ckpt"));
    let found = verify(&dir.path).unwrap();
    let [bad, good] = &found.files[..] else {
        panic!("{found}");
    };
    assert!(
        matches!(&bad.condition, FileCondition::Unreadable(why) if why.contains("not a regular file")),
        "{found}"
    );
    assert_eq!(good.condition, FileCondition::Valid);
}

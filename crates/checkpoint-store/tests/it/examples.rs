//! The example runs to its end, twice in one store.

#[expect(dead_code, reason = "its `main` reads the arguments of a process")]
#[path = "../../examples/diary.rs"]
mod diary;

#[test]
fn diary_continues_where_it_ended() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        diary::run(dir.path(), 3).unwrap();
    }
    let saved = checkpoint_store::reader::load::<diary::Head, String>(dir.path()).unwrap();
    assert_eq!(saved.events.len(), 6);
}

#[expect(dead_code, reason = "its `main` reads the arguments of a process")]
#[path = "../../examples/second_disk.rs"]
mod second_disk;

#[test]
fn second_disk_has_each_step_when_the_first_one_is_lost() {
    let root = tempfile::tempdir().unwrap();
    let (dir, file) = (root.path().join("store"), root.path().join("log"));
    for step in 1..=3 {
        assert_eq!(second_disk::run(&dir, &file).unwrap(), step);
    }
    std::fs::remove_dir_all(&dir).unwrap();
    // A power cut left a part of a record, which was not acknowledged.
    let mut log = std::fs::read(&file).unwrap();
    log.extend([9, 0, 0, 0, 1]);
    std::fs::write(&file, log).unwrap();
    for step in 4..=5 {
        assert_eq!(second_disk::run(&dir, &file).unwrap(), step);
    }
    let saved = checkpoint_store::reader::load::<u64, String>(&dir).unwrap();
    assert_eq!(saved.events.len(), 5);
}

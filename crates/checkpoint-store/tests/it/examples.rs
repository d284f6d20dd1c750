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

//! All stores of a directory, including unreadable ones.

use checkpoint_store::{Seq, reader, reader::Health};

use crate::support::{Dir, Log};

#[test]
fn unreadable_stores_are_listed_too() {
    let root = Dir::new();
    let path = |name: &str| root.path.join(name);
    let open = |name: &str| Log::open(path(name), Default::default()).unwrap().0;
    drop(open("empty"));
    let mut live = open("live");
    live.append(&1, &[]).unwrap();
    for name in ["corrupt", "damaged"] {
        let mut writer = open(name);
        if name == "damaged" {
            writer.save_phase("p", &1, Default::default()).unwrap();
        }
        writer.append(&2, &[]).unwrap();
        writer.append(&3, &[]).unwrap();
    }
    for name in ["corrupt", "damaged"] {
        let dir = path(name);
        for entry in std::fs::read_dir(&dir).unwrap() {
            let file = entry.unwrap().path();
            if file.extension().is_some_and(|ext| ext == "ckj") {
                let mut bytes = std::fs::read(&file).unwrap();
                bytes[40] ^= 1;
                std::fs::write(file, bytes).unwrap();
            }
        }
    }
    std::fs::create_dir(path("not-a-store")).unwrap();
    std::fs::write(path("a-file"), "x").unwrap();
    std::os::unix::fs::symlink(path("live"), path("a-link")).unwrap();

    let listed: Vec<_> = reader::list(&root.path)
        .unwrap()
        .into_iter()
        .map(|entry| {
            assert_eq!(entry.path, path(&entry.name));
            assert_eq!(entry.modified.is_some(), entry.seq > Seq::ZERO);
            let health = match entry.health {
                Health::Unreadable(text) => {
                    assert!(text.contains("no valid state is left"), "{text}");
                    "unreadable"
                }
                Health::Damaged => "damaged",
                Health::Empty => "empty",
                Health::Valid => "sound",
                other => panic!("{other:?}"),
            };
            (entry.name, health, entry.locked, entry.seq.get())
        })
        .collect();
    let expected = [
        ("corrupt".to_owned(), "unreadable", false, 0),
        ("damaged".to_owned(), "damaged", false, 1),
        ("empty".to_owned(), "empty", false, 0),
        ("live".to_owned(), "sound", true, 1),
    ];
    assert_eq!(listed, expected);
    assert!(reader::list(path("absent")).unwrap_err().is_not_found());
}

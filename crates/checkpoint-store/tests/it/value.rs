//! Single values in a `Store`: which can be saved, how many stay, and what a load returns.

use checkpoint_store::{Options, Store, Writer};
use serde::ser::Error as _;
use serde::{Deserialize, Serialize, Serializer};

use crate::support::{Dir, files};

#[test]
fn value_survives_reopening() {
    let dir = Dir::new();
    let mut store = Store::open(&dir.path).unwrap();
    assert_eq!(store.load::<String>().unwrap(), None);
    for n in 0..5 {
        store.save(&format!("value {n}")).unwrap();
    }
    drop(store);
    let store = Store::open(&dir.path).unwrap();
    assert_eq!(store.load::<String>().unwrap().unwrap(), "value 4");
    assert!(store.report().is_undamaged());
}

#[test]
fn endless_saving_keeps_two_values_on_disk() {
    let dir = Dir::new();
    let mut store = Store::open(&dir.path).unwrap();
    for n in 0..20 {
        store.save(&n).unwrap();
    }
    let phases = files(&dir.path)
        .into_keys()
        .filter(|name| name.starts_with("phase-"))
        .count();
    assert_eq!(phases, 2);
}

#[test]
fn c63b_c63c_previous_value_is_offered_if_the_newest_is_damaged() {
    let dir = Dir::new();
    let mut store = Store::open(&dir.path).unwrap();
    store.save(&"old").unwrap();
    store.save(&"new").unwrap();
    drop(store);
    let newest = files(&dir.path)
        .into_keys()
        .rfind(|name| name.starts_with("phase-"))
        .unwrap();
    let mut bytes = std::fs::read(dir.path.join(&newest)).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(dir.path.join(&newest), &bytes).unwrap();

    let mut store = Store::open(&dir.path).unwrap();
    assert_eq!(store.load::<String>().unwrap().unwrap(), "old");
    assert_eq!(store.report().skipped[0].file, newest);
    let aside = dir.path.join(&store.report().set_aside[0]);
    assert_eq!(
        std::fs::read(aside).unwrap(),
        bytes,
        "damaged bytes are set aside, not deleted"
    );
    store.save(&"newer").unwrap();
    assert_eq!(store.load::<String>().unwrap().unwrap(), "newer");
}

#[derive(Deserialize)]
struct Unencodable;

impl Serialize for Unencodable {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(S::Error::custom("this value has no encoding"))
    }
}

#[derive(Serialize, Deserialize)]
struct Nested(Vec<Nested>);

fn nested(depth: usize) -> Nested {
    (0..depth).fold(Nested(Vec::new()), |inner, _| Nested(vec![inner]))
}

#[test]
fn c79_a_value_that_cannot_be_encoded_is_an_error_at_write() {
    let dir = Dir::new();
    let mut store = Store::open(&dir.path).unwrap();
    store.save(&1).unwrap();
    let before = files(&dir.path);
    let err = store.save(&Unencodable).unwrap_err();
    assert!(
        err.to_string().contains("this value has no encoding"),
        "{err}"
    );
    // A value that could be written but not read again is also refused.
    assert!(store.save(&nested(1000)).is_err());
    assert_eq!(files(&dir.path), before, "no file was written");
    store.save(&2).unwrap();
    assert_eq!(store.load::<i32>().unwrap(), Some(2));
    store.save(&nested(100)).unwrap();
    assert!(
        store.load::<Nested>().unwrap().is_some(),
        "every accepted value can be read"
    );

    let (mut writer, _) =
        Writer::<u8, Unencodable>::open(dir.path.join("w"), Options::default()).unwrap();
    assert!(writer.append(&1, &[Unencodable]).is_err());
    writer.append(&1, &[]).unwrap();
}

#[test]
fn value_of_another_type_is_an_error_and_not_an_older_value() {
    let dir = Dir::new();
    let mut store = Store::open(&dir.path).unwrap();
    store.save(&1u32).unwrap();
    store.save(&"text").unwrap();
    let err = store.load::<u32>().unwrap_err();
    assert!(!err.is_corrupt() && !err.is_not_found(), "{err}");
}

/// The depth of a typed value is counted differently from that of an untyped one.
#[derive(Serialize, Deserialize)]
enum Deep {
    End,
    More(Box<Deep>),
}

#[test]
fn accepted_nesting_can_be_read_as_its_type() {
    let dir = Dir::new();
    let mut store = Store::open(&dir.path).unwrap();
    let mut refused = 0;
    for depth in [10, 50, 100, 120, 126, 127, 128, 130, 200] {
        let value = (0..depth).fold(Deep::End, |inner, _| Deep::More(Box::new(inner)));
        match store.save(&value) {
            Ok(()) => assert!(store.load::<Deep>().unwrap().is_some(), "{depth}"),
            Err(_) => refused += 1,
        }
    }
    assert!((1..9).contains(&refused));
}

#[test]
fn large_and_repetitive_values_round_trip() {
    let dir = Dir::new();
    let mut store = Store::open(&dir.path).unwrap();
    // This compresses by more than the reader allows, so it must be stored uncompressed.
    let zeros = vec![0u8; 1 << 20];
    store.save(&zeros).unwrap();
    assert_eq!(store.load::<Vec<u8>>().unwrap().unwrap(), zeros);
}

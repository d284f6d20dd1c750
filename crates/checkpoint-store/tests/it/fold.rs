//! A fold gets the events that a load returns, one at a time.

use std::cell::Cell;
use std::path::Path;

use checkpoint_store::{
    Error, Folded, LoadReport, Loaded, Migrations, Options, PhaseMeta, Seq, Writer, reader,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::support::{Dir, files};

/// A loaded state in a form that loads and folds have in common.
pub(crate) type Parts<H, E> = (Option<H>, Vec<E>, Seq, LoadReport);

pub(crate) fn parts<H, E>(loaded: Loaded<H, E>) -> Parts<H, E> {
    (loaded.head, loaded.events, loaded.seq, loaded.report)
}

/// Loads the events by a fold.
pub(crate) fn folded<H: DeserializeOwned, E: DeserializeOwned>(
    dir: &Path,
    options: &Options,
) -> Result<Parts<H, E>, Error> {
    let push = |mut events: Vec<E>, event| {
        events.push(event);
        events
    };
    let found = reader::fold(dir, options, Vec::new(), push)?;
    Ok((found.head, found.value, found.seq, found.report))
}

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(0) };
}

/// An event that counts how many of its kind exist after they were loaded.
#[derive(Debug, Serialize)]
struct Counted(u64);

impl<'de> Deserialize<'de> for Counted {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = u64::deserialize(from)?;
        LIVE.set(LIVE.get() + 1);
        MOST.set(MOST.get().max(LIVE.get()));
        Ok(Self(number))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        LIVE.set(LIVE.get().saturating_sub(1));
    }
}

#[test]
fn k4b_fold_has_one_event_at_a_time_in_memory() {
    let dir = Dir::new();
    let (mut writer, _) = Writer::<u64, u64>::open(&dir.path, Options::default()).unwrap();
    let numbers: Vec<u64> = (0..30_000).collect();
    // A phase has the events of all its saves in one array, a large save has many in one.
    writer.append(&1, &numbers[..10_000]).unwrap();
    writer.append(&2, &numbers[10_000..10_100]).unwrap();
    writer.save_phase("p", &3, PhaseMeta::default()).unwrap();
    for some in numbers[10_100..].chunks(700) {
        writer.append(&4, some).unwrap();
    }
    drop(writer);

    let sum = |sum: u64, event: Counted| sum + event.0;
    let options = Options::default();
    let all = numbers.iter().sum::<u64>();
    let found = reader::fold::<u64, _, _>(&dir.path, &options, 0, sum).unwrap();
    assert_eq!((found.head, found.value), (Some(4), all));
    assert_eq!((MOST.get(), LIVE.get()), (1, 0));

    let (writer, found) = Writer::<u64, Counted>::open_folded(&dir.path, options, 0, sum).unwrap();
    assert_eq!(
        (found.head, found.value, found.seq),
        (Some(4), all, writer.seq())
    );
    assert_eq!((MOST.get(), LIVE.get()), (1, 0));

    let loaded = reader::load::<u64, Counted>(&dir.path).unwrap();
    assert_eq!(
        (MOST.get(), loaded.events.len()),
        (30_000, 30_000),
        "the count sees a list"
    );
}

/// For any damage, a fold returns what a load returns: the same state, or the same error.
#[test]
fn fold_and_load_agree_on_damaged_files() {
    let dir = Dir::new();
    drop(dir.with_history());
    let both = |what: &str| {
        let options = Options::default();
        let fold = folded::<u64, u64>(&dir.path, &options).map_err(|err| err.to_string());
        let load = reader::load_with::<u64, u64>(&dir.path, &options).map(parts);
        assert_eq!(fold, load.map_err(|err| err.to_string()), "{what}");
    };
    both("sound");
    for (name, bytes) in files(&dir.path) {
        let path = dir.path.join(&name);
        for at in (0..bytes.len().min(700)).step_by(3) {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << (at % 8);
            std::fs::write(&path, bad).unwrap();
            both(&format!("{name}, byte {at}"));
        }
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        both(&format!("half of {name}"));
        std::fs::write(&path, bytes).unwrap();
    }
}

#[test]
fn fold_migrates_and_checks_types_and_schema() {
    let dir = Dir::new();
    let options = |version, migrations| Options {
        schema: "s".into(),
        schema_version: version,
        migrations,
        ..Options::default()
    };
    let old = options(1, Migrations::default());
    let (mut writer, _) = Writer::<u64, u64>::open(&dir.path, old).unwrap();
    writer.append(&1, &[7, 8]).unwrap();
    drop(writer);
    let twice = |event: u64| Ok::<_, String>(event * 2);
    let new = options(2, Migrations::default().event(1, twice));
    let found = folded::<u64, u64>(&dir.path, &new).unwrap();
    assert_eq!((found.0, found.1), (Some(1), vec![14, 16]));

    let other = reader::fold(&dir.path, &Options::default(), (), |(), _: u64| ());
    let other = other.map(|it: Folded<u64, ()>| it.value).unwrap_err();
    assert!(other.to_string().contains("schema"), "{other}");
    let mut calls = 0;
    let wrong = reader::fold::<u64, String, _>(&dir.path, &new, (), |(), _| calls += 1);
    assert!(wrong.unwrap_err().to_string().contains("an event"));
    let wrong = reader::fold::<String, u64, _>(&dir.path, &new, (), |(), _| calls += 1);
    assert!(wrong.unwrap_err().to_string().contains("the head"));
    assert_eq!(calls, 0);
}

#[test]
fn events_that_are_decoded_on_several_threads_keep_their_order() {
    let dir = Dir::new();
    let (mut writer, _) = Writer::<(), String>::open(&dir.path, Options::default()).unwrap();
    let mut all = Vec::new();
    for save in 0..40_u32 {
        // More than a megabyte in all: a smaller state is decoded on one thread.
        let events: Vec<_> = (0..50)
            .map(|n| format!("{save}.{n} {}", "x".repeat(1000)))
            .collect();
        writer.append(&(), &events).unwrap();
        all.extend(events);
    }
    let loaded = reader::load::<(), String>(&dir.path).unwrap();
    assert!(loaded.events == all);
}

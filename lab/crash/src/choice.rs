//! The possible outcomes of a power cut. It can keep or lose each change of a name or a sector since the last sync, keep any length that a file had
//! since then, and leave any bytes where a file became longer without data.

use std::fmt;
use std::sync::Arc;

use crate::disk::{Disk, File, Ino, Node, ROOT, put};
use crate::rng::Rng;

/// Number of the possible contents where a file became longer and no data arrived.
const FILLS: u8 = 3;
const JUNK: u8 = 0xa5;

/// One decision of a power cut.
#[derive(Debug, Clone, Copy)]
enum Decision {
    /// Whether the change of a name is there.
    Name(usize),
    /// The length of the file, among those since the last sync.
    Size(Ino),
    /// The version of a sector.
    Sector(Ino, usize),
    /// Junk, bytes of another file, or zeros.
    Fill(Ino),
}

/// All decisions of a power cut at one moment.
#[derive(Debug)]
pub struct Decisions {
    things: Vec<Decision>,
    ways: Vec<u8>,
}

/// The outcome of one power cut: a number for each decision; 0 is "lost".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcomes(pub Vec<u8>);

impl fmt::Display for Outcomes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One letter for each decision, so that a command line can name a case; `-` if there is none.
        let letter = |&way: &u8| char::from(b"0123456789abcdefghijklmnopqrstuvwxyz"[way as usize]);
        match self.0.is_empty() {
            true => f.write_str("-"),
            false => f.write_str(&self.0.iter().map(letter).collect::<String>()),
        }
    }
}

impl Outcomes {
    /// Parses the text that `Display` writes.
    pub fn parse(text: &str) -> Option<Self> {
        let way = |c: char| c.to_digit(36).map(|way| way as u8);
        match text {
            "-" => Some(Self(Vec::new())),
            text => text.chars().map(way).collect::<Option<_>>().map(Self),
        }
    }
}

impl Decisions {
    /// Collects the decisions about the pending writes of a disk.
    pub fn of(disk: &Disk) -> Self {
        let mut freedom = Self {
            things: Vec::new(),
            ways: Vec::new(),
        };
        for index in 0..disk.ops.len() {
            freedom.add(Decision::Name(index), 2);
        }
        for ino in reachable(disk) {
            let Ok(file) = disk.file(ino) else { continue };
            let sizes = sizes(file).count();
            if sizes > 1 {
                freedom.add(Decision::Size(ino), sizes);
            }
            let mut unwritten = false;
            for (number, versions) in versions(file) {
                freedom.add(Decision::Sector(ino, number), 1 + versions);
                unwritten = true;
            }
            if unwritten && sizes_grow(file) {
                freedom.add(Decision::Fill(ino), usize::from(FILLS));
            }
        }
        freedom
    }

    fn add(&mut self, thing: Decision, ways: usize) {
        self.things.push(thing);
        // One letter has 36 values. If there are more versions, only the newest ones can be chosen.
        self.ways.push(ways.min(36) as u8);
    }

    /// Returns the number of possible outcomes, at most `u64::MAX`.
    pub fn total(&self) -> u64 {
        let ways = self.ways.iter().map(|&ways| u64::from(ways));
        ways.fold(1, u64::saturating_mul)
    }

    /// Returns the outcome in which nothing is lost.
    pub fn newest(&self) -> Outcomes {
        Outcomes(self.ways.iter().map(|ways| ways - 1).collect())
    }

    /// Returns all outcomes if there are at most `limit`, otherwise `limit` outcomes, which are mostly different: nothing lost, everything lost, one
    /// decision different, a prefix of the names, random ones.
    pub fn choices(&self, limit: usize, rng: &mut Rng) -> Vec<Outcomes> {
        let oldest = || Outcomes(vec![0; self.ways.len()]);
        if self.total() <= limit as u64 {
            let mut all = vec![oldest()];
            while let Some(next) = all.last().and_then(|last| self.after(last)) {
                all.push(next);
            }
            return all;
        }
        let mut some = Vec::with_capacity(limit);
        for index in 0..limit {
            // With a small limit, each power cut gets few outcomes, but there are many power cuts. A random kind makes their outcomes differ.
            let kind = if limit < 8 {
                rng.below(8)
            } else {
                index.min(2 + rng.below(6))
            };
            some.push(match kind {
                0 => self.newest(),
                1 => oldest(),
                2 => self.with_one_other(self.newest(), rng),
                3 => self.with_one_other(oldest(), rng),
                _ => self.by_chance(rng),
            });
        }
        some
    }

    /// Counts to the next outcome like an odometer.
    fn after(&self, choice: &Outcomes) -> Option<Outcomes> {
        let mut next = choice.clone();
        for (digit, ways) in next.0.iter_mut().zip(&self.ways) {
            *digit += 1;
            if *digit < *ways {
                return Some(next);
            }
            *digit = 0;
        }
        None
    }

    fn with_one_other(&self, mut choice: Outcomes, rng: &mut Rng) -> Outcomes {
        let at = rng.below(self.ways.len());
        choice.0[at] = rng.below(usize::from(self.ways[at])) as u8;
        choice
    }

    fn by_chance(&self, rng: &mut Rng) -> Outcomes {
        let names = self
            .things
            .iter()
            .filter(|thing| matches!(thing, Decision::Name(_)))
            .count();
        // Most file systems keep the order of name changes, so half of the outcomes keep a prefix. Most names are kept, because a file that lost its
        // name shows no other loss.
        let prefix = (rng.below(2) == 0).then(|| rng.below(names + 1).max(rng.below(names + 1)));
        let ways = self.ways.iter().enumerate();
        Outcomes(
            ways.map(|(index, &ways)| match prefix {
                Some(kept) if index < names => u8::from(index < kept),
                None if index < names => u8::from(rng.below(4) > 0),
                _ => rng.below(usize::from(ways)) as u8,
            })
            .collect(),
        )
    }

    /// Returns the disk that a machine finds after this power cut.
    pub fn apply(&self, disk: &Disk, choice: &Outcomes) -> Disk {
        let way = |index: usize| choice.0.get(index).copied().unwrap_or(0);
        let mut cut = disk.clone();
        cut.keep_names(|index| way(index) > 0);
        let mut at = 0;
        while at < self.things.len() {
            let (Decision::Size(ino) | Decision::Sector(ino, _) | Decision::Fill(ino)) =
                self.things[at]
            else {
                at += 1;
                continue;
            };
            let from = at;
            while at < self.things.len() && self.belongs(at, ino) {
                at += 1;
            }
            let durable = Arc::new(self.contents(disk, ino, from..at, choice));
            cut.nodes[ino] = Arc::new(Node::File(File {
                durable,
                ..File::default()
            }));
        }
        cut.rebooted()
    }

    fn belongs(&self, at: usize, to: Ino) -> bool {
        matches!(self.things[at], Decision::Size(ino) | Decision::Sector(ino, _) | Decision::Fill(ino) if ino == to)
    }

    fn contents(
        &self,
        disk: &Disk,
        ino: Ino,
        things: std::ops::Range<usize>,
        choice: &Outcomes,
    ) -> Vec<u8> {
        let Ok(file) = disk.file(ino) else {
            return Vec::new();
        };
        let way = |index: usize| choice.0.get(index).copied().unwrap_or(0);
        let (mut len, mut fill) = (file.durable.len(), FILLS - 1);
        for index in things.clone() {
            match self.things[index] {
                Decision::Size(_) => len = newest(sizes(file), way(index), self.ways[index]),
                Decision::Fill(_) => fill = way(index),
                _ => {}
            }
        }
        let mut bytes = file.durable.to_vec();
        let kept = bytes.len().min(len);
        bytes.resize(len, if fill == 0 { JUNK } else { 0 });
        if fill == 1
            && let Some(older) = stale(disk, ino, kept)
        {
            put(&mut bytes, kept, &older[kept..]);
        }
        for index in things {
            if let Decision::Sector(_, number) = self.things[index]
                && way(index) > 0
            {
                let all = [&file.orphans, &file.dirty];
                let versions = all
                    .into_iter()
                    .filter_map(|p| p.sectors.get(&number))
                    .flatten();
                let versions = std::iter::once(None).chain(versions.map(Some));
                if let Some(version) = newest(versions, way(index), self.ways[index]) {
                    put(&mut bytes, number * disk.sector, version);
                }
            }
        }
        bytes
    }

    /// Describes in words which writes were lost.
    pub fn explain(&self, disk: &Disk, choice: &Outcomes) -> String {
        let mut words = Vec::new();
        for ((thing, &way), &ways) in self.things.iter().zip(&choice.0).zip(&self.ways) {
            let fate = match way {
                way if way + 1 == ways => continue,
                0 => "lost".to_owned(),
                way => format!("only version {way} of {}", ways - 1),
            };
            words.push(match *thing {
                Decision::Name(index) => {
                    let op = &disk.ops[index];
                    let what = if op.target.is_some() {
                        "name"
                    } else {
                        "removal of"
                    };
                    format!("{what} {}: {fate}", op.name)
                }
                Decision::Size(ino) => format!("length of {}: {fate}", name(disk, ino)),
                Decision::Sector(ino, number) => {
                    let from = number * disk.sector;
                    format!(
                        "bytes {from}..{} of {}: {fate}",
                        from + disk.sector,
                        name(disk, ino)
                    )
                }
                Decision::Fill(ino) => {
                    let fill = ["junk", "bytes of another file"][usize::from(way)];
                    format!("unwritten part of {}: {fill}", name(disk, ino))
                }
            });
        }
        match words.is_empty() {
            true => "nothing is lost".into(),
            false => words.join("; "),
        }
    }
}

/// Returns a name of a file.
fn name(disk: &Disk, ino: Ino) -> String {
    let mut names = disk.nodes.iter().filter_map(|node| match &**node {
        Node::Dir { live, .. } => live.iter().find(|&(_, &target)| target == ino),
        Node::File(_) => None,
    });
    names.next().map_or_else(
        || format!("removed file {ino}"),
        |(name, _)| name.to_string(),
    )
}

/// Returns the item for a number: 0 is the first item, the highest number is the last.
fn newest<T>(items: impl Iterator<Item = T> + Clone, way: u8, ways: u8) -> T
where
    T: Clone,
{
    let count = items.clone().count();
    let index = match way {
        0 => 0,
        way => count - usize::from(ways - way),
    };
    items
        .clone()
        .nth(index)
        .expect("the number is below the number of outcomes")
}

fn sizes(file: &File) -> impl Iterator<Item = usize> + Clone {
    let pending = file.orphans.sizes.iter().chain(&file.dirty.sizes);
    std::iter::once(file.durable.len()).chain(pending.copied())
}

fn sizes_grow(file: &File) -> bool {
    sizes(file).any(|len| len > file.durable.len())
}

/// Returns the dirty sectors with the numbers of their versions.
fn versions(file: &File) -> impl Iterator<Item = (usize, usize)> {
    let count = |number: &usize| {
        let all = [&file.orphans, &file.dirty].into_iter();
        all.filter_map(|p| p.sectors.get(number))
            .map(Vec::len)
            .sum()
    };
    let numbers: std::collections::BTreeSet<usize> = file
        .orphans
        .sectors
        .keys()
        .chain(file.dirty.sectors.keys())
        .copied()
        .collect();
    numbers
        .into_iter()
        .map(move |number| (number, count(&number)))
}

/// Returns a file that may have had the blocks before: the newest other file that is long enough.
fn stale(disk: &Disk, ino: Ino, longer_than: usize) -> Option<&[u8]> {
    let others = (0..disk.nodes.len()).rev().filter(|&other| other != ino);
    others
        .filter_map(|other| disk.read(other).ok())
        .find(|bytes| bytes.len() > longer_than)
}

/// Returns the files that have a name, had one, or may have one after a power cut.
fn reachable(disk: &Disk) -> Vec<Ino> {
    let mut found = vec![false; disk.nodes.len()];
    let mut next = vec![ROOT];
    while let Some(ino) = next.pop() {
        if std::mem::replace(&mut found[ino], true) {
            continue;
        }
        if let Node::Dir { live, durable } = &*disk.nodes[ino] {
            next.extend(live.values().chain(durable.values()));
        }
        let pending = disk.ops.iter().filter(|op| op.dir == ino);
        next.extend(pending.filter_map(|op| op.target));
    }
    (0..found.len()).filter(|&ino| found[ino]).collect()
}

//! Saves each step to a store in DIR and to FILE on another disk. If DIR is gone, the next run makes it again from FILE.
//! Usage: `cargo run -p checkpoint-store --example second_disk DIR FILE`
#![expect(clippy::print_stdout, reason = "the example shows what happens")]
use std::{env, error::Error, fs, fs::File, io::Write, path::Path};

use checkpoint_store::{Options, Record, Replica, ReplicaError, Seq, Writer, rebuild};

#[derive(Debug)]
struct SecondDisk {
    file: File,
    newest: Seq,
}

impl Replica for SecondDisk {
    fn newest(&self) -> Seq {
        self.newest
    }
    fn append(&mut self, record: &Record) -> Result<(), ReplicaError> {
        let len = (record.as_bytes().len() as u32).to_le_bytes();
        self.file.write_all(&[&len, record.as_bytes()].concat())?;
        self.newest = record.seq();
        Ok(self.file.sync_data()?) // after an error, it is unknown what the disk has, so the writer ends
    }
    fn put_blob(&mut self, _: &str, _: &[u8]) -> Result<(), ReplicaError> {
        Err(ReplicaError::Unconfirmed("no place for blobs".into()))
    }
}

pub(crate) fn run(dir: &Path, log: &Path) -> Result<u64, Box<dyn Error>> {
    let file = File::options().append(true).create(true).open(log)?;
    let (folder, bytes, mut records) = (log.canonicalize()?, fs::read(log)?, Vec::new());
    File::open(folder.parent().unwrap_or(&folder))?.sync_all()?; // now the file has its name also after a power cut
    let mut rest = &bytes[..];
    while let Some((len, after)) = rest.split_first_chunk()
        && let Some(end) = after.split_at_checked(u32::from_le_bytes(*len) as usize)
    {
        records.push(Record::parse(end.0.to_vec(), log)?);
        rest = end.1;
    }
    file.set_len((bytes.len() - rest.len()) as u64)?; // a power cut may leave a part of the next record
    let newest = records.last().map_or(Seq::ZERO, Record::seq);
    if !dir.exists() {
        let records = records.into_iter().map(Ok::<_, Box<dyn Error>>);
        rebuild(dir, &Options::default(), records)?;
    }
    let (mut writer, loaded) = Writer::<u64, String>::open(dir, Options::default())?;
    writer.set_replica(Box::new(SecondDisk { file, newest }))?; // fails if DIR has a step that FILE lacks: remove DIR
    let step = loaded.head.unwrap_or(0) + 1;
    writer.append(&step, &[format!("step {step}")])?; // on both disks when it returns
    println!("saved step {step}");
    Ok(step)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let mut path = || arguments.next().ok_or("usage: second_disk DIR FILE");
    run(path()?.as_ref(), path()?.as_ref()).map(drop)
}

//! The workloads of the layers.

use crate::rng::Rng;
use crate::step::{Step, Workload};

/// Enough heads that old ones are dropped if the reserved room is small.
const COMPACTED: &str = "a1:20,h200,h200,h200,h200,h200,h200,h200,h200,h200,h200,h200,h200,h200,h200,h200,h200,h200,a1:20,u1,h20";
/// Writers whose journals continue the journals before, if the reserved room is small.
const CHAINED: &str = "a1:200,a1:200,a1:20,r,a1:20,r,r,a1:200,a1:200,a1:20,r,u1,a1:20";

/// Workloads with power cuts.
const SIM: [&str; 21] = [
    "a1:20,a1:20,a2:20",
    "a1:300,a1:700,a1:1500",
    "a1:20,p,a1:20",
    "p,p,p",
    "a1:20,a1:600,u1,a1:20",
    "a1:20,r,a1:20,r,a1:20",
    "a2:400,p,a1:20,r,a1:600",
    "p,a1:20,r,p,a1:20,r",
    "a0:0,a3:200,u2,p,a1:20",
    "a1:20,b,a1:20",
    "a1:20,r,u1,r,p,r,a1:20",
    "v20,v700,v20",
    "v1500,r,v20,r,v20",
    "a1:2000,p,a1:2000,u1",
    "a1:20,p,p,k,a1:20,g,V",
    "a1:20,p,a1:20,F,a1:20",
    "a1:20,x,a1:20,X,a1:20",
    // The blocks of the first history may return in the second one, frame for frame.
    "a1:20,a1:20,a1:20,X,r,a1:20,a1:20",
    COMPACTED,
    "p,a1:20,p,a1:20,f600,a1:900,c,a1:20,e,a1:20",
    CHAINED,
];

/// Workloads with failing calls.
const FAULT: [&str; 38] = [
    "",
    "a1:20",
    "a1:20,a1:20",
    "a1:20,a2:600,a1:20",
    "a1:20,p,a1:20",
    "p",
    "p,p",
    "p,r,p",
    "a1:20,u1,a1:20",
    "v20,v20",
    "a1:20,r,a1:20",
    "a1:20,x,a1:20",
    "a1:20,r,r,a1:20",
    "a1:20,r,a1:20,r,p,r",
    "a1:600,a1:600,u2,r,a1:20",
    "v600,r,v20,v20",
    "a1:20,b,a1:20,b",
    "p,a1:20,r,u1,p",
    "a1:20,l,a1:20,l",
    "a0:0,a0:0,r,l",
    "f600,a1:20,a1:900,e,a1:20",
    "a1:20,f0,a1:20,a1:20,e,a1:20",
    "f700,p,e,p,a1:20",
    "f1500,a1:20,r,a1:900,e,r,a1:20",
    "a1:20,p,x,a1:20,r",
    "a1:20,X,a1:20,r",
    "p,a1:20,X,p,r",
    "a1:20,X,r,a1:20",
    "a1:3000,p,a1:3000,u1,r",
    "v20,X,v20,r,v20",
    "a1:20,p,p,k,a1:20,g,V",
    "a1:20,p,a1:20,F,r",
    "a1:20,a1:300,u1,a1:20,x,a1:20,u3,r",
    COMPACTED,
    "p,a1:20,p,a1:20,f600,a1:900,c,a1:20,e,a1:20,r",
    // A second failure may leave a phase that looks newest but is not durable.
    "p,a1:20,p,a1:900,f1800,p,c",
    "p,a1:200,a1:200,a1:20,r,a1:20,x,a1:20,r",
    CHAINED,
];

/// The steps before a second writer takes the store over.
const RACE: [&str; 10] = [
    "",
    "a1:20,a1:20",
    "p",
    "a1:200,a1:200,a1:20,r,a1:200,a1:20,a1:20",
    "a1:200,a1:200,a1:20,r,a1:20",
    "a1:20,p,a1:20",
    "a1:20,r",
    "a1:20,r,a1:20",
    "p,r",
    "a1:20,a1:20,u1,p,p,a1:600",
];

/// The steps of a program with a replica. `r` is the start of another program, which claims the replica.
const REPLICA: [&str; 10] = [
    "a1:20,a1:20,a2:20",
    "a1:20,p,a1:20",
    "a1:20,a1:600,u1,a1:20",
    "p,p,a1:20",
    "a1:20,b,r,b,a1:20",
    "a2:400,p,a1:20,r,a1:600,p,r,u1",
    "a1:20,f0,a1:900,p,e,a1:20",
    "f1500,a1:20,r,a1:900,e,r,a1:20",
    "a1:20,x,a1:20,p,X,a1:20,X,p",
    COMPACTED,
];

/// Sizes of a sector and of the reserved room.
const DISKS: [(usize, u64); 4] = [(512, 0), (512, 2048), (4096, 0), (256, 1024)];

/// Returns the workloads of D0. There are `seeds` variants of each kind, with texts of other lengths, so that the frames have other offsets in their
/// sectors.
pub fn sim(seeds: u64) -> Vec<Workload> {
    let mut all = Vec::new();
    for seed in 1..=seeds {
        let mut rng = Rng::new(seed);
        let first = rng.draw() % 1_000_000;
        for (index, steps) in SIM.iter().enumerate() {
            let (sector, ahead) = DISKS[(index + seed as usize) % DISKS.len()];
            let mut steps = parsed(steps);
            for step in steps.iter_mut().filter(|_| seed > 1) {
                if let Step::Append { letters, .. } | Step::Value(letters) = step {
                    *letters += rng.below(80) as u16;
                }
            }
            let seed = first + index as u64;
            all.push(Workload {
                sector,
                ahead,
                seed,
                steps,
            });
        }
    }
    all
}

/// Returns the workloads of D1, the short ones first. Each workload comes twice: in a program that reopens its store after a failed call, and in
/// one that continues with the same writer.
pub fn fault() -> Vec<Workload> {
    let all = FAULT.iter().enumerate().flat_map(|(index, steps)| {
        let (sector, ahead) = DISKS[index % DISKS.len()];
        [0, 1].map(|seed| Workload {
            sector,
            ahead,
            seed,
            steps: parsed(steps),
        })
    });
    all.collect()
}

/// Returns the workloads before the race of two writers.
pub fn race() -> Vec<Workload> {
    on_disks(&RACE)
}

/// Returns the workloads of a program with a replica.
pub fn replica() -> Vec<Workload> {
    on_disks(&REPLICA)
}

fn on_disks(all: &[&str]) -> Vec<Workload> {
    let all = all.iter().enumerate().map(|(index, steps)| {
        let (sector, ahead) = DISKS[index % DISKS.len()];
        Workload {
            sector,
            ahead,
            seed: index as u64,
            steps: parsed(steps),
        }
    });
    all.collect()
}

fn parsed(steps: &str) -> Vec<Step> {
    let steps = steps.split(',').filter(|step| !step.is_empty());
    steps
        .map(|step| step.parse().expect("the tables contain valid steps"))
        .collect()
}

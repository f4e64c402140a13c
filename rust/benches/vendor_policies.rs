//! Durations of the vendors' own policies, as restated for the tests: `benches/bench_preferred.py` reads them.
//!
//! Standard input has one host a line, as JSON: `[policy, card of each device, distances, sizes]`, where the policy is
//! `amd` or `nvidia`. Standard output has, for each host, the list of seconds and sum of distances by size.
#![expect(clippy::print_stdout, reason = "what a bench is for")]

#[path = "../tests/allocation/peers/amd.rs"]
mod amd;
#[path = "../tests/allocation/peers/nvidia.rs"]
mod nvidia;

use std::hint::black_box;
use std::io::stdin;
use std::time::Instant;

type Host = (String, Vec<usize>, Vec<Vec<u64>>, Vec<usize>);

/// The highest score of a pair of GPUs.
const MOST_SCORE: u64 = 1860;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for line in stdin().lines() {
        let (policy, cards, distances, sizes): Host = serde_json::from_str(&line?)?;
        let answers: Vec<(f64, u64)> =
            sizes.into_iter().map(|size| measure(&policy, &cards, &distances, size)).collect();
        println!("{}", serde_json::to_string(&answers)?);
    }
    Ok(())
}

fn measure(policy: &str, cards: &[usize], distances: &[Vec<u64>], size: usize) -> (f64, u64) {
    let all: Vec<usize> = (0..cards.len()).collect();
    let scores: Vec<Vec<u64>> =
        distances.iter().map(|row| row.iter().map(|distance| MOST_SCORE - distance).collect()).collect();
    let began = Instant::now();
    let chosen = match policy {
        "amd" => amd::aligned(distances, cards, &all, &[], size),
        _ => nvidia::aligned(&scores, &all, &[], size),
    };
    let seconds = began.elapsed().as_secs_f64();
    (seconds, amd::sum(distances, &black_box(chosen).unwrap_or_default()))
}

//! Prints the speed of each kernel on one core: `cargo run --release -p cheetah-parity --example parity_speed`.
//!
//! Shards are 64 KiB and in the processor's cache. GB/s counts the bytes of all shards that are read, not of those
//! written. Two rates are printed: that of the best of 40 runs of 50 ms each, and that of the best single call, which
//! takes 5 to 50 µs. Other load on the machine lowers the first much more.
#![allow(clippy::print_stdout, reason = "a program whose output is the result")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use cheetah_parity::{Result, encode, reconstruct, update, xor};

const SHARD_BYTES: usize = 64 << 10;
const RUNS: usize = 40;
const RUN_TIME: Duration = Duration::from_millis(50);

/// The rates of the best run and of the best call, in 10^9 bytes a second.
fn rates_gb(bytes_read: usize, mut call: impl FnMut() -> Result<()>) -> Result<[f64; 2]> {
    let (mut best_run, mut best_call) = (0.0f64, 0.0f64);
    for _ in 0..RUNS {
        let (start, mut calls) = (Instant::now(), 0);
        while start.elapsed() < RUN_TIME {
            let start = Instant::now();
            call()?;
            best_call = best_call.max(rate_gb(bytes_read, start.elapsed()));
            calls += 1;
        }
        best_run = best_run.max(rate_gb(calls * bytes_read, start.elapsed()));
    }
    Ok([best_run, best_call])
}

fn rate_gb(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64() / 1e9
}

fn main() -> Result<()> {
    let fill = |seed: usize| (0..SHARD_BYTES).map(|i| (i * 31 + (i >> 8) + seed) as u8).collect::<Vec<_>>();
    println!("{:>3}  {:<24} {:>14} {:>15}", "k", "kernel", "best run, GB/s", "best call, GB/s");
    for k in [2, 4, 8, 16] {
        let owned: Vec<_> = (0..k).map(fill).collect();
        let data: Vec<&[u8]> = owned.iter().map(Vec::as_slice).collect();
        let (mut p, mut q, mut out, mut other) = (fill(0), fill(0), fill(0), fill(0));
        let report = |kernel: &str, [run, call]: [f64; 2]| println!("{k:>3}  {kernel:<24} {run:>14.1} {call:>15.1}");

        report("P", rates_gb(k * SHARD_BYTES, || xor(black_box(&mut p), black_box(&data)))?);
        report("P and Q", rates_gb(k * SHARD_BYTES, || encode(black_box(&data), &mut [&mut p, &mut q]))?);
        report("update of P", rates_gb(3 * SHARD_BYTES, || update(0, 1, black_box(data[0]), data[1], &mut out))?);
        report("update of Q", rates_gb(3 * SHARD_BYTES, || update(1, 1, black_box(data[0]), data[1], &mut out))?);

        let mut present: Vec<Option<&[u8]>> = data.iter().copied().map(Some).collect();
        present[0] = None;
        let (p, q) = (Some(&p[..]), Some(&q[..]));
        let mut one =
            |p, q| rates_gb(k * SHARD_BYTES, || reconstruct(black_box(&present), &[p, q], &mut [(0, &mut out)]));
        report("one data shard, by P", one(p, None)?);
        report("one data shard, by Q", one(None, q)?);
        present[1] = None;
        let two = rates_gb(k * SHARD_BYTES, || {
            reconstruct(black_box(&present), &[p, q], &mut [(0, &mut out), (1, &mut other)])
        });
        report("two data shards", two?);
    }
    Ok(())
}

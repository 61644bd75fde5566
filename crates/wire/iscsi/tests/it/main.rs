//! The initiator against two targets: a simulated one, which misbehaves on request, and tgtd.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod edges;
mod lost;
mod tgt;

use std::sync::Arc;
use std::time::Duration;

use cheetah_device::{ByteRange, Device, Result};
use cheetah_iscsi::{Initiator, IscsiConfig};

/// Connects, with a short timeout.
async fn connect(uri: &str, timeout: Duration) -> Result<Initiator> {
    Initiator::connect(config(uri, timeout)).await
}

fn config(uri: &str, timeout: Duration) -> IscsiConfig {
    IscsiConfig { name: "disk".into(), timeout, ..IscsiConfig::new(uri.parse().unwrap()) }
}

async fn read(device: &Initiator, offset: u64, len: u64) -> Result<Vec<u8>> {
    Ok(device.read(ByteRange::new(offset, len)).await?.into_bytes().to_vec())
}

/// Bytes that repeat at no power of two.
fn pattern(len: usize) -> Arc<[u8]> {
    (0..len).map(|at| (at % 251) as u8 ^ (at / 65_521) as u8).collect()
}

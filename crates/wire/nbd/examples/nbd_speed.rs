//! Measures an NBD server through this crate's client, on one connection:
//! `nbd_speed URI CREDENTIAL WORK BLOCK DEPTH SECONDS`.
//!
//! CREDENTIAL is a member's file, or `-` for none. WORK is `read`, `write` (both sequential), `randread`, or `first`: to connect and
//! read one block, twice in a row, so that the second connection resumes the session of TLS. Prints one line of JSON: rates of the
//! whole time, or the two times.
#![allow(clippy::print_stdout, reason = "a program whose output is the result")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cheetah_device::{ByteRange, Data, Device as _};
use cheetah_nbd::client::{Client, ClientConfig};
use cheetah_tls::{Credential, CredentialSet, Expected, Role, Roles};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Places of requests: one after the other, or pseudorandom.
struct Places {
    next: AtomicU64,
    blocks: u64,
    random: bool,
}

impl Places {
    fn next(&self) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let place = if self.random { (number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 20 } else { number };
        place % self.blocks
    }
}

async fn connect(config: &ClientConfig) -> Outcome<Arc<Client>> {
    Ok(Arc::new(Client::connect(config.clone()).await?))
}

/// Bytes until the time is over, in all.
async fn transfer(config: &ClientConfig, work: &str, block: u64, depth: u64, time: Duration) -> Outcome<u64> {
    let client = connect(config).await?;
    let blocks = client.geometry().size / block;
    let places = Arc::new(Places { next: AtomicU64::new(0), blocks, random: work == "randread" });
    let content: Vec<u8> = (0..block).map(|at| ((at * at) >> 7) as u8).collect();
    let (content, start) = (Data::from(content), Instant::now());
    let mut workers = Vec::new();
    for _ in 0..depth {
        let (client, places, content, writes) = (client.clone(), places.clone(), content.clone(), work == "write");
        workers.push(tokio::spawn(async move {
            let mut bytes = 0;
            while start.elapsed() < time {
                let offset = places.next() * block;
                match writes {
                    true => client.write(offset, content.clone(), false).await?,
                    false => drop(client.read(ByteRange::new(offset, block)).await?),
                }
                bytes += block;
            }
            Ok::<u64, cheetah_device::Error>(bytes)
        }));
    }
    let mut bytes = 0;
    for worker in workers {
        bytes += worker.await??;
    }
    Ok(bytes)
}

/// One thread, so that the connection is measured: with two, one of them waits for the socket while the other polls, and the
/// request moves between them at each answer, which takes longer than encryption.
#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [uri, credential, work, block, depth, seconds] = &arguments[..] else {
        return Err("nbd_speed URI CREDENTIAL read|write|randread|first BLOCK DEPTH SECONDS".into());
    };
    let credential = match credential.as_str() {
        "-" => None,
        path => Some(Credential::from_file(Path::new(path))?),
    };
    let expected = Expected::roles(Roles::of(&[Role::Node, Role::Agent, Role::Examiner, Role::Analyst]));
    let uri = uri.parse()?;
    let credentials = CredentialSet::from(credential);
    let config = ClientConfig { credentials, expected, writable: work == "write", ..ClientConfig::new(uri) };
    let (block, depth, time) = (block.parse()?, depth.parse()?, Duration::from_secs_f64(seconds.parse()?));
    if work == "first" {
        let mut times = Vec::new();
        for _ in 0..2 {
            let start = Instant::now();
            let client = connect(&config).await?;
            client.read(ByteRange::new(0, block)).await?;
            times.push(start.elapsed().as_secs_f64());
            drop(client);
            // The tickets of the session arrive behind the content.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        println!("{{\"first_s\": {}, \"again_s\": {}}}", times[0], times[1]);
        return Ok(());
    }
    let start = Instant::now();
    let bytes = transfer(&config, work, block, depth, time).await? as f64;
    let seconds = start.elapsed().as_secs_f64();
    println!("{{\"rate\": {}, \"iops\": {}}}", bytes / seconds / f64::from(1 << 20), bytes / block as f64 / seconds);
    Ok(())
}

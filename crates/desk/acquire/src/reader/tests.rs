use std::sync::Mutex;
use std::time::Duration;

use cheetah_device::memory::Memory;
use cheetah_device::{Device, Geometry, Io};
use cheetah_image::{Evidence, Identity, Kind, Source};
use futures::FutureExt as _;
use proptest::prelude::*;

use super::*;
use crate::engine::unacquirable;
use crate::order::Opener;

const SECTOR: u64 = 512;

fn alive() -> Liveness {
    Liveness::new("disk", None, [])
}

/// A device with unreadable sectors, some of which become readable after a few attempts.
struct Scratched {
    bytes: Vec<u8>,
    /// For each sector, how often it will still fail.
    failures: Mutex<Vec<u32>>,
}

impl Device for Scratched {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.bytes.len() as u64, writable: false, block_preferred: 4096 }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        let mut failures = self.failures.lock().unwrap();
        let sectors = (range.offset / SECTOR) as usize..range.end().div_ceil(SECTOR) as usize;
        match sectors.clone().find(|sector| failures[*sector] > 0) {
            Some(sector) => {
                failures[sector] = failures[sector].saturating_sub(u32::from(failures[sector] < u32::MAX));
                let why = "scratched".into();
                Io::fail(DeviceError::Unreadable { device: "disk".into(), range, why })
            }
            None => {
                let bytes = self.bytes[range.offset as usize..range.end() as usize].to_vec();
                // Out of order, as chunks arrive over a link.
                let wait = Duration::from_micros(range.offset.wrapping_mul(7919) % 300);
                Io::later(async move {
                    tokio::time::sleep(wait).await;
                    Ok(bytes.into())
                })
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn any_pattern_of_bad_sectors_is_found_to_the_sector(
        size in (2u64 << 20)..(4 << 20),
        bad in prop::collection::vec((0u64..8192, 1u64..40), 0..12),
        weak in prop::collection::vec(0u64..8192, 0..6),
    ) {
        let sectors = size.div_ceil(SECTOR);
        let mut failures = vec![0; sectors as usize];
        weak.iter().for_each(|sector| failures[(sector % sectors) as usize] = 3);
        for (from, len) in &bad {
            (*from..from + len).for_each(|sector| failures[(sector % sectors) as usize] = u32::MAX);
        }
        let mut model: Vec<u8> = (0..size).map(|at| (at % 251) as u8 + 1).collect();
        let device = Arc::new(Scratched { bytes: model.clone(), failures: Mutex::new(failures.clone()) });
        let mut unreadable: Vec<ByteRange> = Vec::new();
        for (sector, _) in failures.iter().enumerate().filter(|(_, failures)| **failures == u32::MAX) {
            let range = ByteRange::between(sector as u64 * SECTOR, ((sector as u64 + 1) * SECTOR).min(size));
            model[range.offset as usize..range.end() as usize].fill(0);
            range.append_to(&mut unreadable);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (bytes, found) = runtime.block_on(async {
            let mut reader = Reader::new(device, 0, Salvage { sector: SECTOR, retries: 8, is_checked: false }, alive(), None);
            let (mut bytes, mut found) = (Vec::new(), Vec::new());
            while let Some(chunk) = reader.next().await {
                let chunk = chunk.unwrap();
                assert_eq!(chunk.range.offset, bytes.len() as u64);
                assert_eq!(chunk.digest, digest(&chunk.data));
                bytes.extend_from_slice(&chunk.data.into_bytes());
                chunk.bad.into_iter().for_each(|bad| bad.push(&mut found));
            }
            (bytes, found)
        });
        prop_assert!(bytes == model);
        prop_assert_eq!(found.iter().map(BadRange::range).collect::<Vec<_>>(), unreadable);
    }
}

#[tokio::test]
async fn other_errors_are_not_bad_sectors() {
    struct Gone;
    impl Device for Gone {
        fn geometry(&self) -> Geometry {
            Geometry { size: 5 << 20, writable: false, block_preferred: 4096 }
        }
        fn read(&self, range: ByteRange) -> Io<'_, Data> {
            Io::fail(DeviceError::Lost { device: "disk".into(), range, why: "unplugged".into() })
        }
    }
    let mut reader =
        Reader::new(Arc::new(Gone), 0, Salvage { sector: SECTOR, retries: 1, is_checked: false }, alive(), None);
    assert!(matches!(reader.next().await, Some(Err(DeviceError::Lost { .. }))));
}

/// A disk that drops out after a number of reads. With `from`, only the bytes from there on are lost.
struct Dies {
    size: u64,
    reads_left: Mutex<u32>,
    from: u64,
}

impl Device for Dies {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.size, writable: false, block_preferred: 4096 }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        let mut left = self.reads_left.lock().unwrap();
        if *left == 0 && range.end() > self.from {
            let context = format!("reading {range}").into();
            return Io::fail(DeviceError::Io { context, why: "Input/output error".into(), errno: 5 });
        }
        *left = left.saturating_sub(1);
        Io::ok(vec![7; range.len as usize].into())
    }
}

async fn read_all(disk: Dies) -> (u64, Option<DeviceError>, u64) {
    let mut reader =
        Reader::new(Arc::new(disk), 0, Salvage { sector: SECTOR, retries: 0, is_checked: false }, alive(), None);
    let (mut read, mut bad) = (0, 0);
    while let Some(chunk) = reader.next().await {
        match chunk {
            Ok(chunk) => {
                read += chunk.range.len;
                bad += chunk.bad.iter().map(|bad| bad.len).sum::<u64>();
            }
            Err(error) => return (read, Some(error), bad),
        }
    }
    (read, None, bad)
}

#[tokio::test]
async fn a_disk_that_died_is_lost_and_yields_no_bad_sectors() {
    for reads in [0, 1, 5] {
        let (read, error, bad) = read_all(Dies { size: 20 << 20, reads_left: Mutex::new(reads), from: 0 }).await;
        assert!(matches!(error, Some(DeviceError::Lost { .. })), "{error:?}");
        assert_eq!((read, bad), (u64::from(reads) << 20, 0));
    }
    // Within a chunk that is read in pieces because of a bad sector.
    let mut failures = vec![0; 20 << 11];
    failures[5] = u32::MAX;
    struct Then(Scratched, Mutex<u32>);
    impl Device for Then {
        fn geometry(&self) -> Geometry {
            self.0.geometry()
        }
        fn read(&self, range: ByteRange) -> Io<'_, Data> {
            let mut left = self.1.lock().unwrap();
            *left = left.saturating_sub(1);
            if *left == 0 {
                Io::fail(DeviceError::Unreadable { device: "disk".into(), range, why: "gone".into() })
            } else {
                self.0.read(range)
            }
        }
    }
    let scratched = Scratched { bytes: vec![1; 20 << 20], failures: Mutex::new(failures) };
    let mut reader = Reader::new(
        Arc::new(Then(scratched, Mutex::new(24))),
        0,
        Salvage { sector: SECTOR, retries: 0, is_checked: false },
        alive(),
        None,
    );
    assert!(matches!(reader.next().await, Some(Err(DeviceError::Lost { .. }))));
}

#[tokio::test]
async fn an_unreadable_half_of_a_disk_is_not_a_lost_source() {
    let disk = Dies { size: 4 << 20, reads_left: Mutex::new(0), from: 2 << 20 };
    assert_eq!(read_all(disk).await, (4 << 20, None, 2 << 20));
}

#[tokio::test]
async fn a_volume_is_lost_if_one_of_its_disks_cannot_be_read_though_the_others_can() {
    let disk = |failures: u32| -> DynDevice {
        Arc::new(Scratched { bytes: vec![1; 1 << 20], failures: Mutex::new(vec![failures; 2048]) })
    };
    let (good, dead) = (disk(0), disk(u32::MAX));
    let suspect = ByteRange::new(0, SECTOR);
    let error = DeviceError::Unreadable { device: "disk".into(), range: suspect, why: "scratched".into() };
    let on = |disks: [&DynDevice; 2]| {
        let places = |device: &DynDevice| DiskPlaces { device: device.clone(), good: vec![suspect] };
        alive().on(disks.into_iter().map(places).collect())
    };
    assert!(on([&good, &good]).prove(&good, suspect, (None, true), &error).await.is_ok());
    // A disk with one place that can be read has bad sectors.
    let scratched: DynDevice = {
        let failures = (0..2048).map(|sector| if sector == 0 { 0 } else { u32::MAX }).collect();
        Arc::new(Scratched { bytes: vec![1; 1 << 20], failures: Mutex::new(failures) })
    };
    assert!(on([&good, &scratched]).prove(&good, suspect, (None, true), &error).await.is_ok());
    for disks in [[&good, &dead], [&dead, &good]] {
        let lost = on(disks).prove(&good, suspect, (None, true), &error).await;
        assert!(matches!(lost, Err(DeviceError::Lost { .. })), "{lost:?}");
    }
}

#[tokio::test]
async fn a_disk_that_has_another_size_when_it_is_opened_again_is_evidence_and_not_lost() {
    let dead: DynDevice = Arc::new(Scratched { bytes: vec![1; 1 << 20], failures: Mutex::new(vec![u32::MAX; 2048]) });
    let suspect = ByteRange::new(0, SECTOR);
    let error = DeviceError::Unreadable { device: "disk".into(), range: suspect, why: "scratched".into() };
    let reopen = |size: usize| -> Opener {
        Arc::new(move || {
            let identity = Identity::new(Kind::Raw, "disk", size as u64);
            let source = Source::new(Arc::new(Memory::new(vec![1; size])), identity, "disk".into());
            async move { Ok::<_, cheetah_error::Error>(Evidence::from(source)) }.boxed()
        })
    };
    let proved = async |size: usize| {
        let liveness = Liveness::new("disk", Some(reopen(size)), [suspect]);
        liveness.prove(&dead, suspect, (None, true), &error).await
    };
    assert!(proved(1 << 20).await.is_ok());
    for size in [1 << 19, 1 << 21] {
        let another = proved(size).await.unwrap_err();
        assert!(matches!(another, DeviceError::Invalid(_)), "{another}");
        assert_eq!(unacquirable("disk", another).exit_code(), 3);
    }
}

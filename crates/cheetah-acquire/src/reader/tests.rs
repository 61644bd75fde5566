use std::sync::Mutex;
use std::time::Duration;

use cheetah_device::{Device, Geometry, Io};
use proptest::prelude::*;

use super::*;

const SECTOR: u64 = 512;

/// Bytes of which some sectors cannot be read, some of them only the first few times.
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
            match unreadable.last_mut() {
                Some(last) if last.end() == range.offset => last.len += range.len,
                _ => unreadable.push(range),
            }
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (bytes, found) = runtime.block_on(async {
            let mut reader = Reader::new(device, 0, Salvage { sector: SECTOR, retries: 8 });
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
        prop_assert_eq!(found.iter().map(Bad::range).collect::<Vec<_>>(), unreadable);
    }
}

#[tokio::test]
async fn other_errors_are_no_bad_sectors() {
    struct Gone;
    impl Device for Gone {
        fn geometry(&self) -> Geometry {
            Geometry { size: 5 << 20, writable: false, block_preferred: 4096 }
        }
        fn read(&self, range: ByteRange) -> Io<'_, Data> {
            Io::fail(DeviceError::Lost { device: "disk".into(), range, why: "unplugged".into() })
        }
    }
    let mut reader = Reader::new(Arc::new(Gone), 0, Salvage { sector: SECTOR, retries: 1 });
    assert!(matches!(reader.next().await, Some(Err(DeviceError::Lost { .. }))));
}

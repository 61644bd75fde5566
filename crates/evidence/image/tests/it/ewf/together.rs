//! Many concurrent readers, some of which are cancelled.

use std::sync::Arc;

use cheetah_device::{ByteRange, Device as _};
use cheetah_image::ewf::Ewf;
use futures::FutureExt as _;

use super::support::{Desk, Noise, runtime};
use crate::need;

#[test]
fn cancelled_reads_do_not_affect_other_readers() {
    if !need::programs(&["ewfacquire"]) {
        return;
    }
    let desk = Desk::new(2 << 20);
    let first = desk.acquire("shared", &[]);
    let raw = Arc::new(desk.raw.clone());
    let runtime = runtime();
    for round in 0..4 {
        let image = Arc::new(Ewf::open(&first).unwrap());
        let readers: Vec<_> = (0..8)
            .map(|reader| {
                let (image, raw) = (image.clone(), raw.clone());
                runtime.spawn(async move {
                    let mut noise = Noise(1 + round * 8 + reader);
                    for _ in 0..100 {
                        let offset = noise.below(raw.len() as u64);
                        let len = noise.below(400_000).min(raw.len() as u64 - offset);
                        let range = ByteRange::new(offset, len);
                        match noise.below(4) {
                            // A read that is never polled, a read that is dropped after it was polled, and a hint.
                            0 => drop(image.read(range)),
                            1 => drop(image.read(range).now_or_never()),
                            2 => image.cache(range).await.unwrap(),
                            _ => {
                                let data = image.read(range).await.unwrap();
                                assert!(data == raw[offset as usize..(offset + len) as usize], "{range}");
                            }
                        }
                    }
                })
            })
            .collect();
        for reader in readers {
            runtime.block_on(reader).unwrap();
        }
    }
}

#[test]
fn concurrent_readers_stay_within_the_bounds() {
    if !need::programs(&["ewfacquire"]) {
        return;
    }
    let desk = Desk::new(512);
    let image = Ewf::open(&desk.acquire("bounds", &[])).unwrap();
    for (offset, len) in [(0, 513), (512, 1), (u64::MAX, 1), (1, u64::MAX)] {
        let range = ByteRange::new(offset, len);
        assert!(image.read(range).now_or_never().unwrap().is_err());
        assert!(image.cache(range).now_or_never().unwrap().is_err());
    }
    assert!(image.read(ByteRange::new(512, 0)).now_or_never().unwrap().unwrap().is_empty());
    assert!(image.write(0, vec![1].into(), false).now_or_never().unwrap().is_err());
}

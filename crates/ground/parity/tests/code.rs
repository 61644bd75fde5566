//! The code against two implementations that share nothing with it: multiplication bit by bit, and the Reed-Solomon
//! matrices of another library, whose parity rows are the powers of 1 and 2.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use cheetah_parity::{DATA_SHARDS_MAX, ParityError, accumulate, encode, reconstruct, update, xor};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use rusty_erasure_core::{Coder, Matrix};

/// The most shards that the other library has.
const PEER_SHARDS_MAX: usize = 255;

/// The product in GF(2^8), by long division with the polynomial.
fn product(a: u8, b: u8) -> u8 {
    let mut product = (0..8).filter(|bit| b >> bit & 1 == 1).fold(0u16, |sum, bit| sum ^ (u16::from(a) << bit));
    for bit in (8..16).rev() {
        if product >> bit & 1 == 1 {
            product ^= 0x11d << (bit - 8);
        }
    }
    product as u8
}

fn naive(data: &[&[u8]]) -> [Vec<u8>; 2] {
    let len = data[0].len();
    let (mut p, mut q) = (vec![0; len], vec![0; len]);
    let mut factor = 1;
    for shard in data {
        for i in 0..len {
            p[i] ^= shard[i];
            q[i] ^= product(factor, shard[i]);
        }
        factor = product(factor, 2);
    }
    [p, q]
}

fn encoded(data: &[&[u8]], parity_shards: usize) -> Vec<Vec<u8>> {
    // The earlier content must not matter.
    let mut parity = vec![vec![0xa5; data[0].len()]; parity_shards];
    encode(data, &mut parity.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>()).unwrap();
    parity
}

/// Shards, and how far into each its bytes start: no shard is aligned.
#[derive(Debug, Clone)]
struct Stripe(Vec<(usize, Vec<u8>)>);

impl Stripe {
    fn data(&self) -> Vec<&[u8]> {
        self.0.iter().map(|(skip, bytes)| &bytes[*skip..]).collect()
    }
}

fn stripe(shards: impl Strategy<Value = usize>) -> impl Strategy<Value = Stripe> {
    let lens = prop_oneof![0..10usize, 0..600usize, Just(128), Just(256), Just(4096)];
    (shards, lens).prop_flat_map(|(shards, len)| {
        vec((0..40usize).prop_flat_map(move |skip| (Just(skip), vec(any::<u8>(), skip + len))), shards).prop_map(Stripe)
    })
}

fn counts() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 1..20usize, 1 => 20..=DATA_SHARDS_MAX]
}

proptest! {
    #[test]
    fn parity_equals_that_of_two_other_implementations(stripe in stripe(counts())) {
        let data = stripe.data();
        let parity = encoded(&data, 2);
        prop_assert_eq!(&parity[..], naive(&data));
        prop_assert_eq!(&encoded(&data, 1)[0], &parity[0]);
        let mut p = vec![1; data[0].len()];
        xor(&mut p, &data).unwrap();
        prop_assert_eq!(&p, &parity[0]);
        if data.len() + 2 <= PEER_SHARDS_MAX {
            let mut peers = vec![vec![0; data[0].len()]; 2];
            let coder = Coder::new(Matrix::reed_solomon(data.len(), 2).unwrap()).unwrap();
            coder.encode(&data, &mut peers.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>()).unwrap();
            prop_assert_eq!(parity, peers);
        }
    }

    #[test]
    fn any_shards_that_are_missing_are_restored(
        stripe in stripe(counts()),
        parity_shards in 1..=2usize,
        lost in vec(any::<Index>(), 0..=2),
        wanted in any::<[bool; 2]>(),
        garbage in any::<u8>(),
    ) {
        let data = stripe.data();
        let parity = encoded(&data, parity_shards);
        let whole: Vec<&[u8]> = data.iter().copied().chain(parity.iter().map(Vec::as_slice)).collect();
        let mut lost: Vec<usize> = lost.iter().map(|index| index.index(whole.len())).collect();
        lost.truncate(parity_shards);
        let mut shards: Vec<Option<&[u8]>> = whole.iter().copied().map(Some).collect();
        lost.iter().for_each(|index| shards[*index] = None);

        let mut restored: Vec<_> = lost.iter().zip(wanted).filter(|(_, wanted)| *wanted)
            .map(|(index, _)| (*index, vec![garbage; data[0].len()])).collect();
        let (present_data, present_parity) = shards.split_at(data.len());
        let mut into: Vec<_> = restored.iter_mut().map(|(index, bytes)| (*index, bytes.as_mut_slice())).collect();
        reconstruct(present_data, present_parity, &mut into).unwrap();

        for (index, bytes) in &restored {
            prop_assert_eq!(&bytes[..], whole[*index]);
            if parity_shards == 2 && whole.len() <= PEER_SHARDS_MAX {
                let mut peers = vec![0; bytes.len()];
                let coder = Coder::new(Matrix::reed_solomon(data.len(), 2).unwrap()).unwrap();
                coder.recover(&shards, &[*index], &mut [&mut peers]).unwrap();
                prop_assert_eq!(bytes, &peers);
            }
        }
    }

    #[test]
    fn an_updated_parity_shard_equals_that_of_the_new_data(
        stripe in stripe(counts()),
        changed in any::<Index>(),
        fill in any::<[u8; 7]>(),
    ) {
        let mut data = stripe.data();
        let parity = encoded(&data, 2);
        let changed = changed.index(data.len());
        let old = data[changed];
        let new: Vec<u8> = fill.into_iter().cycle().take(old.len()).collect();
        let delta: Vec<u8> = old.iter().zip(&new).map(|(old, new)| old ^ new).collect();
        data[changed] = &new;
        let expected = encoded(&data, 2);
        for index in 0..2 {
            let (mut updated, mut accumulated) = (parity[index].clone(), parity[index].clone());
            update(index, changed, old, &new, &mut updated).unwrap();
            accumulate(index, changed, &delta, &mut accumulated).unwrap();
            prop_assert_eq!(&updated, &expected[index]);
            prop_assert_eq!(&accumulated, &expected[index]);
        }
    }

    #[test]
    fn parity_accumulates_shard_by_shard(stripe in stripe(counts())) {
        let data = stripe.data();
        let mut parity = vec![vec![0; data[0].len()]; 2];
        for (index, shard) in data.iter().enumerate() {
            for (parity_index, parity) in parity.iter_mut().enumerate() {
                accumulate(parity_index, index, shard, parity).unwrap();
            }
        }
        prop_assert_eq!(parity, encoded(&data, 2));
    }
}

#[test]
fn every_pair_of_missing_shards_of_the_widest_stripe_is_restored() {
    let data: Vec<[u8; 3]> = (0..DATA_SHARDS_MAX).map(|i| [i as u8, !(i as u8), (i * i) as u8]).collect();
    let data: Vec<&[u8]> = data.iter().map(|shard| &shard[..]).collect();
    let parity = encoded(&data, 2);
    let mut shards: Vec<Option<&[u8]>> =
        data.iter().copied().map(Some).chain(parity.iter().map(|p| Some(&p[..]))).collect();
    for first in 0..shards.len() {
        for second in 0..first {
            let lost = [shards[first].take(), shards[second].take()];
            let (mut a, mut b) = ([0; 3], [0; 3]);
            let (present_data, present_parity) = shards.split_at(data.len());
            reconstruct(present_data, present_parity, &mut [(first, &mut a), (second, &mut b)]).unwrap();
            assert_eq!([Some(&a[..]), Some(&b[..])], lost, "shards {first} and {second}");
            [shards[first], shards[second]] = lost;
        }
    }
}

#[test]
fn impossible_requests_are_refused_and_change_nothing() {
    let (one, two) = ([1u8; 8], [2u8; 7]);
    let (mut p, mut q, mut r) = ([7u8; 8], [8u8; 8], [9u8; 8]);
    let many = vec![&one[..]; DATA_SHARDS_MAX + 1];
    assert_eq!(encode(&[], &mut [&mut p]), Err(ParityError::DataShards(0)));
    assert_eq!(encode(&many, &mut [&mut p]), Err(ParityError::DataShards(256)));
    assert_eq!(encode(&[&one], &mut []), Err(ParityError::ParityShards(0)));
    assert_eq!(encode(&[&one], &mut [&mut p, &mut q, &mut r]), Err(ParityError::ParityShards(3)));
    assert_eq!(encode(&[&one, &two], &mut [&mut p]), Err(ParityError::Lengths(8, 7)));
    assert_eq!(xor(&mut p, &[&two]), Err(ParityError::Lengths(7, 8)));
    assert_eq!(update(2, 0, &one, &one, &mut p), Err(ParityError::ParityIndex(2)));
    assert_eq!(update(1, 255, &one, &one, &mut p), Err(ParityError::DataIndex(255)));
    assert_eq!(update(1, 0, &one, &two, &mut p), Err(ParityError::Lengths(8, 7)));
    assert_eq!(accumulate(0, 0, &two, &mut p), Err(ParityError::Lengths(7, 8)));
    let data = [Some(&one[..]), None, None];
    let lost = Err(ParityError::TooFewShards { missing: 3, parity: 2 });
    assert_eq!(reconstruct(&data, &[None, Some(&one)], &mut [(1, &mut p)]), lost);
    let lost = Err(ParityError::TooFewShards { missing: 2, parity: 1 });
    assert_eq!(reconstruct(&data, &[Some(&one)], &mut [(1, &mut p)]), lost);
    let data = [Some(&one[..]), None];
    assert_eq!(reconstruct(&data, &[Some(&one)], &mut [(0, &mut p)]), Err(ParityError::NotMissing(0)));
    assert_eq!(reconstruct(&data, &[Some(&one)], &mut [(3, &mut p)]), Err(ParityError::NotMissing(3)));
    assert_eq!(reconstruct(&data, &[Some(&two)], &mut [(1, &mut p)]), Err(ParityError::Lengths(8, 7)));
    assert_eq!(reconstruct(&[None, None, None], &[], &mut []), Err(ParityError::ParityShards(0)));
    assert_eq!((p, q, r), ([7; 8], [8; 8], [9; 8]));
}

//! The AVX2 kernel against the portable one.

use proptest::collection::vec;
use proptest::prelude::*;

use super::{Output, Sources, avx2, scalar};

proptest! {
    #[test]
    fn avx2_computes_the_same_as_words(
        shards in (0..700usize).prop_flat_map(|len| vec(vec(any::<u8>(), len), 3..20)),
        missing in any::<u32>(),
        (p, q) in any::<(bool, bool)>(),
        factors in any::<[(u8, u8); 2]>(),
        needs_q in any::<bool>(),
        add in any::<[bool; 2]>(),
        skip in 0..40usize,
    ) {
        if !is_x86_feature_detected!("avx2") {
            static REPORTED: std::sync::Once = std::sync::Once::new();
            REPORTED.call_once(|| cheetah_testing::skip("needs a processor with AVX2"));
            return Ok(());
        }
        // Unaligned, as callers' shards may be.
        let shards: Vec<&[u8]> = shards.iter().map(|shard| &shard[skip.min(shard.len())..]).collect();
        let data: Vec<_> =
            shards[2..].iter().enumerate().map(|(i, shard)| (missing >> i & 1 == 0).then_some(*shard)).collect();
        let sources = Sources { data: &data, p: p.then_some(shards[0]), q: q.then_some(shards[1]) };
        let factors = factors.map(|(p, q)| (p, if needs_q { q } else { 0 }));
        let run = |kernel: &dyn Fn(&mut [Output])| {
            let mut bytes = [shards[0].to_vec(), shards[1].to_vec()];
            let [first, second] = &mut bytes;
            kernel(&mut [
                Output { bytes: first, factors: factors[0], add: add[0] },
                Output { bytes: second, factors: factors[1], add: add[1] },
            ]);
            bytes
        };
        // SAFETY: the processor has AVX2.
        let vectors = run(&|outputs| unsafe { avx2::combine(&sources, outputs) });
        prop_assert_eq!(vectors, run(&|outputs| scalar::combine(&sources, outputs)));
    }
}

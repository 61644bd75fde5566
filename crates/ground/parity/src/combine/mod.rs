//! The one kernel: sums over shards, computed for a column of all shards at a time.
//!
//! Over all shards of a stripe, both of these sums are zero. Over the present shards, each therefore equals the sum
//! over the missing ones:
//!
//! ```text
//! p = D0 + D1 + … + P
//! q = D0 + 2 D1 + 4 D2 + … + Q            by Horner's rule: ((… + D2) × 2 + D1) × 2 + D0
//! ```
//!
//! Every output is a × p + b × q. Encoding has a = 1 for P and b = 1 for Q; for a reconstruction the caller solves two
//! equations once.

/// A shard to sum.
pub(crate) trait Source {
    /// Its bytes, or nothing if it is missing.
    fn bytes(&self) -> Option<&[u8]>;
}

impl Source for &[u8] {
    fn bytes(&self) -> Option<&[u8]> {
        Some(self)
    }
}

impl Source for Option<&[u8]> {
    fn bytes(&self) -> Option<&[u8]> {
        *self
    }
}

/// The shards to sum. Missing ones count as zeros.
pub(crate) struct Sources<'a, S> {
    pub data: &'a [S],
    pub p: Option<&'a [u8]>,
    pub q: Option<&'a [u8]>,
}

/// A shard to compute.
pub(crate) struct Output<'a> {
    pub bytes: &'a mut [u8],
    /// The factors of the sums `p` and `q`.
    pub factors: (u8, u8),
    /// Whether to add to the bytes, or to replace them.
    pub add: bool,
}

/// Computes the outputs. All sources and outputs must be equally long.
pub(crate) fn combine<S: Source>(sources: &Sources<'_, S>, outputs: &mut [Output<'_>]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { avx2::combine(sources, outputs) };
    }
    scalar::combine(sources, outputs);
}

/// Defines `combine` over the column operations of the invoking module, compiled for the given target feature.
macro_rules! combine {
    ($(#[$target:meta])*) => {
        $(#[$target])*
        pub(super) fn combine<S: Source>(sources: &Sources<'_, S>, outputs: &mut [Output<'_>]) {
            // The sum q is most of the work.
            if outputs.iter().any(|output| output.factors.1 != 0) {
                combine_all::<S, true>(sources, outputs);
            } else {
                combine_all::<S, false>(sources, outputs);
            }
        }

        $(#[$target])*
        fn combine_all<S: Source, const Q: bool>(sources: &Sources<'_, S>, outputs: &mut [Output<'_>]) {
            let len = outputs.first().map_or(0, |output| output.bytes.len());
            let whole_len = len / COLUMN_BYTES * COLUMN_BYTES;
            for start in (0..whole_len).step_by(COLUMN_BYTES) {
                combine_column::<S, Q, true>(sources, outputs, start, start + COLUMN_BYTES);
            }
            if whole_len < len {
                combine_column::<S, Q, false>(sources, outputs, whole_len, len);
            }
        }

        /// Computes a column of the outputs. The code for an incomplete column is separate, since it calls `memcpy`,
        /// which would force the sums of whole columns out of registers.
        $(#[$target])*
        #[inline]
        fn combine_column<S: Source, const Q: bool, const WHOLE: bool>(
            sources: &Sources<'_, S>,
            outputs: &mut [Output<'_>],
            start: usize,
            end: usize,
        ) {
            let (mut p, mut q) = (zero(), zero());
            for shard in sources.data.iter().rev() {
                if Q {
                    q = double(q);
                }
                let Some(shard) = shard.bytes() else { continue };
                let shard = load::<WHOLE>(&shard[start..end]);
                p = add(p, shard);
                if Q {
                    q = add(q, shard);
                }
            }
            if let Some(shard) = sources.p {
                p = add(p, load::<WHOLE>(&shard[start..end]));
            }
            if Q && let Some(shard) = sources.q {
                q = add(q, load::<WHOLE>(&shard[start..end]));
            }
            for output in outputs {
                let bytes = &mut output.bytes[start..end];
                let mut sum = times(p, output.factors.0);
                if Q {
                    sum = add(sum, times(q, output.factors.1));
                }
                if output.add {
                    sum = add(sum, load::<WHOLE>(bytes));
                }
                store::<WHOLE>(sum, bytes);
            }
        }

        /// The product with a constant. 0 and 1 are frequent.
        $(#[$target])*
        #[inline]
        fn times(column: Column, factor: u8) -> Column {
            match factor {
                0 => zero(),
                1 => column,
                _ => multiply(column, factor),
            }
        }

        /// Loads a column. An incomplete one is padded with zeros.
        $(#[$target])*
        #[inline]
        fn load<const WHOLE: bool>(bytes: &[u8]) -> Column {
            if WHOLE && let Ok(bytes) = bytes.try_into() {
                return load_whole(bytes);
            }
            let mut whole = [0; COLUMN_BYTES];
            whole[..bytes.len()].copy_from_slice(bytes);
            load_whole(&whole)
        }

        $(#[$target])*
        #[inline]
        fn store<const WHOLE: bool>(column: Column, bytes: &mut [u8]) {
            if WHOLE && let Ok(bytes) = bytes.try_into() {
                return store_whole(column, bytes);
            }
            let mut whole = [0; COLUMN_BYTES];
            store_whole(column, &mut whole);
            bytes.copy_from_slice(&whole[..bytes.len()]);
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod avx2;
mod scalar;
#[cfg(all(test, target_arch = "x86_64"))]
mod tests;

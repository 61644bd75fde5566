//! The libFuzzer binary of the target whose name it has.

#![no_main]

use std::sync::LazyLock;

use cheetah_fuzz::{Target, target, within_budget};

static TARGET: LazyLock<Target> = LazyLock::new(|| target(env!("CARGO_BIN_NAME")).expect("it is one of the targets"));

libfuzzer_sys::fuzz_target!(|data: &[u8]| within_budget(*TARGET, data));

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cheetah_fuzz::within_budget(cheetah_fuzz::ewf::run, data));

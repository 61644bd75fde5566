//! Pressure stall information of Linux (Documentation/accounting/psi.rst): how long processes waited for what there is too little of.

use std::time::Duration;

/// How long some process has waited for a processor since the machine started.
pub(crate) fn waited_for_processor() -> Option<Duration> {
    waited("/proc/pressure/cpu")
}

/// How long some process has waited for memory since the machine started.
pub(crate) fn waited_for_memory() -> Option<Duration> {
    waited("/proc/pressure/memory")
}

fn waited(file: &str) -> Option<Duration> {
    stalled_us(&std::fs::read_to_string(file).ok()?).map(Duration::from_micros)
}

/// Microseconds for which some process has waited since the start of the machine, of a file of `/proc/pressure`.
fn stalled_us(text: &str) -> Option<u64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split(' ').find_map(|field| field.strip_prefix("total="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_for_which_processes_waited_is_parsed() {
        let text =
            "some avg10=0.12 avg60=0.00 avg300=0.00 total=81234\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(stalled_us(text), Some(81234));
        assert_eq!((stalled_us(""), stalled_us("some total=x"), stalled_us("full total=7")), (None, None, None));
    }
}

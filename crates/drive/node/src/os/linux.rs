//! Pressure stall information of Linux (Documentation/accounting/psi.rst): how long processes waited for what there is too little of.
//! A kernel without it tells how much of the processors other programs take.

use std::time::Duration;

use super::Need;

/// The unit of times in `/proc/stat` (`USER_HZ`), the same on every processor for which there is a build.
const TICK_MS: u64 = 10;

/// What shows whether other programs need the processors: how long some process has waited for one, or else how long others have had
/// them. `None` if the system shows neither.
///
/// Others that have all processors but one leave that one to this process, and do not wait. Only what they have beyond that is time for
/// which they would have to wait if this process did not give way.
pub(crate) fn need_of_processors() -> Option<Need> {
    let waiting = Need { reading: || waited("/proc/pressure/cpu"), without_waiting: 0 };
    if (waiting.reading)().is_some() {
        return Some(waiting);
    }
    let processors = processors(&std::fs::read_to_string("/proc/stat").ok()?)?;
    let having = Need { reading: had_by_others, without_waiting: processors - 1 };
    (having.reading)().map(|_| having)
}

/// How long other processes have had processors since the machine started: two of them for a second are two seconds.
fn had_by_others() -> Option<Duration> {
    let [machine, own] = ["/proc/stat", "/proc/self/stat"].map(std::fs::read_to_string);
    time_of_others(&machine.ok()?, &own.ok()?)
}

/// The number of processors in `/proc/stat`, at least one.
fn processors(machine: &str) -> Option<u32> {
    let is_processor =
        |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    u32::try_from(machine.lines().filter(is_processor).count()).ok().filter(|count| *count > 0)
}

/// The time that others have had, of `/proc/stat` and the `stat` of this process.
///
/// The kernel counts threads of its idle class like all others, so what this process had is subtracted. Interrupts are left out: they may
/// serve the traffic of this process. So is what a hypervisor gave to other machines.
fn time_of_others(machine: &str, own: &str) -> Option<Duration> {
    let all = machine.lines().find_map(|line| line.strip_prefix("cpu "))?;
    // User, nice, system.
    let all = sum(all.split_ascii_whitespace().take(3), 3)?;
    // The name of the program, in brackets, may have blanks and brackets. The 12th and 13th field behind it are utime and stime.
    let (_, own) = own.rsplit_once(')')?;
    let own = sum(own.split_ascii_whitespace().skip(11).take(2), 2)?;
    let ticks = all.saturating_sub(own);
    Some(Duration::from_millis(ticks.saturating_mul(TICK_MS)))
}

/// The sum of as many numbers.
fn sum<'a>(fields: impl Iterator<Item = &'a str>, count: usize) -> Option<u64> {
    let numbers: Vec<u64> = fields.map(|field| field.parse().ok()).collect::<Option<_>>()?;
    (numbers.len() == count).then(|| numbers.iter().fold(0, |total: u64, number| total.saturating_add(*number)))
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

    /// A machine with two processors, and a process with a name that is hard to parse.
    fn others(user: u64, nice: u64, system: u64, own_user: u64, own_system: u64) -> Option<Duration> {
        let machine = format!(
            "cpu  {user} {nice} {system} 51648 1535 900 515 798 0 0\ncpu0 1 1 1 1 1 0 0 0 0 0\ncpu1 1 1 1 1 1 0 0 0 0 0\nintr 7 0\nctxt 9\n"
        );
        let own = format!(
            "77 (a) (b c) S 1 77 77 0 -1 4194304 96 0 0 0 {own_user} {own_system} 0 0 20 0 1 0 128780 3133440\n"
        );
        assert_eq!(processors(&machine), Some(2));
        time_of_others(&machine, &own)
    }

    #[test]
    fn without_pressure_information_the_time_of_other_programs_counts_and_the_own_threads_do_not() {
        let ms = |ms| Some(Duration::from_millis(ms));
        // For a second, the own threads have both processors.
        assert_eq!((others(1000, 50, 200, 800, 100), others(1195, 50, 205, 995, 105)), (ms(3500), ms(3500)));
        // For a second, other programs have one of them, and the own threads the other one.
        assert_eq!(others(1150, 60, 240, 890, 110), ms(4500));
        // The counts of the machine may lag behind those of the process.
        assert_eq!(others(10, 0, 0, 11, 0), ms(0));
    }

    #[test]
    fn texts_that_are_not_those_of_the_kernel_show_no_time() {
        let (machine, own) = ("cpu  1 2 3 4\ncpu0 1 2 3 4\n", "1 (a) S 1 1 1 0 -1 0 0 0 0 0 1 1 0\n");
        assert!(time_of_others(machine, own).is_some());
        for machine in ["", "cpu  1 2\ncpu0 1 2\n", "cpu  1 2 x 4\ncpu0 1 2 3 4\n"] {
            assert_eq!(time_of_others(machine, own), None, "{machine}");
        }
        assert_eq!((processors(machine), processors("cpu  1 2 3 4\n"), processors("")), (Some(1), None, None));
        for own in ["", "1 (a S", "1 (a) S 1 1 1 0 -1 0 0 0 0 0 1", "1 (a) S 1 1 1 0 -1 0 0 0 0 0 1 - 0"] {
            assert_eq!(time_of_others(machine, own), None, "{own}");
        }
    }
}

//! `cheetah doctor`: says what of this machine works, and how to mend the rest.

mod kernel;
mod memory;
mod surroundings;

use super::compared::wrapped;
use super::{bench, triage};
use crate::answers::doctor::{Check, Doctor, State};
use crate::failure::{Failure, Result};
use crate::os::{self, Feature};
use crate::ui::Ui;

/// The options of `doctor`.
#[derive(Debug, clap::Args)]
#[command(about = "Say what of this machine works, and how to mend the rest")]
#[command(long_about = "Says what of this machine works, and how to mend the rest: mounts, locked memory, block \
devices, the clock, ports, rooms, and the Python package of triage and bench.

It changes nothing, and asks no other machine. Exits with 1 if something does not work; a machine need not do \
everything, so read which verbs need it.

  cheetah doctor
  cheetah doctor --json | jq '.checks[] | select(.state == \"fails\")'")]
pub struct Args {}

/// Runs the command.
pub fn run(_: &Args, ui: Ui) -> Result<()> {
    let checks = [
        unless_lacking(("fuse", &["mount", "demo"]), Feature::Mounts, || {
            kernel::mounts(&kernel::Mounting::of_this_machine())
        }),
        memory::locking(&memory::Memory::of_this_machine()),
        unless_lacking(("nbd", &["attach", "detach"]), Feature::BlockDevices, || {
            kernel::block_devices(&kernel::Drivers::of_this_machine())
        }),
        surroundings::clock(surroundings::synchronized()),
        surroundings::ports(&surroundings::used_ports()),
        surroundings::rooms(surroundings::known_rooms()),
        unless_lacking(("python", &["triage", "bench"]), Feature::Python, python),
    ];
    let failed: Vec<_> = checks.iter().filter(|check| check.state == State::Fails).map(|check| check.name).collect();
    let lines: Vec<_> = checks.iter().map(shown).collect();
    ui.answer(lines.join("\n"), &Doctor { checks: &checks, ok: failed.is_empty() });
    match failed.as_slice() {
        [] => Ok(()),
        failed => Err(Failure::failed(format!("not everything works: {}; see above", failed.join(", ")))),
    }
}

/// The check, or a note that this system lacks what it looks at.
fn unless_lacking(
    (name, verbs): (&'static str, &'static [&'static str]),
    feature: Feature,
    check: impl FnOnce() -> Check,
) -> Check {
    match os::offers(feature) {
        Ok(()) => check(),
        Err(lacking) => {
            Check::works(name, verbs, lacking.to_string()).but(State::Note, cheetah_words::clauses(lacking.steps()))
        }
    }
}

/// A check as people read it: what was found, the verbs that need it if it fails, and how to mend it.
fn shown(check: &Check) -> String {
    let state = match check.state {
        State::Works => "works",
        State::Note => "note",
        State::Fails => "FAILS",
        State::Unknown => "unknown",
    };
    let needed = match check.state {
        State::Fails => format!(" (needed by {})", check.verbs.join(", ")),
        _ => String::new(),
    };
    let mut lines = vec![wrapped(&format!("{}: {state}: {}{needed}", check.name, check.finding), 0)];
    lines.extend(check.mend.iter().map(|mend| wrapped(&format!("next: {mend}"), 2)));
    lines.join("\n")
}

/// The Python package.
fn python() -> Check {
    let (name, verbs): (_, &[_]) = ("python", &["triage", "bench"]);
    match triage::VERB.usable().and_then(|_| bench::VERB.usable()) {
        Ok(python) => Check::works(name, verbs, format!("triage and bench run in {}", python.display())),
        Err(why) => Check::works(name, verbs, why.finding).but(State::Fails, why.next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_fails_names_its_verbs_and_how_to_mend_it() {
        let works = Check::works("fuse", &["mount"], "mounts need no root");
        assert_eq!(shown(&works), "fuse: works: mounts need no root");
        let fails =
            Check::works("fuse", &["mount", "demo"], "there is no /dev/fuse").but(State::Fails, "modprobe fuse");
        assert_eq!(shown(&fails), "fuse: FAILS: there is no /dev/fuse (needed by mount, demo)\n  next: modprobe fuse");
    }
}

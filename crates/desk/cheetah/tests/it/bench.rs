//! The hand-over to Python, which has tests of its own.

use crate::support::Desk;
use crate::support::python::{pretended, with_python};
use crate::support::run::cheetah_plain;

#[test]
fn every_argument_reaches_python() {
    let desk = Desk::new();
    let python = pretended(&desk);
    let ran = with_python(&python, &["--json", "bench", "storage", "a b", "--sweep", "unit=16KiB", "--help"]);
    let said = ran.ended_with(3).out();
    assert!(said.ends_with("[-P][-m][cheetah.bench][storage][a b][--sweep][unit=16KiB][--help][--json]"), "{said}");
    let said = with_python(&python, &["bench", "storage", "/mnt/a", "ram:linear@n1,n2"]).ended_with(3).out();
    assert!(said.ends_with("[-P][-m][cheetah.bench][storage][/mnt/a][ram:linear@n1,n2]"), "{said}");
}

#[test]
fn help_is_printed_without_python() {
    let help = with_python("/nonexistent", &["bench", "--help"]).ok().out();
    for word in [
        "storage TARGET",
        "--sweep KEY=A,B",
        "tsk_recover,tar,sorter,fio\n",
        "compare A",
        "pip install ./python",
        "CHEETAH_PYTHON",
    ] {
        assert!(help.contains(word), "no {word} in {help}");
    }
    cheetah_plain(&["bench"]).ended_with(2);
    with_python("/nonexistent/python", &["bench", "storage"])
        .says(1, &["cheetah bench runs in Python", "CHEETAH_PYTHON"]);
}

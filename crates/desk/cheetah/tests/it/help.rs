//! Help, man pages and completions, all made from the definition of the flags.

use std::path::Path;
use std::process::Command;

use crate::support::run::{cheetah_plain, program, run};
use crate::support::{Desk, need, tool};

const COLUMNS: usize = 80;

/// `cheetah ARGS…`, as on a terminal of this width.
fn at_width(columns: usize, args: &[&str]) -> String {
    let mut command = program();
    command.env("COLUMNS", columns.to_string()).args(args);
    run(command).ok().out()
}

/// Every verb but `help`, taken from the overview.
fn verbs() -> Vec<String> {
    let overview = at_width(COLUMNS, &["-h"]);
    let groups = overview.split_once("A drive:\n").unwrap().1.split_once("Options:\n").unwrap().0;
    // Verbs are indented by two blanks, and the headings of groups are not.
    groups
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|verb| !["", "help"].contains(verb))
        .map(str::to_owned)
        .collect()
}

#[test]
fn help_of_every_verb_fits_80_columns_and_breaks_no_example() {
    let verbs = verbs();
    assert!(verbs.len() >= 17, "{verbs:?}");
    let pages = verbs.iter().flat_map(|verb| [vec![verb.as_str(), "--help"], vec![verb.as_str(), "-h"]]);
    for args in pages.chain([vec!["--help"], vec!["-h"]]) {
        let narrow = at_width(COLUMNS, &args);
        let long: Vec<_> = narrow.lines().filter(|line| line.chars().count() > COLUMNS).collect();
        assert!(long.is_empty(), "{args:?}: {long:?}");
        let examples = |text: &str| -> Vec<_> {
            text.lines().filter(|line| line.starts_with("  cheetah ")).map(str::to_owned).collect()
        };
        assert_eq!(examples(&narrow), examples(&at_width(100, &args)), "{args:?}: an example wraps at 80 columns");
    }
}

#[test]
fn every_verb_shows_an_example() {
    for verb in &verbs() {
        let help = at_width(COLUMNS, &[verb, "--help"]);
        assert!(help.contains(&format!("\n  cheetah {verb}")), "{verb}: {help}");
    }
}

#[test]
fn man_pages_cover_every_verb() {
    let desk = Desk::new();
    let folder = desk.arg("man1");
    cheetah_plain(&["generate", "man", "--out", &folder]).ok();
    for verb in &verbs() {
        let page = std::fs::read_to_string(desk.at(&format!("man1/cheetah-{verb}.1"))).unwrap();
        assert!(page.contains(".TH ") && page.contains(&format!("cheetah {verb}")), "{verb}: {page}");
    }
    let overview = cheetah_plain(&["generate", "man"]).ok().out();
    assert_eq!(overview.trim_end(), std::fs::read_to_string(desk.at("man1/cheetah.1")).unwrap().trim_end());
    assert!(cheetah_plain(&["generate", "man", "triage"]).ok().out().contains("\\-\\-keywords FILE"));
    cheetah_plain(&["generate", "man", "nothing"]).says(2, &["no verb 'nothing'"]);
    cheetah_plain(&["generate", "bash", "--out", &folder]).says(2, &["--out"]);
}

#[test]
fn completions_know_every_verb_and_flag() {
    for shell in ["bash", "zsh", "fish"] {
        let script = cheetah_plain(&["generate", shell]).ok().out();
        for word in verbs().iter().map(String::as_str).chain(["case-number", "overlay", "keywords", "sweep"]) {
            assert!(script.contains(word), "{shell}: no {word}");
        }
        if shell == "bash" && need::programs(&["bash"]) {
            let desk = Desk::new();
            tool("bash", &["-n", &desk.file("cheetah.bash", script.as_bytes())]).ok();
        }
    }
}

#[test]
fn make_install_installs_the_binary_man_pages_completions_units_and_the_udev_rule() {
    if !need::programs(&["make", "install"]) {
        return;
    }
    let desk = Desk::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let mut command = Command::new("make");
    command.current_dir(root).args(["--no-print-directory", "install", "PREFIX=/opt", "WITHOUT_PYTHON=1"]);
    command.arg(format!("DESTDIR={}", desk.path().display())).arg(concat!("BINARY=", env!("CARGO_BIN_EXE_cheetah")));
    run(command).ok();
    for path in [
        "bin/cheetah",
        "share/man/man1/cheetah.1",
        "share/man/man1/cheetah-mount.1",
        "share/bash-completion/completions/cheetah",
        "share/zsh/site-functions/_cheetah",
        "share/fish/vendor_completions.d/cheetah.fish",
        "lib/systemd/system/cheetah-node.service",
        "lib/systemd/system/cheetah-serve@.service",
        "lib/udev/rules.d/59-cheetah.rules",
    ] {
        assert!(desk.at("opt").join(path).is_file(), "{path}");
    }
    let unit = std::fs::read_to_string(desk.at("opt/lib/systemd/system/cheetah-node.service")).unwrap();
    assert!(unit.contains("\nExecStart=/opt/bin/cheetah node "), "{unit}");
    tool(desk.at("opt/bin/cheetah").to_str().unwrap(), &["--version"]).ok();
}

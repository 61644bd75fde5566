//! The overview of the verbs in `cheetah --help`: in groups.

use std::fmt::Write as _;

use clap::Command;
use clap::builder::Styles;

/// The groups of verbs. Every verb is in one.
const GROUPS: [(&str, &[&str]); 5] = [
    (
        "A drive",
        &[
            "create",
            "load",
            "mount",
            "unmount",
            "attach",
            "detach",
            "export",
            "save",
            "status",
            "enlarge",
            "rebalance",
            "drain",
            "repair",
            "drive",
            "destroy",
        ],
    ),
    ("Evidence", &["acquire", "serve", "verify", "custody", "triage", "search", "run"]),
    ("A room of machines", &["room", "node", "watch"]),
    ("Measurements", &["probe", "bench"]),
    ("Other", &["demo", "doctor", "generate", "help"]),
];

/// The verb that clap adds.
const HELP: (&str, &str) = ("help", "Print this text, or the help of a verb");

/// Columns of a verb's name: those of the longest.
const NAME_COLUMNS: usize = 9;

/// The template of the help, for a command with the verbs. The parts in braces are clap's.
pub fn template(verbs: &Command) -> String {
    let styles = Styles::styled();
    let (heading, verb) = (styles.get_header(), styles.get_literal());
    let mut text = String::from("{before-help}{about-with-newline}\n{usage-heading} {usage}\n\n");
    for (group, names) in GROUPS {
        let _ = writeln!(text, "{heading}{group}:{heading:#}");
        for name in names {
            let about = verbs.find_subcommand(name).and_then(|found| found.get_about()).map(ToString::to_string);
            let about = about.unwrap_or_else(|| HELP.1.to_owned());
            let _ = writeln!(text, "  {verb}{name:<NAME_COLUMNS$}{verb:#}  {about}");
        }
        text.push('\n');
    }
    let _ = write!(text, "{heading}Options:{heading:#}\n{{options}}{{after-help}}");
    text
}

#[cfg(test)]
mod tests {
    use clap::Subcommand as _;

    use super::*;
    use crate::cli;

    #[test]
    fn every_verb_is_in_one_group_and_fits_a_line() {
        let mut grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        grouped.sort_unstable();
        let verbs = cli::Command::augment_subcommands(Command::new("cheetah"));
        let mut all: Vec<_> = verbs.get_subcommands().map(Command::get_name).chain([HELP.0]).collect();
        all.sort_unstable();
        assert_eq!(grouped, all);
        for verb in verbs.get_subcommands() {
            let about = verb.get_about().unwrap().to_string();
            let columns = 2 + NAME_COLUMNS + 2 + about.chars().count();
            assert!(verb.get_name().len() <= NAME_COLUMNS && columns <= 80, "{columns}: {about}");
        }
    }
}

//! `cheetah generate`: man pages and shell completions, from the definition of the flags.

use std::path::PathBuf;

use cheetah_device::path_text::path_to_text;
use clap::{Arg, ArgAction, Command, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;

use super::{bench, triage};
use crate::answers::generate::{ManPages, Text};
use crate::failure::{Context, Failure, Result};
use crate::ui::Ui;

/// The arguments of `generate`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Print man pages and shell completions",
    long_about = "Prints a man page, or a completion script for a shell.

`make install` installs all of them.

  cheetah generate man | man -l -
  cheetah generate man mount > cheetah-mount.1
  cheetah generate man --out /usr/local/share/man/man1
  cheetah generate bash > /etc/bash_completion.d/cheetah
  cheetah generate zsh > /usr/share/zsh/site-functions/_cheetah
  cheetah generate fish > ~/.config/fish/completions/cheetah.fish"
)]
pub struct Args {
    /// A man page, or the completions of a shell
    kind: Kind,

    /// Verb whose man page to print [default: an overview]
    verb: Option<String>,

    /// Write all man pages into this directory, which is created if need be
    #[arg(long, value_name = "DIR", conflicts_with = "verb")]
    out: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A man page
    Man,
    /// Completions for bash
    Bash,
    /// Completions for zsh
    Zsh,
    /// Completions for fish
    Fish,
}

/// Prints or writes the requested file; `cheetah` is the definition of the command line.
pub fn run(args: &Args, cheetah: Command, ui: Ui) -> Result<()> {
    let mut cheetah = complete(cheetah);
    let shell = match args.kind {
        Kind::Man => None,
        Kind::Bash => Some(Shell::Bash),
        Kind::Zsh => Some(Shell::Zsh),
        Kind::Fish => Some(Shell::Fish),
    };
    let text = match (shell, &args.out, &args.verb) {
        (Some(_), Some(_), _) | (Some(_), _, Some(_)) => {
            return Err(Failure::misused("--out and a verb are for man pages; redirect completions to a file"));
        }
        (Some(shell), ..) => completions(shell, &mut cheetah),
        (None, Some(directory), _) => return write_pages(&cheetah, directory, ui),
        (None, None, verb) => man_page(named(&cheetah, verb.as_deref())?)?,
    };
    ui.answer(text.trim_end(), &Text { text: &text });
    Ok(())
}

/// Adds the flags of the verbs whose work is done in Python. Their help pages define them.
fn complete(cheetah: Command) -> Command {
    let mut cheetah = cheetah
        .mut_subcommand("triage", |verb| with_flags(verb, triage::HELP))
        .mut_subcommand("bench", |verb| with_flags(verb, bench::HELP));
    cheetah.build();
    cheetah
}

/// Adds a flag for each line of a help page that starts with `  --NAME`. A flag with a value is followed by one blank and
/// the value's name.
fn with_flags(mut verb: Command, help: &'static str) -> Command {
    for line in help.lines() {
        let Some(flag) = line.strip_prefix("  --") else { continue };
        let (flag, about) = flag.split_once("  ").unwrap_or((flag, ""));
        let (name, value) = flag.split_once(' ').map_or((flag, None), |(name, value)| (name, Some(value)));
        let known = verb.get_arguments().any(|arg| arg.get_long() == Some(name));
        if known || name == "json" {
            continue;
        }
        let arg = Arg::new(name).long(name).help(about.trim());
        verb = verb.arg(match value {
            Some(value) => arg.value_name(value),
            None => arg.action(ArgAction::SetTrue),
        });
    }
    verb
}

fn completions(shell: Shell, cheetah: &mut Command) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, cheetah, "cheetah", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

fn named<'a>(cheetah: &'a Command, verb: Option<&str>) -> Result<&'a Command> {
    let Some(verb) = verb else { return Ok(cheetah) };
    cheetah
        .get_subcommands()
        .find(|command| command.get_name() == verb)
        .ok_or_else(|| Failure::misused(format!("there is no verb '{verb}'; `cheetah --help` lists them")))
}

/// Writes `cheetah.1`, and `cheetah-VERB.1` for each verb.
fn write_pages(cheetah: &Command, directory: &PathBuf, ui: Ui) -> Result<()> {
    std::fs::create_dir_all(directory).context(format_args!("cannot create {}", directory.display()))?;
    let verbs = cheetah.get_subcommands().filter(|verb| verb.get_name() != "help");
    let mut pages = Vec::new();
    for command in std::iter::once(cheetah).chain(verbs) {
        let page = directory.join(Man::new(command.clone()).get_filename());
        std::fs::write(&page, man_page(command)?).context(format_args!("cannot write {}", page.display()))?;
        pages.push(page);
    }
    let value = ManPages { pages: pages.iter().map(path_to_text).collect() };
    ui.answer(format_args!("{} man pages in {}", pages.len(), directory.display()), &value);
    Ok(())
}

fn man_page(command: &Command) -> Result<String> {
    let mut page = Vec::new();
    let man = Man::new(command.clone()).manual("Cheetah");
    let help = match command.get_name() {
        "triage" => Some(triage::HELP),
        "bench" => Some(bench::HELP),
        _ => None,
    };
    let rendered = match help {
        None => man.render(&mut page),
        Some(help) => man.render_title(&mut page).and_then(|()| man.render_name_section(&mut page)).map(|()| {
            page.extend_from_slice(verbatim(help).as_bytes());
        }),
    };
    rendered.context("cannot render the man page")?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

/// A help page as a section of a man page whose lines stay as they are.
fn verbatim(help: &str) -> String {
    let mut section = String::from(".SH DESCRIPTION\n.nf\n");
    for line in help.lines() {
        if line.starts_with(['.', '\'']) {
            section.push_str("\\&");
        }
        section.push_str(&line.replace('\\', "\\e").replace('-', "\\-"));
        section.push('\n');
    }
    section + ".fi\n"
}

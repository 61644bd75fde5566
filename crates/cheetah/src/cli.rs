//! The command line as a whole; each verb's own options are beside what it does, in [`crate::commands`].

use clap::{Parser, Subcommand};

use crate::commands::{
    acquire, bench, create, demo, destroy, enlarge, export, load, mount, node, probe, save, serve, status, triage,
    unmount, verify,
};
use crate::failure::Result;
use crate::ui::Ui;

/// Cheetah turns the idle RAM of a room full of machines into one forensic drive.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, arg_required_else_help = true)]
#[command(long_about = "Cheetah turns the idle RAM of a room full of machines into one forensic drive, \
which every tool and every analyst can work on at once.

Each machine lends memory:      cheetah node --memory 12GiB
One of them makes a drive:      cheetah create case42.drive --nodes a,b,c --from disk.raw
Whoever has the file reads it:  cheetah mount case42.drive /mnt
What a network path is worth:   cheetah probe 10.0.0.7
Which storage to work on:       cheetah bench storage /mnt/a /mnt/b

To see it all on this machine:  cheetah demo")]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 misused, 3 evidence problem (a hash differs, a range is unreadable).
Sizes are written in IEC units: 64KiB, 1.5GiB."
)]
pub struct Cli {
    /// Answer in JSON, one value a line, for programs
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub json: bool,

    /// Log more to stderr: -v what happens, -vv how, -vvv everything
    #[arg(short, long, action = clap::ArgAction::Count, global = true, help_heading = "Everywhere")]
    pub verbose: u8,

    /// The verb.
    #[command(subcommand)]
    pub command: Command,
}

/// What there is to do; what each verb says of itself is beside what it does.
#[derive(Debug, Subcommand)]
pub enum Command {
    Demo(demo::Args),
    Acquire(acquire::Args),
    Node(node::Args),
    Create(create::Args),
    Enlarge(enlarge::Args),
    Load(load::Args),
    Save(save::Args),
    Verify(verify::Args),
    Status(status::Args),
    Destroy(destroy::Args),
    Mount(mount::Args),
    Unmount(unmount::Args),
    Export(export::Args),
    Serve(serve::Args),
    Triage(triage::Args),
    Probe(probe::Args),
    Bench(bench::Args),
}

impl Command {
    /// Does it.
    pub async fn run(self, ui: &Ui) -> Result<()> {
        let ui = *ui;
        match self {
            Self::Demo(args) => demo::run(args, ui).await,
            Self::Acquire(args) => acquire::run(args, ui).await,
            Self::Node(args) => node::run(args, ui).await,
            Self::Create(args) => create::run(args, ui).await,
            Self::Enlarge(args) => enlarge::run(args, ui).await,
            Self::Load(args) => load::run(args, ui).await,
            Self::Save(args) => save::run(args, ui).await,
            Self::Verify(args) => verify::run(args, ui).await,
            Self::Status(args) => status::run(args, ui).await,
            Self::Destroy(args) => destroy::run(args, ui).await,
            Self::Mount(args) => mount::run(args, ui).await,
            Self::Unmount(args) => unmount::run(args, ui).await,
            Self::Export(args) => export::run(args, ui).await,
            Self::Serve(args) => serve::run(args, ui).await,
            Self::Triage(args) => triage::run(args, ui).await,
            Self::Probe(args) => probe::run(args, ui).await,
            Self::Bench(args) => bench::run(args, ui).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}

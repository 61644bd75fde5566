//! The command line. Each verb defines its own options, in [`crate::commands`].

use std::path::PathBuf;

use cheetah_custody::{FillLog, ledger};
use cheetah_drive::sealed;
use cheetah_room::client::MachineInfo;
use cheetah_room::resolve::Purpose;
use cheetah_seal::{SealError, keyring};
use clap::{CommandFactory, FromArgMatches as _, Parser, Subcommand};

use crate::commands::{
    acquire, attach, bench, create, custody, demo, destroy, detach, doctor, drain, drive, enlarge, export, generate,
    load, mount, node, probe, rebalance, repair, room, save, search, serve, status, triage, unmount, verify, watch,
};
use crate::desk::Desk;
use crate::failure::Result;
use crate::overview;
use crate::room::drives::Named;
use crate::room::{Participation, WithoutRoom, archive, enter};
use crate::ui::Ui;

/// Cheetah turns the idle RAM of a room of machines into one forensic drive
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, arg_required_else_help = true)]
#[command(long_about = "Cheetah turns the idle RAM of a room of machines into one forensic drive, \
which every tool and every analyst can use at once.

  cheetah room init lab                   one machine makes a room
  cheetah room invite --role node         … and invites the others
  cheetah node --memory 12GiB --room STRING
                                          each machine lends memory
  cheetah create case42.drive --nodes a,b,c --from disk.raw
                                          one machine creates a drive
  cheetah mount case42.drive /mnt         any machine opens it
  cheetah probe 10.0.0.7                  measure a network path
  cheetah bench storage /mnt/a /mnt/b     compare storage

To see all of it on this machine: cheetah demo")]
#[command(after_help = "Exit codes: 0 done, 1 failed, 2 misused, 3 evidence problem (a hash differs, a range is \
unreadable).
Sizes: 64KiB, 1.5G, 12GB; K, M, G, T are powers of 1024, KB, MB, GB, TB powers of 1000.")]
pub struct Cli {
    /// Print JSON, one value per line: the answer, after events of long work, each with "event"; and after a failure a
    /// value with "error" and "exit_code"
    #[arg(long, global = true, help_heading = "Global options")]
    pub json: bool,

    /// Log more to stderr; repeat for more detail, up to -vvv
    #[arg(short, long, action = clap::ArgAction::Count, global = true, help_heading = "Global options")]
    pub verbose: u8,

    /// The room to use: its name, a credential file, an invitation, or 'none'; for nodes and agents also HOST:PORT,
    /// where cheetah room serve runs, to join by a code
    /// [default: the only room that this machine knows]
    #[arg(long, global = true, help_heading = "Global options", value_name = "ROOM")]
    pub room: Option<String>,

    /// File of age identities that open sealed drives; repeat for more [default: the file that CHEETAH_IDENTITY names]
    #[arg(long, global = true, help_heading = "Global options", value_name = "FILE")]
    pub identity: Vec<PathBuf>,

    /// File whose first line is a passphrase that opens sealed drives [default: the file that CHEETAH_PASSPHRASE_FILE
    /// names]
    #[arg(long, global = true, help_heading = "Global options", value_name = "FILE")]
    pub passphrase_file: Option<PathBuf>,

    /// Take what a writer of a sealed drive wrote after its last flush and never closed, although a node may hold back
    /// the newest of it. Recorded in the custody log; a writer makes it part of the drive
    #[arg(long, global = true, help_heading = "Global options")]
    pub accept_unverified: bool,

    /// The verb and its options.
    #[command(subcommand)]
    pub command: Command,
}

/// The verbs. Each defines its own help.
#[derive(Debug, Subcommand)]
pub enum Command {
    Demo(demo::Args),
    Doctor(doctor::Args),
    Acquire(acquire::Args),
    Node(node::Args),
    Create(create::Args),
    Enlarge(enlarge::Args),
    Repair(repair::Args),
    Drain(drain::Args),
    Rebalance(rebalance::Args),
    Room(room::Args),
    Load(load::Args),
    Save(save::Args),
    Verify(verify::Args),
    Watch(watch::Args),
    Custody(custody::Args),
    Status(status::Args),
    Destroy(destroy::Args),
    Drive(drive::Args),
    Mount(mount::Args),
    Unmount(unmount::Args),
    Attach(attach::Args),
    Detach(detach::Args),
    Export(export::Args),
    Serve(serve::Args),
    Triage(triage::Args),
    Search(search::Args),
    Probe(probe::Args),
    Bench(bench::Args),
    Generate(generate::Args),
}

impl Cli {
    /// Reads the command line of this process.
    ///
    /// # Errors
    ///
    /// What clap has to say: the help that was asked for, or what is wrong.
    pub fn read() -> std::result::Result<Self, clap::Error> {
        let mut described = Self::described();
        let matches = described.try_get_matches_from_mut(std::env::args_os())?;
        Self::from_arg_matches(&matches).map_err(|error| error.format(&mut described))
    }

    /// The command line as clap knows it, with the verbs in groups.
    fn described() -> clap::Command {
        let verbs = Self::command();
        let template = overview::template(&verbs);
        verbs.help_template(template)
    }

    /// Runs the verb.
    pub async fn run(mut self, ui: &Ui) -> Result<()> {
        let ui = *ui;
        let mut desk = Desk { room: self.room, upkeep: None };
        let unusable = |error: SealError| crate::commands::seal::unusable(&error);
        self.identity.iter().try_for_each(|file| keyring::add_identities(file)).map_err(unusable)?;
        self.passphrase_file.iter().try_for_each(|file| keyring::add_passphrase(file)).map_err(unusable)?;
        ledger::usual_directory().into_iter().for_each(ledger::keep_in);
        if self.accept_unverified {
            sealed::accept_unverified(|file, ranges| FillLog::beside(&file.path).accepted_unverified(ranges));
        }
        if let Some(participation) = self.command.participation() {
            desk.upkeep = enter(desk.room.as_deref(), participation, ui).await?;
        }
        for named in self.command.drives() {
            named.resolve(ui).await?;
        }
        let result = self.command.run(desk, ui).await;
        archive::give(ui).await;
        result
    }
}

impl Command {
    /// Prepares the process for the verb, before it starts threads.
    pub fn prepare(&self) {
        if let Self::Attach(args) = self {
            args.prepare();
        }
    }

    /// Makes all files, folders and sockets that the verb creates its user's own: images, maps, logs, reports, caches and
    /// sockets hold evidence, whatever the umask of the shell is. Programs that it starts inherit this. Man pages and
    /// completions are for all users.
    pub fn keep_files_private(&self) {
        if !matches!(self, Self::Generate(_)) {
            rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        }
    }

    /// The arguments that may name a drive by its room.
    fn drives(&mut self) -> Vec<Named<'_>> {
        match self {
            Self::Status(args) => vec![Named::Path(&mut args.drive)],
            Self::Save(args) => vec![Named::Path(&mut args.drive)],
            Self::Load(args) => vec![Named::Path(&mut args.drive)],
            Self::Repair(args) => vec![Named::Path(&mut args.drive)],
            Self::Enlarge(args) => vec![Named::Path(&mut args.drive)],
            Self::Rebalance(args) => vec![Named::Path(&mut args.drive)],
            Self::Destroy(args) => vec![Named::Path(&mut args.drive)],
            Self::Drain(args) => args.drive.iter_mut().map(Named::Path).collect(),
            Self::Watch(args) => args.drives.iter_mut().map(Named::Path).collect(),
            Self::Verify(args) => vec![Named::Text(&mut args.target)],
            Self::Mount(args) => vec![Named::Text(&mut args.source)],
            Self::Search(args) => vec![Named::Text(&mut args.source)],
            Self::Export(args) => vec![Named::Text(&mut args.source)],
            Self::Attach(args) => vec![Named::Text(&mut args.source)],
            Self::Acquire(args) => args.places.iter_mut().map(Named::Text).collect(),
            Self::Triage(args) => args.words.words.iter_mut().map(Named::Word).collect(),
            _ => Vec::new(),
        }
    }

    /// How the verb takes part in a room; `None` if it does not, or if it enters the room itself.
    fn participation(&self) -> Option<Participation> {
        let client = || Participation {
            purpose: Purpose::Client,
            ephemeral: false,
            machine: MachineInfo::default(),
            without_room: WithoutRoom::Proceed,
        };
        match self {
            Self::Node(args) => Some(args.participation()),
            Self::Serve(args) => args.participation(),
            Self::Custody(_)
            | Self::Room(_)
            | Self::Demo(_)
            | Self::Doctor(_)
            | Self::Generate(_)
            | Self::Bench(_)
            | Self::Unmount(_)
            | Self::Detach(_) => None,
            _ => Some(client()),
        }
    }

    async fn run(self, desk: Desk, ui: Ui) -> Result<()> {
        let room = desk.room.as_deref();
        match self {
            Self::Demo(args) => demo::run(args, ui).await,
            Self::Doctor(args) => doctor::run(&args, ui),
            Self::Acquire(args) => acquire::run(args, ui).await,
            Self::Node(args) => node::run(args, &desk, ui).await,
            Self::Create(args) => create::run(args, ui).await,
            Self::Enlarge(args) => enlarge::run(args, ui).await,
            Self::Repair(args) => repair::run(args, ui).await,
            Self::Drain(args) => drain::run(args, ui).await,
            Self::Rebalance(args) => rebalance::run(args, ui).await,
            Self::Load(args) => load::run(args, ui).await,
            Self::Room(args) => room::run(args, room, ui).await,
            Self::Save(args) => save::run(args, ui).await,
            Self::Verify(args) => verify::run(args, ui).await,
            Self::Custody(args) => custody::run(&args, ui),
            Self::Status(args) => status::run(args, ui).await,
            Self::Destroy(args) => destroy::run(args, ui).await,
            Self::Drive(args) => drive::run(args, ui),
            Self::Mount(args) => mount::run(args, ui).await,
            Self::Unmount(args) => unmount::run(args, ui).await,
            Self::Attach(args) => attach::run(args, ui).await,
            Self::Detach(args) => detach::run(args, ui).await,
            Self::Export(args) => export::run(args, ui).await,
            Self::Serve(args) => serve::run(args, &desk, ui).await,
            Self::Triage(args) => triage::run(args, room, ui).await,
            Self::Search(args) => search::run(args, ui).await,
            Self::Watch(args) => watch::run(args, ui).await,
            Self::Probe(args) => probe::run(args, ui).await,
            Self::Bench(args) => bench::run(args, room, ui).await,
            Self::Generate(args) => generate::run(&args, Cli::described(), ui),
        }
    }
}

#[cfg(test)]
mod tests {

    #[test]
    fn the_command_line_is_well_formed() {
        super::Cli::described().debug_assert();
    }
}

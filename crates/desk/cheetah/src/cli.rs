//! The command line. Each verb defines its own options, in [`crate::commands`].

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cheetah_custody::Custodian;
use cheetah_room::client::MachineInfo;
use cheetah_room::resolve::Purpose;
use cheetah_seal::{Keyring, SealError};
use clap::error::ErrorKind;
use clap::{ArgMatches, Args as _, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::commands::{
    acquire, attach, bench, create, custody, demo, destroy, detach, doctor, drain, drive, enlarge, export, generate,
    load, mount, node, probe, rebalance, repair, room, run, save, search, serve, status, triage, unmount, verify,
    watch,
};
use crate::desk::Desk;
use crate::failure::Result;
use crate::os;
use crate::overview;
use crate::room::drives::Named;
use crate::room::{Entered, Participation, WithoutRoom, archive, enter};
use crate::ui::Ui;

/// The command line of this process.
#[derive(Debug)]
pub struct Cli {
    /// The options of every verb.
    pub global: GlobalArgs,
    /// The verb and its options.
    pub command: Command,
}

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
pub struct GlobalArgs {
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
    Run(run::Args),
    Probe(probe::Args),
    Bench(bench::Args),
    Generate(generate::Args),
}

/// A function that adds a verb's options and help to clap's command.
type Describe = fn(clap::Command) -> clap::Command;

/// The names of the verbs of [`Command`], and their descriptions.
const VERBS: [(&str, Describe); 30] = [
    ("demo", demo::Args::augment_args),
    ("doctor", doctor::Args::augment_args),
    ("acquire", acquire::Args::augment_args),
    ("node", node::Args::augment_args),
    ("create", create::Args::augment_args),
    ("enlarge", enlarge::Args::augment_args),
    ("repair", repair::Args::augment_args),
    ("drain", drain::Args::augment_args),
    ("rebalance", rebalance::Args::augment_args),
    ("room", room::Args::augment_args),
    ("load", load::Args::augment_args),
    ("save", save::Args::augment_args),
    ("verify", verify::Args::augment_args),
    ("watch", watch::Args::augment_args),
    ("custody", custody::Args::augment_args),
    ("status", status::Args::augment_args),
    ("destroy", destroy::Args::augment_args),
    ("drive", drive::Args::augment_args),
    ("mount", mount::Args::augment_args),
    ("unmount", unmount::Args::augment_args),
    ("attach", attach::Args::augment_args),
    ("detach", detach::Args::augment_args),
    ("export", export::Args::augment_args),
    ("serve", serve::Args::augment_args),
    ("triage", triage::Args::augment_args),
    ("search", search::Args::augment_args),
    ("run", run::Args::augment_args),
    ("probe", probe::Args::augment_args),
    ("bench", bench::Args::augment_args),
    ("generate", generate::Args::augment_args),
];

impl Cli {
    /// Reads the command line of this process.
    ///
    /// # Errors
    ///
    /// What clap has to say: the help that was asked for, or what is wrong.
    pub fn read() -> std::result::Result<Self, clap::Error> {
        // To describe every verb takes a good part of the time in which the process starts. So at first only those are
        // described whose names were typed: the verb is among them, since it is an argument of its own.
        let typed: Vec<_> = std::env::args_os().collect();
        let read = Self::command(|verb| typed.iter().any(|word| word == verb)).try_get_matches_from(&typed);
        match read.and_then(|matches| Self::from_matches(&matches)) {
            Err(error) if error.kind() != ErrorKind::DisplayVersion => Self::read_again(&typed),
            read => read,
        }
    }

    /// The same with all verbs: help, and what is wrong, may be about any of them.
    fn read_again(typed: &[OsString]) -> std::result::Result<Self, clap::Error> {
        let mut described = Self::described();
        let matches = described.try_get_matches_from_mut(typed)?;
        Self::from_matches(&matches).map_err(|error| error.format(&mut described))
    }

    fn from_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        let (global, command) = (GlobalArgs::from_arg_matches(matches)?, Command::from_arg_matches(matches)?);
        Ok(Self { global, command })
    }

    /// The command line as clap knows it, with these verbs.
    fn command(is_wanted: impl Fn(&str) -> bool) -> clap::Command {
        let wanted = VERBS.iter().filter(|(name, _)| is_wanted(name));
        let verbs = wanted.map(|(name, describe)| describe(clap::Command::new(*name)));
        GlobalArgs::command().subcommand_required(true).subcommands(verbs)
    }

    /// The command line with all verbs, in groups.
    fn described() -> clap::Command {
        let verbs = Self::command(|_| true);
        let template = overview::template(&verbs);
        verbs.help_template(template)
    }

    /// Runs the verb.
    pub async fn run(self, ui: &Ui) -> Result<()> {
        let (ui, Self { global, mut command }) = (*ui, self);
        let keyring = Arc::<Keyring>::default();
        let unusable = |error: SealError| crate::commands::seal::unusable(&error);
        global.identity.iter().try_for_each(|file| keyring.add_identities(file)).map_err(unusable)?;
        global.passphrase_file.iter().try_for_each(|file| keyring.add_passphrase(file)).map_err(unusable)?;
        let Entered { credentials, upkeep, archive } = match command.participation() {
            Some(participation) => enter(global.room.as_deref(), participation, ui).await?,
            None => Entered::default(),
        };
        let desk = Desk {
            room: global.room,
            upkeep,
            archive,
            custodian: Custodian::of_user(credentials.acting_as()),
            credentials,
            keyring,
            accepts_unverified: global.accept_unverified,
        };
        for named in command.drives() {
            named.resolve(ui).await?;
        }
        let drives = archive::DriveFiles::named(command.drive_files());
        let result = command.run(&desk, ui).await;
        archive::give(&desk, drives, ui).await;
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
            os::keep_files_private();
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
            // What follows -- is another program's.
            Self::Run(args) => args.words.words.iter_mut().take_while(|word| *word != "--").map(Named::Word).collect(),
            _ => Vec::new(),
        }
    }

    /// The paths of the files that the verb may change as drives.
    fn drive_files(&mut self) -> Vec<PathBuf> {
        match self {
            Self::Create(args) => vec![args.drive.clone()],
            Self::Drive(args) => args.drive().map(Path::to_owned).into_iter().collect(),
            _ => self.drives().iter().filter_map(Named::path).collect(),
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

    async fn run(self, desk: &Desk, ui: Ui) -> Result<()> {
        let room = desk.room.as_deref();
        match self {
            Self::Demo(args) => demo::run(args, ui).await,
            Self::Doctor(args) => doctor::run(&args, ui),
            Self::Acquire(args) => acquire::run(args, desk, ui).await,
            Self::Node(args) => node::run(args, desk, ui).await,
            Self::Create(args) => create::run(args, desk, ui).await,
            Self::Enlarge(args) => enlarge::run(args, desk, ui).await,
            Self::Repair(args) => repair::run(args, desk, ui).await,
            Self::Drain(args) => drain::run(args, desk, ui).await,
            Self::Rebalance(args) => rebalance::run(args, desk, ui).await,
            Self::Load(args) => load::run(args, desk, ui).await,
            Self::Room(args) => room::run(args, room, ui).await,
            Self::Save(args) => save::run(args, desk, ui).await,
            Self::Verify(args) => verify::run(args, desk, ui).await,
            Self::Custody(args) => custody::run(&args, desk, ui),
            Self::Status(args) => status::run(args, desk, ui).await,
            Self::Destroy(args) => destroy::run(args, desk, ui).await,
            Self::Drive(args) => drive::run(args, desk, ui),
            Self::Mount(args) => mount::run(args, desk, ui).await,
            Self::Unmount(args) => unmount::run(args, ui).await,
            Self::Attach(args) => attach::run(args, desk, ui).await,
            Self::Detach(args) => detach::run(args, ui).await,
            Self::Export(args) => export::run(args, desk, ui).await,
            Self::Serve(args) => serve::run(args, desk, ui).await,
            Self::Triage(args) => triage::run(args, desk, ui).await,
            Self::Search(args) => search::run(args, desk, ui).await,
            Self::Run(args) => run::run(args, desk, ui).await,
            Self::Watch(args) => watch::run(args, desk, ui).await,
            Self::Probe(args) => probe::run(args, desk, ui).await,
            Self::Bench(args) => bench::run(args, desk, ui).await,
            Self::Generate(args) => generate::run(&args, Cli::described(), ui),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Subcommand as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::described().debug_assert();
    }

    #[test]
    fn each_verb_has_its_own_name_and_description() {
        let derived = Command::augment_subcommands(clap::Command::new("cheetah"));
        let names: Vec<_> = derived.get_subcommands().map(clap::Command::get_name).collect();
        assert_eq!(VERBS.map(|(name, _)| name).to_vec(), names);
        for (mut derived, (name, describe)) in derived.get_subcommands().cloned().zip(VERBS) {
            let mut described = describe(clap::Command::new(name));
            assert_eq!(described.render_long_help().to_string(), derived.render_long_help().to_string());
        }
    }
}

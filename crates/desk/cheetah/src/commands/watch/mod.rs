//! `cheetah watch`: the room on one page.
//!
//! [`targets`] finds the machines, [`machine`], [`drive`] and [`log_end`] ask each thing that is watched, at its own pace, so
//! that one that hangs does not hold up the others; [`records`] reads what lies beside a drive, [`jobs`] finds the work in progress on it,
//! and [`link`] puts what nodes send beside what was measured. [`board`] keeps what they found, [`judge`] puts it into one sentence.
//! [`page`] serves the page, [`show`] writes it as text, and [`terminal`] draws it in the terminal.

mod board;
mod drive;
mod jobs;
mod judge;
mod link;
mod log_end;
mod machine;
mod page;
mod rate;
mod records;
mod show;
mod targets;
mod terminal;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cheetah_error::Error;
use tokio::time::{MissedTickBehavior, interval};

use self::board::Board;
use self::link::Measured;
use crate::answers::watch::Picture;
use crate::desk::Desk;
use crate::failure::{Failure, Result};
use crate::signals::Stop;
use crate::ui::Ui;

/// The port of the page, unless told otherwise.
pub const PORT: u16 = 10814;
/// Where the page is, unless told otherwise.
pub const ADDRESS: &str = "127.0.0.1:10814";
/// Seconds between two questions to a machine, unless told otherwise.
const EVERY_S: u64 = 1;
/// Seconds without an answer after which a machine counts as silent, unless told otherwise.
const TIMEOUT_S: u64 = 1;
/// A drive is asked in several steps, each of which may take as long at least: one slow answer is no loss of redundancy. With
/// --once, nothing corrects a false alarm.
const PATIENT_TIMEOUT_S: u64 = 3;
/// A machine that is killed just after it answered is shown so within this time.
const SHOWN_WITHIN_S: u64 = 2;
// The machine is asked again, and does not answer. What that changes is drawn at once: see `Board::changed`.
const _: () = assert!(EVERY_S + TIMEOUT_S <= SHOWN_WITHIN_S);

/// The options of `watch`.
#[derive(Debug, clap::Args)]
#[command(about = "Show the room's machines, drives and jobs on one page")]
#[command(
    long_about = "Shows the room on one page: its machines, the drives that you name, what is being filled, and the end of \
custody logs. It only asks, and changes nothing.

The page is at an address of this machine that it prints; the secret in it opens the page. The page is in this program, \
and follows the room until you stop the command. With --terminal, the same is drawn in the terminal: arrows scroll, Tab goes \
to the next part, q ends it. With --once, it is printed once.

Machines are those of the room, if this machine has its key; those that lend to the drives; and those named with --nodes.

  cheetah watch case42.drive
  cheetah watch lab:case42 --custody disk.E01.custody
  cheetah watch --terminal
  cheetah watch case42.drive --probed lab-7.json
  cheetah watch --once --json | jq -r .sentence

With --once, exits with 3 if a drive has lost content or redundancy, or is not what was loaded by its last verification, and with 1 if a machine does not answer or a log is \
not as it should be."
)]
pub struct Args {
    /// The drives: drive files, or ROOM:NAME
    #[arg(value_name = "DRIVE")]
    pub drives: Vec<PathBuf>,

    /// Further nodes: host, or host:port
    #[arg(long, value_name = "A,B,…", value_delimiter = ',')]
    nodes: Vec<String>,

    /// Show the end of this custody log; repeat for more [default: the logs beside the drives]
    #[arg(long, value_name = "LOG")]
    custody: Vec<PathBuf>,

    /// Draw the link of a node beside the capacity in this output of cheetah probe --json; repeat for more
    #[arg(long, value_name = "FILE")]
    probed: Vec<PathBuf>,

    /// Address of the page; beyond loopback it is for members of the room alone, whose browsers need their certificates
    #[arg(long, value_name = "ADDRESS:PORT", default_value = ADDRESS, value_parser = crate::commands::listen::address)]
    listen: SocketAddr,

    /// Draw in the terminal, and serve no page
    #[arg(long, conflicts_with = "once")]
    terminal: bool,

    /// Print it once, and end
    #[arg(long)]
    once: bool,

    /// Seconds between two questions to a machine
    #[arg(long, value_name = "SECONDS", default_value_t = EVERY_S, value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,

    /// Seconds without an answer after which a machine counts as silent [default: 1, and 3 with --once]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: Option<u64>,
}

/// Runs the command.
pub async fn run(args: Args, desk: &Desk, ui: Ui) -> Result<()> {
    let every = Duration::from_secs(args.every);
    let timeout_s = args.timeout.unwrap_or(if args.once { PATIENT_TIMEOUT_S } else { TIMEOUT_S });
    let session = desk.session(Duration::from_secs(timeout_s));
    let patient = desk.session(Duration::from_secs(timeout_s.max(PATIENT_TIMEOUT_S)));
    let measured = Measured::read(&args.probed)?;
    let logs = log_end::logs(&args.custody, &args.drives)?;
    let wanted = targets::Wanted::of(&args.nodes, &args.drives, &desk.credentials)?;
    if !wanted.has_any()? && args.drives.is_empty() && logs.is_empty() {
        return Err(Failure::misused(
            "there is nothing to watch: this machine has no room; name drives, or nodes with --nodes",
        ));
    }
    let board = Arc::new(Board::new((args.drives, logs), measured, &desk.custodian, (session, patient)));
    if args.once {
        board.ask_once(&wanted).await?;
        let picture = board.picture();
        ui.answer(show::text(&picture), &picture);
        return verdict(&picture);
    }
    let mut stop = Stop::catch()?;
    let asking = Board::keep_asking(&board, wanted, every);
    let shown = async {
        match args.terminal {
            true if ui.draws() => terminal::run(&board, every, ui.colours()).await,
            true => print(&board, every, ui).await,
            false => page::serve(args.listen, &board, (every, desk), ui).await,
        }
    };
    tokio::select! {
        result = asking => result,
        result = shown => result,
        _ = stop.asked() => Ok(()),
    }
}

/// Prints the picture again and again, where nothing can be drawn.
async fn print(board: &Board, every: Duration, ui: Ui) -> Result<()> {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let picture = board.picture();
        ui.event(format_args!("{}\n", show::text(&picture)), &picture);
    }
}

/// Fails if something is not as it should be.
fn verdict(picture: &Picture) -> Result<()> {
    let statuses = || picture.drives.iter().filter_map(|drive| drive.status.as_ref());
    if statuses().any(|status| !status.healthy && !status.is_about_access()) {
        return Err(Error::evidence("a drive has lost content or redundancy; see above").into());
    }
    if picture.drives.iter().any(|drive| judge::failed_verification(drive).is_some()) {
        return Err(Error::evidence("a drive is not what was loaded, by its last verification; see above").into());
    }
    let answers = picture.machines.iter().all(|machine| machine.state.is_healthy());
    let drives = picture.drives.iter().all(|drive| drive.status.as_ref().is_some_and(|status| status.healthy));
    let logs = picture.custody.iter().all(|log| log.problems.is_empty());
    match answers && drives && logs {
        true => Ok(()),
        false => Err(Error::failed("a machine does not answer, or a record is not as it should be; see above").into()),
    }
}

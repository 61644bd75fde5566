//! `cheetah destroy`: wipes a drive's memory, and gives it back to the nodes.

use std::path::{Path, PathBuf};

use cheetah_custody::{CustodyEvent, CustodyLog, SigningKey};
use cheetah_device::Size;
use cheetah_drive::DriveFile;
use cheetah_drive::destroy::{DestroyOptions, Destroyed, NodeOutcome, WipeOutcome, destroy};

use super::compared::wrapped;
use super::options::TimeoutArgs;
use crate::desk::Desk;
use crate::failure::{Failure, Result};
use crate::room::archive;
use crate::ui::Ui;

/// The options of `destroy`.
#[derive(Debug, clap::Args)]
#[command(about = "Wipe a drive's memory and give it back")]
#[command(
    long_about = "Frees a drive's memory at its nodes, which wipe it and read it back, and removes the drive file.

The key of a sealed drive is destroyed first. Content that remains on a node cannot be read afterwards, unless another \
copy of the drive file exists.

If a node cannot be reached, the drive file is kept to try again, unless --force. The nodes' receipts are recorded in \
the drive's custody log, which is kept. A node in a room signs its receipt. A receipt is the word of the node; the \
destroyed key of a sealed drive is the guarantee. A receipt from an earlier attempt, which the drive file keeps, is believed \
only if a node of this room signed it; otherwise the node is asked again. Refused while the drive is in use, unless --force.

  cheetah destroy case42.drive"
)]
pub struct Args {
    /// The drive file
    pub drive: PathBuf,

    /// Destroy a drive in use, and remove the drive file even if a node cannot be reached
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    timeout: TimeoutArgs,
}

/// Runs the command.
pub async fn run(args: Args, desk: &Desk, ui: Ui) -> Result<()> {
    let file = DriveFile::load(&args.drive)?;
    let destroyed =
        destroy(&file, DestroyOptions { force: args.force, session: desk.session(args.timeout.get()) }).await?;
    if destroyed.file_removed {
        archive::withdraw(&file, desk.archive.as_ref(), ui).await;
    }
    let lines: Vec<_> = destroyed.nodes.iter().map(describe).collect();
    note((&file.path, desk), &destroyed, &lines, ui);
    let unreachable = destroyed
        .nodes
        .iter()
        .any(|node| matches!(node.outcome, WipeOutcome::Unreachable { .. } | WipeOutcome::Silent { .. }));
    let fate = match (destroyed.file_removed, unreachable) {
        (true, _) => "is removed",
        (false, true) => "is kept, so that destroy can be repeated: a node does not answer (--force removes it anyway)",
        (false, false) => "is kept, so that destroy can be repeated",
    };
    let fate = wrapped(&format!("{} {fate}", args.drive.display()), 0);
    let key = match &destroyed.key_problem {
        _ if destroyed.key_destroyed => wrapped(KEY_DESTROYED, 0),
        Some(why) => wrapped(&format!("its key is NOT destroyed: {why}"), 0),
        None => String::new(),
    };
    let fate = [fate, key].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n");
    let shown: Vec<_> = lines.iter().map(|line| wrapped(line, 2)).collect();
    ui.answer(format_args!("{fate}\n{}", shown.join("\n")), &destroyed);
    let in_doubt: Vec<_> =
        destroyed.nodes.iter().filter(|node| in_doubt(node)).map(|node| node.node.as_str()).collect();
    if let (true, Some(why)) = (in_doubt.is_empty(), &destroyed.key_problem) {
        return Err(Failure::failed(format!(
            "the key of {} is not destroyed: {why}; run it again",
            args.drive.display()
        )));
    }
    if in_doubt.is_empty() {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "{} may still hold data of the drive; stop the node there, which wipes all of its memory",
        in_doubt.join(", ")
    )))
}

const KEY_DESTROYED: &str = "its key is destroyed: no remnant of the drive can be read any more. Copies of \
    the drive file still hold the key; remove them, too";

/// Records the receipts in the drive's custody log, if there is one. A failure is only a warning, since the memory is
/// wiped already.
fn note((drive, desk): (&Path, &Desk), destroyed: &Destroyed, lines: &[String], ui: Ui) {
    let path = CustodyLog::path_for(drive);
    if path.symlink_metadata().is_err() {
        return;
    }
    let receipts = destroyed.nodes.iter().filter_map(|node| match &node.outcome {
        // A claim in the drive file is not signed here; if it is true, it is in the log already.
        WipeOutcome::Wiped { receipt, kept: false } => Some(CustodyEvent::Wiped(receipt.clone())),
        _ => None,
    });
    let mut events = receipts.chain([CustodyEvent::Destroyed { nodes: lines.to_vec() }]);
    let log = SigningKey::own().and_then(|key| CustodyLog::open_existing(&path, key, &desk.custodian));
    let noted = log.and_then(|mut log| events.try_for_each(|event| log.append(&event).map(drop)));
    if let Err(error) = noted {
        ui.warn(format_args!("the custody log has no record that the drive was destroyed: {error}"));
    }
}

fn in_doubt(node: &NodeOutcome) -> bool {
    match &node.outcome {
        WipeOutcome::Unreachable { .. } | WipeOutcome::Silent { .. } | WipeOutcome::Refused { .. } => true,
        WipeOutcome::Wiped { receipt, .. } => !receipt.statement.verified_zero,
        WipeOutcome::Gone | WipeOutcome::Foreign => false,
    }
}

fn describe(node: &NodeOutcome) -> String {
    let what = match &node.outcome {
        WipeOutcome::Wiped { receipt, kept: true } => format!(
            "has no such part any more; wiped {} before, says a receipt in the drive file that was not checked",
            Size(receipt.statement.wiped_bytes)
        ),
        WipeOutcome::Wiped { receipt, kept: false } => {
            let verified = if receipt.statement.verified_zero { "verified zero" } else { "NOT verified zero" };
            let signed = if receipt.signature.is_some() { "signed" } else { "not signed: the node is in no room" };
            format!("wiped {}, {verified}; receipt {signed}", Size(receipt.statement.wiped_bytes))
        }
        WipeOutcome::Gone => "no receipt: the node was restarted, or freed the memory before".to_owned(),
        WipeOutcome::Unreachable { why } | WipeOutcome::Silent { why } | WipeOutcome::Refused { why } => {
            format!("NOT WIPED: {why}")
        }
        WipeOutcome::Foreign => "not a Cheetah node: its content is not wiped".to_owned(),
    };
    format!("{}: {what}", node.node)
}

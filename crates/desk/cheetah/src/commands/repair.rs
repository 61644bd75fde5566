//! `cheetah repair`: restores full redundancy.

use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::Duration;

use cheetah_custody::{CustodyEvent, DriveRecords, FillLog, RedundancyCompared};
use cheetah_device::Size;
use cheetah_device::path_text::path_to_text;
use cheetah_drive::check::{CheckOptions, CheckReport, check};
use cheetah_drive::find::{FindOptions, find};
use cheetah_drive::refetch::{RefetchOptions, is_needed, refetch};
use cheetah_drive::repair::{Kept, RepairOptions, RepairProgress, Repaired, keep, repair};
use cheetah_drive::{AvailableNode, DriveFile, NodeSpec, Session};
use cheetah_source::LinkUse;

use super::load::OpenImage;
use super::options::{TimeoutArgs, source};
use super::verify::{Keys, note_beside};
use crate::answers::care::{Check, Keep, Range, Refetch, Repair};
use crate::desk::Desk;
use crate::failure::{Failure, Result};
use crate::signals::Stop;
use crate::ui::Ui;

/// The time for which `--nodes auto` listens for announcements.
const BROWSE: Duration = Duration::from_secs(2);

/// The options of `repair`.
#[derive(Debug, clap::Args)]
#[command(about = "Restore a drive's full redundancy")]
#[command(long_about = "Restores the full redundancy of a drive that has lost nodes.

A node that returns with its content receives the writes that it missed. A node that \
is lost, or returns empty, is replaced by one of --nodes, whose part is computed from \
the other nodes. Readers continue meanwhile, and switch to the new node. If a repair is \
interrupted, the next one continues it.

If a process has the drive open for writing, that process does the work, and this \
command shows its progress. The nodes named with --nodes are recorded as spares: a \
process that has the drive open for writing replaces the next lost node by itself.

  cheetah repair case42.drive
  cheetah repair case42.drive --nodes lab7,lab8

If more nodes are lost than the drive survives, --from-source replaces them, and fetches exactly the lost \
ranges from the source of the image again. Each is compared with the digest made when the image was loaded, and the digests with the signed custody log.

  cheetah repair case42.drive --nodes lab7,lab8 --from-source

With --check, all data and redundancy is read and compared, including parts that are rarely read. Pages that do not \
match their digests are computed from the other nodes and rewritten. The drive must not be open for writing elsewhere; \
readers continue.

  cheetah repair case42.drive --check

Exits with 1 if redundancy is not complete afterwards. With --check, exits with 3 if a part could not be compared, or \
nothing shows which of two contradicting parts is right.")]
pub struct Args {
    /// The drive file
    pub drive: PathBuf,

    /// Nodes that may replace lost ones: host, host:port, the nbd:// URI of any NBD server, or 'auto'
    #[arg(long, value_name = "A,B,…", value_delimiter = ',')]
    nodes: Vec<String>,

    /// If more nodes are lost than the drive survives, fetch the lost ranges again from the source of the image, or
    /// from SOURCE if it has moved
    #[arg(long, value_name = "SOURCE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    #[arg(value_parser = source())]
    from_source: Option<String>,

    /// With --from-source, trust a custody log signed with this key, besides your own: base64, or a PEM file
    #[arg(long, value_name = "PUBLIC", requires = "from_source")]
    key: Vec<String>,

    /// Compare all data with its redundancy, and rewrite wrong units
    #[arg(long, conflicts_with_all = ["from_source", "nodes"])]
    check: bool,

    /// If two writers wrote to the drive apart from each other, keep the content of this node's side, and overwrite the
    /// other's
    #[arg(long, value_name = "NODE", conflicts_with_all = ["from_source", "check", "nodes"])]
    keep: Option<String>,

    /// Take the write lease from its holder, whose writes are refused from then on
    #[arg(long)]
    force_lease: bool,

    #[command(flatten)]
    timeout: TimeoutArgs,
}

/// Runs the command.
pub async fn run(args: Args, desk: &Desk, ui: Ui) -> Result<()> {
    let mut file = DriveFile::load(&args.drive)?;
    let session = desk.session(args.timeout.get());
    let mut stop = Stop::catch()?;
    if args.check {
        return compare(&args, (&file, desk), &mut stop, ui).await;
    }
    if let Some(named) = &args.from_source
        && is_needed(&file, &session).await?
    {
        return fetch_again(&args, named, (&mut file, desk), &mut stop, ui).await;
    }
    let options = RepairOptions { spares: spares(&args, &session).await?, force_lease: args.force_lease, session };
    if let Some(node) = &args.keep {
        return decide(&args, (&mut file, node, desk), &options, &mut stop, ui).await;
    }
    let progress = ui.progress(format!("repairing {}", args.drive.display()), file.capacity());
    let size = file.capacity();
    let shown = |so_far: RepairProgress| {
        let all = (so_far.done + so_far.left).max(1);
        progress.set(size / all * so_far.done);
    };
    let repaired = tokio::select! {
        repaired = repair(&mut file, options, shown) => repaired?,
        signal = stop.asked() => {
            return Err(Failure::failed(format!("stopped by {signal}; the next repair continues from here")));
        }
    };
    drop(progress);
    ui.answer(describe(&args, &repaired), &Repair { drive: path_to_text(&args.drive), repair: &repaired });
    if repaired.is_complete() {
        return Ok(());
    }
    Err(Failure::failed(incomplete(&repaired)))
}

/// Keeps the content of one side of a drive to which two writers wrote apart from each other.
async fn decide(
    args: &Args,
    (file, node, desk): (&mut DriveFile, &str, &Desk),
    options: &RepairOptions,
    stop: &mut Stop,
    ui: Ui,
) -> Result<()> {
    let progress = ui.progress(format!("repairing {}", args.drive.display()), file.capacity());
    let size = file.capacity();
    let shown = |so_far: RepairProgress| progress.set(size / (so_far.done + so_far.left).max(1) * so_far.done);
    let log = FillLog::beside(&file.path, &desk.custodian);
    let record = |kept: &Kept| log.kept(&kept.kept, &kept.overwritten);
    let kept = tokio::select! {
        kept = keep(file, node, options, record, shown) => kept?,
        signal = stop.asked() => {
            return Err(Failure::failed(format!("stopped by {signal}; run the same command again to go on")));
        }
    };
    drop(progress);
    let text = format!(
        "{}: the content of {} is kept, and {} now has it, too",
        args.drive.display(),
        kept.kept.join(" and "),
        kept.overwritten.join(" and ")
    );
    ui.answer(text, &Keep { drive: path_to_text(&args.drive), keep: &kept });
    Ok(())
}

/// Compares all data with its redundancy.
async fn compare(args: &Args, (file, desk): (&DriveFile, &Desk), stop: &mut Stop, ui: Ui) -> Result<()> {
    let drive = args.drive.display();
    let progress = ui.progress(format!("checking {drive}"), file.capacity());
    let options = CheckOptions { force_lease: args.force_lease, session: desk.session(args.timeout.get()) };
    let report = tokio::select! {
        report = check(file, options, |done| progress.set(done)) => report?,
        signal = stop.asked() => return Err(Failure::failed(format!("stopped by {signal} before the end; run it again"))),
    };
    drop(progress);
    ui.answer(describe_check(args, &report), &Check { check: &report, drive: path_to_text(&args.drive) });
    let event = CustodyEvent::RedundancyCompared(Box::new(record(&report)));
    if let Err(failure) = note_beside(&args.drive, &event, desk, ui) {
        ui.warn(format_args!("the result is not recorded in the custody log: {failure}"));
    }
    if report.checked.is_sound() {
        return Ok(());
    }
    let next = match &report.missing[..] {
        [] => "see above".to_owned(),
        missing => format!("run `cheetah repair {drive}` first: {}", missing.join("; ")),
    };
    Err(Failure::evidence(format!("the redundancy of {drive} is not known to be right; {next}")))
}

/// What the custody log has of a check.
fn record(report: &CheckReport) -> RedundancyCompared {
    let checked = &report.checked;
    RedundancyCompared {
        compared_bytes: checked.compared_bytes,
        uncompared_bytes: checked.uncompared_bytes,
        undecided_rows: checked.undecided_rows,
        data_pages_repaired: checked.data_pages_repaired,
        redundancy_pages_repaired: checked.redundancy_pages_repaired,
        parts: report.parts.clone(),
    }
}

fn describe_check(args: &Args, report: &CheckReport) -> String {
    let (drive, checked) = (args.drive.display(), &report.checked);
    let mut text = format!("{drive}: {} compared with their redundancy", Size(checked.compared_bytes));
    match checked.has_found() {
        false => text.push_str(", nothing is wrong"),
        true => text.push_str(&format!(
            "\n  rewritten: {} pages of data, {} of redundancy, {} damaged stripe units",
            checked.data_pages_repaired, checked.redundancy_pages_repaired, checked.damaged_units
        )),
    }
    if checked.undecided_rows > 0 {
        text.push_str(&format!(
            "\n  {} rows of pages contradict each other, and nothing shows which is right; `cheetah verify` compares the \
             data with the digests made at load",
            checked.undecided_rows
        ));
    }
    if checked.uncompared_bytes > 0 {
        text.push_str(&format!("\n  not compared: {}", Size(checked.uncompared_bytes)));
    }
    text
}

/// Fetches lost data from the source of the image, and records that in the custody log.
async fn fetch_again(
    args: &Args,
    named: &str,
    (file, desk): (&mut DriveFile, &Desk),
    stop: &mut Stop,
    ui: Ui,
) -> Result<()> {
    let session = desk.session(args.timeout.get());
    // The digests beside the drive file are compared with what is fetched; only the log is signed.
    let records = DriveRecords::read(file, &Keys::of(&args.key, &[], desk)?.known)?;
    if let Some(problem) = records.problems.first() {
        return Err(Failure::evidence(format!("{} {problem}; nothing was fetched", args.drive.display())));
    }
    let recorded = file.image.as_ref().map(|image| image.source.clone()).unwrap_or_default();
    let named = if named.is_empty() { recorded } else { named.to_owned() };
    let source = OpenImage::open(&named, LinkUse::default(), &session, None).await?;
    let spares = spares(args, &session).await?;
    let options = RefetchOptions { source: source.device(), spares, force_lease: args.force_lease, session };
    let progress = ui.progress(format!("fetching {named}"), source.size());
    let log = FillLog::beside(&file.path, &desk.custodian);
    let fetched = tokio::select! {
        fetched = refetch(file, &options, |so_far| progress.set(so_far.done)) => fetched.map_err(Failure::from),
        signal = stop.asked() => {
            Err(Failure::failed(format!("stopped by {signal}; the next repair --from-source continues from here")))
        }
    };
    drop(progress);
    let fetched = match fetched {
        Ok(fetched) => fetched,
        Err(failure) => {
            log.stopped(&failure.message);
            return Err(failure);
        }
    };
    log.refetched(source.identity(), &fetched.ranges)?;
    let drive = args.drive.display();
    let mut text = format!("{drive}: {} fetched again from {named}, equal to what was loaded", Size(fetched.bytes()));
    for replacement in &fetched.replaced {
        text.push_str(&format!("\n  {} replaces {}", replacement.by, replacement.lost));
    }
    let value = Refetch {
        drive: path_to_text(&args.drive),
        fetched: fetched.ranges.iter().map(|range| Range { len: range.len, offset: range.offset }).collect(),
        fetched_bytes: fetched.bytes(),
        replaced: &fetched.replaced,
        source: &named,
    };
    ui.answer(text, &value);
    Ok(())
}

/// The missing redundancy, and the nodes needed to restore it.
fn incomplete(repaired: &Repaired) -> String {
    let missing: Vec<_> = repaired.missing.iter().map(|missing| missing.node.as_str()).collect();
    let sizes: Vec<_> = repaired.missing.iter().map(|missing| Size(missing.size_bytes).to_string()).collect();
    let (them, nodes) = match &sizes[..] {
        [size] => ("it", format!("a node that holds no part of the drive yet, with {size} of free memory")),
        _ => ("them", format!("nodes that hold no part of the drive yet, with {} of free memory", sizes.join(" and "))),
    };
    let mut text = format!(
        "redundancy is not complete: {} missing; bring {them} back, or name {nodes} with --nodes",
        missing.join(", ")
    );
    if !repaired.problems.is_empty() {
        text.push_str(&format!(" ({})", repaired.problems.join("; ")));
    }
    text
}

async fn spares(args: &Args, session: &Session) -> Result<Vec<AvailableNode>> {
    if args.nodes.is_empty() {
        return Ok(Vec::new());
    }
    let specs = args.nodes.iter().map(|text| NodeSpec::from_str(text)).collect::<std::result::Result<Vec<_>, _>>()?;
    Ok(find(&specs, &FindOptions { session: session.clone(), browse: BROWSE }).await?)
}

fn describe(args: &Args, repaired: &Repaired) -> String {
    let mut text = format!("{}: survives the loss of {} of its nodes", args.drive.display(), repaired.survives);
    if let Some(writer) = &repaired.writer {
        text.push_str(&format!("\n  repaired by {writer}, which has it open for writing"));
    }
    for node in &repaired.resynced {
        text.push_str(&format!("\n  {node} is back, and has received the writes that it missed"));
    }
    for replacement in &repaired.replaced {
        text.push_str(&format!("\n  {} replaces {}", replacement.by, replacement.lost));
    }
    text
}

//! `cheetah acquire`: evidence into images and drives.

mod show;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cheetah_acquire::acquire::{CHECKPOINT_BYTES_DEFAULT, Destination, ErrorsMax, Opener, Request, acquire};
use cheetah_acquire::custody::SigningKey;
use cheetah_device::Size;
use cheetah_error::Error;
use cheetah_image::ewf::write::{Compression, E01Options};
use cheetah_image::{CaseData, HashChoice, spec};
use cheetah_nbd::Method;
use cheetah_nbd::inbox::Inbox;
use cheetah_nbd::uri::{Address, NbdUri};
use cheetah_source::{LinkUse, SourceOptions, is_drive, open, open_nbd};
use futures::FutureExt as _;

use self::show::Show;
use super::options::{TimeoutArgs, source};
use super::tune::TuneArgs;
use crate::failure::{Context, Failure, Result};
use crate::signals::Stop;
use crate::ui::Ui;

/// What `acquire` is told.
#[derive(Debug, clap::Args)]
#[command(about = "Copy evidence into images and drives, hashed, logged, and resumable")]
#[command(long_about = "Copies evidence into images and drives, in one pass over the source.

The name of a destination says what it becomes: .raw, .dd or .img a raw image, .E01 an Expert Witness image, .drive an \
existing, empty drive. Several are filled at once. The source is only ever read.

Interrupted in whatever way, the same command goes on where it was: what it needs for that is kept in NAME.acquire \
beside the first destination. Images have their names only when they are whole; before, they are called NAME.partial.

What cannot be read stops the acquisition, unless --max-errors says otherwise. It is then recorded as unreadable: in \
the coverage map NAME.map, in the error table of an E01, in the report NAME.report.txt; the exit code is 3.

  cheetah acquire /dev/sdb case42.E01 --case-number 42 \\
      --examiner 'M. Poirot' --verify
  cheetah acquire nbd://10.0.0.7/sda case42.E01 case42.drive --compress auto
  cheetah acquire iscsi://10.0.0.7/iqn.2026-11.org.example:disk/0 disk.raw \\
      --max-errors unlimited
  cheetah acquire --listen 192.168.1.5:10812 --insecure case42.E01")]
pub struct Args {
    /// The source, unless it calls (--listen): a disk, an image in any format, an nbd:// or iscsi:// URI, a drive;
    /// then the destinations
    #[arg(required = true, value_name = "SOURCE | DEST", value_parser = source())]
    places: Vec<String>,

    /// Wait for an agent to call here (cheetah serve --connect), and acquire what it serves
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::commands::listen::address)]
    listen: Option<SocketAddr>,

    /// Listen beyond loopback, although nothing is encrypted and whoever reaches that address can offer evidence
    #[arg(long, requires = "listen")]
    insecure: bool,

    /// How an agent packs what it sends: auto, none, lz4, zstd. Other servers send it as it is [default: auto, or none if
    /// --tune says so]
    #[arg(long, value_name = "METHOD")]
    compress: Option<Method>,

    #[command(flatten)]
    tune: TuneArgs,

    /// Hashes to make: md5, sha1, sha256, blake3, separated by commas; or all, or none
    #[arg(long, default_value_t)]
    hash: HashChoice,

    /// Read everything back in the end, and compare
    #[arg(long)]
    verify: bool,

    /// How many unreadable ranges to put up with, or unlimited; neighbouring sectors are one range
    #[arg(long, value_name = "N", default_value_t)]
    max_errors: ErrorsMax,

    /// How often a sector that cannot be read is tried again
    #[arg(long, value_name = "N", default_value_t = 1)]
    retries: u32,

    /// When the link to the source is lost, how many seconds to go on trying
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    retry_for: u64,

    /// Go on although the source seems to be another one than before: its serial number, model, path or server differs. The
    /// report and the custody log say so
    #[arg(long)]
    same_source: bool,

    /// Make what was acquired safe after this much, to go on from there after an interruption
    #[arg(long, value_name = "SIZE", default_value_t = Size(CHECKPOINT_BYTES_DEFAULT))]
    checkpoint: Size,

    /// Forget an acquisition that was interrupted, and begin again
    #[arg(long)]
    restart: bool,

    /// Replace images that exist, and what a drive holds
    #[arg(long)]
    force: bool,

    /// Take the right to write to a drive away from whoever holds it
    #[arg(long)]
    force_lease: bool,

    #[command(flatten)]
    timeout: TimeoutArgs,

    #[command(flatten)]
    e01: E01Args,
}

/// What goes into an E01, and into every report.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Case and E01")]
struct E01Args {
    /// How hard to compress an E01: none, fast, best, or a level from 0 to 12
    #[arg(long, default_value_t)]
    level: Compression,

    /// The most a segment file of an E01 may have
    #[arg(long, value_name = "SIZE", default_value_t = Size(1536 << 20))]
    segment_size: Size,

    /// The case's number
    #[arg(long, value_name = "TEXT")]
    case_number: Option<String>,

    /// The number of this piece of evidence
    #[arg(long, value_name = "TEXT")]
    evidence_number: Option<String>,

    /// Who acquires it
    #[arg(long, value_name = "TEXT")]
    examiner: Option<String>,

    /// What it is an image of
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,

    /// Whatever else should be known
    #[arg(long, value_name = "TEXT")]
    notes: Option<String>,
}

impl E01Args {
    fn get(self) -> E01Options {
        let Self { level, segment_size, case_number, evidence_number, examiner, description, notes } = self;
        E01Options {
            compression: level,
            segment_size: Some(segment_size.0),
            case: CaseData { case_number, evidence_number, examiner, description, notes },
            ..E01Options::default()
        }
    }
}

/// Runs it.
pub async fn run(args: Args, ui: Ui) -> Result<()> {
    let mut stop = Stop::catch()?;
    let timeout = args.timeout.get();
    let link = match &args.places[..] {
        [source, ..] if args.listen.is_none() => args.tune.link(source, ui).await?,
        _ => LinkUse::default(),
    };
    let link = LinkUse { packing: args.compress.unwrap_or(link.packing), ..link };
    let (source, destinations) = match (args.listen, args.places.split_first()) {
        (Some(address), _) => (call(address, args.insecure, link, timeout, ui).await?, &args.places[..]),
        (None, Some((source, destinations))) => (dial(source, link, timeout), destinations),
        (None, None) => return Err(Failure::misused("say what to acquire, and into what")),
    };
    if args.listen.is_none() {
        check_order(&args.places)?;
    }
    let destinations = destinations.iter().map(|text| text.parse()).collect::<Result<Vec<Destination>, Error>>()?;
    let request = Request {
        hashes: args.hash,
        e01: args.e01.get(),
        errors_max: args.max_errors,
        retries: args.retries,
        retry_for: Duration::from_secs(args.retry_for),
        checkpoint_bytes: args.checkpoint.0,
        window_bytes: link.window_bytes_first,
        timeout,
        force_lease: args.force_lease,
        same_source: args.same_source,
        verify: args.verify,
        restart: args.restart,
        force: args.force,
        key: Some(SigningKey::own()?),
        ..Request::new(source, destinations)
    };
    let mut show = Show::new(ui);
    let report = acquire(request, stop.asked(), |event| show.event(&event)).await?;
    drop(show);
    ui.answer(&report, &serde_json::json!({ "event": "done", "report": report }));
    match report.problems().as_slice() {
        [] => Ok(()),
        problems => Err(Failure::evidence(problems.join("; "))),
    }
}

/// Fails if the source is missing and a destination is there: the two were probably exchanged.
fn check_order(places: &[String]) -> Result<()> {
    let path = |text: &String| spec::path_of(text).filter(|(_, is_raw)| !is_raw).map(|(path, _)| path);
    let is_there = |path: &Path| path.symlink_metadata().is_ok();
    let [source, destinations @ ..] = places else { return Ok(()) };
    if path(source).is_none_or(|path| is_there(&path) || is_drive(&path)) {
        return Ok(());
    }
    // A drive is there before it is acquired into.
    let is_image = |text: &&String| path(text).is_some_and(|path| is_there(&path) && !is_drive(&path));
    let Some(there) = destinations.iter().find(is_image) else { return Ok(()) };
    Err(Failure::misused(format!(
        "{source} does not exist and {there} does: were they exchanged? The source comes first: cheetah acquire {there} \
         {source}"
    )))
}

/// How to open a source that is acquired: a server that cannot show that it is the same one is compared first.
fn acquiring(link: LinkUse, timeout: Duration) -> SourceOptions {
    SourceOptions { trust_reconnects: false, ..SourceOptions::new(link, timeout) }
}

/// A source that is opened by us.
fn dial(spec: &str, link: LinkUse, timeout: Duration) -> Opener {
    let spec: Arc<str> = spec.into();
    let options = acquiring(link, timeout);
    Arc::new(move || {
        let spec = spec.clone();
        async move { open(&spec, &options).await }.boxed()
    })
}

/// A source that calls us.
async fn call(address: SocketAddr, insecure: bool, link: LinkUse, timeout: Duration, ui: Ui) -> Result<Opener> {
    if !address.ip().is_loopback() && !insecure {
        return Err(Failure::misused(format!(
            "whoever reaches {address} could offer evidence, and nothing is encrypted; if that network is yours alone, \
             say --insecure"
        )));
    }
    let inbox = Inbox::listen(address).await.context(format_args!("cannot listen at {address}"))?;
    let address = inbox.address();
    ui.event(
        format_args!(
            "waiting for an agent; on the machine with the evidence run: cheetah serve DEVICE --connect {address}"
        ),
        &serde_json::json!({ "event": "waiting", "listen": address }),
    );
    // At first it is waited for without end; once it was there, as any source that is lost.
    let called = Arc::new(AtomicBool::new(false));
    let options = acquiring(link, timeout);
    Ok(Arc::new(move || {
        let uri = NbdUri { address: Address::Inbound(inbox.clone()), export: String::new() };
        let called = called.clone();
        async move {
            loop {
                match open_nbd(uri.clone(), "agent", &options).await {
                    Err(error) if !called.load(Ordering::Relaxed) => tracing::debug!("nobody called yet: {error}"),
                    opened => {
                        called.store(true, Ordering::Relaxed);
                        return opened;
                    }
                }
            }
        }
        .boxed()
    }))
}

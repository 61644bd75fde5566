//! `cheetah acquire`: copies evidence into images and drives.

mod decrypted;
mod show;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cheetah_acquire::acquire::{Report, acquire, discard};
use cheetah_acquire::order::{CHECKPOINT_BYTES_DEFAULT, Destination, ErrorsMax, Opener, Request};
use cheetah_custody::SigningKey;
use cheetah_device::Size;
use cheetah_drive::Session;
use cheetah_error::Error;
use cheetah_image::ewf::write::{Compression, E01Options};
use cheetah_image::{CaseData, HashChoice, spec};
use cheetah_nbd::Method;
use cheetah_nbd::inbox::Inbox;
use cheetah_nbd::uri::{Address, NbdUri};
use cheetah_source::{LinkUse, SourceOptions, is_drive, open, open_nbd};
use cheetah_tls::{Expected, Role};
use futures::FutureExt as _;

use self::decrypted::Decrypting;
use self::show::Show;
use super::options::{TimeoutArgs, source};
use super::tune::TuneArgs;
use super::unlock::UnlockArgs;
use crate::answers::acquire::{self as answers, Discard};
use crate::desk::Desk;
use crate::failure::{Context, Failure, Result};
use crate::signals::Stop;
use crate::ui::Ui;

/// The options of `acquire`.
#[derive(Debug, clap::Args)]
#[command(about = "Copy evidence into images and drives, hashed, logged, and resumable")]
#[command(long_about = "Copies evidence into images and drives, in one pass over the source.

The name of a destination selects its format: .raw, .dd or .img for a raw image, .E01 for an Expert Witness image, \
.drive for an existing, empty drive. It is a file, or an object: s3://BUCKET/KEY. Several destinations are written at \
once. The source is only read.

After any interruption, the same command resumes. Its journal is kept in NAME.acquire beside the first destination. An \
image is called NAME.partial until it is complete; an object appears when it is complete.

The acquisition stops at a range that is unreadable, or corrupt in a source that is an image, unless --max-errors allows \
more. Such ranges are recorded in the coverage map NAME.map, in the error table of an E01, and in the report \
NAME.report.txt; the exit code is then 3.

Encrypted volumes are imaged as they are on the disk. With --unlock and --decrypted, the content of an opened volume is imaged \
besides, from the first destination, once that is complete; or without a destination, from SOURCE. Each report and log says \
which is which. Nothing is acquired if no key opens the volume. With --volume, it is the content of the logical volume, the array or \
another volume of that name. If the volume lies on several disks, --with names the others: each is only read, and the report and \
the log of the content name all of them. They are not imaged: acquire each by itself as well.

  cheetah acquire /dev/sdb case42.E01 --case-number 42 \\
      --examiner 'M. Poirot' --verify
  cheetah acquire nbd://10.0.0.7/sda case42.E01 case42.drive --compress auto
  cheetah acquire iscsi://10.0.0.7/iqn.2026-11.org.example:disk/0 disk.raw \\
      --max-errors unlimited
  cheetah acquire /dev/sdb laptop.E01 --unlock keys.txt \\
      --decrypted laptop.decrypted.E01
  cheetah acquire server.E01 --volume vg0-home --decrypted home.raw
  cheetah acquire disk1.E01 --with disk2.E01 --unlock keys.txt \\
      --volume md0.unlocked --decrypted array.E01
  cheetah acquire --listen 192.168.1.5:10812 --room lab case42.E01")]
#[command(group = clap::ArgGroup::new("chosen").args(["unlock", "volume"]).multiple(true))]
pub struct Args {
    /// The source (a disk, an image in any format, an nbd://, iscsi://, https:// or s3:// URI, a drive), then the
    /// destinations. With --listen, only the destinations
    #[arg(required = true, value_name = "SOURCE | DEST", value_parser = source())]
    pub places: Vec<String>,

    /// Wait at this address for an agent to connect (cheetah serve --connect), and acquire the disk that it serves
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::commands::listen::address)]
    listen: Option<SocketAddr>,

    /// Listen beyond loopback, although connections are not encrypted: anyone who reaches the address can offer evidence
    #[arg(long, requires = "listen")]
    insecure: bool,

    /// Compression between an agent and this machine: auto, none, lz4, zstd. Other servers do not compress [default: auto,
    /// or as --tune advises]
    #[arg(long, value_name = "METHOD")]
    compress: Option<Method>,

    #[command(flatten)]
    tune: TuneArgs,

    /// Hashes to compute: md5, sha1, sha256, blake3, separated by commas; or all, or none
    #[arg(long, default_value_t)]
    hash: HashChoice,

    /// Read the destinations back at the end, and compare them
    #[arg(long)]
    verify: bool,

    /// Number of unreadable or corrupt ranges to accept, or unlimited; adjacent sectors are one range
    #[arg(long, value_name = "N", default_value_t)]
    max_errors: ErrorsMax,

    /// Number of times to retry an unreadable sector
    #[arg(long, value_name = "N", default_value_t = 1)]
    retries: u32,

    /// Seconds for which to try to reconnect to a lost source
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    retry_for: u64,

    /// Continue although the source may be another one: its serial number, model, path or server differs. The report and
    /// the custody log record it
    #[arg(long)]
    same_source: bool,

    /// Whenever the source is opened again, compare all data acquired before with it, not a random sample
    #[arg(long)]
    compare_all: bool,

    /// Begin although the file system may have too little space for the images
    #[arg(long)]
    skip_space_check: bool,

    /// Bytes between checkpoints, from which an interrupted acquisition resumes
    #[arg(long, value_name = "SIZE", default_value_t = Size(CHECKPOINT_BYTES_DEFAULT))]
    checkpoint: Size,

    /// Discard the interrupted acquisition, and start again
    #[arg(long)]
    restart: bool,

    /// Discard the interrupted acquisition and what it has written or uploaded, and end
    #[arg(long, conflicts_with = "restart")]
    discard: bool,

    /// Replace existing images, and overwrite the image that a drive holds
    #[arg(long)]
    force: bool,

    /// Take the write lease of a drive from its holder
    #[arg(long)]
    force_lease: bool,

    #[command(flatten)]
    unlock: UnlockArgs,

    /// Image the content of the volume that --unlock opens or --volume names, decrypted, into this file besides
    #[arg(long, value_name = "FILE", requires = "chosen", value_parser = source())]
    decrypted: Option<String>,

    #[command(flatten)]
    timeout: TimeoutArgs,

    #[command(flatten)]
    e01: E01Args,
}

/// The case data, which is stored in every report and in an E01, and the options of E01.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Case and E01")]
struct E01Args {
    /// Compression of an E01: none, fast, best, or a level from 0 to 12
    #[arg(long, default_value_t)]
    level: Compression,

    /// Maximum size of a segment file of an E01
    #[arg(long, value_name = "SIZE", default_value_t = Size(1536 << 20))]
    segment_size: Size,

    /// Case number
    #[arg(long, value_name = "TEXT")]
    case_number: Option<String>,

    /// Number of this piece of evidence
    #[arg(long, value_name = "TEXT")]
    evidence_number: Option<String>,

    /// Name of the examiner
    #[arg(long, value_name = "TEXT")]
    examiner: Option<String>,

    /// Description of the evidence
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,

    /// Notes
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

/// Runs the command.
pub async fn run(args: Args, desk: &Desk, ui: Ui) -> Result<()> {
    let mut stop = Stop::catch()?;
    let session = desk.session(args.timeout.get());
    let link = match &args.places[..] {
        [source, ..] if args.listen.is_none() => args.tune.link(source, desk, ui).await?,
        _ => LinkUse::default(),
    };
    let link = LinkUse { packing: args.compress.unwrap_or(link.packing), ..link };
    let (source, destinations) = match (args.listen, args.places.split_first()) {
        (Some(address), _) => (await_agent(address, args.insecure, link, &session, ui).await?, &args.places[..]),
        (None, Some((source, destinations))) => (dial(source, link, &session), destinations),
        (None, None) => return Err(Failure::misused("name the source, then the destinations")),
    };
    if args.listen.is_none() {
        check_order(&args.places)?;
    }
    let destinations = destinations.iter().map(|text| text.parse()).collect::<Result<Vec<Destination>, Error>>()?;
    // What --tune found is of the link to the source.
    let other_link = LinkUse { packing: link.packing, ..LinkUse::default() };
    let decrypting = Decrypting::asked(&args, &destinations, |other| dial(other, other_link, &session))?;
    if args.discard {
        discard(&destinations, session.timeout).await?;
        if let Some(decrypting) = decrypting {
            discard(&[decrypting.into], session.timeout).await?;
        }
        ui.answer("discarded", &Discard::Discarded);
        return Ok(());
    }
    let is_begun = decrypting.as_ref().is_some_and(Decrypting::is_begun) && !args.restart;
    decrypting.iter().try_for_each(|decrypting| decrypting.check(args.force))?;
    let request = request(args, (source, destinations), &link, decrypting.as_ref(), desk)?;
    let mut problems = Vec::new();
    if decrypting.is_none() || !request.destinations.is_empty() && !is_begun {
        let mut show = Show::new(ui);
        let report = acquire(request.clone(), stop.asked(), |event| show.event(&event)).await?;
        drop(show);
        problems.extend(answer(&report, ui));
    }
    if let Some(decrypting) = decrypting {
        let report = decrypting.run(&request, link, &mut stop, ui).await?;
        problems.extend(answer(&report, ui));
    }
    match problems.as_slice() {
        [] => Ok(()),
        problems => Err(Failure::evidence(problems.join("; "))),
    }
}

/// Prints the report, and returns the problems in it.
fn answer(report: &Report, ui: Ui) -> Vec<String> {
    ui.answer(report, &answers::Acquire::Done { report });
    report.problems()
}

/// What is to be acquired, and how.
fn request(
    args: Args,
    (source, destinations): (Opener, Vec<Destination>),
    link: &LinkUse,
    decrypting: Option<&Decrypting>,
    desk: &Desk,
) -> Result<Request> {
    Ok(Request {
        hashes: args.hash,
        e01: args.e01.get(),
        errors_max: args.max_errors,
        retries: args.retries,
        retry_for: Duration::from_secs(args.retry_for),
        checkpoint_bytes: args.checkpoint.0,
        window_bytes: link.window_bytes_first,
        force_lease: args.force_lease,
        same_source: args.same_source,
        compare_all: args.compare_all,
        check_space: !args.skip_space_check,
        verify: args.verify,
        restart: args.restart,
        force: args.force,
        unlock: decrypting.map(|decrypting| decrypting.choice.clone()),
        key: Some(SigningKey::own()?),
        custodian: desk.custodian.clone(),
        ..Request::new(source, destinations, desk.session(args.timeout.get()))
    })
}

/// Fails if the source is missing and a destination exists: the user probably exchanged them.
fn check_order(places: &[String]) -> Result<()> {
    let path = |text: &String| spec::path_of(text).filter(|(_, is_raw)| !is_raw).map(|(path, _)| path);
    let is_there = |path: &Path| path.symlink_metadata().is_ok();
    let [source, destinations @ ..] = places else { return Ok(()) };
    if path(source).is_none_or(|path| is_there(&path) || is_drive(&path)) {
        return Ok(());
    }
    // A drive exists before evidence is acquired into it.
    let is_image = |text: &&String| path(text).is_some_and(|path| is_there(&path) && !is_drive(&path));
    let Some(there) = destinations.iter().find(is_image) else { return Ok(()) };
    Err(Failure::misused(format!(
        "{source} does not exist and {there} does: were they exchanged? The source comes first: cheetah acquire {there} \
         {source}"
    )))
}

/// The options for opening a source. A server that reconnects without proof of its identity is compared first.
fn acquiring(link: LinkUse, session: &Session) -> SourceOptions {
    SourceOptions { trust_reconnects: false, in_order: true, ..SourceOptions::new(link, session.clone()) }
}

/// Returns the opener of a source to which this process connects.
fn dial(spec: &str, link: LinkUse, session: &Session) -> Opener {
    let spec: Arc<str> = spec.into();
    let options = acquiring(link, session);
    Arc::new(move || {
        let (spec, options) = (spec.clone(), options.clone());
        async move { open(&spec, &options).await }.boxed()
    })
}

/// Returns the opener of a source that connects to this process.
async fn await_agent(address: SocketAddr, insecure: bool, link: LinkUse, session: &Session, ui: Ui) -> Result<Opener> {
    // Checks only whether the connections may be unencrypted: on them, the agent is the server.
    session.credentials.server(address, insecure).map_err(cheetah_control::exposed)?;
    let credential = session.credentials.acting_as().filter(|_| !insecure);
    let agents = credential.map(|credential| credential.client(Expected::role(Role::Agent))).transpose();
    let inbox = Inbox::listen(address, agents.map_err(Failure::failed)?)
        .await
        .context(format_args!("cannot listen at {address}"))?;
    let address = inbox.address();
    ui.event(
        format_args!(
            "waiting for an agent; on the machine with the evidence run: cheetah serve DEVICE --connect {address}"
        ),
        &answers::Acquire::Waiting { listen: address },
    );
    // The first connection may take any time. After that, an agent that does not answer counts as a lost source.
    let connected = Arc::new(AtomicBool::new(false));
    let options = acquiring(link, session);
    Ok(Arc::new(move || {
        let uri = NbdUri::new(Address::Inbound(inbox.clone()), "");
        let (connected, options) = (connected.clone(), options.clone());
        async move {
            loop {
                match open_nbd(uri.clone(), "agent", &options).await {
                    Err(error) if !connected.load(Ordering::Relaxed) => {
                        tracing::debug!("no agent has connected yet: {error}")
                    }
                    opened => {
                        connected.store(true, Ordering::Relaxed);
                        return opened;
                    }
                }
            }
        }
        .boxed()
    }))
}

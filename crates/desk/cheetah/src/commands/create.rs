//! `cheetah create`: makes a drive from the memory of nodes, and may load an image.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr as _;

use cheetah_acquire::load::Loaded;
use cheetah_acquire::order::ErrorsMax;
use cheetah_custody::FillLog;
use cheetah_device::Size;
use cheetah_device::path_text::path_to_text;
use cheetah_drive::create::{CreateRequest, create_unless};
use cheetah_drive::destroy::{DestroyOptions, destroy};
use cheetah_drive::file::Set;
use cheetah_drive::file::side_space::SideFiles;
use cheetah_drive::fill;
use cheetah_drive::{
    AvailableNode, DriveFile, DriveSize, HashChoice, Layout, NodeSpec, UNIT_BYTES_DEFAULT, unit_of_sealed,
};
use cheetah_image::Identity;
use cheetah_seal::Units;
use cheetah_source::{LinkUse, SourceOptions, open};
use cheetah_words::sentence;

use super::compared::wrapped;
use super::gather::{Gathering, gather};
use super::load::{self, LoadSettings, OpenImage};
use super::options::{JOIN_ADDRESS, LayoutArgs, NodeArgs, SizeOrAll, TimeoutArgs, must_not_exist, source};
use super::seal::{self, SealArgs};
use super::tune::TuneArgs;
use super::unlock::UnlockArgs;
use crate::answers::create::{self as answers, NodeShare};
use crate::desk::Desk;
use crate::failure::{Failure, Result};
use crate::signals::Stop;
use crate::ui::Ui;

/// The options of `create`.
#[derive(Debug, clap::Args)]
#[command(about = "Make a drive from the memory of nodes")]
#[command(long_about = "Makes a drive from the memory of nodes.

The drive file describes the drive: anyone with the file and access to the nodes can open it. The memory is \
reserved, unless --thin. Over two nodes or more, the drive survives the loss of a node, unless --layout stripe or \
linear is chosen. With --from, an image is loaded, and the drive has the image's size. With --from and --lazy, the \
drive can be used at once: it fills while mounted or exported, and missing ranges are read from the source. With --from and \
--unlock, the drive gets the content of the encrypted volume that a key opens, decrypted, and has its size; with --volume, that of \
the logical volume, the array or another volume of that name. If the volume lies on several disks, --with names the others.

A load stops at a range that is unreadable, or corrupt in a source that is an image, and the drive is not made, unless \
--max-errors allows more. The drive then fails reads of such ranges, and NAME.drive.map lists them; the exit code is 3.

As soon as one of the nodes is on another machine, the drive is sealed, unless --no-seal: nodes hold ciphertext only, so an \
intruder on a node learns nothing of the content, and cannot change it undetected. The key is stored in the drive file, \
encrypted for each --recipient, for the --identity and the --passphrase-file given, and for your credential in a room; at \
least one of these is needed. The current version of each unit is recorded in case42.drive.seal: keep that file with the \
drive file. If all keys that open the drive are lost, so is its content. See docs/guide/seal.md.

  cheetah create case42.drive --nodes lab1,lab2,lab3 --from disk.raw
  cheetah create case42.drive --nodes lab1,lab2 --from nbd://10.0.0.7/sda --lazy
  cheetah create safe.drive --nodes lab1,lab2,lab3,lab4 --parity 2 --size 20GiB
  cheetah create case42.drive --nodes lab1,lab2 --from disk.raw \\
      --identity me.key
  cheetah create scratch.drive --nodes auto --layout stripe --size 20GiB
  cheetah create case42.drive --gather=192.168.1.5:10811 --size 200GiB
  cheetah create case42.drive --wait 3 --listen 192.168.1.5:10811 --room lab \\
      --from disk.raw")]
pub struct Args {
    /// The drive file to write; must not exist
    pub drive: PathBuf,

    #[command(flatten)]
    nodes: NodeArgs,

    /// Size of the drive, or 'all' for all free memory of the nodes
    #[arg(long, value_name = "SIZE|all", conflicts_with = "from")]
    size: Option<SizeOrAll>,

    /// Source to load: an image (raw, compressed, in parts, E01, AFF4, QCOW2, VMDK, VHD, VHDX), a disk, an nbd://,
    /// iscsi://, https:// or s3:// URI, or another drive
    #[arg(long, value_name = "SOURCE")]
    #[arg(value_parser = source())]
    from: Option<String>,

    #[command(flatten)]
    unlock: UnlockArgs,

    /// Load nothing now; fill the drive while it is used
    #[arg(long, requires = "from")]
    lazy: bool,

    /// Start with the nodes that are there, and grow with every node that joins, until the drive has its --size or is
    /// first used. The layout is linear, and survives no loss. The drive is sealed, unless --no-seal
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::commands::listen::address)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = JOIN_ADDRESS)]
    #[arg(conflicts_with_all = ["from", "wait", "layout", "copies", "parity", "spares", "thin", "parts"])]
    gather: Option<SocketAddr>,

    #[command(flatten)]
    layout: LayoutArgs,

    /// Nodes that may take the place of lost ones, named as in --nodes. None of their memory is reserved
    #[arg(long, value_name = "A,B,…", value_delimiter = ',')]
    spares: Vec<String>,

    /// Parts of a drive with redundancy on each node. `cheetah rebalance` can spread the drive over this many times its
    /// nodes; more parts cost some speed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    parts: u8,

    /// Reserve no memory: the drive may be larger than the nodes' free memory, and writes fail once they are full. Only
    /// with --layout stripe or linear
    #[arg(long)]
    thin: bool,

    #[command(flatten)]
    seal: SealArgs,

    /// Hashes to compute of the image: md5, sha1, sha256, blake3, separated by commas; or all, or none
    #[arg(long, default_value_t, requires = "from")]
    hash: HashChoice,

    /// Number of unreadable or corrupt ranges of the source to accept, or unlimited; adjacent sectors are one range. A drive
    /// that is made with --lazy accepts any number
    #[arg(long, value_name = "N", default_value_t, requires = "from", conflicts_with = "lazy")]
    max_errors: ErrorsMax,

    /// Number of times to retry an unreadable sector
    #[arg(long, value_name = "N", default_value_t = 1, requires = "from", conflicts_with = "lazy")]
    retries: u32,

    #[command(flatten)]
    tune: TuneArgs,

    #[command(flatten)]
    timeout: TimeoutArgs,
}

/// Runs the command.
pub async fn run(args: Args, desk: &Desk, ui: Ui) -> Result<()> {
    let mut stop = Stop::catch()?;
    let (timeout, session) = (args.timeout.get(), desk.session(args.timeout.get()));
    args.layout.check()?;
    args.seal.check(desk)?;
    check_unlock(&args)?;
    args.spares.iter().try_for_each(|spare| NodeSpec::from_str(spare).map(drop))?;
    must_not_exist(&args.drive, "choose another name, or destroy that drive first (cheetah destroy)")?;
    // The source is opened first: if that fails, no memory has been reserved.
    let link = match &args.from {
        Some(source) => args.tune.link(source, desk, ui).await?,
        None => LinkUse::default(),
    };
    let from = match &args.from {
        Some(text) if args.lazy => {
            // What is in doubt about it is said when the drive is opened: nothing of it is read twice.
            let options = SourceOptions::new(link, session.clone());
            Some(From::Filling(Box::new(open(text, &options).await?.source.identity)))
        }
        Some(text) => {
            let volume = args.unlock.choice(|other| load::opener_of(other, LinkUse::default(), &session))?;
            let opening = OpenImage::open(text, link, &session, volume.as_ref());
            Some(From::Loading(Box::new(stop.unless(&format!("opening {text}"), opening).await?)))
        }
        None => None,
    };
    let size = match (&from, args.size) {
        (Some(From::Filling(identity)), _) => DriveSize::Bytes(identity.size),
        (Some(From::Loading(source)), _) => DriveSize::Bytes(source.size()),
        (None, Some(SizeOrAll::Size(size))) => DriveSize::Bytes(size.0),
        (None, Some(SizeOrAll::All)) => DriveSize::All,
        (None, None) if args.gather.is_some() => DriveSize::All,
        (None, None) => {
            return Err(Failure::misused("give the size of the drive: --size 20GiB, --size all, or --from IMAGE"));
        }
    };
    if let Some(listen) = args.gather {
        let size_max = if let DriveSize::Bytes(bytes) = size { Some(bytes) } else { None };
        let gathering = Gathering { nodes: args.nodes.clone(), listen, size_max };
        let (path, layout, seal) = (args.drive.clone(), Layout::Linear, args.seal.always(desk)?);
        SideFiles::default().check_space(&path)?;
        let request = CreateRequest {
            path,
            nodes: Vec::new(),
            layout,
            size,
            parts: 1,
            thin: false,
            spares: Vec::new(),
            seal,
            session,
        };
        let file = gather(gathering, request, desk, &mut stop, ui).await?;
        load::warn_of_foreign(&file, ui);
        answer(&file, None, desk, ui);
        return Ok(());
    }
    let nodes = tokio::select! {
        nodes = args.nodes.find(timeout, desk, ui) => nodes?,
        signal = stop.asked() => return Err(Failure::failed(format!("stopped by {signal} before the drive was made"))),
    };
    warn_of_overcommitment(size, &nodes, args.thin, ui);
    let seal = args.seal.over(&nodes, args.from.is_some(), desk).await?;
    let unit =
        seal.as_ref().map_or(UNIT_BYTES_DEFAULT, |seal| unit_of_sealed(seal.unit, bytes_of(size, &nodes), nodes.len()));
    let (path, layout, thin) = (args.drive.clone(), args.layout.over(nodes.len(), unit), args.thin);
    let spares = args.spares.clone();
    let parts = usize::from(args.parts);
    let request = CreateRequest { path, nodes, layout, size, parts, thin, spares, seal, session };
    side_files(&args, &request).check_space(&args.drive)?;
    let mut file = create_unless(request, stop.asked()).await?;
    load::warn_of_foreign(&file, ui);
    warn_of_missing_maps(&file, ui);
    let loaded = match (from, &args.from) {
        (Some(From::Loading(source)), _) => {
            let (errors_max, retries) = (args.max_errors, args.retries);
            let session = desk.session(timeout);
            let how = LoadSettings { hashes: args.hash, force_lease: false, session, errors_max, retries };
            load::load((&mut file, desk), *source, how, "", &mut stop, ui).await.map(Some)
        }
        (Some(From::Filling(identity)), Some(spec)) => {
            begin((&mut file, desk), spec, &identity, args.hash).map(|()| None)
        }
        _ => Ok(None),
    };
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(failure) => {
            undo(&file, &args, desk, ui).await;
            return Err(failure.while_doing(format_args!("{} was not made", args.drive.display())));
        }
    };
    answer(&file, loaded.as_ref(), desk, ui);
    loaded.map_or(Ok(()), |loaded| load::whole_or_problem(&file, &loaded))
}

/// Fails if `--unlock` is given where it does not help.
fn check_unlock(args: &Args) -> Result<()> {
    match (args.unlock.is_given(), &args.from, args.lazy) {
        (true, None, _) => {
            Err(Failure::misused("--unlock, --volume and --with select a volume of an image: name that with --from"))
        }
        (true, _, true) => Err(Failure::misused(
            "a drive that is filled while it is used is filled with all of its source, and keeps no key: leave out --lazy, or --unlock \
             and --volume",
        )),
        _ => Ok(()),
    }
}

/// The bytes that a drive of this size has at most.
fn bytes_of(size: DriveSize, nodes: &[AvailableNode]) -> u64 {
    match size {
        DriveSize::Bytes(bytes) => bytes,
        DriveSize::All => nodes.iter().map(|node| node.free_bytes).fold(0, u64::saturating_add),
    }
}

/// The files beside the drive.
fn side_files(args: &Args, request: &CreateRequest) -> SideFiles {
    let bytes = bytes_of(request.size, &request.nodes);
    SideFiles {
        image_bytes: if args.from.is_some() { bytes } else { 0 },
        is_filled: args.lazy,
        sealed: request.seal.as_ref().and_then(|seal| Units::new(seal.unit, bytes)),
    }
}

/// Warns that the nodes may run out of memory.
fn warn_of_overcommitment(size: DriveSize, nodes: &[AvailableNode], thin: bool, ui: Ui) {
    let free = bytes_of(DriveSize::All, nodes);
    if let DriveSize::Bytes(bytes) = size
        && thin
        && bytes > free
    {
        ui.warn(format_args!(
            "the drive has {}, but its nodes only {} of free memory: writes fail once they are full",
            Size(bytes),
            Size(free)
        ));
    }
}

/// Warns that too few nodes hold the map of a drive with redundancy.
fn warn_of_missing_maps(file: &DriveFile, ui: Ui) {
    let foreign = file.nodes().filter(|node| node.instance.is_none()).count();
    if file.is_redundant() && foreign > file.losses_max() {
        ui.warn(format_args!(
            "{foreign} foreign servers store no map, which records the nodes that have received every write: never \
             use an old copy of {}",
            file.path.display()
        ));
    }
}

/// Marks the drive as filling, and records that.
fn begin((file, desk): (&mut DriveFile, &Desk), spec: &str, source: &Identity, hashes: HashChoice) -> Result<()> {
    fill::begin(file, spec, source, hashes)?;
    Ok(FillLog::beside(&file.path, &desk.custodian).started(source, &file.path, hashes, true)?)
}

/// The source of a new drive's image.
enum From {
    /// To be loaded now.
    Loading(Box<OpenImage>),
    /// To be filled from while the drive is used.
    Filling(Box<Identity>),
}

/// Destroys the drive after a failed load.
async fn undo(file: &DriveFile, args: &Args, desk: &Desk, ui: Ui) {
    let options = DestroyOptions { force: true, session: desk.session(args.timeout.get()) };
    if let Err(error) = destroy(file, options).await {
        let why = sentence(&error);
        ui.warn(format_args!("{} could not be removed: {why}; try: cheetah destroy --force", args.drive.display()));
    }
}

/// The memory of the nodes that serves redundancy.
fn redundancy_bytes(file: &DriveFile) -> u64 {
    let redundant = file.sets.iter().filter(|set| set.redundancy().is_some());
    redundant.map(|set| set.node_bytes().saturating_sub(set.size)).sum()
}

fn describe_survival(file: &DriveFile) -> String {
    let of = || {
        let all: u64 = file.sets.iter().map(Set::node_bytes).sum();
        format!("{} of the {} that it takes serve redundancy", Size(redundancy_bytes(file)), Size(all))
    };
    match file.losses_max() {
        0 if file.nodes().count() == 1 => "survives no loss: if its node is lost, its content is lost".to_owned(),
        0 => "survives no loss: if any of its nodes is lost, its content is lost".to_owned(),
        1 => format!("survives the loss of any node; {}", of()),
        losses => format!("survives the loss of any {losses} nodes; {}", of()),
    }
}

fn answer(file: &DriveFile, loaded: Option<&Loaded>, desk: &Desk, ui: Ui) {
    let nodes: Vec<_> = file.nodes().map(|node| format!("{} {}", node.name, Size(node.size))).collect();
    let layout = file.layouts().join(", then ");
    let drive = format!("{}: {}, {layout} ({})", file.path.display(), Size(file.size), nodes.join(", "));
    let mut text = wrapped(&drive, 0);
    text.push_str(&format!("\n{}", wrapped(&describe_survival(file), 0)));
    if let Some(sealed) = seal::describe(file, &desk.credentials) {
        text.push_str(&format!("\n{}", wrapped(&sealed, 0)));
    }
    match (&file.image, &file.fill) {
        (Some(image), Some(_)) => text.push_str(&format!(
            "\nto be filled from {}\nIt fills while mounted or exported. To fill it now: `cheetah load {}`.",
            image.source,
            file.path.display()
        )),
        (Some(image), None) => text.push_str(&format!("\n{}", load::describe(image))),
        (None, _) => {}
    }
    let value = answers::Create {
        drive: path_to_text(&file.path),
        filling: file.fill.is_some(),
        hashes: file.image.as_ref().map(|image| &image.hashes),
        id: &file.id,
        layout: &layout,
        name: &file.name,
        nodes: file.nodes().map(|node| NodeShare { name: &node.name, size_bytes: node.size }).collect(),
        redundancy_bytes: redundancy_bytes(file),
        sealed: file.sealed.is_some(),
        size_bytes: file.size,
        survives_losses: file.losses_max(),
        unreadable: loaded.map(|loaded| &loaded.bad),
        unreadable_bytes: loaded.map(|loaded| loaded.missing_bytes().0),
    };
    ui.answer(text, &value);
}

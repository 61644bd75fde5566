//! Options shared by several verbs.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use cheetah_device::Size;
use cheetah_device::path_text::typed_to_text;
use cheetah_device::size::BadSize;
use cheetah_device::visible::OneLine;
use cheetah_drive::content::refuse_data;
use cheetah_drive::find::{FindOptions, NodePlace, find};
use cheetah_drive::gather::JoinListener;
use cheetah_drive::options::REPLACE_AFTER;
use cheetah_drive::{AvailableNode, Layout, NodeSpec, Session, UNIT_BYTES_DEFAULT};
use cheetah_image::spec;
use cheetah_source::{
    Access, CacheOption, Keys, ListedCopy, NotShown, OpenedSource, OverlayPlace, ShadowCopies, Shown, UnreadVolume,
    is_drive,
};
use cheetah_tls::CredentialSet;
use clap::ValueEnum;
use clap::builder::{OsStringValueParser, TypedValueParser};
use futures::future::{OptionFuture, join_all};

use super::tune::TuneArgs;
use crate::answers::create::Gather;
use crate::desk::Desk;
use crate::failure::{Failure, Result};
use crate::room::{node_address, node_addresses};
use crate::ui::Ui;

/// The default port at which a drive waits for nodes to join: the one after a node's own two.
pub const JOIN_PORT: u16 = 10811;
/// The default address at which it waits.
pub const JOIN_ADDRESS: &str = "127.0.0.1:10811";

/// The default memory for prefetched data.
const PREFETCH: Size = Size(64 << 20);

/// The time for which `--nodes auto` listens for announcements.
const BROWSE: Duration = Duration::from_secs(3);

/// Parses a source as the user names it. A path may be any bytes; one that is not UTF-8 is converted to text
/// ([`path_text`](cheetah_device::path_text)).
pub fn source() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().map(|typed| spec::typed(&typed))
}

/// Parses an option that may hold a path of any bytes.
fn with_path<T>() -> impl TypedValueParser<Value = T>
where
    T: FromStr + Clone + Send + Sync + 'static,
    T::Err: std::error::Error + Send + Sync,
{
    OsStringValueParser::new().try_map(|typed| typed_to_text(&typed).parse())
}

/// The node time-out.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct TimeoutArgs {
    /// Seconds without an answer after which a node counts as lost
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

impl TimeoutArgs {
    /// Returns the time-out.
    pub fn get(self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

/// The nodes of a drive.
#[derive(Debug, Clone, clap::Args)]
pub struct NodeArgs {
    /// The nodes, in order: host, host:port, the nbd:// URI of any NBD server, or 'auto' for all nodes announced on the
    /// local network
    #[arg(long, value_name = "A,B,…", value_delimiter = ',', conflicts_with = "wait")]
    nodes: Vec<String>,

    /// Wait for N nodes to join (cheetah node --join), and use them in that order
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    wait: Option<u16>,

    /// Address at which nodes join
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        value_parser = crate::commands::listen::address,
        default_value = JOIN_ADDRESS,
        requires = "wait",
    )]
    listen: SocketAddr,

    /// Overwrite what nbd:// servers among the nodes hold. Without it, a server that holds data is refused
    #[arg(long, requires = "nodes")]
    overwrite: bool,

    /// Accept nodes without the room: connections are neither encrypted nor authenticated, and anyone who reaches the
    /// address can join
    #[arg(long, requires = "wait")]
    insecure: bool,
}

impl NodeArgs {
    /// Whether nodes are named, or waited for.
    pub fn is_given(&self) -> bool {
        self.wait.is_some() || !self.nodes.is_empty()
    }

    /// Finds the nodes, or waits until they have joined.
    pub async fn find(&self, timeout: Duration, desk: &Desk, ui: Ui) -> Result<Vec<AvailableNode>> {
        let session = desk.session(timeout);
        if !self.is_given() {
            return Err(Failure::misused("name the nodes: --nodes A,B, --nodes auto, or --wait N for nodes that join"));
        }
        let Some(wanted) = self.wait.map(usize::from) else {
            let specs = self.nodes.iter().map(|text| NodeSpec::from_str(&node_address(text, &desk.credentials)));
            let specs = specs.collect::<Result<Vec<_>, _>>()?;
            let found = find(&specs, &FindOptions { session: session.clone(), browse: BROWSE }).await?;
            if !self.overwrite {
                refuse_data(&found, &session).await?;
            }
            return Ok(found);
        };
        let mut gather = JoinListener::listen(self.listen, wanted, self.insecure, &desk.credentials).await?;
        let address = gather.address();
        let nodes =
            if wanted == 1 { "1 node; on its machine".to_owned() } else { format!("{wanted} nodes; on each machine") };
        ui.event(
            format_args!("waiting for {nodes} run: {}", how_to_join(address, &desk.credentials)),
            &Gather::Waiting { listen: address, wanted },
        );
        let mut found = Vec::new();
        while found.len() < wanted {
            let node = tokio::select! {
                Some(node) = gather.next() => node,
                Some(node) = member_beside(&found, &session) => node,
            };
            if found.iter().any(|other| is_same(other, &node)) {
                continue;
            }
            ui.event(
                format_args!("{} joined with {} ({} of {wanted})", node.name, Size(node.free_bytes), found.len() + 1),
                &Gather::Joined { free_bytes: node.free_bytes, node: &node.name },
            );
            found.push(node);
        }
        Ok(found)
    }
}

/// The command with which a machine lends memory to a drive that waits at an address. A node of the room is found without that.
pub fn how_to_join(address: SocketAddr, credentials: &CredentialSet) -> String {
    match credentials.acting_as() {
        Some(_) => {
            "cheetah node --memory SIZE --room STRING (cheetah room invite --role node prints the string)".into()
        }
        None => format!("cheetah node --memory SIZE --join {address}"),
    }
}

/// How long to wait before the room's nodes are asked again.
const MEMBERS_PAUSE: Duration = Duration::from_secs(1);
/// How long a node of the room may take to answer.
const MEMBER_TIMEOUT: Duration = Duration::from_secs(3);

/// Waits for a node of this machine's room that answers and is not among `found`. Such nodes need no --join.
pub async fn member_beside(found: &[AvailableNode], session: &Session) -> Option<AvailableNode> {
    let options = FindOptions { session: session.within_at_most(MEMBER_TIMEOUT), browse: BROWSE };
    loop {
        let specs: Vec<_> =
            node_addresses(&session.credentials).iter().filter_map(|text| NodeSpec::from_str(text).ok()).collect();
        let answers = join_all(specs.iter().map(|spec| find(std::slice::from_ref(spec), &options))).await;
        let new = answers.into_iter().flatten().flatten().find(|node| !found.iter().any(|other| is_same(other, node)));
        if new.is_some() {
            return new;
        }
        tokio::time::sleep(MEMBERS_PAUSE).await;
    }
}

/// Whether both are the same process.
pub fn is_same(one: &AvailableNode, other: &AvailableNode) -> bool {
    match (&one.place, &other.place) {
        (NodePlace::Node { instance: one, .. }, NodePlace::Node { instance: other, .. }) => one == other,
        _ => false,
    }
}

/// The layout of a new drive.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct LayoutArgs {
    /// Order of the data on the nodes [default: parity over three nodes or more, mirror over two, linear on one; of added
    /// nodes, one that survives as many losses as the drive]
    #[arg(long, value_enum)]
    layout: Option<LayoutKind>,

    /// Number of copies of all data, each on a different node: 2 to 4. The drive survives the loss of all but one
    /// [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(2..=4))]
    copies: Option<u8>,

    /// Number of parity units in each group, 1 or 2: the number of nodes that may be lost [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=2))]
    parity: Option<u8>,

    #[command(flatten)]
    unit: UnitArgs,
}

/// The stripe unit.
#[derive(Debug, Clone, Copy, clap::Args)]
struct UnitArgs {
    /// Stripe unit: bytes on one node before the next node follows; a power of two from 4KiB to 4MiB [default: 64KiB;
    /// 1MiB on a sealed drive of an image, if it is large]
    #[arg(long, value_name = "SIZE")]
    unit: Option<Size>,
}

/// The layouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LayoutKind {
    /// Stripe units on the nodes in turn, with parity: survives the loss of --parity nodes (RAID 5 or 6)
    Parity,
    /// Stripe units on the nodes in turn, each on --copies nodes: survives the loss of all of these but one
    Mirror,
    /// Stripe units on the nodes in turn (RAID 0): survives no loss
    Stripe,
    /// One node after the other: survives no loss
    Linear,
}

impl LayoutArgs {
    /// Fails if options contradict each other, before nodes are looked for.
    pub fn check(self) -> Result<()> {
        let wrong = |option: &str, kind: &str| {
            Err(Failure::misused(format!("{option} is for --layout {kind}; leave it out, or choose that layout")))
        };
        match self.layout {
            Some(kind) if self.copies.is_some() && kind != LayoutKind::Mirror => wrong("--copies", "mirror"),
            Some(kind) if self.parity.is_some() && kind != LayoutKind::Parity => wrong("--parity", "parity"),
            None if self.copies.is_some() && self.parity.is_some() => wrong("--copies", "mirror"),
            _ => self.unit.check(),
        }
    }

    /// Returns the layout over this number of nodes, with `unit_default` as stripe unit unless the user names one.
    /// `--copies` or `--parity` alone names a layout, too.
    pub fn over(self, nodes: usize, unit_default: u64) -> Layout {
        self.or_else(unit_default, |unit| Layout::default_over(nodes, unit))
    }

    /// The same for nodes that are added to a drive that survives `losses` losses.
    pub fn added(self, losses: usize, nodes: usize, unit_default: u64) -> Layout {
        self.or_else(unit_default, |unit| Layout::surviving(losses, nodes, unit))
    }

    fn or_else(self, unit_default: u64, otherwise: impl FnOnce(u64) -> Layout) -> Layout {
        let unit = self.unit.unit.map_or(unit_default, |unit| unit.0);
        let mirror = Layout::Mirror { unit, copies: self.copies.map_or(2, usize::from) };
        let parity = Layout::Parity { unit, parities: self.parity.map_or(1, usize::from) };
        match self.layout {
            Some(LayoutKind::Linear) => Layout::Linear,
            Some(LayoutKind::Stripe) => Layout::Stripe { unit },
            Some(LayoutKind::Mirror) => mirror,
            Some(LayoutKind::Parity) => parity,
            None if self.copies.is_some() => mirror,
            None if self.parity.is_some() => parity,
            None => otherwise(unit),
        }
    }
}

impl UnitArgs {
    /// Fails if the unit cannot be used, even by a layout that has none.
    fn check(self) -> Result<()> {
        let unit = self.unit.map_or(UNIT_BYTES_DEFAULT, |unit| unit.0);
        Layout::Stripe { unit }.check().map_err(|error| Failure::misused(error.to_string()))
    }
}

/// The options of `mount` and `export` for opening a source.
#[derive(Debug, Clone, clap::Args)]
pub struct AccessArgs {
    /// Allow writes to the drive; one writer at a time
    #[arg(long)]
    writable: bool,

    /// Allow writes, but keep them outside the drive or image, which does not change: in memory (up to SIZE) or in a
    /// file
    #[arg(long, value_name = "memory[:SIZE]|FILE", conflicts_with = "writable")]
    #[arg(value_parser = with_path::<OverlayPlace>())]
    overlay: Option<OverlayPlace>,

    /// Memory for prefetched data; 0 disables prefetching [default: 64MiB, or more with --tune]
    #[arg(long, value_name = "SIZE")]
    prefetch: Option<Size>,

    #[command(flatten)]
    tune: TuneArgs,

    /// Cache for data read from a remote source: in memory, in an unnamed file in a directory, or none
    #[arg(long, value_name = "memory[:SIZE]|DIR[:SIZE]|none", default_value = "memory")]
    #[arg(value_parser = with_path::<CacheChoice>())]
    cache: CacheChoice,

    /// Fetch file system metadata and file content from a remote source before tools read them
    #[arg(long, value_enum, default_value_t = Switch::On)]
    foresight: Switch,

    /// Open encrypted volumes (LUKS, BitLocker, VeraCrypt) with the keys in this file, one a line: passphrases, recovery passwords,
    /// keys in hexadecimal digits, veracrypt:PASSWORD; or with the file itself, a key file, startup key (.BEK) or header. May be
    /// given several times
    #[arg(long, value_name = "KEY-FILE", conflicts_with = "writable", value_hint = clap::ValueHint::FilePath)]
    unlock: Vec<PathBuf>,

    /// Another source that has parts of the same arrays and volume groups: the image of another disk. May be given several times
    #[arg(long = "with", value_name = "SOURCE", conflicts_with = "writable", value_parser = source())]
    others: Vec<String>,

    /// Take the lease (to write, or to fill a lazy drive) from its holder, whose requests are refused from then on
    #[arg(long)]
    force_lease: bool,

    /// Open the drive although nodes are lost; reads of the ranges they held fail
    #[arg(long, conflicts_with = "writable")]
    allow_lost: bool,

    /// Do not repair a drive with redundancy: use no spare in place of a lost node, unless `cheetah repair` asks for it
    #[arg(long, conflicts_with = "repair_after")]
    no_repair: bool,

    /// Seconds after which a lost node of a drive with redundancy is replaced by a spare
    #[arg(long, value_name = "SECONDS", default_value_t = REPLACE_AFTER.as_secs())]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    repair_after: u64,

    #[command(flatten)]
    timeout: TimeoutArgs,
}

impl AccessArgs {
    /// Returns the options for [`cheetah_source::OpenedSource::open`] of `source`.
    ///
    /// # Errors
    ///
    /// If a file given with `--tune` or `--unlock` cannot be read.
    pub async fn get(&self, source: &str, desk: &Desk, ui: Ui) -> Result<Access> {
        let link = self.tune.link(source, desk, ui).await?;
        let ahead = PREFETCH.0.max(link.prefetch_bytes_max.unwrap_or_default());
        Ok(Access {
            half_loaded: false,
            writable: self.writable,
            overlay: self.overlay.clone(),
            prefetch_bytes: self.prefetch.map_or(ahead, |size| size.0),
            link,
            cache: match &self.cache {
                CacheChoice::Some(option) => Some(option.clone()),
                CacheChoice::None => None,
            },
            foresight: self.foresight == Switch::On,
            force_lease: self.force_lease,
            fill: Some(Arc::new(desk.custodian.clone())),
            allow_lost: self.allow_lost,
            replace_after: (!self.no_repair).then(|| Duration::from_secs(self.repair_after)),
            in_order: false,
            shown: Shown::Source,
            shadow_copies: ShadowCopies::Unasked,
            with: self.others.clone(),
            unlock: match &self.unlock[..] {
                [] => None,
                files => Some(Arc::new(Keys::read(files)?)),
            },
            session: desk.session(self.timeout.get()),
        })
    }
}

/// The shadow copies that are shown beside a source.
#[derive(Debug, Clone, clap::Args)]
pub struct ShadowCopyArgs {
    /// Show a shadow copy of an NTFS volume (VSS), too, by its name in the list that this prints (p2.vss1), or all of them (all). May be
    /// given several times
    #[arg(long = "shadow-copy", value_name = "NAME|all", conflicts_with = "writable")]
    names: Vec<String>,
}

impl ShadowCopyArgs {
    /// Returns the shadow copies that are asked for.
    pub fn get(&self) -> ShadowCopies {
        ShadowCopies::named(self.names.clone())
    }
}

/// The cache of a remote source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheChoice {
    /// A cache.
    Some(CacheOption),
    /// No cache.
    None,
}

impl FromStr for CacheChoice {
    type Err = BadSize;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "none" { Ok(Self::None) } else { text.parse().map(Self::Some) }
    }
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// Fetch ahead
    On,
    /// Read only what tools ask for
    Off,
}

/// A size, or everything available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeOrAll {
    /// A number of bytes.
    Size(Size),
    /// Everything available.
    All,
}

impl FromStr for SizeOrAll {
    type Err = BadSize;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "all" { Ok(Self::All) } else { text.parse().map(Self::Size) }
    }
}

/// Refuses `--at-nodes` for a source that is no drive: no node has any of it. `verb` says what a node would do with it.
pub fn check_at_nodes(at_nodes: bool, source: &str, verb: &str) -> Result<()> {
    if at_nodes && !spec::path_of(source).is_some_and(|(path, is_raw)| !is_raw && is_drive(&path)) {
        return Err(Failure::misused(format!("{source} is no drive, so no nodes can {verb} it: leave out --at-nodes")));
    }
    Ok(())
}

/// Fails if `path` exists, before minutes of work are spent.
pub fn must_not_exist(path: &Path, what: &str) -> Result<()> {
    if path.symlink_metadata().is_ok() {
        return Err(Failure::misused(format!("{} already exists; {what}", path.display())));
    }
    Ok(())
}

/// Warns of what is lost of a source, and of doubts about it; those about a source behind a link follow when they are found.
pub fn warn_of(opened: &OpenedSource, patience: Duration, ui: Ui) {
    opened.lost.iter().for_each(|lost| ui.warn(lost));
    warn_of_doubts(&opened.doubts, ui);
    warn_of_unread(&opened.unread_volumes, ui);
    warn_of_locks(opened, ui);
    warn_of_groups(opened, ui);
    let (settled, doubts) = (opened.settled(), opened.look_for_doubts(patience));
    let unread = opened.look_for_unread_volumes(patience);
    let (copies, name) = (opened.look_for_shadow_copies(patience), opened.name.clone());
    if doubts.is_some() || unread.is_some() || copies.is_some() {
        tokio::spawn(async move {
            settled.await;
            warn_of_doubts(&OptionFuture::from(doubts).await.unwrap_or_default(), ui);
            warn_of_unread(&OptionFuture::from(unread).await.unwrap_or_default(), ui);
            let found = OptionFuture::from(copies).await.unwrap_or_default();
            list_copies(&name, &found.copies, ui);
            warn_of_not_opened(&name, &found.not_opened, ui);
        });
    }
}

/// Lists the shadow copies that are not shown.
fn list_copies(source: &str, copies: &[ListedCopy], ui: Ui) {
    for ListedCopy { name, copy, .. } in copies.iter().filter(|one| !one.is_shown) {
        let how = match &copy.defect {
            Some(why) => format!("it cannot be read: {why}"),
            None => format!("--shadow-copy {name} shows it beside the source, --volume {name} in place of it"),
        };
        let (what, size) = (copy.description(), Size(copy.size_bytes));
        ui.note(OneLine(format_args!("{source}: {name}: {what}, {size}; {how}")));
    }
}

/// Names what is known of volumes in volumes and not opened.
fn warn_of_not_opened(source: &str, not_opened: &[NotShown], ui: Ui) {
    not_opened.iter().for_each(|why| ui.warn(OneLine(format_args!("{source}: {why}"))));
}

/// Names the arrays, logical volumes and partitions that were found in volumes, and what of them is not opened.
fn warn_of_groups(opened: &OpenedSource, ui: Ui) {
    let found = opened.stack.volumes.iter().filter(|one| one.opened().is_none());
    found.for_each(|one| ui.note(format_args!("{}: {}", opened.name, one.sized_description())));
    list_copies(&opened.name, &opened.stack.copies, ui);
    warn_of_not_opened(&opened.name, &opened.stack.not_opened, ui);
}

/// Says what the keys opened, and what stays locked.
fn warn_of_locks(opened: &OpenedSource, ui: Ui) {
    let Some(unlocked) = &opened.stack.unlocked else { return };
    unlocked.opened.iter().for_each(|volume| ui.note(OneLine(format_args!("{}: {volume}", opened.name))));
    unlocked.outcome().failures().iter().for_each(|failure| ui.warn(format_args!("{}: {failure}", opened.name)));
}

/// Names the volumes in formats that are known and not read.
fn warn_of_unread(volumes: &[UnreadVolume], ui: Ui) {
    for volume in volumes {
        match volume.partition {
            Some(number) => ui.warn(format_args!("{volume}: it is shown as p{number}, its raw bytes, only")),
            None => ui.warn(format_args!("{volume}: only its raw bytes are shown")),
        }
    }
}

/// Warns of what is in doubt about a source or a drive, a sentence each.
pub fn warn_of_doubts(doubts: &[String], ui: Ui) {
    doubts.iter().for_each(|doubt| ui.warn(format_args!("IN DOUBT: {doubt}")));
}

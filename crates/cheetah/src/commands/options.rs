//! Options that several verbs share.

use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use cheetah_acquire::custody::FillLog;
use cheetah_device::Size;
use cheetah_device::size::BadSize;
use cheetah_drive::find::{FindOptions, find};
use cheetah_drive::gather::Gather;
use cheetah_drive::{AvailableNode, Layout, NodeSpec};
use cheetah_source::{Access, CacheWish, OverlayPlace};
use clap::ValueEnum;

use super::tune::TuneArgs;
use crate::failure::{Failure, Result};
use crate::ui::Ui;

/// Where a drive listens for nodes that join, unless told otherwise: the port after a node's own two.
pub const JOIN_ADDRESS: &str = "127.0.0.1:10811";

/// Memory for reading ahead where nobody says how much.
const PREFETCH: Size = Size(64 << 20);

/// How long `--nodes auto` listens for announcements.
const BROWSE: Duration = Duration::from_secs(3);

/// How patient to be with nodes.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct TimeoutArgs {
    /// Seconds a node may be silent before what it holds counts as lost
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

impl TimeoutArgs {
    /// The same, as a duration.
    pub fn get(self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

/// Which nodes take part.
#[derive(Debug, Clone, clap::Args)]
pub struct NodeArgs {
    /// The nodes, in order: host, host:port, an nbd:// URI of any NBD server, or 'auto' for those that announce
    /// themselves on the local network
    #[arg(
        long,
        value_name = "A,B,…",
        value_delimiter = ',',
        required_unless_present = "wait",
        conflicts_with = "wait"
    )]
    nodes: Vec<String>,

    /// Wait for this many nodes to join by themselves (cheetah node --join), and use them in that order
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    wait: Option<u16>,

    /// Where to listen for nodes that join
    #[arg(long, value_name = "ADDRESS:PORT", default_value = JOIN_ADDRESS, requires = "wait")]
    listen: SocketAddr,

    /// Listen for them beyond loopback, although whoever reaches that address can then offer memory
    #[arg(long, requires = "wait")]
    insecure: bool,
}

impl NodeArgs {
    /// Finds them, or waits for them.
    pub async fn find(&self, timeout: Duration, ui: Ui) -> Result<Vec<AvailableNode>> {
        let Some(wanted) = self.wait.map(usize::from) else {
            let specs = self.nodes.iter().map(|text| NodeSpec::from_str(text)).collect::<Result<Vec<_>, _>>()?;
            return Ok(find(&specs, &FindOptions { timeout, browse: BROWSE }).await?);
        };
        let mut gather = Gather::listen(self.listen, wanted, self.insecure).await?;
        let address = gather.address();
        ui.event(
            format_args!(
                "waiting for {wanted} nodes; on each machine run: cheetah node --memory SIZE --join {address}"
            ),
            &serde_json::json!({ "event": "waiting", "wanted": wanted, "listen": address }),
        );
        let mut found = Vec::new();
        while let Some(node) = gather.next().await {
            ui.event(
                format_args!("{} joined with {} ({} of {wanted})", node.name, Size(node.free_bytes), found.len() + 1),
                &serde_json::json!({ "event": "joined", "node": node.name, "free_bytes": node.free_bytes }),
            );
            found.push(node);
        }
        Ok(found)
    }
}

/// How a drive lies over its nodes.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct LayoutArgs {
    /// Spread every request over all nodes, or fill one node after the other
    #[arg(long, value_enum, default_value_t = LayoutKind::Stripe)]
    layout: LayoutKind,

    /// Stripe unit: bytes on one node before the next one's turn, a power of two from 4KiB to 4MiB
    #[arg(long, value_name = "SIZE", default_value_t = Size(cheetah_drive::file::UNIT_BYTES_DEFAULT))]
    unit: Size,
}

/// The layouts by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LayoutKind {
    /// One node after the other
    Linear,
    /// Units dealt to the nodes in turn (RAID 0)
    Stripe,
}

impl LayoutArgs {
    /// The layout.
    pub fn get(self) -> Layout {
        match self.layout {
            LayoutKind::Linear => Layout::Linear,
            LayoutKind::Stripe => Layout::Stripe { unit: self.unit.0 },
        }
    }
}

/// How a drive or an image is opened to be shown: by `mount` and `export`.
#[derive(Debug, Clone, clap::Args)]
pub struct AccessArgs {
    /// Let the drive be written to; one writer at a time
    #[arg(long)]
    writable: bool,

    /// Let tools write, and keep what they write apart: in memory, in memory up to SIZE, or in a file. The drive
    /// or image itself stays untouched
    #[arg(long, value_name = "memory[:SIZE]|FILE", conflicts_with = "writable")]
    overlay: Option<OverlayPlace>,

    /// Memory for reading ahead; 0 reads nothing ahead [default: 64MiB, or more if --tune says so]
    #[arg(long, value_name = "SIZE")]
    prefetch: Option<Size>,

    #[command(flatten)]
    tune: TuneArgs,

    /// Where to keep what crosses the link to a remote source: in memory, in a file without a name in a directory, or
    /// nowhere
    #[arg(long, value_name = "memory[:SIZE]|DIR[:SIZE]|none", default_value = "memory")]
    cache: CacheChoice,

    /// Fetch ahead, into that cache, what tools will read of the file systems on a remote source
    #[arg(long, value_enum, default_value_t = Switch::On)]
    foresight: Switch,

    /// Take the right to write, or to fill a drive that is not full yet, away from whoever holds it; they are refused
    /// from then on
    #[arg(long)]
    force_lease: bool,

    /// Open although nodes are lost; what they held cannot be read, the rest can
    #[arg(long, conflicts_with = "writable")]
    allow_lost: bool,

    #[command(flatten)]
    timeout: TimeoutArgs,
}

impl AccessArgs {
    /// The same, for [`cheetah_source::Opened::open`] of `source`.
    ///
    /// # Errors
    ///
    /// If the link to it is to be used as a file says that cannot be read.
    pub async fn get(&self, source: &str, ui: Ui) -> Result<Access> {
        let link = self.tune.link(source, ui).await?;
        let ahead = PREFETCH.0.max(link.prefetch_bytes_max.unwrap_or_default());
        Ok(Access {
            half_loaded: false,
            writable: self.writable,
            overlay: self.overlay.clone(),
            prefetch_bytes: self.prefetch.map_or(ahead, |size| size.0),
            link,
            cache: match &self.cache {
                CacheChoice::Some(wish) => Some(wish.clone()),
                CacheChoice::None => None,
            },
            foresight: self.foresight == Switch::On,
            force_lease: self.force_lease,
            fill: Some(|drive| Arc::new(FillLog::beside(drive))),
            allow_lost: self.allow_lost,
            timeout: self.timeout.get(),
        })
    }
}

/// What to keep of what crosses a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheChoice {
    /// This.
    Some(CacheWish),
    /// Nothing.
    None,
}

impl FromStr for CacheChoice {
    type Err = BadSize;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "none" { Ok(Self::None) } else { text.parse().map(Self::Some) }
    }
}

/// Whether to do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// Do it
    On,
    /// Do not
    Off,
}

/// A size, or all there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeOrAll {
    /// This much.
    Size(Size),
    /// All there is.
    All,
}

impl FromStr for SizeOrAll {
    type Err = BadSize;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "all" { Ok(Self::All) } else { text.parse().map(Self::Size) }
    }
}

/// Refuses to go on if there is something at `path` already; better now than after minutes of work.
pub fn must_not_exist(path: &Path, what: &str) -> Result<()> {
    if path.symlink_metadata().is_ok() {
        return Err(Failure::misused(format!("{} exists already; {what}", path.display())));
    }
    Ok(())
}

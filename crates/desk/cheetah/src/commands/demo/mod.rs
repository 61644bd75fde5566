//! `cheetah demo`: creates, uses and removes a drive on this machine, with real processes.

mod checklist;
mod children;
mod compare;
mod files;
mod image;
mod tools;

use std::path::{Path, PathBuf};
use std::time::Duration;

use cheetah_device::Size;
use cheetah_device::path_text::path_to_text;
use serde_json::Value;

use self::checklist::Checklist;
use self::children::Service;
use self::compare::Comparison;
use crate::answers::demo as answers;
use crate::failure::{Context, Failure, Result};
use crate::os::{self, Feature};
use crate::signals::Stop;
use crate::ui::Ui;

/// The arguments of `demo`.
#[derive(Debug, clap::Args)]
#[command(about = "Create, use and remove a drive on this machine")]
#[command(long_about = "Creates, uses and removes a drive on this machine, in about a minute.

Makes a disk image of this machine's own files (or uses yours, read-only), starts three nodes in a room, creates a \
drive with parity from the image, verifies and mounts it, runs mmls, fls -r and md5sum on the image and on \
the drive, and compares their output. It kills a node during another md5sum, whose result stays the same, and repairs \
the drive with another node. Finally it stops everything: the nodes wipe their memory and print receipts. No files \
remain.

  cheetah demo
  cheetah demo disk.raw")]
pub struct Args {
    /// Raw disk image to use [default: one is made]
    image: Option<PathBuf>,
}

const ROOM: &str = "demo";
const NODES: [&str; 3] = ["a", "b", "c"];
const MIB: u64 = 1 << 20;
/// The directory in which the image is built.
const SCRATCH: &str = "scratch";
/// Memory of a node beyond its share of the image and of parity.
const MARGIN_BYTES: u64 = 8 * MIB;
/// The node that is killed, and the one that takes its place.
const VICTIM: usize = 1;
const SPARE: &str = "d";

/// Runs the demonstration.
pub async fn run(args: Args, ui: Ui) -> Result<()> {
    os::offers(Feature::Demo)?;
    let mut stop = Stop::catch()?;
    let own_image: &[_] = if args.image.is_none() { &["mkntfs", "ntfs-3g", "mkfs.ext4", "umount"] } else { &[] };
    tools::require(&[&["mmls", "fls", "md5sum", "fusermount3"], own_image].concat())?;
    let dir =
        tempfile::Builder::new().prefix("cheetah-demo-").tempdir().context("cannot create a directory to work in")?;
    let image = args.image.map(|path| std::path::absolute(&path).context("cannot find the image")).transpose()?;
    let mut demo = Demo {
        dir: dir.path().to_owned(),
        list: Checklist::new(ui),
        ui,
        nodes: Vec::new(),
        mount: None,
        created: false,
    };

    ui.say("Cheetah: three nodes, one drive, the tools an examiner uses\n");
    let compared = tokio::select! {
        compared = demo.main_job(image) => compared,
        signal = stop.asked() => Err(Failure::failed(format!("stopped by {signal}; everything was removed"))),
    };
    if let Ok(comparison) = &compared {
        ui.say(format_args!("\n{}\n", comparison.table()));
    }
    let torn_down = demo.tear_down().await;
    let closed = remove(dir).await;
    let comparison = compared?;
    torn_down?;
    closed?;
    if !comparison.identical() {
        return Err(Failure::evidence("the drive differs from the image; see the table above"));
    }
    let (cache, runs, steps) = (comparison.cold, &comparison.rows, demo.list.steps());
    let value = answers::Demo { cache, identical: true, runs, steps };
    ui.answer("Every answer from the drive is identical.", &value);
    Ok(())
}

/// Removes the directory. Retries, since an interrupted step may still be writing to it.
async fn remove(dir: tempfile::TempDir) -> Result<()> {
    const ATTEMPTS: usize = 20;
    let path = dir.keep();
    for _ in 1..ATTEMPTS {
        if std::fs::remove_dir_all(&path).is_ok() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    std::fs::remove_dir_all(&path).context(format_args!("cannot remove {}", path.display()))
}

/// A node that was killed.
struct Killed {
    name: String,
    /// Where its drives were.
    address: String,
}

/// The running processes, in the order in which they were started.
struct Demo {
    dir: PathBuf,
    list: Checklist,
    ui: Ui,
    nodes: Vec<Service>,
    created: bool,
    mount: Option<Service>,
}

impl Demo {
    async fn main_job(&mut self, image: Option<PathBuf>) -> Result<Comparison> {
        let image = match image {
            Some(image) => image,
            None => self.make_image().await?,
        };
        let bytes = std::fs::metadata(&image).context(format_args!("cannot read {}", image.display()))?.len();
        self.make_room().await?;
        self.start_nodes(bytes).await?;
        let drive = self.create_drive(&image).await?;
        let mounted = self.mount_drive(&drive).await?;
        let mut comparison = self
            .list
            .step("mmls, fls -r and md5sum on the image and on the drive", async {
                let comparison = Comparison::make(&image, &mounted, bytes).await?;
                Ok((comparison, String::new()))
            })
            .await?;
        let killed = self.lose_a_node(&mut comparison, &mounted).await?;
        self.repair(&drive, bytes).await?;
        self.restart(&killed, bytes).await?;
        Ok(comparison)
    }

    /// Kills a node while md5sum reads the drive.
    async fn lose_a_node(&mut self, comparison: &mut Comparison, mounted: &Path) -> Result<Killed> {
        let victim = self.nodes.remove(VICTIM);
        let said = |key: &str| victim.ready[key].as_str().unwrap_or("?").to_owned();
        let (name, address) = (said("name"), said("nbd"));
        let work = async {
            comparison.md5sum_during(&format!("md5sum, node {name} killed"), mounted, victim.kill()).await?;
            Ok(((), "every byte from the other two".to_owned()))
        };
        self.list.step(&format!("kill node {name} in the middle of md5sum"), work).await?;
        Ok(Killed { name, address })
    }

    /// Restarts the killed node. The node is empty, and the drive does not accept it in place of the old one.
    async fn restart(&mut self, killed: &Killed, image_bytes: u64) -> Result<()> {
        let (dir, nodes, memory) = (&self.dir, &mut self.nodes, node_memory(image_bytes));
        let work = async {
            nodes.push(children::node(dir, &killed.name, memory, &killed.address).await?);
            Ok(((), "it is empty".to_owned()))
        };
        self.list.step(&format!("start node {} again", killed.name), work).await
    }

    /// Puts a new node in the place of the one that was killed.
    async fn repair(&mut self, drive: &str, image_bytes: u64) -> Result<()> {
        let (dir, nodes, memory) = (&self.dir, &mut self.nodes, node_memory(image_bytes));
        let work = async {
            let spare = children::node(dir, SPARE, memory, children::ANY_PORT).await?;
            let address = spare.ready["nbd"].as_str().unwrap_or_default().to_owned();
            nodes.push(spare);
            let answer = children::run(dir, &["repair", drive, "--nodes", &address]).await?;
            Ok(((), format!("survives {} loss again", answer["repair"]["survives"])))
        };
        self.list.step(&format!("cheetah repair evidence.drive --nodes {SPARE}"), work).await
    }

    async fn make_image(&mut self) -> Result<PathBuf> {
        let path = self.dir.join("evidence.raw");
        let scratch = self.dir.join(SCRATCH);
        self.list
            .step("make a disk image of this machine's own files", async {
                std::fs::create_dir(&scratch).context("cannot create a directory")?;
                let copied = image::build(&path, &scratch).await?;
                let remark = format!("NTFS and ext4, {} files, {}", copied.files, Size(copied.bytes));
                Ok((path.clone(), remark))
            })
            .await
    }

    /// The nodes and the drive find it by themselves, as it is the only room.
    async fn make_room(&mut self) -> Result<()> {
        let dir = &self.dir;
        let work = async {
            children::run(dir, &["room", "init", ROOM]).await?;
            Ok(((), "all connections are encrypted".to_owned()))
        };
        self.list.step(&format!("cheetah room init {ROOM}"), work).await
    }

    async fn start_nodes(&mut self, image_bytes: u64) -> Result<()> {
        let memory = node_memory(image_bytes);
        let (dir, nodes) = (&self.dir, &mut self.nodes);
        let work = async {
            for name in NODES {
                nodes.push(children::node(dir, name, memory, children::ANY_PORT).await?);
            }
            Ok(((), format!("{} processes of their own", NODES.len())))
        };
        self.list.step(&format!("cheetah node --memory {memory}, three times"), work).await
    }

    async fn create_drive(&mut self, image: &Path) -> Result<String> {
        let drive = "evidence.drive".to_owned();
        let addresses: Vec<_> = self.nodes.iter().filter_map(|node| node.ready["nbd"].as_str()).collect();
        let (addresses, image) = (addresses.join(","), path_to_text(image).into_owned());
        let args = ["create", &drive, "--nodes", &addresses, "--from", &image];
        let dir = &self.dir;
        self.created = true;
        let what = "cheetah create evidence.drive --from IMAGE";
        self.list.step(what, async { Ok(((), hashes(&children::run(dir, &args).await?))) }).await?;
        let verify = async { Ok(((), hashes(&children::run(dir, &["verify", &drive]).await?))) };
        self.list.step("cheetah verify evidence.drive", verify).await?;
        Ok(drive)
    }

    async fn mount_drive(&mut self, drive: &str) -> Result<PathBuf> {
        let at = self.dir.join("mnt");
        let (dir, mount) = (&self.dir, &mut self.mount);
        let work = async {
            std::fs::create_dir(&at).context("cannot create a mount point")?;
            let service = Service::start(dir, &["mount", drive, "mnt"]).await?;
            let file = service.ready["file"].as_str().map(PathBuf::from);
            *mount = Some(service);
            let file = file.ok_or_else(|| Failure::failed("mount did not say which file it shows"))?;
            Ok((file, listing(&at)))
        };
        self.list.step("cheetah mount evidence.drive mnt", work).await
    }

    /// Stops all processes, in reverse order, and continues after a failure; returns the first failure.
    async fn tear_down(&mut self) -> Result<()> {
        image::abandon(&self.dir.join(SCRATCH)).await;
        let mut first = Ok(());
        if let Some(mount) = self.mount.take() {
            let work = async { mount.stop().await.map(|_| ((), String::new())) };
            first = first.and(self.list.step("unmount", work).await);
        }
        if std::mem::take(&mut self.created) && self.dir.join("evidence.drive").exists() {
            let dir = &self.dir;
            let work = async { children::run(dir, &["destroy", "evidence.drive"]).await.map(|_| ((), String::new())) };
            first = first.and(self.list.step("cheetah destroy evidence.drive", work).await);
        }
        for node in self.nodes.drain(..) {
            let name = node.ready["name"].as_str().unwrap_or("?").to_owned();
            let work = async { node.stop().await.map(|receipt| ((), receipt_text(&receipt))) };
            first = first.and(self.list.step(&format!("stop node {name}"), work).await);
        }
        self.ui.say("");
        first
    }
}

/// The memory of a node: one of the three holds parity for the other two, and all hold digests.
fn node_memory(image_bytes: u64) -> Size {
    let share = (image_bytes.div_ceil(NODES.len() as u64 - 1) + image_bytes / 256).next_multiple_of(MIB);
    Size(share + MARGIN_BYTES)
}

fn hashes(answer: &Value) -> String {
    answer["hashes"]["md5"].as_str().map(|md5| format!("MD5 {md5}")).unwrap_or_default()
}

fn receipt_text(answer: &Value) -> String {
    answer["receipt"].as_str().unwrap_or("no receipt").to_owned()
}

fn listing(dir: &Path) -> String {
    let mut names: Vec<_> =
        std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    names.iter().map(|name| name.to_string_lossy()).collect::<Vec<_>>().join("  ")
}

//! A source that is open, with the layers above it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cheetah_device::overlay::Overlay;
use cheetah_device::path_text::path_to_text;
use cheetah_device::{ByteRange, Device, DynDevice, Size};
use cheetah_drive::fill::{FillObserver, FillOptions, FillStage, Filling};
use cheetah_drive::{Drive, DriveFile, Image, OpenOptions, Part, Session, parts};
use cheetah_image::{Evidence, Identity, Kind, Source};
use futures::FutureExt as _;
use tokio::sync::watch;

use crate::access::{Access, OverlayPlace};
use crate::apart::named_apart;
use crate::contents::{UnreadVolume, Volume, unread, unread_volumes, volumes_within};
use crate::doubts::{claimed_behind, doubts, image_on, readable_up_to};
use crate::inner::{Beside, check_copies, copies_within, is_known_better, volumes_in, volumes_of_drive};
use crate::kind::drive_file;
use crate::layers::Layers;
use crate::open::{open, opener};
use crate::options::SourceOptions;
use crate::read_counter::ReadCounter;
use crate::reopening::Reopening;
use crate::stack::{InnerVolume, ShadowCopies, Start, VolumeStack, by_table};
use crate::stats::{SourceStats, Stats};
use crate::volume::{Shown, chosen};
use cheetah_error::{Error, Result, next};

/// A source that is open. [`OpenedSource::close`] it.
pub struct OpenedSource {
    /// Its bytes.
    pub device: DynDevice,
    /// Its name.
    pub name: String,
    /// Its identity. The serial number of a drive is its id.
    pub identity: Identity,
    /// Its lost ranges and nodes, and doubts about its content, a sentence each.
    pub lost: Vec<String>,
    /// What is in doubt about its content although all of it can be read, a sentence each ([`doubts`](crate::doubts())). Empty
    /// for a drive and behind a link, where opening must not wait for that: see [`OpenedSource::look_for_doubts`].
    pub doubts: Vec<String>,
    /// Its volumes in formats that are named and not read. Empty where `doubts` is.
    pub unread_volumes: Vec<UnreadVolume>,
    /// The source as it is read through its layers, if it is a drive or behind a link: it is looked at later.
    behind: Option<Source>,
    /// The volumes in it: encrypted ones, arrays, logical volumes.
    pub stack: Arc<VolumeStack>,
    /// The volume that `device` shows in place of the source, if it does.
    pub volume: Option<InnerVolume>,
    /// The device below an overlay, of which opened volumes are read.
    base: DynDevice,
    reached: SourceConnections,
    closing: Closing,
    meter: Option<Arc<ReadCounter>>,
    layers: Layers,
    /// Other sources that have parts of the same volumes.
    others: Vec<Self>,
}

/// The connections that it is read over.
enum SourceConnections {
    /// To servers, a sentence each; none for a file or disk of this machine.
    Servers(Vec<String>),
    /// To the nodes of a drive.
    Nodes { file: Box<DriveFile>, session: Session },
}

/// The parts that `close` closes, beside the device.
enum Closing {
    Nothing,
    Drive(Drive),
    Filling(Box<Filling>),
}

impl OpenedSource {
    /// Opens the source that the user calls `text`.
    pub async fn open(text: &str, access: &Access) -> Result<Self> {
        let others = Self::open_others(access).await?;
        let mut opened = match Self::open_beside(text, access, &beside(&others)).await {
            Ok(opened) => opened,
            Err(error) => {
                close_all(others).await?;
                return Err(error);
            }
        };
        for other in &others {
            opened.lost.extend(other.lost.iter().cloned());
            opened.doubts.extend(other.doubts.iter().map(|doubt| format!("{}: {doubt}", other.name)));
        }
        opened.others = others;
        if let Err(error) = opened.show(access) {
            opened.close().await?;
            return Err(error);
        }
        if let Some(place) = &access.overlay {
            opened.device = overlay(opened.device, place)?;
        }
        Ok(opened)
    }

    /// Opens the other sources, as they are.
    async fn open_others(access: &Access) -> Result<Vec<Self>> {
        let mut others = Vec::new();
        let alone = Access {
            writable: false,
            unlock: None,
            fill: None,
            force_lease: false,
            shown: Shown::Source,
            shadow_copies: ShadowCopies::Unasked,
            ..access.clone()
        };
        for text in &access.with {
            match Self::open_beside(text, &alone, &[]).await {
                Ok(other) => others.push(other),
                Err(error) => {
                    close_all(others).await?;
                    return Err(error);
                }
            }
        }
        Ok(others)
    }

    async fn open_beside(text: &str, access: &Access, beside: &Beside) -> Result<Self> {
        let drive = drive_file(text);
        if access.writable && drive.is_none() {
            return Err(Error::misuse(format!("{text} is evidence and only ever read")).next(next::Source::WriteApart));
        }
        let mut opened = match drive {
            Some(path) => Self::some_drive(&path, access, beside).await?,
            None => Self::source(text, access, beside).await?,
        };
        let Self { stack, unread_volumes, .. } = &mut opened;
        unread_volumes.retain(|volume| !is_known_better(volume, stack));
        Ok(opened)
    }

    /// Checks that the volumes and shadow copies that `access` names exist. Shows the volume in place of the source, if it names one.
    fn show(&mut self, access: &Access) -> Result<()> {
        check_copies(&self.stack, access, &self.identity.location)?;
        let Shown::Volume(which) = &access.shown else { return Ok(()) };
        let volume = chosen(&self.stack, &self.identity.location, which)?.clone();
        self.device = self.stack.device(self.base.clone(), &volume)?;
        self.name = format!("{}.{}", self.name, volume.name);
        self.volume = Some(volume);
        Ok(())
    }

    async fn some_drive(path: &Path, access: &Access, beside: &Beside) -> Result<Self> {
        let mut file = DriveFile::load(path)?;
        if let (Some(_), Some(observers)) = (&file.fill, &access.fill) {
            if let Some(opened) = Self::filling(&file, access, observers.of(&file.path), beside).await? {
                return Ok(opened);
            }
            // Another process has finished it.
            file = DriveFile::load(path)?;
        }
        Self::drive(&file, access, beside).await
    }

    /// Opens a drive that is not full yet; `None` if it is full by now.
    async fn filling(
        file: &DriveFile,
        access: &Access,
        observer: Arc<dyn FillObserver>,
        beside: &Beside,
    ) -> Result<Option<Self>> {
        if access.writable {
            return Err(Error::misuse(format!("{} is still being filled and can only be read", file.path.display()))
                .next(next::Source::WriteApartOrFinish));
        }
        let options = FillOptions {
            force_lease: access.force_lease,
            without_source: true,
            replace_after: access.replace_after,
            session: access.session.clone(),
            prefetch_budget: access.prefetch_bytes,
            observer: Some(observer),
        };
        let Some(filling) = Filling::open(file, opener(access.link, access.session.clone()), options).await? else {
            return Ok(None);
        };
        let device = filling.device();
        let closing = Closing::Filling(Box::new(filling));
        Ok(Some(Self::on_drive(file, (device, closing), access, beside).await))
    }

    async fn drive(file: &DriveFile, access: &Access, beside: &Beside) -> Result<Self> {
        if access.force_lease && !access.writable {
            return Err(Error::misuse(
                "the right to write or to fill is to be taken over, and this is opened for neither",
            )
            .next(next::Source::OpenWritable));
        }
        let options = OpenOptions {
            writable: access.writable,
            force_lease: access.force_lease,
            allow_lost: access.allow_lost,
            half_loaded: access.half_loaded,
            replace_after: access.replace_after,
            prefetch_budget: access.prefetch_bytes,
            ..OpenOptions::new(access.session.clone())
        };
        let drive = Drive::open(file, options).await?;
        let (device, mut lost) = (drive.device(), drive.troubles().iter().map(ToString::to_string).collect::<Vec<_>>());
        lost.extend(file.image.as_ref().and_then(Image::note).map(|note| format!("{}: {note}", file.name)));
        let opened = Self::on_drive(file, (device, Closing::Drive(drive)), access, beside).await;
        Ok(Self { lost, ..opened })
    }

    /// The drive of this file, whose device is open.
    async fn on_drive(
        file: &DriveFile,
        (device, closing): (DynDevice, Closing),
        access: &Access,
        beside: &Beside,
    ) -> Self {
        let stack = volumes_of_drive(&device, access, file, beside).await;
        Self {
            base: device.clone(),
            stack,
            volume: None,
            name: name_of(file),
            identity: drive_identity(file),
            lost: Vec::new(),
            doubts: Vec::new(),
            unread_volumes: Vec::new(),
            // A drive that is written to is no evidence. One that is being filled keeps what a look reads of its source.
            behind: (!access.writable).then(|| image_on(file, device.clone())),
            reached: SourceConnections::nodes(file, access),
            closing,
            meter: None,
            layers: Layers::default(),
            others: Vec::new(),
            device,
        }
    }

    async fn source(text: &str, access: &Access, beside: &Beside) -> Result<Self> {
        // What decrypts alters it.
        let (in_order, exclusive) = (access.in_order, access.unlock.is_some());
        let session = access.session.clone();
        let options =
            SourceOptions { trust_reconnects: false, in_order, exclusive, ..SourceOptions::new(access.link, session) };
        let Evidence { source, wire, .. } = open(text, &options).await?;
        let source = reopening(source, text, options);
        // An agent's source has the kind it has there.
        let is_remote = wire.is_some() || source.identity.kind.is_remote();
        let lost = unreadable(&source.identity).into_iter().collect();
        let (doubts, volumes) = match is_remote {
            true => (Vec::new(), Vec::new()),
            false => look(&source, access.session.timeout).await,
        };
        let reached = SourceConnections::Servers(connection(&source.identity).into_iter().collect());
        let read_up_to = readable_up_to(&source);
        let (device, meter) = ReadCounter::over(source.device);
        let (name, identity, notes) = (source.name, source.identity, source.notes);
        let (device, mut layers) = match is_remote {
            true => Layers::over(device, access)?,
            false => (device, Layers::default()),
        };
        // Above the cache, which holds ciphertext only.
        let start = match (&access.unlock, is_remote) {
            (Some(_), _) => Start::Source,
            // Other sources are named because it has parts of the same volumes, whatever its partition table says.
            (None, true) if !beside.is_empty() => Start::Source,
            (None, false) => Start::examined(&volumes),
            // Through the cache, from which tools then read the table.
            (None, true) if access.cache.is_some() || access.copies().are_asked_for() => {
                by_table(&device, identity.sector_size).await
            }
            (None, true) => Start::Nowhere,
        };
        let stack = volumes_in(&device, read_up_to, start, (access, identity.sector_size), beside).await;
        let device = layers.foresee_over(device, access, identity.sector_size, &stack);
        let through_layers = || Source { notes, ..Source::new(device.clone(), identity.clone(), name.clone()) };
        let behind = is_remote.then(through_layers);
        Ok(Self {
            base: device.clone(),
            device,
            stack,
            volume: None,
            name,
            identity,
            lost,
            doubts,
            unread_volumes: volumes.iter().filter_map(unread).collect(),
            behind,
            reached,
            closing: Closing::Nothing,
            meter: Some(meter),
            layers,
            others: Vec::new(),
        })
    }

    /// Looks for doubts about a drive or a source behind a link, through its layers, so that no byte crosses the link twice. `None`
    /// for a source of this machine, whose doubts are known. `patience` is how long the look may take.
    pub fn look_for_doubts(&self, patience: Duration) -> Option<impl Future<Output = Vec<String>> + Send + use<>> {
        let source = self.behind.clone()?;
        Some(async move { doubts(&source, patience).await })
    }

    /// Looks for its volumes that are not read, as [`Self::look_for_doubts`] looks for doubts.
    pub fn look_for_unread_volumes(
        &self,
        patience: Duration,
    ) -> Option<impl Future<Output = Vec<UnreadVolume>> + Send + use<>> {
        let (source, stack) = (self.behind.clone()?, Arc::clone(&self.stack));
        Some(async move {
            let mut volumes = unread_volumes(&source, patience).await;
            volumes.retain(|volume| !is_known_better(volume, &stack));
            volumes
        })
    }

    /// Looks for shadow copies of its NTFS volumes, as [`Self::look_for_doubts`] looks for doubts. `None` if they are listed in
    /// `stack`.
    pub fn look_for_shadow_copies(
        &self,
        patience: Duration,
    ) -> Option<impl Future<Output = VolumeStack> + Send + use<>> {
        let source = self.behind.clone().filter(|_| !self.stack.lists_copies)?;
        Some(async move { copies_within(&source, patience).await })
    }

    /// Waits until the metadata of a source behind a link was fetched ahead of tools, if that is done. A look before that would
    /// delay what tools read first.
    pub fn settled(&self) -> impl Future<Output = ()> + Send + use<> {
        self.layers.settled()
    }

    /// Returns every doubt about it: those that were found when it was opened, and those of a later look, which may
    /// take `patience`.
    pub async fn all_doubts(&self, patience: Duration) -> Vec<String> {
        let mut doubts = self.doubts.clone();
        if let Some(looking) = self.look_for_doubts(patience) {
            doubts.extend(looking.await);
        }
        doubts
    }

    /// Returns the range behind its end that its partition tables and file systems claim to have, so that nothing of it can be searched.
    /// `None` if they claim none, and of a volume that is shown in place of a source. The look may take `patience`.
    pub fn claimed_behind(&self, patience: Duration) -> impl Future<Output = Option<ByteRange>> + Send + use<> {
        let own = || Source::new(self.base.clone(), self.identity.clone(), self.name.clone());
        let source = self.volume.is_none().then(|| self.behind.clone().unwrap_or_else(own));
        async move { claimed_behind(&source?, patience).await }
    }

    /// Returns the volumes in it, each with the end of its name: opened ones, decrypted: `p2.unlocked`, or `unlocked` for the whole
    /// source; arrays: `md_name`; logical volumes: `group-name`; and what was found in these: `md_name.p1`, `group-name.unlocked`.
    ///
    /// # Errors
    ///
    /// If a volume lies beyond the source.
    pub fn inner_volumes(&self) -> Result<Vec<(String, DynDevice)>> {
        self.stack.devices(self.base.clone())
    }

    /// Returns the whole of it with the opened volumes decrypted in their places, and behind its end the volumes that lie in several
    /// pieces.
    ///
    /// # Errors
    ///
    /// If a volume lies beyond the source.
    pub fn with_inner_volumes(&self) -> Result<DynDevice> {
        self.stack.over(self.base.clone())
    }

    /// Returns the whole of it with the opened volumes decrypted in their places; what is on the disk, if no key opened one.
    ///
    /// # Errors
    ///
    /// As [`inner_volumes`](Self::inner_volumes).
    pub fn decrypted(&self) -> Result<DynDevice> {
        match self.stack.is_decrypted() {
            true => self.stack.in_place(self.base.clone()),
            false => Ok(self.device.clone()),
        }
    }

    /// Returns its size.
    pub fn size(&self) -> u64 {
        self.device.geometry().size
    }

    /// Returns the file of the drive that it is, if it is one.
    pub fn drive_file(&self) -> Option<&DriveFile> {
        match &self.reached {
            SourceConnections::Servers(_) => None,
            SourceConnections::Nodes { file, .. } => Some(file),
        }
    }

    /// Returns the file of the drive that it is, and what it was opened with.
    pub(crate) fn nodes(&self) -> Option<(&DriveFile, &Session)> {
        match &self.reached {
            SourceConnections::Servers(_) => None,
            SourceConnections::Nodes { file, session } => Some((file, session)),
        }
    }

    /// Returns its parts of `part_bytes`, and the hosts that hold them: none for what is no drive.
    ///
    /// # Errors
    ///
    /// If the parts would be too many, or the drive's newest maps cannot be had.
    pub async fn parts(&self, part_bytes: u64) -> Result<Vec<Part>> {
        match &self.reached {
            SourceConnections::Nodes { file, session } => parts(file, part_bytes, session).await,
            SourceConnections::Servers(_) => Part::divide(self.size(), part_bytes),
        }
    }

    /// The identities of the other sources that have parts of the same volumes.
    pub fn beside(&self) -> impl Iterator<Item = &Identity> {
        self.others.iter().map(|other| &other.identity)
    }

    /// Whether it is a file or a disk of this machine.
    pub fn is_here(&self) -> bool {
        self.behind.is_none()
    }

    /// Whether it has foresight, which fetches known files ahead of reads.
    pub fn is_foreseen(&self) -> bool {
        self.layers.foresee()
    }

    /// Returns the progress of a lazy drive's filling.
    pub fn filled(&self) -> Option<watch::Receiver<FillStage>> {
        match &self.closing {
            Closing::Filling(filling) => Some(filling.stage()),
            Closing::Nothing | Closing::Drive(_) => None,
        }
    }

    /// Returns how the connections that it is read over are protected, a sentence for each server; none for a file or disk of
    /// this machine. The nodes of a drive are asked now; the source of a drive that is being filled is not included.
    ///
    /// # Errors
    ///
    /// If too few nodes of a redundant drive answer to know its nodes.
    pub async fn connections(&self) -> Result<Vec<String>> {
        match &self.reached {
            SourceConnections::Servers(sentences) => Ok(sentences.clone()),
            SourceConnections::Nodes { file, session } => cheetah_drive::status::connections(file, session).await,
        }
    }

    /// Returns the counters of the source and its layers.
    pub fn stats(&self) -> Stats {
        let source = self.meter.as_ref().map(|meter| SourceStats { requests: meter.requests(), bytes: meter.bytes() });
        let mut stats = Stats { source, ..Stats::default() };
        match &self.closing {
            Closing::Drive(drive) => stats.prefetch = drive.prefetch_stats(),
            Closing::Filling(filling) => stats.prefetch = filling.prefetch_stats(),
            Closing::Nothing => self.layers.count(&mut stats),
        }
        stats
    }

    /// Flushes writes and closes it.
    pub async fn close(self) -> Result<()> {
        let stats = self.stats().prefetch;
        if let Some(stats) = stats {
            let (fetched, unused) = (Size(stats.prefetched_bytes), Size(stats.unused_bytes + stats.held_bytes));
            tracing::info!(
                "prefetch: {fetched} fetched ahead, of which {unused} not used; {} of {} reads answered from memory",
                stats.hits,
                stats.hits + stats.misses + stats.waits
            );
        }
        self.layers.log();
        drop((self.device, self.base, self.stack, self.layers));
        // The lease of a drive must be released even if another source fails to close.
        let mut closed = self.closing.close().await;
        for other in self.others {
            drop((other.device, other.base, other.stack, other.layers));
            closed = closed.and(other.closing.close().await);
        }
        closed
    }
}

impl Closing {
    async fn close(self) -> Result<()> {
        match self {
            Self::Drive(drive) => Ok(drive.close().await?),
            Self::Filling(filling) => Ok(filling.close().await?),
            Self::Nothing => Ok(()),
        }
    }
}

async fn close_all(sources: Vec<OpenedSource>) -> Result<()> {
    for source in sources {
        source.close().await?;
    }
    Ok(())
}

/// The names and the devices of other sources.
fn beside(others: &[OpenedSource]) -> Vec<(String, DynDevice)> {
    named_apart(others.iter().map(|other| (other.name.as_str(), &other.base)))
}

/// What is in doubt about a source, and its volumes.
async fn look(source: &Source, patience: Duration) -> (Vec<String>, Vec<Volume>) {
    (doubts(source, patience).await, volumes_within(source, patience).await)
}

impl SourceConnections {
    fn nodes(file: &DriveFile, access: &Access) -> Self {
        Self::Nodes { file: Box::new(file.clone()), session: access.session.clone() }
    }
}

/// Returns how the connection to a source's server is protected; `None` for a file or disk of this machine.
fn connection(identity: &Identity) -> Option<String> {
    match identity.kind {
        Kind::Iscsi => Some("in clear: iSCSI encrypts nothing".to_owned()),
        _ => identity.server.as_ref()?.transport.clone(),
    }
}

/// Returns the source with a device that opens it again when a connection is lost. An agent's source stays as it is: its client
/// reconnects, to the same process only.
fn reopening(source: Source, text: &str, options: SourceOptions) -> Source {
    let identity = &source.identity;
    if !matches!(identity.kind, Kind::Nbd | Kind::Iscsi) || identity.instance().is_some() {
        return source;
    }
    let (spec, patience) = (text.to_owned(), options.session.timeout);
    let again = move || {
        let (spec, options) = (spec.clone(), options.clone());
        async move { open(&spec, &options).await }.boxed()
    };
    let device = Reopening::over(source.device.clone(), identity.clone(), patience, Box::new(again));
    Source { device, ..source }
}

/// Returns a sentence about the ranges that an image records as unreadable.
fn unreadable(identity: &Identity) -> Option<String> {
    let bytes = identity.unreadable.iter().map(|range| range.len).sum();
    let ranges = identity.unreadable.len();
    let what = if ranges == 1 { "one range".to_owned() } else { format!("{ranges} ranges") };
    (ranges > 0).then(|| {
        format!(
            "{}: the image itself does not have {what} ({} in all); reading there fails",
            identity.location,
            Size(bytes)
        )
    })
}

/// Returns the name under which a drive is shown: that of its file, which may be a copy with another name.
fn name_of(file: &DriveFile) -> String {
    file.path.file_stem().and_then(|stem| stem.to_str()).map_or_else(|| file.name.clone(), str::to_owned)
}

/// Returns the identity of a drive.
fn drive_identity(file: &DriveFile) -> Identity {
    let identity = Identity::new(Kind::Drive, path_to_text(&file.path), file.size);
    let sector_size = file.image.as_ref().and_then(|image| image.sector_size);
    Identity { serial: Some(file.id.clone()), sector_size, ..identity }
}

fn overlay(base: DynDevice, place: &OverlayPlace) -> Result<DynDevice> {
    Ok(match place {
        OverlayPlace::Memory(limit) => Arc::new(Overlay::in_memory(base, limit.0)),
        OverlayPlace::File(path) => {
            Arc::new(Overlay::in_file(base, path).map_err(Error::device("making the overlay"))?)
        }
    })
}

//! The look for volumes: one rule, for a source as for each volume that is found in it.
//!
//! A member of an array is that and nothing else. Another volume may be a physical volume of LVM2; or encrypted, so that keys are tried
//! on it; or if it has no known format, its partition table counts, or the keys that need no format.
//!
//! Each turn looks at what the turn before found. The parts of an array or of a group may be found in different turns, so it is put
//! together when all of them are there, and without some of them only when nothing else is found.
//!
//! The shadow copies of an NTFS volume are listed (`copies`). They are shown only if they are asked for, and not looked at again. Those of a
//! volume whose boot sector was wiped are named.

mod copies;

use std::collections::HashSet;

use cheetah_device::visible::OneLine;
use cheetah_device::window::Window;
use cheetah_device::{ByteRange, DynDevice};
use cheetah_unlock::{Candidate, Keys, Place, Unlocking};
use cheetah_volume::assembly::PLACES_MAX;
use cheetah_volume::formats::{Format, LVM2};
use cheetah_volume::partition::{Partition, SectorSize, read_tables};
use cheetah_volume::vss::Budget;
use cheetah_volume::{lvm, md};
use futures::{StreamExt as _, stream};

use super::copies::ShadowCopies;
use super::found::VolumeStack;
use super::limits::{AT_ONCE, DEPTH_MAX, PARTITIONS_MAX, TURNS_MAX, VOLUMES_MAX, next_place};
use super::not_shown::NotShown;
use super::start::Start;
use super::step::{Other, Step};
use super::volume::{Assembled, Content, InnerVolume};

/// The kind of file system that has shadow copies.
const NTFS: &str = "ntfs";

/// How volumes are looked for.
#[derive(Clone, Default)]
pub(crate) struct How<'a> {
    /// The keys that are tried on encrypted volumes.
    pub keys: Option<&'a Keys>,
    /// The size of sectors, in which partition tables count.
    pub sectors: SectorSize,
    /// Other sources that may have parts of the same volumes, with names that differ.
    pub others: &'a [(String, DynDevice)],
    /// The shadow copies that are asked for.
    pub copies: ShadowCopies,
}

/// Looks for the volumes in the source that `base` shows.
pub(crate) async fn find(base: DynDevice, start: Start, how: How<'_>) -> VolumeStack {
    let unlocking = match how.keys {
        Some(keys) => Some(Unlocking::new(keys).await),
        None => None,
    };
    let mut finder = Finder::new(base, unlocking, how.sectors, how.copies);
    finder.begin(start, how.others);
    for _ in 0..TURNS_MAX {
        if !finder.turn().await {
            break;
        }
    }
    finder.finish()
}

/// A place, and the number of volumes that it lies in.
#[derive(Debug, Clone)]
struct Seen {
    place: Place,
    depth: u32,
}

/// A volume that was examined.
struct Looked {
    candidate: Candidate,
    depth: u32,
    partitions: Vec<Partition>,
}

impl Looked {
    fn place(&self) -> &Place {
        &self.candidate.place
    }

    fn seen(&self) -> Seen {
        Seen { place: self.place().clone(), depth: self.depth }
    }

    fn has_superblock(&self) -> bool {
        self.candidate.content.formats.iter().any(Format::is_linux_raid)
    }

    fn is_for_lvm(&self) -> bool {
        self.candidate.content.formats.iter().any(|format| format.name == LVM2)
    }

    /// Whether it may have shadow copies: as an NTFS volume, or as one whose boot sector was wiped.
    fn may_have_copies(&self) -> bool {
        let content = &self.candidate.content;
        let is_unknown = !content.has_format() && content.unread.is_none() && self.partitions.is_empty();
        is_unknown || content.formats.iter().any(|format| format.family == NTFS)
    }

    /// Whether a key may open it.
    fn may_be_locked(&self) -> bool {
        let is_unknown = !self.candidate.content.has_format() && self.partitions.is_empty();
        self.candidate.locked_format().is_some() || is_unknown
    }
}

struct Finder<'a> {
    /// The source, with the steps so far over it.
    device: DynDevice,
    stack: VolumeStack,
    unlocking: Option<Unlocking<'a>>,
    sectors: SectorSize,
    /// The shadow copies that are asked for.
    copies: ShadowCopies,
    /// What their stores may still take.
    store_budget: Budget,
    /// What is to be looked at.
    new: Vec<Seen>,
    /// Where file systems may be that are looked at for shadow copies alone.
    file_systems: Vec<Seen>,
    /// What was examined before the look.
    examined: Vec<Candidate>,
    /// Where superblocks of arrays are, and labels of physical volumes.
    members: Vec<Seen>,
    physical: Vec<Seen>,
    /// What can be put together of them.
    arrays: md::Assembly,
    groups: lvm::Assembly,
    /// The identifiers of what is shown.
    shown: HashSet<String>,
    /// The names of the volumes that have partitions.
    divided: HashSet<String>,
}

impl<'a> Finder<'a> {
    fn new(device: DynDevice, unlocking: Option<Unlocking<'a>>, sectors: SectorSize, copies: ShadowCopies) -> Self {
        Self {
            device,
            stack: VolumeStack::default(),
            unlocking,
            sectors,
            copies,
            store_budget: Budget::default(),
            new: Vec::new(),
            file_systems: Vec::new(),
            examined: Vec::new(),
            members: Vec::new(),
            physical: Vec::new(),
            arrays: md::Assembly::default(),
            groups: lvm::Assembly::default(),
            shown: HashSet::new(),
            divided: HashSet::new(),
        }
    }

    fn begin(&mut self, start: Start, others: &[(String, DynDevice)]) {
        let seen = |place| Seen { place, depth: 0 };
        self.stack.lists_copies = match &start {
            Start::Source | Start::Examined(_) => true,
            Start::Nowhere => false,
            Start::Named { .. } => self.copies.are_asked_for(),
        };
        match start {
            Start::Nowhere => {}
            Start::Source => {
                let range = ByteRange::new(0, self.device.geometry().size);
                self.new.push(seen(Place { range, ..Place::default() }));
            }
            Start::Examined(volumes) => self.examined = volumes,
            Start::Named { members, physical, file_systems } => {
                self.members = members.into_iter().map(seen).collect();
                self.physical = physical.into_iter().map(seen).collect();
                if self.copies.are_asked_for() {
                    if file_systems.len() > PARTITIONS_MAX {
                        self.note_too_many(PARTITIONS_MAX, "partitions");
                    }
                    self.file_systems = file_systems.into_iter().take(PARTITIONS_MAX).map(seen).collect();
                }
            }
        }
        let (mut end, mut beside) = (self.device.geometry().size, Vec::new());
        for (index, (name, device)) in others.iter().enumerate() {
            let Some(range) = next_place(end, device.geometry().size) else {
                self.note(NotShown::LargeSource(name.clone()));
                continue;
            };
            end = range.end();
            beside.push(Other { offset: range.offset, index, device: DynDevice::clone(device) });
            self.new.push(seen(Place { partition: None, inside: name.clone(), range }));
        }
        if !beside.is_empty() {
            self.push(Step::Beside(beside));
        }
    }

    /// Looks at what is new, and shows what that adds; returns whether there is something to look at again.
    async fn turn(&mut self) -> bool {
        let looked = self.look().await;
        looked.iter().for_each(|one| self.note_unread(one));
        self.members.extend(looked.iter().filter(|one| one.has_superblock()).map(Looked::seen));
        if !self.members.is_empty() {
            self.note_left_out(self.members.len(), "members of arrays");
            self.arrays = md::assemble(&*self.device, &ranges(&self.members)).await;
        }
        self.sort(looked).await;
        let arrays: Vec<_> = self.arrays.volumes.iter().cloned().map(Assembled::Array).collect();
        self.show_all(arrays.iter().filter(|one| one.is_whole()));
        if !self.new.is_empty() {
            return true;
        }
        self.physical.retain(|one| !self.arrays.places.contains(&one.place.range));
        if !self.physical.is_empty() {
            self.note_left_out(self.physical.len(), "physical volumes");
            self.groups = lvm::assemble(&*self.device, &ranges(&self.physical)).await;
        }
        let groups: Vec<_> = self.groups.volumes.iter().cloned().map(Assembled::Logical).collect();
        self.show_all(groups.iter().filter(|one| one.is_whole()));
        for incomplete in [&arrays, &groups] {
            if self.new.is_empty() {
                self.show_all(incomplete.iter());
            }
        }
        !self.new.is_empty()
    }

    /// Examines what is new.
    async fn look(&mut self) -> Vec<Looked> {
        let known = std::mem::take(&mut self.examined).into_iter();
        let mut looked: Vec<_> =
            known.map(|candidate| Looked { candidate, depth: 0, partitions: Vec::new() }).collect();
        let (device, sectors) = (&self.device, self.sectors);
        // The table of a source that was examined before is known, too.
        let is_known = |one: &Looked| one.place().partition.is_none();
        let known: Vec<_> =
            looked.iter_mut().filter(|one| !is_known(one)).map(|one| add_partitions(device, one, sectors)).collect();
        stream::iter(known).buffered(AT_ONCE).collect::<Vec<()>>().await;
        let looks: Vec<_> =
            std::mem::take(&mut self.new).into_iter().map(|one| examine(device, one, sectors)).collect();
        looked.extend(stream::iter(looks).buffered(AT_ONCE).collect::<Vec<_>>().await);
        looked
    }

    /// Keeps physical volumes, tries keys, and adds partitions to what is to be looked at.
    async fn sort(&mut self, looked: Vec<Looked>) {
        let in_use: Vec<_> = looked.iter().filter(|one| self.is_in_use(one)).map(|one| one.place().clone()).collect();
        let (mut candidates, mut divided) = (Vec::new(), Vec::new());
        let mut file_systems = std::mem::take(&mut self.file_systems);
        file_systems.retain(|one| !self.arrays.places.contains(&one.place.range));
        for one in looked {
            // A partition of a disk that is a member as a whole is found again in the array.
            let is_of_member = |member: &Place| member.inside == one.place().inside && member.partition.is_none();
            if in_use.iter().any(is_of_member) || in_use.contains(one.place()) {
                continue;
            }
            if self.arrays.places.contains(&one.place().range) {
                // Perhaps the superblock is what remains of an array that was here before the partitions.
                divided.push(one);
                continue;
            }
            if one.may_have_copies() {
                file_systems.push(one.seen());
            }
            if one.is_for_lvm() {
                self.physical.push(one.seen());
            } else if one.may_be_locked() {
                candidates.push((one.candidate.clone(), one.depth));
            }
            divided.push(one);
        }
        let opened = self.unlock(&candidates).await;
        for one in divided.iter().filter(|one| !opened.contains(one.place())) {
            self.divide(one);
        }
        self.list_copies(file_systems).await;
    }

    /// Whether a volume is a member of an array that can be put together.
    fn is_in_use(&self, one: &Looked) -> bool {
        let range = one.place().range;
        let holds = |array: &md::Array| array.ranges().iter().any(|part| range.contains(*part));
        self.arrays.places.contains(&range) && self.arrays.volumes.iter().any(holds)
    }

    /// Tries the keys on volumes; returns the places of those that are open.
    async fn unlock(&mut self, candidates: &[(Candidate, u32)]) -> Vec<Place> {
        let Some(unlocking) = &mut self.unlocking else { return Vec::new() };
        let before = unlocking.opened().len();
        let volumes: Vec<_> = candidates.iter().map(|(candidate, _)| candidate.clone()).collect();
        let layer = unlocking.unlock(&self.device, &volumes).await;
        let opened = unlocking.opened()[before..].to_vec();
        if layer.is_empty() || !self.push(Step::Decrypted(layer)) {
            return Vec::new();
        }
        let mut places = Vec::new();
        for volume in opened {
            let is_held = |(candidate, _): &&(Candidate, u32)| {
                (&candidate.place.inside, candidate.place.partition) == (&volume.inside, volume.partition)
            };
            let Some((candidate, depth)) = candidates.iter().find(is_held) else { continue };
            places.push(candidate.place.clone());
            let (name, range) = (volume.suffix(), volume.range());
            let place = Place { partition: None, inside: name.clone(), range };
            self.add(name, Content::Opened(volume), Seen { place, depth: depth + 1 });
        }
        places
    }

    /// Adds the partitions of a volume: those of the source are looked at, and those of others are shown, too.
    fn divide(&mut self, holder: &Looked) {
        let inside = holder.place().name();
        // Those of a source are no part of another volume.
        let is_source = holder.depth == 0 && holder.place().partition.is_none();
        if holder.partitions.len() > PARTITIONS_MAX {
            let holder = if inside.is_empty() { "it".to_owned() } else { OneLine(&inside).to_string() };
            self.note(NotShown::TooMany { max: PARTITIONS_MAX, kind: "partitions", holder });
        }
        for partition in holder.partitions.iter().take(PARTITIONS_MAX) {
            let range = partition.range.shifted(holder.place().range.offset);
            let place = Place { partition: Some(partition.number), inside: inside.clone(), range };
            if is_source {
                self.new.push(Seen { place, depth: 0 });
                continue;
            }
            self.divided.insert(inside.clone());
            let description = partition.description.clone();
            let content = Content::Partition { of: inside.clone(), number: partition.number, description };
            self.add(place.name(), content, Seen { place, depth: holder.depth + 1 });
        }
    }

    /// Shows volumes that are put together, and that are not shown yet.
    fn show_all<'b>(&mut self, volumes: impl Iterator<Item = &'b Assembled>) {
        let parts = self.members.iter().chain(&self.physical);
        let depth = parts.map(|one| one.depth).max().unwrap_or(0) + 1;
        let new: Vec<_> = volumes.filter(|volume| self.shown.insert(volume.id().to_owned())).cloned().collect();
        self.place(new, depth);
    }

    /// Gives volumes that lie in others, `depth` of them, their places, and shows them.
    fn place(&mut self, volumes: Vec<Assembled>, depth: u32) {
        let (mut end, mut behind) = (self.device.geometry().size, Vec::new());
        let mut found = Vec::new();
        for volume in volumes {
            let in_one_piece = volume.in_one_piece();
            let Some(range) = in_one_piece.or_else(|| next_place(end, volume.size_bytes())) else {
                self.note(NotShown::LargeVolume(volume.description()));
                continue;
            };
            end = end.max(range.end());
            if in_one_piece.is_none() {
                behind.push((range.offset, volume.clone()));
            }
            found.push((volume, range));
        }
        let below = self.stack.steps.len();
        if !behind.is_empty() && !self.push(Step::Behind(behind)) {
            return;
        }
        for (volume, range) in found {
            let name = self.free_name(&volume);
            let place = Place { partition: None, inside: name.clone(), range };
            self.add_over(below, name, Content::Assembled(volume), Seen { place, depth });
        }
    }

    /// The name of a volume, which no other one has.
    fn free_name(&self, volume: &Assembled) -> String {
        let label = volume.label();
        match self.stack.volumes.iter().any(|known| known.name == label) {
            true => format!("{label}_{}", volume.id().replace(':', "")),
            false => label,
        }
    }

    /// Adds a volume that lies in the device as it is now.
    fn add(&mut self, name: String, content: Content, seen: Seen) {
        self.add_over(self.stack.steps.len(), name, content, seen);
    }

    fn add_over(&mut self, below: usize, name: String, content: Content, seen: Seen) {
        if self.stack.volumes.len() >= VOLUMES_MAX {
            self.note_too_many(VOLUMES_MAX, "volumes");
            return;
        }
        if self.stack.volumes.iter().any(|known| known.name == name) {
            self.note(NotShown::SameName(name));
            return;
        }
        let is_looked_at = !matches!(content, Content::Assembled(Assembled::Snapshot { .. }));
        self.stack.volumes.push(InnerVolume { name, content, range: seen.place.range, is_used: false, below });
        if !is_looked_at {
            return;
        }
        if seen.depth <= DEPTH_MAX {
            self.new.push(seen);
        } else {
            self.note(NotShown::TooDeep(seen.place.name()));
        }
    }

    /// Puts a step over the device.
    fn push(&mut self, step: Step) -> bool {
        match step.over(DynDevice::clone(&self.device)) {
            Ok(device) => {
                self.device = device;
                self.stack.steps.push(step);
                true
            }
            Err(why) => {
                self.note(NotShown::Step(why));
                false
            }
        }
    }

    /// Says that not all parts of one kind are examined, if so.
    fn note_left_out(&mut self, count: usize, kind: &'static str) {
        if count > PLACES_MAX {
            self.note_too_many(PLACES_MAX, kind);
        }
    }

    /// Says that the source has more of a kind than a limit.
    fn note_too_many(&mut self, max: usize, kind: &'static str) {
        self.note(NotShown::TooMany { max, kind, holder: "it".to_owned() });
    }

    /// Says that a volume could not be examined, if so. Of the source and its partitions, others say it.
    fn note_unread(&mut self, one: &Looked) {
        let (place, content) = (one.place(), &one.candidate.content);
        if let (Some(why), true) = (&content.unread, content.formats.is_empty() && !place.inside.is_empty()) {
            self.note(NotShown::Unread { name: place.name(), why: why.clone() });
        }
    }

    fn note(&mut self, one: NotShown) {
        let known = &mut self.stack.not_opened;
        if !known.contains(&one) {
            known.push(one);
        }
    }

    fn finish(self) -> VolumeStack {
        let Self { mut stack, unlocking, members, physical, arrays, groups, divided, .. } = self;
        let of_arrays = arrays.not_opened.iter().cloned().map(NotShown::Array);
        let of_groups = groups.not_opened.iter().cloned().map(NotShown::Logical);
        stack.not_opened.splice(0..0, of_arrays.chain(of_groups));
        let is_part = |one: &&Seen| {
            let range = &one.place.range;
            arrays.places.contains(range) || groups.places.contains(range)
        };
        let parts: Vec<_> = members.iter().chain(&physical).filter(is_part).map(|one| &one.place).collect();
        let opened = unlocking.as_ref().map(Unlocking::opened).unwrap_or_default();
        let opened = opened.iter().map(|volume| Place {
            partition: volume.partition,
            inside: volume.inside.clone(),
            range: volume.range(),
        });
        let mut used = divided;
        used.extend(opened.map(|place| place.name()));
        used.extend(parts.iter().map(|place| place.name()));
        stack.volumes.iter_mut().for_each(|volume| volume.is_used = used.contains(&volume.name));
        stack.used = parts.iter().filter(|place| place.inside.is_empty()).map(|place| place.partition).collect();
        let is_shown = |name: &str| stack.volumes.iter().any(|volume| volume.name == name);
        stack.copies.iter_mut().for_each(|copy| copy.is_shown = is_shown(&copy.name));
        stack.unlocked = unlocking.map(Unlocking::finish);
        stack
    }
}

fn ranges(places: &[Seen]) -> Vec<ByteRange> {
    places.iter().map(|one| one.place.range).collect()
}

/// Examines a volume, and its partition table if that counts.
async fn examine(device: &DynDevice, Seen { place, depth }: Seen, sectors: SectorSize) -> Looked {
    let candidate = Candidate::examine(device, place).await;
    let mut looked = Looked { candidate, depth, partitions: Vec::new() };
    add_partitions(device, &mut looked, sectors).await;
    looked
}

/// Reads the partition table of a source; of another volume, unless it has a known format.
async fn add_partitions(device: &DynDevice, looked: &mut Looked, sectors: SectorSize) {
    let place = looked.place();
    let is_source = looked.depth == 0 && place.partition.is_none();
    let is_known = !looked.candidate.content.formats.iter().all(Format::is_linux_raid);
    if is_known && !is_source {
        return;
    }
    let Ok(window) = Window::new(DynDevice::clone(device), place.range) else { return };
    let tables = read_tables(&window, sectors).await;
    looked.partitions = tables.partitions;
}

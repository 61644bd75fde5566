//! The journal in its folder.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cheetah_carve::{CarvedFile, Progress};
use cheetah_device::ByteRange;
use cheetah_device::coverage::State as Reach;
use cheetah_drive::WorkDone;
use cheetah_error::next::Search as Step;
use cheetah_error::{Error, Result};
use cheetah_image::append::Appender;
use cheetah_image::own_file::NotOurs;
use cheetah_kit::file::{FileId, try_lock};
use cheetah_kit::folder::Folder;
use cheetah_search::{Batch, InnerHit, Search};

use super::again::{lost, reach_bytes, settled};
use super::check::{check_kept, check_names, kept};
use super::errors::{altered, damaged, no_journal, not_ours, not_ours_because, other_search, reading, writing};
use super::group::{Batches, Group, read_group};
use super::keep::KeptFile;
use super::lines::{Check, FIRST, line};
use super::names::{CARVED, NAME, NEXT, Names};
use super::near::Near;
use super::record::{CarvedFiles, CarvedRow, InnerRow, InsidePlaces, RangePart, Record, TruncatedRow};
use super::scan::{is_journal, read, read_start};
use super::start::Start;
use super::state::{Place, State, numbers_of};
use crate::search::inside::Inside;

/// What is collected before it is appended to the file.
const LINES_BYTES: usize = 8 << 20;

/// The journal of a search, open for this process alone, in its folder.
pub struct Journal {
    folder: Folder,
    path: PathBuf,
    file: Appender<File>,
    /// The length of the file, and the check of its last record.
    end: u64,
    check: Check,
    state: State,
    search: Arc<Search>,
    group: Group,
    /// Lines of the group, and where it begins.
    lines: Vec<u8>,
    place: Place,
    /// What nodes had searched when this process began, and the same now.
    near: Option<Near>,
    near_before: Near,
    /// Ranges near the end of the last group that were searched before, and cannot be read now.
    lost: Vec<ByteRange>,
}

impl Journal {
    /// Begins a search that writes to the folder `path`, or goes on with it. Nothing in the folder is changed if it cannot.
    ///
    /// # Errors
    ///
    /// `Kind::Misuse` if the folder holds something else, is a link, is the one of another search
    /// ([`OtherSearch`](super::OtherSearch)), or another process searches into it; `Kind::Evidence` if the source has other content, or if the journal or a file that was kept was altered.
    pub fn open(path: &Path, names: Names, start: Start, search: Arc<Search>) -> Result<Self> {
        match Folder::open(path) {
            Ok(folder) => Self::go_on(folder, path, names, start, search),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let making = |error: io::Error| Error::io(format_args!("making the folder {}", path.display()), &error);
                let folder = Folder::make(path).map_err(making)?;
                Self::begin(folder, path, start, search)
            }
            Err(error) => Err(not_ours(path, &error)),
        }
    }

    /// Begins in an empty folder.
    fn begin(folder: Folder, path: &Path, start: Start, search: Arc<Search>) -> Result<Self> {
        let failed = |error: io::Error| writing(path, &error);
        let file = folder.create(NAME).map_err(failed)?;
        lock(&folder, &file, path)?;
        Self::begin_in(folder, file, path, start, search)
    }

    /// Begins in a journal in which there is nothing.
    fn begin_in(folder: Folder, file: File, path: &Path, start: Start, search: Arc<Search>) -> Result<Self> {
        let failed = |error: io::Error| writing(path, &error);
        let record = Record::Start(Box::new(start.clone()));
        let mut journal = Self::of(folder, path, (file, 0, FIRST), State::new(start), search);
        journal.file.cut_back(0).map_err(failed)?;
        journal.append(&record)?;
        journal.write(true)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        journal.folder.sync().and_then(|()| cheetah_kit::file::sync_folder(parent)).map_err(failed)?;
        Ok(journal)
    }

    fn of(
        folder: Folder,
        path: &Path,
        (file, end, check): (File, u64, Check),
        state: State,
        search: Arc<Search>,
    ) -> Self {
        let near_before = state.near.clone().unwrap_or_default();
        Self {
            folder,
            path: path.to_owned(),
            file: Appender::new(file, end),
            end,
            check,
            state,
            search,
            group: Group::new(0),
            lines: Vec::new(),
            place: Place { at: end, before: check },
            near: None,
            near_before,
            lost: Vec::new(),
        }
    }

    /// Goes on in a folder that exists.
    fn go_on(folder: Folder, path: &Path, names: Names, start: Start, search: Arc<Search>) -> Result<Self> {
        let has_more = check_names(&folder, path, names)?;
        let file = match folder.append(NAME) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return if has_more { Err(no_journal(path)) } else { Self::begin(folder, path, start, search) };
            }
            Err(error) => return Err(not_ours(&path.join(NAME), &error)),
        };
        lock(&folder, &file, path)?;
        if !is_journal(&file).map_err(|error| reading(path, &error))? {
            return Err(not_ours_because(&path.join(NAME), NotOurs::OtherContent("journal")));
        }
        // The hits of another search are none of this one.
        let begun = read_start(&file).map_err(|error| reading(path, &error))?;
        let differences = begun.map(|begun| begun.differences(&start, false)).unwrap_or_default();
        if !differences.is_empty() {
            return Err(other_search(path, differences));
        }
        let read = read(&file, &search).map_err(|error| reading(path, &error))?;
        let Some((state, end, check)) = read.map_err(|(line, why)| damaged(path, line, why))? else {
            return if has_more { Err(no_journal(path)) } else { Self::begin_in(folder, file, path, start, search) };
        };
        let differences = state.start.differences(&start, state.is_begun());
        if !differences.is_empty() {
            return Err(other_search(path, differences));
        }
        check_kept(&folder, path, &state)?;
        let mut journal = Self::of(folder, path, (file, end, check), state, search);
        journal.file.cut_back(end).map_err(|error| writing(path, &error))?;
        journal.folder.remove(NEXT).map_err(|error| writing(path, &error))?;
        Ok(journal)
    }

    /// How far the search has come.
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// The folder of the result.
    pub const fn folder(&self) -> &Folder {
        &self.folder
    }

    /// The ranges that are to be searched; none if all was searched.
    pub fn todo(&self) -> Vec<ByteRange> {
        self.state.todo(self.search.overlap())
    }

    /// Says what was searched where since this process goes on.
    pub fn searched_near(&mut self, done: &WorkDone) {
        self.near = Some(self.near_before.and(done));
    }

    /// Whether [`Self::store`] is due, by the size or the age of the group. Where ranges are searched again, a group ends only when it
    /// is known which of its neighbours can be read.
    pub fn is_due(&self) -> bool {
        self.group.is_due() && (self.group.is_overdue() || self.may_end())
    }

    /// Whether nothing that follows was read before.
    pub(super) fn may_end(&self) -> bool {
        let ahead = ByteRange::new(self.group.range.end(), reach_bytes(self.search.overlap()));
        self.state.coverage.runs(ahead).all(|(_, reach)| reach != Reach::Read)
    }

    /// Adds a result. It is stored with others, at [`Self::store`] or before.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn add(&mut self, batch: &Batch) -> Result<()> {
        if batch.range.is_empty() {
            return Ok(());
        }
        let skipped = batch.range.offset.checked_sub(self.group.range.end());
        match skipped {
            Some(0) => {}
            // A group is stored as rarely if many small ranges are searched again.
            Some(skipped) if !self.group.range.is_empty() && !self.group.is_due() => self.group.skip(skipped),
            // What is searched apart does not decide about hits here.
            _ => {
                self.store_last()?;
                self.group = Group::new(batch.range.offset);
            }
        }
        let search = self.search.clone();
        let mut group = std::mem::replace(&mut self.group, Group::new(batch.range.offset));
        // Each record is appended at once, so that few are in memory.
        group.add(batch, &search, |record| self.append(&record))?;
        self.group = group;
        Ok(())
    }

    /// Has what was added on the disk. It is not searched again, but for the last bytes of ranges that are searched again.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn store(&mut self) -> Result<()> {
        let is_decided = self.may_end();
        self.end_group(is_decided)
    }

    /// Has what was added on the disk, when no more results follow. It is not searched again.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn store_last(&mut self) -> Result<()> {
        self.end_group(true)
    }

    /// Writes the group. Whether what follows can be read is known, or does not matter, if all `is_decided`.
    fn end_group(&mut self, is_decided: bool) -> Result<()> {
        let end = self.group.range.end();
        let group = std::mem::replace(&mut self.group, Group::new(end));
        if group.range.is_empty() {
            return Ok(());
        }
        let (rows, mut searched) = group.finish();
        searched.near = self.near.clone();
        searched.parts = self.settled(searched.offset, searched.parts, end, is_decided);
        if let Some(rows) = rows {
            self.append(&rows)?;
        }
        let record = Record::Searched(searched);
        self.append(&record)?;
        let place = self.commit()?;
        let Record::Searched(searched) = record else { return Ok(()) };
        self.state.searched(&searched, place).map_err(|why| damaged(&self.path, 0, why))
    }

    /// The parts of a group that ends at `end`, as they are to be recorded.
    fn settled(&mut self, offset: u64, parts: Vec<RangePart>, end: u64, is_decided: bool) -> Vec<RangePart> {
        let (coverage, overlap) = (&self.state.coverage, self.search.overlap());
        let mut all = std::mem::take(&mut self.lost);
        all.extend(lost(offset, &parts, coverage));
        let is_near = |lost: &ByteRange| lost.end().saturating_add(reach_bytes(overlap)) > end;
        self.lost = all.iter().copied().filter(is_near).collect();
        if !is_decided {
            all.push(ByteRange::new(end, 1));
        }
        settled(offset, parts, (coverage, overlap), &all)
    }

    /// The results so far, in order.
    pub fn batches(&self) -> Batches<'_> {
        Batches {
            file: self.file.file(),
            search: &self.search,
            stretches: self.state.stretches.iter(),
            path: &self.path,
            ready: VecDeque::new(),
            groups: VecDeque::new(),
        }
    }

    /// Adds what was found in compressed data, after those before, and has it on the disk.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn add_inside(&mut self, found: &[Inside]) -> Result<()> {
        /// The hits of a record.
        const HITS: usize = 1024;
        let mut counts = self.state.inside_counts();
        let (mut work_bytes, mut hits) = (self.state.inside.work_bytes, 0);
        for inside in found {
            counts.add(&inside.counts);
            work_bytes = work_bytes.saturating_add(inside.work_bytes);
            hits += inside.hits.len() as u64;
            for some in inside.hits.chunks(HITS) {
                let rows: Option<Vec<_>> = some.iter().map(|hit| InnerRow::of(hit, &self.search)).collect();
                let rows = rows.ok_or_else(|| Error::failed("a hit is none of this search"))?;
                self.append(&Record::InnerHits(rows))?;
            }
        }
        let places = self.state.inside.places.saturating_add(found.len() as u64);
        let truncated = found.iter().flat_map(|inside| &inside.truncated).map(TruncatedRow::of).collect();
        let record = Record::Inside(InsidePlaces { places, work_bytes, counts: numbers_of(&counts), hits, truncated });
        self.append(&record)?;
        let place = self.commit()?;
        let Record::Inside(record) = record else { return Ok(()) };
        self.state.inside(record, place).map_err(|why| damaged(&self.path, 0, why))
    }

    /// The hits in compressed data, in order, in groups.
    pub fn inner_hits(&self) -> impl Iterator<Item = Result<Vec<InnerHit>>> {
        self.state.inside_groups.iter().map(|place| -> Result<Vec<InnerHit>> {
            match read_group(self.file.file(), *place, &self.search).map_err(|error| reading(&self.path, &error))? {
                Some((_, inner, Record::Inside(_))) => Ok(inner),
                _ => Err(altered(&self.path)),
            }
        })
    }

    /// The folder of carved files, with those that are recorded and no others.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn carved_folder(&self) -> Result<Folder> {
        let failed = |error: io::Error| writing(&self.path, &error);
        let folder = match self.folder.folder(CARVED) {
            Err(error) if error.kind() == ErrorKind::NotFound => self.folder.make_folder(CARVED).map_err(failed)?,
            folder => folder.map_err(failed)?,
        };
        let kept: std::collections::HashSet<String> = self.state.carved.iter().map(CarvedFile::name).collect();
        for (name, _) in folder.entries().map_err(failed)? {
            if !kept.contains(&name) {
                folder.remove(&name).map_err(failed)?;
            }
        }
        Ok(folder)
    }

    /// Says that the files of the first `headers` headers are carved, and which these are since the last time.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn add_carved(&mut self, headers: u64, progress: &Progress, files: &[CarvedFile]) -> Result<()> {
        let Progress { end_of_whole, end_of_framed, end_of_chain, archive, wasted_bytes, counts } = *progress;
        let row =
            |file: &CarvedFile| CarvedRow(file.offset, file.len, file.format.name().to_owned(), file.sha256.clone());
        let record = CarvedFiles {
            headers,
            progress: [end_of_whole, end_of_framed, end_of_chain, wasted_bytes],
            archive,
            counts: [counts.files, counts.bytes, counts.inside, counts.invalid, counts.unreadable, counts.given_up],
            files: files.iter().map(row).collect(),
        };
        let record = Record::Carved(record);
        self.append(&record)?;
        self.commit()?;
        let Record::Carved(record) = record else { return Ok(()) };
        self.state.carved(&record).map_err(|why| damaged(&self.path, 0, why))
    }

    /// Says that all is done, with these files of the result beside those that were carved. What was found stays in the result alone.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn finish(self, names: &[String]) -> Result<()> {
        /// The files of a record.
        const FILES: usize = 10_000;
        let failed = |error: io::Error| writing(&self.path, &error);
        let mut files = Vec::new();
        for name in names {
            files.push(KeptFile::read(&self.folder, name).map_err(failed)?);
        }
        let carved = self.state.carved.iter().map(kept);
        files.extend(carved);
        let start = Record::Start(Box::new(self.state.start.clone()));
        let finished = files.chunks(FILES).map(|files| Record::Finished(files.to_vec()));
        let (mut lines, mut before) = (Vec::new(), FIRST);
        for record in [start].into_iter().chain(finished) {
            let (next, check) = line(&record, before).map_err(failed)?;
            lines.extend(next);
            before = check;
        }
        self.folder.remove(NEXT).map_err(failed)?;
        let next = self.folder.create(NEXT).map_err(failed)?;
        Appender::new(next, 0).append(&lines, true).map_err(failed)?;
        self.folder.replace(NEXT, NAME).and_then(|()| self.folder.sync()).map_err(failed)
    }

    /// Adds a line.
    fn append(&mut self, record: &Record) -> Result<()> {
        let (line, check) = line(record, self.check).map_err(|error| writing(&self.path, &error))?;
        self.lines.extend(line);
        self.check = check;
        if self.lines.len() >= LINES_BYTES { self.write(false) } else { Ok(()) }
    }

    /// Appends the lines to the file.
    fn write(&mut self, durable: bool) -> Result<()> {
        self.file.append(&self.lines, durable).map_err(|error| writing(&self.path, &error))?;
        self.end += self.lines.len() as u64;
        self.lines.clear();
        if durable {
            self.place = Place { at: self.end, before: self.check };
        }
        Ok(())
    }

    /// Has a group on the disk, and returns where it is.
    fn commit(&mut self) -> Result<Place> {
        let place = self.place;
        self.write(true)?;
        Ok(place)
    }
}

/// Locks the journal for this process. Its holder may have put another one in its place just before.
fn lock(folder: &Folder, file: &File, path: &Path) -> Result<()> {
    let failed = |error: io::Error| reading(path, &error);
    let is_locked = try_lock(file).map_err(failed)?;
    let named = folder.read(NAME).and_then(|named| FileId::of(&named));
    match is_locked && named.map_err(failed)? == FileId::of(file).map_err(failed)? {
        true => Ok(()),
        false => {
            Err(Error::misuse(format!("another process searches into {}", path.display()))
                .next(Step::AwaitOrNameFolder))
        }
    }
}

//! `cheetah search`: finds words, expressions and well-known kinds of data in a drive or an image.

mod across;
mod carve;
mod folder;
mod lister;
mod options;
mod places;
mod show;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use cheetah_device::DynDevice;
use cheetah_search::{AcrossHit, Batch, InnerHit, KnownFiles, Order, Outcome, Search};
use cheetah_source::search::inside::{Counts, Streams};
use cheetah_source::search::known::{self, Known};
use cheetah_source::{Access, OpenedSource, SearchOptions, Searching};
use futures::StreamExt as _;
use futures::stream::BoxStream;

use self::carve::Headers;
use self::folder::Folder;
use self::lister::Listed;
use self::options::OrderArgs;
use crate::commands::lend_key::LendKeyArgs;
use crate::commands::options::{TimeoutArgs, check_at_nodes, source, warn_of};
use crate::desk::Desk;
use crate::failure::{Context as _, Failure, Result};
use crate::signals::Stop;
use crate::ui::Ui;

/// The arguments of `search`.
#[derive(Debug, clap::Args)]
#[command(about = "Find words, expressions, addresses and numbers in the bytes")]
#[command(
    long_about = "Searches every byte of a drive or an image: words, regular expressions, and well-known kinds of data, \
such as e-mail addresses and the numbers of payment cards. Files, deleted files and unallocated space are searched \
alike; a file in several fragments is searched fragment by fragment without --files, and compressed content as it is stored. --inside also \
searches what gzip files, ZIP archives (documents of office programs, too) and PDF files hold compressed, once the rest is done.

--headers finds where files begin, by their signatures, and --carve saves those that lie in one piece and have a valid \
structure: jpeg, png, gif, pdf, zip, 7z, gzip, sqlite, mp4, riff, evtx and registry.

--known finds what is left of known files, deleted and overwritten in part, by their blocks of 4 KiB at every sector: \
runs of at least two blocks, in known-runs.csv, and how much of each file was found, in known-files.csv.

Words are searched in each encoding. A regular expression is searched in the bytes as they are, and in the UTF-16 among the \
encodings if it has ASCII characters only and no assertions such as \\b. Its matches must have a greatest length: {1,64} in \
place of +. Its classes and \\b are those of ASCII; (?u:…) switches to Unicode.

Ranges that cannot be read are skipped and listed. The answer says how much was searched; without hits, it says where there \
are none. With --files, each hit also has the volume and the path in which it lies, the state of its cluster, and its offset in the file; \
and the fragments of each file are searched as one, so that a hit across two of them is found. The Sleuth Kit lists the files first, in Python.

With --out, the hits are written to the new folder DIR: hits.csv with the columns offset, length, pattern, \
encoding, text, context and inside, in the order of their offsets, those inside compressed data and across fragments last (with \
--files, also volume, path, state, file_offset, others and fragments); features, with feature files and histograms as bulk_extractor \
writes them; and the coverage. Otherwise they are printed.

Ctrl-C ends the search and keeps the hits so far. Exits with 3 if part of the source was not searched.

With --at-nodes, the nodes of a drive search what they hold, and the hits cross the network instead of the bytes. Hits and \
coverage are the same. The nodes of a sealed drive hold ciphertext only: it is read, unless --lend-key lends nodes what \
opens its units. They wipe that at the end of each job; the drive's custody log and the receipts of the nodes name it.

  cheetah search case42.drive words.txt --ignore-case --out hits42
  cheetah search case42.drive --find card --at-nodes
  cheetah search case42.drive words.txt --at-nodes --lend-key all --out hits42
  cheetah search disk.E01 --word Geheim --encoding utf-8,utf-16le,cp1252
  cheetah search disk.raw --regex 'INV-[0-9]{6}' --find email,iban --out hits
  cheetah search disk.raw --headers jpeg,png,pdf --carve --out files
  cheetah search disk.raw words.txt --inside all --out hits
  cheetah search disk.E01 words.txt --files --out hits
  cheetah search case42.drive --known pictures/ --at-nodes --out known42"
)]
pub struct Args {
    /// A drive file, an image (raw, compressed, in parts, E01, AFF4, QCOW2, VMDK, VHD, VHDX), a disk, or an nbd://,
    /// iscsi://, https:// or s3:// URI
    #[arg(value_parser = source())]
    pub source: String,

    #[command(flatten)]
    order: OrderArgs,

    /// New folder for the result
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Save the files that begin at the headers found and have a valid structure, in DIR/carved
    #[arg(long, requires = "headers", requires = "out")]
    carve: bool,

    /// Known file, or folder of known files, whose blocks are searched for; repeat for more
    #[arg(long, value_name = "PATH", requires = "out")]
    known: Vec<PathBuf>,

    /// Say in which volume and file each hit lies, and search the fragments of each file as one
    #[arg(long)]
    files: bool,

    /// Have nodes that lend their processor search what they hold, instead of reading it: for a drive
    #[arg(long)]
    at_nodes: bool,

    #[command(flatten)]
    lend: LendKeyArgs,

    /// Parts of the source that are searched at once [default: the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: Option<u16>,

    #[command(flatten)]
    timeout: TimeoutArgs,
}

/// Runs it.
pub async fn run(args: Args, desk: &Desk, ui: Ui) -> Result<()> {
    let mut stop = Stop::catch()?;
    check_at_nodes(args.at_nodes, &args.source, "search")?;
    let known = read_known(&args.known, ui).await?;
    let order = Order {
        blocks: known.as_deref().map(KnownFiles::keys).unwrap_or_default(),
        ..args.order.read(known.is_some())?
    };
    let compiling = tokio::task::spawn_blocking(move || Search::new(&order).map(|search| (order, Arc::new(search))));
    let (order, search) = compiling.await.context("cannot compile the patterns")??;
    show::unsearched_encodings(&search, ui);
    let python = if args.files { Some(lister::python().await?) } else { None };
    let folder = args.out.as_deref().map(|out| Folder::create(out, &args.source, args.files)).transpose()?;
    let opened = stop
        .unless(&format!("opening {}", args.source), OpenedSource::open(&args.source, &access(&args, desk)))
        .await?;
    warn_of(&opened, args.timeout.get(), ui);
    let listed = list(&opened, python, (&mut stop, ui)).await;
    let listed = match listed {
        Ok(listed) => listed,
        Err(failure) => return Err::<(), _>(failure).and(opened.close().await.map_err(Failure::from)),
    };
    let sink = Sink {
        listed,
        search: &search,
        folder,
        headers: args.carve.then(|| Headers::new(&search)),
        streams: args.order.is_inside().then(|| Streams::new(&search)),
        known: known.map(|files| Known::new(files, &search)),
        ui,
    };
    let searched = search_source((&args, desk), &opened, (&order, &search), sink, &mut stop).await;
    searched.and(opened.close().await.map_err(Failure::from))
}

/// Lists the files of the source with this Python, if there is one.
async fn list(
    opened: &OpenedSource,
    python: Option<OsString>,
    (stop, ui): (&mut Stop, Ui),
) -> Result<Option<Arc<Listed>>> {
    let Some(python) = python else { return Ok(None) };
    let _progress = ui.spinner("listing files");
    let listed = stop.unless("listing files", lister::list(opened, &python)).await?;
    Ok(Some(Arc::new(listed)))
}

/// Reads the known files, if there are any. Warns of those that are left out.
async fn read_known(paths: &[PathBuf], ui: Ui) -> Result<Option<Arc<KnownFiles>>> {
    if paths.is_empty() {
        return Ok(None);
    }
    let paths = paths.to_vec();
    let reading = tokio::task::spawn_blocking(move || known::read(&paths));
    let (known, left_out) = reading.await.context("cannot read the known files")??;
    if left_out > 0 {
        ui.warn(format_args!(
            "of the known files, {left_out} links or special files are left out: links are not followed"
        ));
    }
    Ok(Some(Arc::new(known)))
}

/// How the source is opened: read once from start to end; a drive that is not full yet is filled meanwhile.
fn access(args: &Args, desk: &Desk) -> Access {
    Access { fill: Some(Arc::new(desk.custodian.clone())), ..Access::read_once(desk.session(args.timeout.get())) }
}

/// Searches the source, and shows and stores the result, whatever ends the search.
async fn search_source(
    (args, desk): (&Args, &Desk),
    opened: &OpenedSource,
    (order, search): (&Order, &Arc<Search>),
    mut sink: Sink<'_>,
    stop: &mut Stop,
) -> Result<()> {
    let ui = sink.ui;
    let lend = args.lend.request("search", &desk.custodian);
    let options = SearchOptions { at_nodes: args.at_nodes, workers: workers(args), lend };
    let Searching { batches, near } = opened.search(&args.source, (order, search), options).await?;
    let mut outcome = Outcome::new(opened.size(), search.patterns().len());
    let mut ended = search_bytes(batches, &args.source, (&mut sink, &mut outcome), stop).await?;
    let mut inside = None;
    if let (Ok(()), Some(streams)) = (&ended, sink.streams.take()) {
        match search_inside(streams, (args, search), &opened.decrypted()?, (&mut sink, &mut outcome), stop).await {
            Ok(counts) => inside = Some(counts),
            Err(failure) => ended = Err(failure),
        }
    }
    let mut carved = None;
    if let (Ok(()), Some(headers), Some(folder)) = (&ended, &sink.headers, &sink.folder) {
        match headers.carve(&opened.decrypted()?, folder, stop, ui).await {
            Ok(counts) => carved = Some(counts),
            Err(failure) => ended = Err(failure),
        }
    }
    let mut counts = None;
    if let (Ok(()), Some(listed)) = (&ended, sink.listed.clone()) {
        match search_across(&listed, (args, search), &opened.decrypted()?, (&mut sink, &mut outcome), stop).await {
            Ok(found) => counts = Some(found),
            Err(failure) => ended = Err(failure),
        }
    }
    let listed = sink.listed.take();
    let files = listed.as_deref().map(|listed| places::FilesShown { listed, across: counts });
    let at_nodes = near.map(|done| done.lock().clone());
    let (source, out) = (args.source.as_str(), args.out.as_deref());
    let known = sink.known.take().map(Known::finish);
    let known_found = known.as_ref();
    let shown =
        show::Shown { source, search, outcome: &outcome, out, at_nodes, inside, carved, files, known: known_found };
    let answer = shown.answer(ended.is_ok());
    if let Some(folder) = sink.folder {
        folder.publish(&answer, outcome.coverage(), known.as_ref())?;
    }
    ui.answer(shown.text(), &answer);
    ended.map_err(|failure| shown.unfinished(failure))?;
    shown.complete()
}

/// Searches the bytes in their order, and returns how that ended. Fails if a hit cannot be kept.
async fn search_bytes(
    mut batches: BoxStream<'static, cheetah_error::Result<Batch>>,
    source: &str,
    (sink, outcome): (&mut Sink<'_>, &mut Outcome),
    stop: &mut Stop,
) -> Result<Result<()>> {
    let progress = sink.ui.progress(format!("searching {source}"), outcome.coverage().size());
    loop {
        let batch = tokio::select! {
            batch = batches.next() => batch,
            signal = stop.asked() => return Ok(Err(Failure::failed(format!("stopped by {signal}")))),
        };
        match batch {
            None => return Ok(Ok(())),
            Some(Err(error)) => return Ok(Err(error.into())),
            Some(Ok(mut batch)) => {
                sink.take(&mut batch)?;
                outcome.add(&batch);
                progress.set(batch.range.end());
            }
        }
    }
}

/// Searches the fragments of each file as one, and returns what became of their joints.
async fn search_across(
    listed: &Arc<Listed>,
    (args, search): (&Args, &Arc<Search>),
    device: &DynDevice,
    (sink, outcome): (&mut Sink<'_>, &mut Outcome),
    stop: &mut Stop,
) -> Result<across::Counts> {
    let progress = sink.ui.progress("searching fragments of files".to_owned(), listed.places.files() as u64);
    let mut counts = across::Counts::default();
    let mut found = across::search(listed.places.clone(), device, search, workers(args));
    loop {
        let next = tokio::select! {
            next = found.next() => next,
            signal = stop.asked() => return Err(Failure::failed(format!("stopped by {signal}"))),
        };
        let Some(next) = next else { return Ok(counts) };
        let (file, found) = next?;
        counts.add(&found);
        for hit in &found.hits {
            outcome.count(&hit.hit);
            sink.take_across(file, hit)?;
        }
        progress.set(file as u64 + 1);
    }
}

/// Searches the compressed data that a search found, and returns what became of them.
async fn search_inside(
    streams: Streams,
    (args, search): (&Args, &Arc<Search>),
    device: &DynDevice,
    (sink, outcome): (&mut Sink<'_>, &mut Outcome),
    stop: &mut Stop,
) -> Result<Counts> {
    let progress = sink.ui.progress("searching compressed data".to_owned(), streams.places() as u64);
    let mut counts = Counts { given_up: streams.left_out(), ..Counts::default() };
    let mut found = streams.search(device, search, workers(args)).enumerate();
    loop {
        let next = tokio::select! {
            next = found.next() => next,
            signal = stop.asked() => return Err(Failure::failed(format!("stopped by {signal}"))),
        };
        let Some((done, inside)) = next else { return Ok(counts) };
        let inside = inside?;
        counts.add(&inside.counts);
        for hit in &inside.hits {
            outcome.count(&hit.hit);
            sink.take_inner(hit)?;
        }
        progress.set(done as u64 + 1);
    }
}

/// Takes hits as they are found.
struct Sink<'a> {
    search: &'a Search,
    listed: Option<Arc<Listed>>,
    folder: Option<Folder>,
    headers: Option<Headers>,
    streams: Option<Streams>,
    known: Option<Known>,
    ui: Ui,
}

impl Sink<'_> {
    /// Writes the hits to the folder, or prints them. The beginnings of compressed data are none, and blocks of known files none alone.
    fn take(&mut self, batch: &mut Batch) -> Result<()> {
        self.streams.iter_mut().for_each(|streams| streams.take(batch));
        self.known.iter_mut().for_each(|known| known.take(batch));
        for hit in &batch.hits {
            self.headers.iter_mut().for_each(|headers| headers.add(hit));
            let place = self.listed.as_ref().map(|listed| listed.places.at(hit.offset));
            match &mut self.folder {
                Some(folder) => folder.add(hit, place.as_ref(), self.search)?,
                None => show::hit(hit, place.as_ref(), self.search, self.ui),
            }
        }
        Ok(())
    }

    /// Writes a hit inside compressed data to the folder, or prints it.
    fn take_inner(&mut self, hit: &InnerHit) -> Result<()> {
        let place = self.listed.as_ref().map(|listed| listed.places.at(hit.offset));
        match &mut self.folder {
            Some(folder) => folder.add_inner(hit, place.as_ref(), self.search),
            None => {
                show::inner_hit(hit, place.as_ref(), self.search, self.ui);
                Ok(())
            }
        }
    }

    /// Writes a hit across fragments of a file to the folder, or prints it.
    fn take_across(&mut self, file: usize, hit: &AcrossHit) -> Result<()> {
        let Some(listed) = &self.listed else { return Ok(()) };
        let place = listed.places.of_file(file, hit.file_offset, hit.hit.offset);
        match &mut self.folder {
            Some(folder) => folder.add_across(hit, &place, self.search),
            None => {
                show::across(hit, &place, self.search, self.ui);
                Ok(())
            }
        }
    }
}

fn workers(args: &Args) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    args.workers.map_or_else(processors, usize::from)
}

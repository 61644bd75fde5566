//! `cheetah search`: finds words, expressions and well-known kinds of data in a drive or an image.

mod across;
mod carve;
mod central;
mod folder;
mod hit_files;
mod kept;
mod lister;
mod options;
mod places;
mod report;
mod rules;
mod sets;
mod show;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use cheetah_device::DynDevice;
use cheetah_search::{AcrossHit, Batch, KnownFiles, Order, Outcome, Place, Search};
use cheetah_source::search::inside::{Counts, Searched, Streams};
use cheetah_source::{Access, OpenedSource, SearchOptions, Searching};
use futures::StreamExt as _;
use futures::stream::BoxStream;

use self::folder::check_place;
use self::kept::Task;
use self::lister::Listed;
use self::options::OrderArgs;
use self::rules::RuleSet;
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
alike; a file in several fragments is searched fragment by fragment, and compressed content as it is stored. --inside also \
searches what gzip files, ZIP archives (documents of office programs, too) and PDF files hold compressed, once the rest is done.

--headers finds where files begin, by their signatures, and --carve saves those that lie in one piece and have a valid \
structure: jpeg, png, gif, pdf, zip, 7z, gzip, sqlite, mp4, riff, evtx and registry.

--known finds what is left of known files, deleted and overwritten in part, by their blocks of 4 KiB at every sector: \
runs of at least two blocks, in known-runs.csv, and how much of each file was found, in known-files.csv. --save-known stores \
what the search takes of these files as a set, and --blocks searches for the files of a set.

Words are searched in each encoding. A regular expression is searched in the bytes as they are, and in the UTF-16 among the \
encodings if it has ASCII characters only and no assertions such as \\b. Its matches must have a greatest length: {1,64} in \
place of +. Its classes and \\b are those of ASCII; (?u:…) switches to Unicode.

Ranges that cannot be read are skipped and listed. The answer says how much was searched; without hits, it says where there \
are none. With --files, each hit also has the volume and the path in which it lies, the state of its cluster, and its offset in the file; \
and the fragments of each file are searched as one, so that a hit across two of them is found. The Sleuth Kit lists the files first, in Python.

--yara tries YARA rules on the content of files, deleted ones too. The literal bytes that they need are searched first, at the nodes with \
--at-nodes; then only the files that may match are read. If a rule needs none, which the answer names, all files are read. What lies in no \
file is not tried. hits.csv then has the columns offset, length, rule, rules, tags, string, encoding, text, volume, path, state and file_offset.

With --out, the hits are written to the folder DIR: hits.csv and hits.parquet with the columns offset, length, pattern, \
encoding, text, context, inside, node and instance, in the order of their offsets, those inside compressed data and across fragments last \
(with --files, also volume, path, state, file_offset, others and fragments); features, with feature files and histograms as \
bulk_extractor writes them; the coverage; and report.html, a page to read and to print. Otherwise they are printed.

Ctrl-C ends the search and keeps the hits so far. With --out, the same command goes on where it was, also after a power cut \
or a full disk, and searches again what could not be read; if all was searched, it says so. Exits with 3 if part of the source was not searched.

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
  cheetah search case42.drive --yara malware.yar --at-nodes --out yara42
  cheetah search case42.drive --known pictures/ --at-nodes --out known42
  cheetah search disk.raw --known pictures/ --save-known pics.blocks --out known
  cheetah search case43.drive --blocks pics.blocks --out known43"
)]
pub struct Args {
    /// A drive file, an image (raw, compressed, in parts, E01, AFF4, QCOW2, VMDK, VHD, VHDX), a disk, or an nbd://,
    /// iscsi://, https:// or s3:// URI
    #[arg(value_parser = source())]
    pub source: String,

    #[command(flatten)]
    order: OrderArgs,

    /// Folder for the result: a new one, or that of the same search, which goes on
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Save the files that begin at the headers found and have a valid structure, in DIR/carved
    #[arg(long, requires = "headers", requires = "out")]
    carve: bool,

    /// Known file, or folder of known files, whose blocks are searched for; repeat for more
    #[arg(long, value_name = "PATH", requires = "out")]
    known: Vec<PathBuf>,

    /// New file for the set of these known files, which --blocks reads
    #[arg(long, value_name = "SET", requires = "known")]
    save_known: Option<PathBuf>,

    /// Set of known files that --save-known wrote, whose blocks are searched for in place of those of --known
    #[arg(long, value_name = "SET", requires = "out", conflicts_with = "known")]
    blocks: Option<PathBuf>,

    /// Say in which volume and file each hit lies, and search the fragments of each file as one
    #[arg(long)]
    files: bool,

    /// File of YARA rules, which are tried on the content of files; repeat for more. Nothing else is searched for
    #[arg(long, value_name = "RULES", conflicts_with_all = [
        "words", "word", "regex", "find", "headers", "inside", "known", "blocks", "files", "encoding", "ignore_case",
        "context"
    ])]
    yara: Vec<PathBuf>,

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
    if let Some(out) = &args.out {
        check_place(out, &args.source, &args.known)?;
    }
    let rules = RuleSet::read(&args.yara, &mut stop).await?;
    let known = stop.unless("reading the known files", sets::read(&args, ui)).await?;
    let order = match &rules {
        Some(set) => set.order()?,
        None => Order {
            blocks: known.as_deref().map(KnownFiles::keys).unwrap_or_default(),
            ..args.order.read(known.is_some())?
        },
    };
    let is_searched = rules.as_ref().is_none_or(RuleSet::is_searched);
    let compiling = tokio::task::spawn_blocking(move || {
        let search = if is_searched { Search::new(&order)? } else { Search::of_rules([]) };
        Ok::<_, cheetah_error::Error>((order, Arc::new(search)))
    });
    let compiled = async { compiling.await.context("cannot compile the patterns")?.map_err(Failure::from) };
    let (order, search) = stop.unless("compiling the patterns", compiled).await?;
    show::unsearched_encodings(&search, ui);
    let python = if args.files { Some(lister::python(&lister::FILES).await?) } else { None };
    let opened = stop
        .unless(&format!("opening {}", args.source), OpenedSource::open(&args.source, &access(&args, desk)))
        .await?;
    warn_of(&opened, args.timeout.get(), ui);
    let searched = match (args.out.as_deref(), &rules) {
        (Some(out), set) => {
            let (args, opened, order, search) = (&args, &opened, &order, &search);
            let rules = set.as_ref().map(|set| set.digest.as_str());
            let task = Task { args, desk, opened, order, search, known, rules, python, out, ui };
            match set {
                Some(set) => rules::search_kept(&task, set, &mut stop).await,
                None => kept::search(&task, &mut stop).await,
            }
        }
        (None, Some(set)) => rules::search((&args, desk, ui), &opened, (set, &order, &search), &mut stop).await,
        (None, None) => match list(&opened, python.as_ref(), (&mut stop, ui)).await {
            Ok(listed) => {
                let streams = args.order.is_inside().then(|| Streams::new(&search));
                let sink = Sink { search: &search, listed, streams, ui };
                search_source((&args, desk), &opened, (&order, &search), sink, &mut stop).await
            }
            Err(failure) => Err(failure),
        },
    };
    searched.and(opened.close().await.map_err(Failure::from))
}

/// Lists the files of the source with this Python, if there is one.
async fn list(
    opened: &OpenedSource,
    python: Option<&OsString>,
    (stop, ui): (&mut Stop, Ui),
) -> Result<Option<Arc<Listed>>> {
    let Some(python) = python else { return Ok(None) };
    let _progress = ui.spinner("listing files");
    let listed = stop.unless("listing files", lister::list(opened, python)).await?;
    Ok(Some(Arc::new(listed)))
}

/// How the source is opened: read once from start to end; a drive that is not full yet is filled meanwhile.
fn access(args: &Args, desk: &Desk) -> Access {
    Access { fill: Some(Arc::new(desk.custodian.clone())), ..Access::read_once(desk.session(args.timeout.get())) }
}

/// Searches the source, and shows the result as it is found, whatever ends the search.
async fn search_source(
    (args, desk): (&Args, &Desk),
    opened: &OpenedSource,
    (order, search): (&Order, &Arc<Search>),
    mut sink: Sink<'_>,
    stop: &mut Stop,
) -> Result<()> {
    let lend = args.lend.request("search", &desk.custodian);
    let options = SearchOptions { at_nodes: args.at_nodes, workers: workers(args), lend, within: None };
    let Searching { batches, near } = opened.search(&args.source, (order, search), options).await?;
    let mut outcome = Outcome::new(opened.size(), search.patterns().len());
    let ui = sink.ui;
    let taken = (|batch: &mut Batch| sink.take(batch), &mut outcome);
    let mut ended = search_bytes(batches, (&args.source, ui), taken, stop).await;
    if ended.is_ok() {
        let end = opened.truncated_end(args.timeout.get()).await;
        end.into_iter().for_each(|truncation| outcome.truncate(truncation));
    }
    let mut inside = None;
    if let (Ok(()), Some(streams)) = (&ended, sink.streams.take()) {
        match search_inside(streams, (args, search), &opened.decrypted()?, (&sink, &mut outcome), stop).await {
            Ok(counts) => inside = Some(counts),
            Err(failure) => ended = Err(failure),
        }
    }
    let mut across = None;
    if let (Ok(()), Some(listed)) = (&ended, &sink.listed) {
        let print = |file: usize, hit: &AcrossHit| {
            outcome.count(&hit.hit);
            let place = listed.places.of_file(file, hit.file_offset, hit.hit.offset);
            show::across(hit, &place, search, sink.ui);
            Ok(())
        };
        let device = opened.decrypted()?;
        match search_across(listed, (search, workers(args)), &device, (sink.ui, print), stop).await? {
            Ok(found) => across = Some(found),
            Err(failure) => ended = Err(failure),
        }
    }
    let files = sink.listed.as_deref().map(|listed| places::FilesShown { listed, across });
    let at_nodes = near.map(|done| done.lock().clone());
    let shown = show::Shown {
        source: &args.source,
        search,
        outcome: &outcome,
        out: None,
        at_nodes,
        inside,
        carved: None,
        files,
        known: None,
        rules: None,
    };
    sink.ui.answer(shown.text(), &shown.answer(ended.is_ok()));
    ended.map_err(|failure| shown.unfinished(failure))?;
    shown.complete()
}

/// Searches the bytes in their order. `take` takes each batch first.
async fn search_bytes(
    mut batches: BoxStream<'static, cheetah_error::Result<Batch>>,
    (source, ui): (&str, Ui),
    (mut take, outcome): (impl FnMut(&mut Batch), &mut Outcome),
    stop: &mut Stop,
) -> Result<()> {
    let progress = ui.progress(format!("searching {source}"), outcome.coverage().size());
    loop {
        let batch = tokio::select! {
            batch = batches.next() => batch,
            signal = stop.asked() => return Err(Failure::failed(format!("stopped by {signal}"))),
        };
        let Some(batch) = batch else { return Ok(()) };
        let mut batch = batch?;
        take(&mut batch);
        outcome.add(&batch);
        progress.set(batch.range.end());
    }
}

/// Searches the fragments of each file as one, and calls `found` with the number of a file and each hit. Returns what became of their
/// joints, or why not all were searched. Fails if a hit cannot be kept.
async fn search_across(
    listed: &Listed,
    (search, workers): (&Arc<Search>, usize),
    device: &DynDevice,
    (ui, mut found): (Ui, impl FnMut(usize, &AcrossHit) -> Result<()>),
    stop: &mut Stop,
) -> Result<Result<across::Counts>> {
    let progress = ui.progress("searching fragments of files".to_owned(), listed.places.files() as u64);
    let mut counts = across::Counts::default();
    let mut files = across::search(listed.places.clone(), device, search, workers);
    loop {
        let next = tokio::select! {
            next = files.next() => next,
            signal = stop.asked() => return Ok(Err(Failure::failed(format!("stopped by {signal}")))),
        };
        let (file, hits) = match next {
            None => return Ok(Ok(counts)),
            Some(Err(failure)) => return Ok(Err(failure)),
            Some(Ok(next)) => next,
        };
        counts.add(&hits);
        for hit in &hits.hits {
            found(file, hit)?;
        }
        progress.set(file as u64 + 1);
    }
}

/// Searches the compressed data that a search found, and returns what became of them.
async fn search_inside(
    streams: Streams,
    (args, search): (&Args, &Arc<Search>),
    device: &DynDevice,
    (sink, outcome): (&Sink<'_>, &mut Outcome),
    stop: &mut Stop,
) -> Result<Counts> {
    let progress = sink.ui.progress("searching compressed data".to_owned(), streams.places() as u64);
    let mut counts = Counts { given_up: streams.left_out(), ..Counts::default() };
    streams.truncated().into_iter().for_each(|truncation| outcome.truncate(truncation));
    let mut found = streams.search(device, search, (workers(args), Searched::default())).enumerate();
    loop {
        let next = tokio::select! {
            next = found.next() => next,
            signal = stop.asked() => return Err(Failure::failed(format!("stopped by {signal}"))),
        };
        let Some((done, inside)) = next else { return Ok(counts) };
        let inside = inside?;
        counts.add(&inside.counts);
        inside.truncated.iter().for_each(|truncation| outcome.truncate(*truncation));
        for hit in &inside.hits {
            outcome.count(&hit.hit);
            show::inner_hit(hit, sink.place(hit.offset).as_ref(), sink.search, sink.ui);
        }
        progress.set(done as u64 + 1);
    }
}

/// Prints hits as they are found.
struct Sink<'a> {
    search: &'a Search,
    listed: Option<Arc<Listed>>,
    streams: Option<Streams>,
    ui: Ui,
}

impl Sink<'_> {
    /// Prints the hits. The beginnings of compressed data are none.
    fn take(&mut self, batch: &mut Batch) {
        self.streams.iter_mut().for_each(|streams| streams.take(batch));
        for hit in &batch.hits {
            show::hit(hit, (self.place(hit.offset).as_ref(), batch.node.as_deref()), self.search, self.ui);
        }
    }

    /// Where a byte lies, if files are listed.
    fn place(&self, offset: u64) -> Option<Place<'_>> {
        self.listed.as_ref().map(|listed| listed.places.at(offset))
    }
}

fn workers(args: &Args) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    args.workers.map_or_else(processors, usize::from)
}

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
mod printed;
mod report;
mod rules;
mod sets;
mod show;
mod stages;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use cheetah_device::ByteRange;
use cheetah_search::{KnownFiles, Order, Search};
use cheetah_source::{Access, OpenedSource, SearchOptions, Searching};

use self::folder::check_place;
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

--yara tries YARA rules on the content of files, deleted ones too, beside all else. The literal bytes that they need are searched in the same pass, \
at the nodes with --at-nodes; then only the files that may match are read. If a rule needs none, which the answer names, all files are read. What \
lies in no file is not tried. The matches are further hits, whose file is named without --files, too.

With --out, the hits are written to the folder DIR: hits.csv and hits.parquet with the columns offset, length, pattern, \
encoding, text, context, inside, node and instance, in the order of their offsets, those inside compressed data and across fragments last \
(with --files, also volume, path, state, file_offset, others and fragments; with --yara, these and rules, tags and string); features, with feature files and histograms as \
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
  cheetah search case42.drive words.txt --yara malware.yar --files --out hits42
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

    /// File of YARA rules, which are tried on the content of files; repeat for more
    #[arg(long, value_name = "RULES")]
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

/// A search that is to be done.
pub struct Task<'a> {
    args: &'a Args,
    desk: &'a Desk,
    opened: &'a OpenedSource,
    order: &'a Order,
    /// The order, compiled, with the rules.
    search: &'a Arc<Search>,
    known: Option<Arc<KnownFiles>>,
    rules: Option<&'a RuleSet>,
    /// What lists files, if they are to be listed.
    python: Option<OsString>,
    ui: Ui,
}

impl Task<'_> {
    /// Begins to search the bytes of these ranges, or of the whole source.
    async fn begin(&self, within: Option<Vec<ByteRange>>) -> Result<Searching> {
        let Self { args, opened, .. } = self;
        let lend = args.lend.request("search", &self.desk.custodian);
        let options = SearchOptions { at_nodes: args.at_nodes, workers: workers(args), lend, within };
        Ok(opened.search(&args.source, (self.order, self.search), options).await?)
    }
}

/// Runs it.
pub async fn run(args: Args, desk: &Desk, ui: Ui) -> Result<()> {
    let mut stop = Stop::catch()?;
    check_at_nodes(args.at_nodes, &args.source, "search")?;
    if let Some(out) = &args.out {
        check_place(out, &args.source, &args.known)?;
    }
    if !args.yara.is_empty() {
        args.order.check_with_rules()?;
    }
    let rules = RuleSet::read(&args.yara, &mut stop).await?;
    let known = stop.unless("reading the known files", sets::read(&args, ui)).await?;
    let order = Order {
        blocks: known.as_deref().map(KnownFiles::keys).unwrap_or_default(),
        atoms: rules.as_ref().map(RuleSet::searched).unwrap_or_default(),
        ..args.order.read(known.is_some() || rules.is_some())?
    };
    let (order, search) = stop.unless("compiling the patterns", compiled(order, rules.as_ref())).await?;
    show::unsearched_encodings(&search, ui);
    let python = if args.files { Some(lister::python(&lister::FILES).await?) } else { None };
    let opened = stop
        .unless(&format!("opening {}", args.source), OpenedSource::open(&args.source, &access(&args, desk)))
        .await?;
    warn_of(&opened, args.timeout.get(), ui);
    let (order, search, rules) = (&order, &search, rules.as_ref());
    let task = Task { args: &args, desk, opened: &opened, order, search, known, rules, python, ui };
    let searched = match args.out.as_deref() {
        Some(out) => kept::search(&task, out, &mut stop).await,
        None => printed::search(&task, &mut stop).await,
    };
    drop(task);
    searched.and(opened.close().await.map_err(Failure::from))
}

/// Compiles the order, and adds the rules. Rules of which one has no atoms may be all that is asked for: then the bytes are not searched.
async fn compiled(order: Order, rules: Option<&RuleSet>) -> Result<(Order, Arc<Search>)> {
    let names: Vec<String> = rules.into_iter().flat_map(RuleSet::names).collect();
    let compiling = tokio::task::spawn_blocking(move || {
        let is_for_nothing = order.is_empty() && !names.is_empty();
        let search = if is_for_nothing { Search::for_nothing() } else { Search::new(&order)? };
        Ok::<_, cheetah_error::Error>((order, Arc::new(search.with_rules(names))))
    });
    Ok(compiling.await.context("cannot compile the patterns")??)
}

/// Lists the files of the source with this Python, if there is one.
async fn list(opened: &OpenedSource, python: Option<&OsString>, (stop, ui): (&mut Stop, Ui)) -> Result<Option<Listed>> {
    let Some(python) = python else { return Ok(None) };
    let _progress = ui.spinner("listing files");
    stop.unless("listing files", lister::list(opened, python)).await.map(Some)
}

/// How the source is opened: read once from start to end; a drive that is not full yet is filled meanwhile.
fn access(args: &Args, desk: &Desk) -> Access {
    Access { fill: Some(Arc::new(desk.custodian.clone())), ..Access::read_once(desk.session(args.timeout.get())) }
}

fn workers(args: &Args) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    args.workers.map_or_else(processors, usize::from)
}

//! Serves a file that takes the time of a given hard disk, for measuring beside disks that the machine does not have.
//!
//! The file is in a FUSE mount without caches; a loop device over it is a block device. [`drive`] is the model, in virtual
//! time; [`served`] runs it in real time.

mod cache;
mod check;
mod clock;
mod drive;
mod extent;
mod files;
mod geometry;
mod mechanism;
mod model;
#[cfg(test)]
mod properties;
mod seek;
mod served;
mod simulation;
mod store;

use std::error::Error;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{io, mem, process, ptr, thread};

use files::DriveFile;
use fuser::{Config, MountOption, Session};
use model::Model;
use served::Served;
use store::Store;

const USAGE: &str = "usage: lab-disk MODEL DIR [--size BYTES] [--store FILE] [--name NAME]
       lab-disk check [MODEL …]
       lab-disk list
serves DIR/NAME (disk.raw) until SIGTERM; check compares models with their data sheets, exit 1 if one differs; list says
where their figures come from. --size serves only the beginning of the drive, its outer edge; bytes are kept in memory, or
in the sparse FILE";

/// As that of the lab's relay.
const PRIORITY: i32 = 50;

fn main() {
    match run() {
        Ok(true) => {}
        Ok(false) => process::exit(1),
        Err(error) => {
            eprintln!("lab-disk: {error}");
            process::exit(2);
        }
    }
}

fn run() -> Result<bool, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("check") => check(&arguments[1..]),
        Some("list") => {
            model::ALL.iter().for_each(|model| println!("{}: {}\n  from {}", model.name, model.drive, model.sources));
            Ok(true)
        }
        Some(_) => {
            serve(&Arguments::parse(&arguments)?)?;
            Ok(true)
        }
        None => Err(USAGE.into()),
    }
}

fn named(name: &str) -> Result<Model, String> {
    let known = model::ALL.map(|model| model.name).join(", ");
    model::named(name).ok_or_else(|| format!("there is no model {name:?}; there are {known}\n{USAGE}"))
}

fn check(names: &[String]) -> Result<bool, Box<dyn Error>> {
    let chosen: Vec<Model> = match names {
        [] => model::ALL.into_iter().filter(|model| !model.instant).collect(),
        names => names.iter().map(|name| named(name)).collect::<Result<_, _>>()?,
    };
    let mut is_met = true;
    for model in chosen {
        for compared in check::compare(&model) {
            let (least, most) = compared.allowed;
            let said = if compared.is_met() { "" } else { "  DIFFERS" };
            let what = format!("{}: {}", model.name, compared.what);
            println!(
                "{what:<48} {:>8.2} {:<5} allowed {least:.2} to {most:.2}{said}",
                compared.measured, compared.unit
            );
            is_met &= compared.is_met();
        }
    }
    Ok(is_met)
}

struct Arguments {
    model: Model,
    directory: PathBuf,
    size_bytes: u64,
    store: Option<PathBuf>,
    name: String,
}

impl Arguments {
    fn parse(words: &[String]) -> Result<Self, Box<dyn Error>> {
        let (mut places, mut size_bytes, mut store) = (Vec::new(), None, None);
        let mut name = files::NAME.to_owned();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(USAGE);
            match word.as_str() {
                "--size" => size_bytes = Some(value()?.parse()?),
                "--name" => value()?.clone_into(&mut name),
                "--store" => store = Some(PathBuf::from(value()?)),
                _ => places.push(word),
            }
        }
        let [model, directory] = places[..] else { return Err(USAGE.into()) };
        let model = named(model)?;
        let size_bytes = size_bytes.unwrap_or(model.capacity_bytes);
        if size_bytes == 0 || size_bytes > model.capacity_bytes {
            return Err(format!("--size {size_bytes}: the drive has {} bytes", model.capacity_bytes).into());
        }
        Ok(Self { model, directory: PathBuf::from(directory), size_bytes, store, name })
    }
}

/// Serves until a signal, or until the file system is unmounted.
fn serve(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let signals = blocked_signals();
    run_in_time();
    let store = Store::open(arguments.store.as_deref(), arguments.size_bytes)?;
    let served = Served::start(arguments.model)?;
    let name = arguments.name.clone();
    let drive = DriveFile { served, store, size_bytes: arguments.size_bytes, name };
    let mut session = mounted(drive, &arguments.directory)?;
    let mut unmounter = session.unmount_callable();
    thread::spawn(move || {
        if let Err(error) = session.run() {
            eprintln!("lab-disk: {error}");
            process::exit(1);
        }
        process::exit(0);
    });
    println!("ready");
    wait_for(&signals);
    unmounter.unmount().or_else(|_| detached(&arguments.directory))?;
    Ok(())
}

fn mounted(drive: DriveFile, directory: &Path) -> io::Result<Session<DriveFile>> {
    let mut config = Config::default();
    config.mount_options =
        vec![MountOption::FSName("lab-disk".to_owned()), MountOption::Subtype("lab-disk".to_owned())];
    Session::new(drive, directory, &config)
}

/// Takes the mount out of sight although a loop device still holds the file: without this program it would be dead.
fn detached(directory: &Path) -> Result<(), Box<dyn Error>> {
    let directory = CString::new(directory.as_os_str().as_bytes())?;
    // SAFETY: the pointer is valid, and its text ends with a zero.
    match unsafe { libc::umount2(directory.as_ptr(), libc::MNT_DETACH) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error().into()),
    }
}

/// Gives this thread and those it starts priority over ordinary ones, if that is allowed: on a busy machine replies would
/// be late.
fn run_in_time() {
    let priority = libc::sched_param { sched_priority: PRIORITY };
    // SAFETY: the pointer is valid. A refusal changes nothing.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) };
}

/// Blocks the signals that end the program, in every thread; returns them.
fn blocked_signals() -> libc::sigset_t {
    // SAFETY: the set is initialised by sigemptyset before it is used, and all calls have valid pointers.
    unsafe {
        let mut signals = mem::zeroed();
        libc::sigemptyset(&raw mut signals);
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::sigaddset(&raw mut signals, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, ptr::null_mut());
        signals
    }
}

fn wait_for(signals: &libc::sigset_t) {
    let mut signal = 0;
    // SAFETY: both pointers are valid.
    unsafe { libc::sigwait(signals, &raw mut signal) };
}

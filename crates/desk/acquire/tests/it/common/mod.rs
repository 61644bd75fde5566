//! Support for tests.

pub mod source;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cheetah_acquire::acquire::{Report, acquire};
use cheetah_acquire::order::{AcquireEvent, ErrorsMax, Request};
use cheetah_device::{ByteRange, DynDevice};
use cheetah_drive::Session;
use cheetah_error::Result;
use cheetah_image::ewf::Ewf;
use cheetah_image::ewf::write::E01Options;

use source::{Disk, MIB, opener};

/// An acquisition of `disk` into files called `names` in `dir`; checkpoints every 2 MiB, and the same E01 each time.
pub fn request(disk: &Arc<Disk>, dir: &Path, names: &[&str]) -> Request {
    let destinations = names.iter().map(|name| dir.join(name).to_str().unwrap().parse().unwrap()).collect();
    let guid = Some([7; 16]);
    Request {
        checkpoint_bytes: 2 * MIB,
        errors_max: ErrorsMax::Unlimited,
        retry_for: Duration::ZERO,
        e01: E01Options { acquired_s: 1_800_000_000, system_s: 1_800_000_000, guid, ..E01Options::default() },
        ..Request::new(
            opener(disk),
            destinations,
            Session::new(Default::default(), Arc::default(), Duration::from_secs(10)),
        )
    }
}

/// Runs it to its end.
pub fn run(request: Request) -> Result<Report> {
    run_telling(request, |_| {})
}

/// Runs it to its end, in a runtime of its own, as in a process of its own.
pub fn run_telling(request: Request, events: impl FnMut(AcquireEvent) + Send) -> Result<Report> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(acquire(request, std::future::pending(), events))
}

/// Runs it until the disk hangs, then kills it: all of its tasks end wherever they are. Returns the result if it ends
/// before that.
pub fn run_until_it_hangs(disk: &Disk, request: Request) -> Option<Result<Report>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        // Notifications of the previous run do not count.
        let _ = tokio::time::timeout(Duration::ZERO, disk.hanging.notified()).await;
        let acquisition = tokio::spawn(acquire(request, std::future::pending(), |_| {}));
        tokio::select! {
            done = acquisition => Some(done.unwrap()),
            () = disk.hanging.notified() => None,
        }
    })
}

/// The content of an E01, with zeros in place of unreadable ranges; and these ranges.
pub fn read_e01(path: &Path) -> (Vec<u8>, Vec<ByteRange>) {
    let image = Ewf::open(path).unwrap();
    let (size, unreadable) = (image.info().size, image.info().unreadable.clone());
    let device: DynDevice = Arc::new(image);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut bytes = vec![0; size as usize];
    let mut at = 0;
    for gap in unreadable.iter().copied().chain([ByteRange::new(size, 0)]) {
        let range = ByteRange::between(at, gap.offset);
        let data = runtime.block_on(device.read(range)).unwrap();
        data.copy_to(&mut bytes[range.offset as usize..range.end() as usize]);
        at = gap.end();
    }
    (bytes, unreadable)
}

/// The names in a directory, in order.
pub fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

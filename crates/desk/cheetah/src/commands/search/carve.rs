//! Files that are carved where a search found their headers.

use cheetah_carve::{Carver, Counts, Format};
use cheetah_device::DynDevice;
use cheetah_search::{FileKind, Finder, Hit, PatternKind, Search};

use super::folder::Folder;
use crate::failure::{Failure, Result};
use crate::signals::Stop;
use crate::ui::Ui;

/// The maximum number of headers that are remembered: more are no use, and take memory.
const HEADERS_MAX: usize = 10_000_000;

/// The headers that a search has found, of formats whose files can be carved.
pub struct Headers {
    /// The format of each pattern.
    formats: Vec<Option<Format>>,
    found: Vec<(u64, Format)>,
}

impl Headers {
    /// None yet.
    pub fn new(search: &Search) -> Self {
        let formats = search.patterns().iter().map(|pattern| match pattern.kind {
            PatternKind::Header => pattern.name.parse().ok().and_then(format),
            PatternKind::Word | PatternKind::Expression | PatternKind::Finder => None,
        });
        Self { formats: formats.collect(), found: Vec::new() }
    }

    /// Adds a hit, if it is such a header. Hits come in the order of their offsets.
    pub fn add(&mut self, hit: &Hit) {
        let format = self.formats.get(hit.pattern).copied().flatten();
        if let Some(format) = format.filter(|_| self.found.len() < HEADERS_MAX) {
            self.found.push((hit.offset, format));
        }
    }

    /// Saves the files that begin there into the folder of the result.
    pub async fn carve(&self, device: &DynDevice, folder: &Folder, stop: &mut Stop, ui: Ui) -> Result<Counts> {
        let mut carver = Carver::new(&folder.for_carved()?)?;
        let progress = ui.progress("carving files".to_owned(), self.found.len() as u64);
        for (done, (offset, format)) in (1..).zip(&self.found) {
            tokio::select! {
                carved = carver.carve(device, *offset, *format) => carved?,
                signal = stop.asked() => return Err(Failure::failed(format!("stopped by {signal}"))),
            }
            progress.set(done);
        }
        Ok(carver.finish()?)
    }
}

/// The format whose files have such a header, if they can be carved.
fn format(finder: Finder) -> Option<Format> {
    let Finder::Header(kind) = finder else { return None };
    Some(match kind {
        FileKind::Jpeg => Format::Jpeg,
        FileKind::Png => Format::Png,
        FileKind::Gif => Format::Gif,
        FileKind::Pdf => Format::Pdf,
        FileKind::Zip => Format::Zip,
        FileKind::SevenZip => Format::SevenZip,
        FileKind::Gzip => Format::Gzip,
        FileKind::Sqlite => Format::Sqlite,
        FileKind::Mp4 => Format::Mp4,
        FileKind::Riff => Format::Riff,
        FileKind::Evtx => Format::Evtx,
        FileKind::Registry => Format::Registry,
        _ => return None,
    })
}

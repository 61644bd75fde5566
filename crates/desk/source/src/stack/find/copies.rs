//! The look for shadow copies.

use cheetah_device::DynDevice;
use cheetah_volume::vss::{self, Catalog, Defect};
use futures::{StreamExt as _, stream};

use super::super::copies::{ListedCopy, name_of};
use super::super::limits::{AT_ONCE, COPIES_MAX};
use super::super::not_shown::NotShown;
use super::super::volume::Assembled;
use super::{Finder, Seen};

impl Finder<'_> {
    /// Lists the shadow copies of volumes that may have some, and shows those that are asked for.
    pub(super) async fn list_copies(&mut self, volumes: Vec<Seen>) {
        let device = DynDevice::clone(&self.device);
        let looks: Vec<_> = volumes.into_iter().map(|seen| look(&device, seen)).collect();
        for (seen, found) in stream::iter(looks).buffered(AT_ONCE).collect::<Vec<_>>().await {
            match found {
                Ok(None) => {}
                Ok(Some(catalog)) => self.add_copies(&seen, &catalog).await,
                Err(why) => {
                    let of = match seen.place.name() {
                        name if name.is_empty() => "it".to_owned(),
                        name => name,
                    };
                    self.note(NotShown::Catalog { of, why });
                }
            }
        }
    }

    async fn add_copies(&mut self, seen: &Seen, catalog: &Catalog) {
        let of = seen.place.name();
        let mut wanted = Vec::new();
        for copy in &catalog.copies {
            if self.stack.copies.len() >= COPIES_MAX {
                self.note_too_many(COPIES_MAX, "shadow copies");
                break;
            }
            let name = name_of(&of, copy.number);
            if self.copies.include(&name) {
                wanted.push(copy.number);
            }
            self.stack.copies.push(ListedCopy { name, copy: copy.clone(), is_shown: false });
        }
        let opened = vss::open(&*self.device, catalog, &wanted, &mut self.store_budget).await;
        for one in opened.not_opened {
            self.note(NotShown::Copy { name: name_of(&of, one.number), why: one.why });
        }
        let shown = opened.snapshots.into_iter().map(|snapshot| Assembled::Snapshot { of: of.clone(), snapshot });
        self.place(shown.collect(), seen.depth + 1);
    }
}

/// Reads the catalog of a volume.
async fn look(device: &DynDevice, seen: Seen) -> (Seen, Result<Option<Catalog>, Defect>) {
    let found = vss::catalog(&**device, seen.place.range).await;
    (seen, found)
}

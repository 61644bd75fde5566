//! YARA rules, tried on the content of files.
//!
//! Their atoms are searched where the bytes lie, in the same pass as all else. Then the process that lists files tries whole rules on the
//! files that may have an atom. If a rule has no atoms, none are searched for, and all rules are tried on all files.

mod set;
mod tried;

use cheetah_source::search::atoms::AtomPlaces;

pub use self::set::RuleSet;
use self::tried::Taken;
pub use self::tried::{Matched, RulesShown, Tried};
use super::Task;
use super::lister::{self, TryRules};
use super::stages::Ended;
use crate::failure::{Failure, Result};
use crate::signals::Stop;

/// Tries the rules on the files of the source, and calls `found` with each match. Returns why not all files were tried. Fails if a match
/// cannot be kept.
pub async fn try_files(
    task: &Task<'_>,
    (set, searched): (&RuleSet, Option<&AtomPlaces>),
    (tried, mut found): (&mut Tried, impl FnMut(&Matched) -> Result<()>),
    stop: &mut Stop,
) -> Result<Ended> {
    let _progress = task.ui.spinner("trying rules on files");
    let (named, order) = (set.named(task.search), TryRules { files: &set.files, searched });
    let mut lost = None;
    let walk = lister::walk(task.opened, (set.python.as_os_str(), Some(&order)), |message| {
        Ok(match tried.take(message, &named)? {
            Taken::Match(matched) => {
                if let Err(failure) = found(matched.as_ref()) {
                    lost = Some(failure);
                    return Err(Failure::failed("a match could not be kept"));
                }
                None
            }
            Taken::Counted => None,
            Taken::Other(message) => Some(message),
        })
    });
    let walked = stop.unless("trying the rules", walk).await;
    if let Some(failure) = lost {
        return Err(failure);
    }
    Ok(walked.map(|listed| {
        tried.left_out_volumes = listed.places.left_out().volumes;
        tried.volumes = listed.volumes;
        tried.death = listed.death;
        tried.problems = listed.problems;
    }))
}

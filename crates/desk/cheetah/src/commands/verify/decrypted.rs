//! Compares a volume of a disk with an image of its content.

use cheetah_acquire::acquire::{CompareOrder, Comparison, VolumeCompared};
use cheetah_custody::Span;
use cheetah_device::Size;
use cheetah_device::compare::RANGES_LISTED_MAX;
use cheetah_source::LinkUse;

use super::Args;
use crate::answers::verify::VerifyDecrypted;
use crate::commands::compared::{range_lines, wrapped};
use crate::commands::load::opener_of;
use crate::commands::options::warn_of_doubts;
use crate::desk::Desk;
use crate::failure::{Failure, Result};
use crate::signals::Stop;
use crate::ui::Ui;

/// Ranges printed.
const RANGES_SHOWN_MAX: usize = 20;

/// Compares the volume that `args` choose with the image at `decrypted`.
pub async fn run(args: &Args, decrypted: &str, desk: &Desk, ui: Ui) -> Result<()> {
    let mut stop = Stop::catch()?;
    let session = desk.session(args.timeout.get());
    let open = |text: &str| opener_of(text, LinkUse::default(), &session);
    let Some(choice) = args.unlock.choice(open)? else {
        return Err(Failure::misused("say which volume is compared: --unlock KEY-FILE, or --volume NAME"));
    };
    let order = CompareOrder { of: open(&args.target), choice, image: open(decrypted) };
    let opening = format!("opening {} and {decrypted}", args.target);
    let comparison = stop.unless(&opening, Comparison::open(order)).await?;
    warn_of_doubts(&comparison.doubts(), ui);
    let progress = ui.progress(format!("comparing {} with {decrypted}", args.target), comparison.both_bytes());
    let compared = tokio::select! {
        compared = comparison.run(|done| progress.set(done)) => compared?,
        signal = stop.asked() => return Err(Failure::failed(format!("stopped by {signal} before the end; run it again"))),
    };
    drop(progress);
    let problems = problems(decrypted, &compared);
    let listed: Vec<_> = compared.content.listed.iter().copied().map(Span::from).collect();
    let value = VerifyDecrypted {
        compared_bytes: compared.content.compared_bytes,
        description: &compared.description,
        differing: &listed,
        differing_bytes: compared.content.differing_bytes,
        differing_ranges: compared.content.differing_ranges,
        disks: &compared.disks,
        first_difference: compared.first_difference(),
        image: decrypted,
        image_size_bytes: compared.image.size,
        image_unreadable_bytes: compared.content.second_unreadable_bytes,
        ok: compared.is_equal(),
        problems: &problems,
        source: &args.target,
        unlocked: compared.unlocked.as_ref(),
        volume: &compared.name,
        volume_size_bytes: compared.volume_size_bytes,
        volume_unreadable_bytes: compared.content.first_unreadable_bytes,
    };
    ui.answer(describe(&args.target, decrypted, &compared, &problems), &value);
    match problems.first() {
        None => Ok(()),
        Some(first) => Err(Failure::evidence(first)),
    }
}

fn describe(source: &str, decrypted: &str, compared: &VolumeCompared, problems: &[String]) -> String {
    let VolumeCompared { name, description, content, .. } = compared;
    let size = Size(compared.volume_size_bytes);
    let verdict = if compared.is_equal() { "equals" } else { "DIFFERS from" };
    let mut lines = vec![wrapped(&format!("{decrypted}: {verdict} {name} of {source}, {size}: {description}"), 0)];
    if compared.disks.len() > 1 {
        let disks = compared.disks.iter().map(|disk| format!("looked for on {} ({} bytes)", disk.location, disk.size));
        lines.extend(disks.map(|disk| wrapped(&disk, 2)));
    }
    lines.extend(problems.iter().map(|problem| wrapped(problem, 2)));
    let shown = content.listed.iter().take(RANGES_SHOWN_MAX).map(|range| (*range, "not the same bytes"));
    lines.extend(range_lines("differing", shown));
    if content.differing_ranges > RANGES_SHOWN_MAX as u64 {
        let more = content.differing_ranges - RANGES_SHOWN_MAX as u64;
        lines.push(format!("  and {more} more ranges; --json lists the first {RANGES_LISTED_MAX}"));
    }
    lines.join("\n")
}

/// How the image differs from the volume, a sentence each.
fn problems(decrypted: &str, compared: &VolumeCompared) -> Vec<String> {
    let (content, mut problems) = (&compared.content, Vec::new());
    if let Some(first) = content.first_difference() {
        let (bytes, ranges) = (content.differing_bytes, content.differing_ranges);
        problems.push(format!(
            "{decrypted} differs from the volume from byte {first} on: {bytes} bytes in {ranges} ranges differ"
        ));
    }
    let (volume, image) = (compared.volume_size_bytes, compared.image.size);
    if volume != image {
        let is = if image < volume { "shorter" } else { "longer" };
        problems
            .push(format!("{decrypted} is {is} than the volume: it has {image} bytes, and the volume has {volume}"));
    }
    for (what, bytes) in [("the volume", content.first_unreadable_bytes), (decrypted, content.second_unreadable_bytes)]
    {
        if bytes > 0 {
            problems.push(format!("{bytes} bytes of {what} cannot be read, and were not compared"));
        }
    }
    problems
}

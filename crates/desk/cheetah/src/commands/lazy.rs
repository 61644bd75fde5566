//! Lazy drives: code shared by `load`, `mount` and `export`.

use std::convert::Infallible;
use std::sync::Arc;

use cheetah_custody::FillLog;
use cheetah_device::Size;
use cheetah_device::path_text::path_to_text;
use cheetah_drive::fill::{FillOptions, FillStage, Filling};
use cheetah_drive::options::REPLACE_AFTER;
use cheetah_drive::{DriveFile, Image, ImageState, Session};
use cheetah_source::{LinkUse, opener};
use cheetah_words::sentence;
use tokio::sync::watch;

use super::compared::wrapped;
use crate::answers::content::Fill;
use crate::desk::Desk;
use crate::failure::{Failure, Result};
use crate::signals::Stop;
use crate::ui::Ui;

/// Fills a drive to the end: `cheetah load` without an image.
pub async fn fill_up(
    (file, desk): (&DriveFile, &Desk),
    force_lease: bool,
    link: LinkUse,
    session: Session,
    stop: &mut Stop,
    ui: Ui,
) -> Result<()> {
    let name = file.path.display();
    let observer = Some(Arc::new(FillLog::beside(&file.path, &desk.custodian)) as _);
    let options = FillOptions {
        force_lease,
        without_source: false,
        replace_after: Some(REPLACE_AFTER),
        session: session.clone(),
        prefetch_budget: 0,
        observer,
    };
    let Some(filling) = Filling::open(file, opener(link, session), options).await? else {
        return Err(Failure::misused(format!("{name} is complete: another process has finished it meanwhile")));
    };
    let outcome = tokio::select! {
        outcome = finished(&filling, ui) => outcome,
        signal = stop.asked() => Err(Failure::failed(format!(
            "stopped by {signal}: {name} holds part of the image, and is marked so; the same command resumes"
        ))),
    };
    filling.close().await?;
    let image = outcome?;
    say_complete(&path_to_text(&file.path), &image, ui);
    match image.state {
        ImageState::Incomplete => Err(Failure::evidence(format!(
            "parts of {} could not be read; `cheetah status {name}` says how much, and {name}.map which",
            image.source
        ))),
        _ => Ok(()),
    }
}

/// Waits for a fill to end, with a progress bar.
async fn finished(filling: &Filling, ui: Ui) -> Result<Image> {
    let mut stages = filling.stage();
    let mut shown: Option<(bool, crate::ui::Progress)> = None;
    let mut warned = false;
    loop {
        let stage = stages.borrow_and_update().clone();
        let (checking, done, total) = match stage {
            FillStage::Complete(image) => return Ok(image),
            FillStage::Failed(error) => return Err(error.into()),
            FillStage::Checking(progress) => (true, progress.done, progress.total),
            FillStage::Copying(progress) => {
                if let Some(error) = progress.drive_trouble {
                    return Err(Failure::failed(format!("the nodes refuse writes: {error}")));
                }
                match progress.source_trouble {
                    Some(error) if !warned => ui.warn(format_args!("{error}; waiting for the source to come back")),
                    _ => {}
                }
                (false, progress.read + progress.unreadable, progress.size)
            }
        };
        warned = matches!(&*stages.borrow(), FillStage::Copying(progress) if progress.source_trouble.is_some());
        if shown.as_ref().is_none_or(|(then, _)| *then != checking) {
            let what = if checking { "checking the nodes" } else { "filling" };
            shown = Some((checking, ui.progress(what, total)));
        }
        if let Some((_, progress)) = &shown {
            progress.set(done);
        }
        if stages.changed().await.is_err() {
            return Err(Failure::failed("the fill ended without a result; this is a bug, please report it"));
        }
    }
}

/// Reports when the drive at `path` is complete, or that its fill has failed, while it is mounted or exported.
pub async fn tell(stages: Option<watch::Receiver<FillStage>>, path: &str, ui: Ui) -> Infallible {
    if let Some(mut stages) = stages {
        let over = |stage: &FillStage| matches!(stage, FillStage::Complete(_) | FillStage::Failed(_));
        let last = stages.wait_for(over).await.map(|stage| stage.clone());
        match last {
            Ok(FillStage::Complete(image)) => say_complete(path, &image, ui),
            Ok(FillStage::Failed(error)) => {
                ui.warn(format_args!("{path} is incomplete, and the fill has ended: {}", sentence(&error)))
            }
            _ => {}
        }
    }
    std::future::pending().await
}

fn say_complete(path: &str, image: &Image, ui: Ui) {
    let size = Size(image.size);
    let mut text = match image.state {
        ImageState::Incomplete => {
            format!("{path}: everything readable of {} is there ({size}); {path}.map lists the rest", image.source)
        }
        _ if image.differ_bytes_max > 0 => format!("{path}: complete, {size}, from {}", image.source),
        _ => format!("{path}: complete, {size}: identical to a plain acquisition of {}", image.source),
    };
    if let Some(note) = image.note() {
        text.push_str(&format!("\n{}", wrapped(&format!("NOTE: {note}"), 2)));
    }
    for (kind, digest) in image.hashes.iter() {
        text.push_str(&format!("\n  {:<7} {digest}", kind.name()));
    }
    let value = Fill::Complete {
        drive: path,
        hashes: &image.hashes,
        note: image.note().map(|note| note.to_string()),
        size_bytes: image.size,
        source: &image.source,
        state: image.state,
    };
    ui.answer(text, &value);
}

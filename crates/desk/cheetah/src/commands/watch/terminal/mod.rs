//! The picture in the terminal: drawn each second, when something changes, and at each key.
//!
//! [`screen`] takes the terminal and gives it back, [`view`] is what keys move. [`lines`] turns the picture into lines of a width,
//! with [`machines`], [`drive`] and its [`map`]; the words are those of [`show`](super::show). [`fold`] breaks lines, [`paint`]
//! has the colours.

mod drive;
mod fold;
mod lines;
mod machines;
mod map;
mod paint;
mod screen;
#[cfg(test)]
pub mod tests;
mod view;

use std::io;
use std::time::Duration;

use cheetah_device::{os_error, supervise};
use tokio::time::{MissedTickBehavior, interval};

use self::screen::Screen;
use self::view::View;
use super::board::Board;
use crate::failure::{Context as _, Failure, Result};

/// The longest time without drawing: the view says how long ago a machine was seen.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Draws what the board knows until a key ends it.
pub async fn run(board: &Board, every: Duration, colours: bool) -> Result<()> {
    let refused = |error: io::Error| {
        let why = os_error::describe(&error);
        Failure::failed(format!("cannot draw in this terminal: {why}; print the room with --once"))
    };
    let mut screen = Screen::take().map_err(refused)?;
    let mut events = screen::events().context("cannot read keys")?;
    let mut view = View::new(colours);
    let mut ticks = interval(every.min(PAUSE_MAX));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let picture = board.picture();
        screen.draw(|frame| view.draw(frame, &picture)).context("cannot draw in the terminal")?;
        supervise::panic_point("watch-terminal");
        tokio::select! {
            _ = ticks.tick() => {}
            () = board.changed() => {}
            event = events.recv() => match event {
                Some(Ok(event)) if view.heed(&event) => return Ok(()),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error).context("cannot read keys"),
                None => return Err(Failure::failed("cannot read keys any more")),
            },
        }
    }
}

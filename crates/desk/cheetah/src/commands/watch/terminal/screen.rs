//! The terminal while the view has it. It is given back when the view ends, also by a signal or a panic.

use std::io::{self, BufWriter, Stdout};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{panic, thread};

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::{Frame, Terminal};
use tokio::sync::mpsc;

use crate::ui::stderr::{self, Held};

/// Keys that wait to be heeded.
const EVENTS_MAX: usize = 64;
/// A frame is written at once.
const FRAME_BYTES: usize = 64 << 10;

/// The terminal, in raw mode and on its other screen.
#[derive(Debug)]
pub struct Screen {
    // It shows the cursor when it is dropped, which is done already, and prints an error where nobody may be left to read it.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<BufWriter<Stdout>>>>,
    taken: Arc<AtomicBool>,
    // What is written to stderr meanwhile follows once the terminal is given back: fields are dropped after the whole.
    _held: Held,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    ///
    /// If there is none, or if it cannot be written.
    pub fn take() -> io::Result<Self> {
        let held = stderr::hold();
        enable_raw_mode()?;
        let taken = Arc::new(AtomicBool::new(true));
        let begun = execute!(io::stdout(), EnterAlternateScreen, Hide);
        let backend = CrosstermBackend::new(BufWriter::with_capacity(FRAME_BYTES, io::stdout()));
        match begun.and_then(|()| Terminal::new(backend)) {
            Ok(terminal) => {
                give_back_at_panic(&taken);
                Ok(Self { terminal: ManuallyDrop::new(terminal), taken, _held: held })
            }
            Err(error) => {
                give_back(&taken);
                Err(error)
            }
        }
    }

    /// Draws one frame, of the size that the terminal has now. Draws nothing after a panic, while the process winds up.
    ///
    /// # Errors
    ///
    /// If the terminal cannot be written.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        match self.taken.load(Ordering::SeqCst) {
            true => self.terminal.draw(draw).map(|_| ()),
            false => Ok(()),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back(&self.taken);
    }
}

/// Gives the terminal back, once: a second time would move the cursor over what was printed since.
fn give_back(taken: &AtomicBool) {
    if taken.swap(false, Ordering::SeqCst) {
        // A terminal that is gone needs nothing.
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// Gives the terminal back before a panic is reported, or the report would vanish with the other screen.
fn give_back_at_panic(taken: &Arc<AtomicBool>) {
    let taken = Arc::clone(taken);
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        give_back(&taken);
        usual(panic);
    }));
}

/// Keys and changes of the size, read by a thread that lasts as long as the process.
///
/// # Errors
///
/// If no thread can be started.
pub fn events() -> io::Result<mpsc::Receiver<io::Result<Event>>> {
    let (send, receive) = mpsc::channel(EVENTS_MAX);
    let read = move || {
        loop {
            let event = event::read();
            let is_last = event.is_err();
            if send.blocking_send(event).is_err() || is_last {
                return;
            }
        }
    };
    thread::Builder::new().name("keys".into()).spawn(read)?;
    Ok(receive)
}

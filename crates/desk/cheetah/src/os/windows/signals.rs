//! Events of the console that ask a process to stop, and the end of the session. A program that is started as a service, or by another
//! program without a console, gets none of them.

use std::io;

use cheetah_windows::{SessionEnd, when_session_ends};
use tokio::signal::windows::{
    CtrlBreak, CtrlC, CtrlClose, CtrlLogoff, CtrlShutdown, ctrl_break, ctrl_c, ctrl_close, ctrl_logoff, ctrl_shutdown,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

const LOG_OFF: &str = "the user's log-off";
const SHUTDOWN: &str = "the machine's shutdown";

/// The events, which are caught while it exists. After the end of the window and of the session, Windows ends the process some seconds
/// later: by default after 5 s, and after up to 20 s at a shutdown.
pub struct Signals {
    interrupt: CtrlC,
    interrupt_hard: CtrlBreak,
    close: CtrlClose,
    log_off: CtrlLogoff,
    shutdown: CtrlShutdown,
    /// The same two again, as windows are told of them: the console does not tell a program that has loaded `user32.dll`.
    session: UnboundedReceiver<SessionEnd>,
    ends_soon: bool,
}

impl Signals {
    /// Starts catching them.
    ///
    /// # Errors
    ///
    /// If Windows refuses.
    pub fn catch() -> io::Result<Self> {
        let (sender, session) = unbounded_channel();
        when_session_ends(move |end| {
            // Nobody waits for it any more.
            let _ = sender.send(end);
        })?;
        Ok(Self {
            interrupt: ctrl_c()?,
            interrupt_hard: ctrl_break()?,
            close: ctrl_close()?,
            log_off: ctrl_logoff()?,
            shutdown: ctrl_shutdown()?,
            session,
            ends_soon: false,
        })
    }

    /// Waits for the next of them, and returns its name.
    pub async fn next(&mut self) -> &'static str {
        let (name, ends_soon) = tokio::select! {
            _ = self.interrupt.recv() => ("Ctrl-C", false),
            _ = self.interrupt_hard.recv() => ("Ctrl-Break", false),
            _ = self.close.recv() => ("the window's end", true),
            _ = self.log_off.recv() => (LOG_OFF, true),
            _ = self.shutdown.recv() => (SHUTDOWN, true),
            Some(end) = self.session.recv() => match end {
                SessionEnd::LogOff => (LOG_OFF, true),
                SessionEnd::Shutdown => (SHUTDOWN, true),
            },
        };
        self.ends_soon |= ends_soon;
        name
    }

    /// Whether one of them came after which the system ends this process within seconds, whatever it does.
    pub fn ends_soon(&self) -> bool {
        self.ends_soon
    }
}

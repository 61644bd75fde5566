//! Events of the console that ask a process to stop. A program that is started as a service, or by another program without a
//! console, gets none of them.

use std::io;

use tokio::signal::windows::{
    CtrlBreak, CtrlC, CtrlClose, CtrlLogoff, CtrlShutdown, ctrl_break, ctrl_c, ctrl_close, ctrl_logoff, ctrl_shutdown,
};

/// The events, which are caught while it exists. After the last three, Windows ends the process some seconds later: the default is 5
/// s after the window was closed or the user logged off, and 20 s at a shutdown.
pub struct Signals {
    interrupt: CtrlC,
    interrupt_hard: CtrlBreak,
    close: CtrlClose,
    log_off: CtrlLogoff,
    shutdown: CtrlShutdown,
}

impl Signals {
    /// Starts catching them.
    ///
    /// # Errors
    ///
    /// If Windows refuses.
    pub fn catch() -> io::Result<Self> {
        Ok(Self {
            interrupt: ctrl_c()?,
            interrupt_hard: ctrl_break()?,
            close: ctrl_close()?,
            log_off: ctrl_logoff()?,
            shutdown: ctrl_shutdown()?,
        })
    }

    /// Waits for the next of them, and returns its name.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "Ctrl-C",
            _ = self.interrupt_hard.recv() => "Ctrl-Break",
            _ = self.close.recv() => "the window's end",
            _ = self.log_off.recv() => "the user's log-off",
            _ = self.shutdown.recv() => "the machine's shutdown",
        }
    }
}

//! The end of the user's session, by the messages that windows get.
//!
//! A console has events for that, too. Windows does not send them to a program that has loaded `user32.dll` (SetConsoleCtrlHandler), and a
//! library that reads keys in a terminal loads it. So there is a window that nobody sees.

use std::io;
use std::ptr::{null, null_mut};
use std::thread;

use windows_sys::Win32::Foundation::{HWND, LPARAM, LRESULT, WPARAM};
use windows_sys::Win32::UI::WindowsAndMessaging::{
    CreateWindowExW, DefWindowProcW, DispatchMessageW, ENDSESSION_CLOSEAPP, ENDSESSION_LOGOFF, GWLP_USERDATA,
    GetMessageW, GetWindowLongPtrW, MSG, RegisterClassW, SetWindowLongPtrW, WM_ENDSESSION, WM_QUERYENDSESSION,
    WNDCLASSW,
};

use crate::wide;

/// The name of the kind of window, and of the window. Windows shows it to a user for whom the session does not end.
const NAME: &str = "cheetah";

/// What ends a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEnd {
    /// The user logs off.
    LogOff,
    /// The machine is shut down, or starts again.
    Shutdown,
}

type Ended = Box<dyn Fn(SessionEnd) + Send>;

/// Has `ended` called when the session ends. Windows then waits some seconds for this process to end. A process without a desktop, such as
/// a service, may not be told, nor is one for which Windows makes no window.
///
/// # Errors
///
/// If no thread can be started.
pub fn when_session_ends(ended: impl Fn(SessionEnd) + Send + 'static) -> io::Result<()> {
    let ended: Ended = Box::new(ended);
    thread::Builder::new().name("session".into()).spawn(move || listen(&ended)).map(drop)
}

/// Takes the messages of a window, as long as the process lives.
fn listen(ended: &Ended) {
    let name = wide::terminated(NAME);
    let class = WNDCLASSW { lpfnWndProc: Some(answer), lpszClassName: name.as_ptr(), ..WNDCLASSW::default() };
    // SAFETY: the structure and the name outlive the call, and the name ends with a zero. A class that there is already is the same;
    // without one, there is no window below.
    unsafe { RegisterClassW(&raw const class) };
    // Not one for messages alone: such a window does not get these.
    // SAFETY: the names end with zeros, and no handle is given.
    let window = unsafe {
        CreateWindowExW(0, name.as_ptr(), name.as_ptr(), 0, 0, 0, 0, 0, null_mut(), null_mut(), null_mut(), null())
    };
    if window.is_null() {
        return;
    }
    // SAFETY: the window is this thread's, and `ended` outlives it: it is only used while messages are taken below.
    unsafe { SetWindowLongPtrW(window, GWLP_USERDATA, (&raw const *ended) as isize) };
    let mut message = MSG::default();
    // SAFETY: the calls write and read the structure. No handle is given.
    while unsafe { GetMessageW(&raw mut message, null_mut(), 0, 0) } > 0 {
        // SAFETY: as above.
        unsafe { DispatchMessageW(&raw const message) };
    }
}

/// Answers a message to the window.
unsafe extern "system" fn answer(window: HWND, message: u32, word: WPARAM, long: LPARAM) -> LRESULT {
    let is = |flag: u32| long.cast_unsigned() & flag as usize != 0;
    match message {
        // The Restart Manager asks, which replaces files that are in use. The session goes on, and so does this process.
        WM_QUERYENDSESSION | WM_ENDSESSION if is(ENDSESSION_CLOSEAPP) => 0,
        // The session may end; another program may refuse that yet.
        WM_QUERYENDSESSION => 1,
        WM_ENDSESSION if word != 0 => {
            // SAFETY: there is what `listen` put there, which lives as long as messages are taken, or nothing yet.
            let ended = unsafe { (GetWindowLongPtrW(window, GWLP_USERDATA) as *const Ended).as_ref() };
            if let Some(ended) = ended {
                ended(if is(ENDSESSION_LOGOFF) { SessionEnd::LogOff } else { SessionEnd::Shutdown });
                // Windows may end the process once this is answered. The process ends by itself.
                loop {
                    thread::park();
                }
            }
            0
        }
        // SAFETY: these are the arguments that the system gave.
        _ => unsafe { DefWindowProcW(window, message, word, long) },
    }
}

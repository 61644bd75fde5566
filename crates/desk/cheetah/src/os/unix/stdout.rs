//! Whether there is a stdout.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether stdout was closed when the process started (`cheetah status >&-`).
static CLOSED: AtomicBool = AtomicBool::new(false);

/// Looks at stdout before Rust's runtime starts, which opens /dev/null in place of a closed stdout, where every write
/// succeeds. Nothing shows afterwards that this happened.
#[used]
#[expect(unsafe_code, reason = "the attribute: the C library calls the function before `main`")]
#[cfg_attr(target_os = "macos", unsafe(link_section = "__DATA,__mod_init_func"))]
#[cfg_attr(not(target_os = "macos"), unsafe(link_section = ".init_array"))]
static LOOK: extern "C" fn() = {
    extern "C" fn look() {
        let closed = rustix::io::fcntl_getfd(rustix::stdio::stdout()).is_err();
        CLOSED.store(closed, Ordering::Relaxed);
    }
    look
};

/// Whether stdout was closed when the process started.
pub fn is_stdout_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

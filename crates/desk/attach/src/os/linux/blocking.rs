//! Blocking work beside a runtime.

use crate::{Error, Result};

/// Runs blocking work on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| {
        let error = std::io::Error::other("cut short by the end of the runtime");
        Err(Error::Io { context: "attaching or detaching".to_owned(), error })
    })
}

//! The stages of a search, which follow each other: bytes in their order, compressed data, fragments of files, and rules.

use futures::StreamExt as _;
use futures::stream::BoxStream;

use crate::failure::{Failure, Result};
use crate::signals::Stop;

/// How a stage ended: by itself, or because it was stopped or the source failed. What was found is kept then. If it cannot be kept, the
/// stage fails.
pub type Ended = Result<()>;

/// Has `take` take each result of a stage. Returns how the stage ended, and fails if `take` does.
pub async fn each<T, E: Into<Failure>>(
    mut results: BoxStream<'_, std::result::Result<T, E>>,
    stop: &mut Stop,
    mut take: impl FnMut(T) -> Result<()>,
) -> Result<Ended> {
    loop {
        let next = tokio::select! {
            next = results.next() => next,
            signal = stop.asked() => return Ok(Err(Failure::failed(format!("stopped by {signal}")))),
        };
        match next {
            None => return Ok(Ok(())),
            Some(Err(error)) => return Ok(Err(error.into())),
            Some(Ok(result)) => take(result)?,
        }
    }
}

//! The future of one operation on a device.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::{Error, Result};

/// One operation under way.
///
/// A layer that has the answer at hand (RAM, a cache) returns [`Io::Done`] and pays for no allocation and no
/// trip through the executor; anything that waits returns [`Io::Later`].
pub enum Io<'a, T> {
    /// The answer is here. `None` once taken.
    Done(Option<Result<T>>),
    /// The answer comes later.
    Later(Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>),
}

impl<'a, T> Io<'a, T> {
    /// Finished with `result`.
    pub fn done(result: Result<T>) -> Self {
        Self::Done(Some(result))
    }

    /// Finished well.
    pub fn ok(value: T) -> Self {
        Self::done(Ok(value))
    }

    /// Finished badly.
    pub fn fail(error: Error) -> Self {
        Self::done(Err(error))
    }

    /// To be finished by `future`.
    pub fn later(future: impl Future<Output = Result<T>> + Send + 'a) -> Self {
        Self::Later(Box::pin(future))
    }
}

impl<T: Unpin> Future for Io<'_, T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Done(result) => match result.take() {
                Some(result) => Poll::Ready(result),
                None => Poll::Ready(Err(Error::Invalid("operation polled after it had finished".into()))),
            },
            Self::Later(future) => future.as_mut().poll(cx),
        }
    }
}

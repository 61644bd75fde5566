//! The future of one operation on a device.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::{Error, Result};

/// An operation in progress.
///
/// A device that has the answer at hand (RAM, a cache) returns [`Io::Done`], which costs no allocation and no trip
/// through the executor. An operation that waits is [`Io::Later`].
pub enum Io<'a, T> {
    /// The answer; `None` once taken.
    Done(Option<Result<T>>),
    /// A future of the answer.
    Later(Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>),
}

/// The value of a [`Result`]. An error is returned as an operation that has failed, as `?` returns it from functions that return
/// results; it must be an [`Error`] already, since nothing converts it.
#[macro_export]
macro_rules! try_io {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(error) => return $crate::Io::fail(error),
        }
    };
}

impl<'a, T> Io<'a, T> {
    /// Returns a finished operation.
    pub fn done(result: Result<T>) -> Self {
        Self::Done(Some(result))
    }

    /// Returns an operation that has succeeded.
    pub fn ok(value: T) -> Self {
        Self::done(Ok(value))
    }

    /// Returns an operation that has failed.
    pub fn fail(error: Error) -> Self {
        Self::done(Err(error))
    }

    /// Returns an operation that `future` finishes.
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

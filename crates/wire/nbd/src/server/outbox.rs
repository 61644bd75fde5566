//! Replies queued for the socket.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use cheetah_device::data::zero_runs;
use smallvec::SmallVec;
use tokio::io::AsyncWrite;

/// Payloads of up to this many bytes are copied behind their header, which is cheaper than another I/O vector entry.
const INLINE_BYTES_MAX: usize = 16 * 1024;

/// The most runs of one system call.
const RUNS_MAX: usize = 64;

/// A queue of bytes, sent with as few system calls as possible.
#[derive(Default)]
pub(super) struct Outbox {
    /// Complete runs, oldest first.
    runs: VecDeque<Bytes>,
    /// The run that is being appended to.
    open: BytesMut,
    len: usize,
}

impl Outbox {
    /// Bytes queued.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Lets `write` append headers and short payloads.
    pub(super) fn append(&mut self, write: impl FnOnce(&mut BytesMut)) {
        let before = self.open.len();
        write(&mut self.open);
        self.len += self.open.len() - before;
    }

    /// Queues a payload.
    pub(super) fn payload(&mut self, bytes: &Bytes) {
        if bytes.len() <= INLINE_BYTES_MAX {
            self.append(|open| open.extend_from_slice(bytes));
        } else {
            self.seal();
            self.len += bytes.len();
            self.runs.push_back(bytes.clone());
        }
    }

    /// Queues `len` zero bytes without allocating them.
    pub(super) fn zeros(&mut self, len: u64) {
        zero_runs(len).for_each(|run| self.payload(&Bytes::from_static(run)));
    }

    fn seal(&mut self) {
        if !self.open.is_empty() {
            self.runs.push_back(self.open.split().freeze());
        }
    }

    /// Writes as much as the socket accepts. Ready with whether it accepted any.
    pub(super) fn poll_send<W: AsyncWrite + Unpin>(
        &mut self,
        to: &mut W,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        let mut moved = false;
        while self.len > 0 {
            let sent = if self.runs.is_empty() {
                match Pin::new(&mut *to).poll_write(cx, &self.open) {
                    Poll::Ready(sent) => sent?,
                    Poll::Pending => return if moved { Poll::Ready(Ok(true)) } else { Poll::Pending },
                }
            } else {
                self.seal();
                let mut slices = [IoSlice::new(&[]); RUNS_MAX];
                let mut used = 0;
                for (slice, run) in slices.iter_mut().zip(&self.runs) {
                    *slice = IoSlice::new(run);
                    used += 1;
                }
                match Pin::new(&mut *to).poll_write_vectored(cx, &slices[..used]) {
                    Poll::Ready(sent) => sent?,
                    Poll::Pending => return if moved { Poll::Ready(Ok(true)) } else { Poll::Pending },
                }
            };
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(sent);
            moved = true;
        }
        Poll::Ready(Ok(moved))
    }

    /// Sends `bytes` behind the queue, as far as the socket accepts them now, and queues a copy of the rest.
    pub(super) fn send_through<W: AsyncWrite + Unpin>(
        &mut self,
        bytes: &[&[u8]],
        to: &mut W,
        cx: &mut Context<'_>,
    ) -> io::Result<()> {
        let len: usize = bytes.iter().map(|run| run.len()).sum();
        let mut gone = 0;
        if len > INLINE_BYTES_MAX {
            if !self.runs.is_empty() {
                let _ = self.poll_send(to, cx)?;
            }
            while self.runs.is_empty() && gone < len {
                let rest = after(bytes, gone);
                let slices: SmallVec<[IoSlice<'_>; 8]> =
                    std::iter::once(&self.open[..]).chain(rest).map(IoSlice::new).collect();
                let polled = Pin::new(&mut *to).poll_write_vectored(cx, &slices)?;
                drop(slices);
                let Poll::Ready(sent) = polled else { break };
                if sent == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                let from_open = sent.min(self.open.len());
                self.open.advance(from_open);
                self.len -= from_open;
                gone += sent - from_open;
            }
        }
        self.append(|open| after(bytes, gone).for_each(|run| open.extend_from_slice(run)));
        Ok(())
    }

    fn advance(&mut self, mut sent: usize) {
        self.len -= sent;
        while let Some(run) = self.runs.front_mut() {
            if sent < run.len() {
                run.advance(sent);
                return;
            }
            sent -= run.len();
            self.runs.pop_front();
        }
        self.open.advance(sent);
    }
}

/// `bytes` without the first `gone`.
fn after<'a>(bytes: &'a [&'a [u8]], gone: usize) -> impl Iterator<Item = &'a [u8]> {
    let mut skip = gone;
    bytes.iter().filter_map(move |run| {
        let here = skip.min(run.len());
        skip -= here;
        (here < run.len()).then(|| &run[here..])
    })
}

#[cfg(test)]
mod tests {
    use std::task::ready;

    use super::*;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn queued_bytes_are_sent_in_order() {
        let (mut near, mut far) = tokio::io::duplex(1000);
        let mut outbox = Outbox::default();
        let mut expected = Vec::new();
        for size in [10usize, 20_000, 0, 5, 70_000, 1] {
            let bytes = Bytes::from(vec![(size % 251) as u8 + 1; size]);
            outbox.append(|open| open.extend_from_slice(b"head"));
            outbox.payload(&bytes);
            outbox.zeros(size as u64);
            expected.extend_from_slice(b"head");
            expected.extend_from_slice(&bytes);
            expected.resize(expected.len() + size, 0);
        }
        assert_eq!(outbox.len(), expected.len());
        let sending = std::future::poll_fn(|cx| {
            while outbox.len() > 0 {
                ready!(outbox.poll_send(&mut near, cx))?;
            }
            Poll::Ready(io::Result::Ok(()))
        });
        let mut got = vec![0; expected.len()];
        let (sent, received) = tokio::join!(sending, far.read_exact(&mut got));
        sent.unwrap();
        received.unwrap();
        assert_eq!(got, expected);
    }

    #[tokio::test]
    async fn bytes_sent_through_keep_the_order() {
        let (mut near, mut far) = tokio::io::duplex(30_000);
        let mut outbox = Outbox::default();
        let (one, two) = (vec![1; 50_000], vec![2; 20_000]);
        std::future::poll_fn(|cx| {
            outbox.append(|open| open.extend_from_slice(b"a"));
            outbox.send_through(&[&one[..], &two[..]], &mut near, cx).unwrap();
            outbox.append(|open| open.extend_from_slice(b"b"));
            outbox.send_through(&[&two[..10]], &mut near, cx).unwrap();
            Poll::Ready(())
        })
        .await;
        let expected = [b"a", &one[..], &two[..], b"b", &two[..10]].concat();
        let mut got = vec![0; expected.len()];
        let sending = std::future::poll_fn(|cx| {
            while outbox.len() > 0 {
                ready!(outbox.poll_send(&mut near, cx))?;
            }
            Poll::Ready(io::Result::Ok(()))
        });
        let (sent, received) = tokio::join!(sending, far.read_exact(&mut got));
        sent.unwrap();
        received.unwrap();
        assert_eq!(got, expected);
    }
}

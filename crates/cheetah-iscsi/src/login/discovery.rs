//! Asking a host for its targets (RFC 7143, appendix C). No I/O.

use bytes::BytesMut;

use super::{Agreement, LoginError, SEGMENT_LEN_MAX, shown};
use crate::pdu::{NO_TAG, Response, Violation, frame, request, text};

/// The most targets listed.
pub const TARGETS_MAX: usize = 256;
/// The question's task tag.
const ITT: u32 = 1;
/// The most PDUs the list may come in, which may be as short as one target each.
const ROUNDS_MAX: u32 = 1024;

/// A question for targets under way, after the login.
#[derive(Debug)]
pub struct Discovery {
    agreement: Agreement,
    text: BytesMut,
    rounds: u32,
}

impl Discovery {
    /// Appends the question to `out`.
    pub fn start(agreement: Agreement, out: &mut BytesMut) -> Self {
        let mut question = BytesMut::new();
        text::put(&mut question, "SendTargets", "All");
        frame::put(out, request::text(ITT, NO_TAG, agreement.numbers), &question, agreement.digests);
        Self { agreement, text: BytesMut::new(), rounds: 0 }
    }

    /// Takes what it can out of `input`, and appends what is to be sent to `out`. The targets' names, printable, once
    /// they are all there.
    ///
    /// # Errors
    ///
    /// If the target does not answer what it was asked.
    pub fn advance(&mut self, input: &mut BytesMut, out: &mut BytesMut) -> Result<Option<Vec<String>>, LoginError> {
        while let Some((header, data)) = frame::take_plain(input, SEGMENT_LEN_MAX)? {
            self.rounds += 1;
            let (last, ttt, sequence) = match Response::parse(&header)? {
                Response::Text { itt: ITT, last, ttt, sequence, .. } => (last, ttt, sequence),
                // A ping; it is answered by going on.
                Response::NopIn { .. } if self.rounds < ROUNDS_MAX => continue,
                _ => return Err(Violation::new("something else than a list of targets").into()),
            };
            self.agreement.numbers.exp_stat_sn = sequence.stat_sn.wrapping_add(1);
            if self.text.len() + data.len() > text::TEXT_LEN_MAX || self.rounds > ROUNDS_MAX {
                return Err(Violation::new("a list of targets without end").into());
            }
            self.text.extend_from_slice(&data);
            if last {
                return Ok(Some(targets(&self.text)?));
            }
            frame::put(out, request::text(ITT, ttt, self.agreement.numbers), &[], self.agreement.digests);
        }
        Ok(None)
    }
}

fn targets(text: &[u8]) -> Result<Vec<String>, Violation> {
    let names = text::parse(text)?.into_iter().filter(|(key, _)| *key == "TargetName");
    Ok(names.take(TARGETS_MAX).map(|(_, name)| shown(name)).collect())
}

//! Discovery of a host's targets (RFC 7143, appendix C). No I/O.

use bytes::BytesMut;

use super::{LoginError, NegotiatedLogin, SEGMENT_LEN_MAX, shown};
use crate::pdu::{NO_TAG, Response, Violation, frame, request, text};

/// The maximum number of targets listed.
pub const TARGETS_MAX: usize = 256;
/// The request's task tag.
const ITT: u32 = 1;
/// The maximum number of PDUs in the list; a PDU may hold as little as one target.
const ROUNDS_MAX: u32 = 1024;

/// A discovery request, after the login.
#[derive(Debug)]
pub struct Discovery {
    agreement: NegotiatedLogin,
    text: BytesMut,
    rounds: u32,
}

impl Discovery {
    /// Appends the request to `out`.
    pub fn start(agreement: NegotiatedLogin, out: &mut BytesMut) -> Self {
        let mut question = BytesMut::new();
        text::put(&mut question, "SendTargets", "All");
        frame::put(out, request::text(ITT, NO_TAG, agreement.numbers), &question, agreement.digests);
        Self { agreement, text: BytesMut::new(), rounds: 0 }
    }

    /// Consumes complete PDUs from `input`, and appends replies to `out`. Returns the targets' names, made printable,
    /// once the list is complete.
    ///
    /// # Errors
    ///
    /// If the target answers anything else.
    pub fn advance(&mut self, input: &mut BytesMut, out: &mut BytesMut) -> Result<Option<Vec<String>>, LoginError> {
        while let Some((header, data)) = frame::take_plain(input, SEGMENT_LEN_MAX)? {
            self.rounds += 1;
            let (last, ttt, sequence) = match Response::parse(&header)? {
                Response::Text { itt: ITT, last, ttt, sequence, .. } => (last, ttt, sequence),
                // A ping; the next request answers it.
                Response::NopIn { .. } if self.rounds < ROUNDS_MAX => continue,
                _ => return Err(Violation::new("an answer that is not a list of targets").into()),
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

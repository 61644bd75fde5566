//! A session after its login: the outstanding commands and the target's responses. No I/O.
//!
//! At error recovery level 0 any fault ends the session: a digest mismatch, a number out of sequence, an unknown tag.
//! The connection's task then opens another session and repeats the outstanding commands.
//!
//! Memory is bounded by the data that outstanding commands may return, plus [`OTHER_LEN_MAX`].

use std::collections::HashMap;

use bytes::{Buf, Bytes, BytesMut};
use cheetah_device::receive::{DIRECT_LEN_MIN, HEAD_LEN, INPUT_LEN, SURPLUS_LEN, Target, split_surplus};

use crate::login::NegotiatedLogin;
use crate::pdu::request::{self, Numbers};
use crate::pdu::{Digests, NO_TAG, Response, Sequence, Violation, frame, serial};
use crate::scsi::{CHECK_CONDITION, Cdb, GOOD, Sense};

/// The maximum length of a data segment other than a command's data, in bytes.
pub const OTHER_LEN_MAX: usize = 64 << 10;
/// The maximum number of unsent bytes. Only a target that pings without reading the replies reaches it.
const OUT_LEN_MAX: usize = 1 << 20;

/// The outcome of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Success. The data may be shorter than requested.
    Good(Bytes),
    /// Sense data, and the data read before the error.
    Check(Sense, Bytes),
    /// Another SCSI status, or a check condition without sense data.
    Status(u8),
    /// The target did not execute it, with its response code (RFC 7143, 11.4.3).
    Failed(u8),
}

/// An outstanding command.
#[derive(Debug, Default)]
struct Task {
    /// The maximum number of bytes it returns.
    len: usize,
    /// The data received so far. Data arrives in order, as negotiated, so this is a prefix of the whole.
    data: BytesMut,
    /// The length of the prefix whose digest was checked.
    verified: usize,
    /// The sequence number of the next part.
    data_sn: u32,
}

/// A data segment that is not yet complete.
#[derive(Debug)]
struct Segment {
    response: Response,
    missing: usize,
    /// Its offset in the task's data.
    start: usize,
    /// The content, unless it belongs to a task.
    other: BytesMut,
}

/// A session's state.
#[derive(Debug)]
pub struct Session {
    digests: Digests,
    lun: [u8; 8],
    numbers: Numbers,
    max_cmd_sn: u32,
    next_itt: u32,
    in_flight_max: usize,
    tasks: HashMap<u32, Task>,
    ping: Option<u32>,
    segment: Option<Segment>,
    segment_len_last: usize,
    /// The longest data segment of a command's data, in bytes.
    segment_len_max: usize,
}

impl Session {
    /// Starts the negotiated session for one logical unit, with at most `in_flight_max` outstanding commands.
    pub fn new(agreement: &NegotiatedLogin, lun: u16, in_flight_max: usize) -> Self {
        Self {
            digests: agreement.digests,
            lun: request::lun(lun),
            numbers: agreement.numbers,
            max_cmd_sn: agreement.sequence.max_cmd_sn,
            next_itt: 1,
            in_flight_max,
            tasks: HashMap::new(),
            ping: None,
            segment: None,
            segment_len_last: 0,
            segment_len_max: agreement.keys.segment_len_max as usize,
        }
    }

    /// Whether the target's window and our limit allow another command.
    pub fn has_room(&self) -> bool {
        self.tasks.len() < self.in_flight_max && !serial::after(self.numbers.cmd_sn, self.max_cmd_sn)
    }

    /// Appends a command that returns at most `len` bytes to `out`, and returns its tag. Requires
    /// [`Session::has_room`].
    pub fn submit(&mut self, cdb: &Cdb, len: u32, out: &mut BytesMut) -> u32 {
        let itt = self.new_tag();
        frame::put(out, request::command(itt, self.lun, cdb, len, self.numbers), &[], self.digests);
        self.numbers.cmd_sn = self.numbers.cmd_sn.wrapping_add(1);
        // A u32 fits into a usize; memory is allocated only as data arrives.
        self.tasks.insert(itt, Task { len: len as usize, ..Task::default() });
        itt
    }

    /// Appends a ping to `out`, unless one is outstanding.
    pub fn ping(&mut self, out: &mut BytesMut) {
        if self.ping.is_none() {
            let itt = self.new_tag();
            self.ping = Some(itt);
            frame::put(out, request::ping(itt, self.numbers), &[], self.digests);
        }
    }

    /// Appends a request to end the session to `out`.
    pub fn logout(&mut self, out: &mut BytesMut) {
        let itt = self.new_tag();
        frame::put(out, request::logout(itt, self.numbers), &[], self.digests);
    }

    fn new_tag(&mut self) -> u32 {
        loop {
            let itt = self.next_itt;
            self.next_itt = self.next_itt.wrapping_add(1);
            if itt != NO_TAG && !self.tasks.contains_key(&itt) && self.ping != Some(itt) {
                return itt;
            }
        }
    }

    /// The number of bytes an outstanding command has returned whose digest, if any, was checked.
    pub fn verified(&self, itt: u32) -> usize {
        self.tasks.get(&itt).map_or(0, |task| task.verified)
    }

    /// Where to receive the next bytes. After a payload, call [`received`](Self::received).
    pub fn target(&mut self) -> Target<'_> {
        if let Some(Segment { response: Response::DataIn { itt, .. }, missing: missing @ DIRECT_LEN_MIN.., .. }) =
            &self.segment
            && let Some(task) = self.tasks.get_mut(itt)
        {
            return Target::Payload(&mut task.data, missing + SURPLUS_LEN);
        }
        match &self.segment {
            Some(segment) => Target::Input(segment.missing + HEAD_LEN),
            None if self.segment_len_last >= DIRECT_LEN_MIN => Target::Input(HEAD_LEN),
            None => Target::Input(INPUT_LEN),
        }
    }

    /// Records `len` bytes received into the payload's buffer. Bytes beyond the payload move to `input`.
    pub fn received(&mut self, len: usize, input: &mut BytesMut) {
        let Some(segment) = &mut self.segment else { return };
        let Response::DataIn { itt, .. } = segment.response else { return };
        let Some(task) = self.tasks.get_mut(&itt) else { return };
        segment.missing = split_surplus(&mut task.data, segment.missing, len, input);
    }

    /// Consumes complete PDUs from `input`: appends completed commands to `ended`, and replies to `out`.
    ///
    /// # Errors
    ///
    /// If the session ended, with the reason.
    pub fn take(
        &mut self,
        input: &mut BytesMut,
        out: &mut BytesMut,
        ended: &mut Vec<(u32, Outcome)>,
    ) -> Result<(), SessionEnd> {
        loop {
            if self.segment.is_none() {
                let Some(header) = frame::take_header(input, self.digests)? else { return Ok(()) };
                self.segment = Some(self.begin(Response::parse(&header)?, header.data_len())?);
            }
            let Some(mut segment) = self.segment.take() else { return Ok(()) };
            if !self.fill(&mut segment, input)? {
                self.segment = Some(segment);
                return Ok(());
            }
            self.complete(segment, out, ended)?;
            if out.len() > OUT_LEN_MAX {
                return Err(Violation::new("pings without end").into());
            }
        }
    }

    /// Checks a header before its data segment arrives.
    fn begin(&mut self, response: Response, len: usize) -> Result<Segment, Violation> {
        let mut start = 0;
        if let Response::DataIn { itt, data_sn, offset, .. } = response {
            let task = self.tasks.get_mut(&itt).ok_or_else(|| stray(itt))?;
            start = task.data.len();
            if data_sn != task.data_sn {
                let why = format!("data out of sequence: piece {data_sn} where {} was due", task.data_sn);
                return Err(Violation::new(why));
            }
            if offset as usize != start || len > task.len - start || len > self.segment_len_max {
                let why = format!("{len} bytes at {offset} of a command of {}, of which {start} had arrived", task.len);
                return Err(Violation::new(why));
            }
            task.data_sn = task.data_sn.wrapping_add(1);
            if task.data.capacity() == 0 && len > 0 {
                task.data.reserve(task.len + SURPLUS_LEN);
            }
            self.segment_len_last = len;
        } else if len > OTHER_LEN_MAX {
            return Err(Violation::new(format!("a data segment of {len} bytes that no command requested")));
        }
        Ok(Segment { response, missing: len, start, other: BytesMut::new() })
    }

    /// Moves the segment's bytes from `input` to their destination. Returns whether the segment is complete and
    /// correct.
    fn fill(&mut self, segment: &mut Segment, input: &mut BytesMut) -> Result<bool, Violation> {
        let (data, start) = match segment.response {
            Response::DataIn { itt, .. } => match self.tasks.get_mut(&itt) {
                Some(task) => (&mut task.data, segment.start),
                None => return Err(stray(itt)),
            },
            _ => (&mut segment.other, 0),
        };
        let here = segment.missing.min(input.len());
        data.extend_from_slice(&input[..here]);
        input.advance(here);
        segment.missing -= here;
        if segment.missing > 0 {
            return Ok(false);
        }
        Ok(frame::take_trailer(input, &data[start..], self.digests)?.is_some())
    }

    fn complete(
        &mut self,
        segment: Segment,
        out: &mut BytesMut,
        ended: &mut Vec<(u32, Outcome)>,
    ) -> Result<(), SessionEnd> {
        match segment.response {
            Response::DataIn { itt, status, sequence, .. } => {
                if let Some(task) = self.tasks.get_mut(&itt) {
                    task.verified = task.data.len();
                }
                match status {
                    Some(status) => {
                        self.note(sequence, true);
                        let task = self.finish(itt)?;
                        ended.push((itt, outcome(status, task.data.freeze(), None)));
                    }
                    None => self.note(sequence, false),
                }
            }
            Response::Scsi { itt, response, status, sequence } => {
                self.note(sequence, true);
                let task = self.finish(itt)?;
                let outcome = match response {
                    0 => outcome(status, task.data.freeze(), sense(&segment.other)),
                    code => Outcome::Failed(code),
                };
                ended.push((itt, outcome));
            }
            Response::NopIn { itt, ttt, lun, sequence } => {
                // A target's ping consumes no status number.
                self.note(sequence, itt != NO_TAG);
                if itt != NO_TAG && self.ping.take() != Some(itt) {
                    return Err(stray(itt).into());
                }
                if ttt != NO_TAG {
                    frame::put(out, request::pong(lun, ttt, self.numbers), &[], self.digests);
                }
            }
            Response::Async { event, vendor_code, sequence } => {
                self.note(sequence, true);
                match event {
                    // Sense data, which commands report as well; or vendor-specific.
                    0 | 255 => tracing::debug!("the target sends event {event}/{vendor_code}"),
                    1 => return Err(SessionEnd::Asked("the target asks for a logout")),
                    2 => return Err(SessionEnd::Asked("the target drops the connection")),
                    3 => return Err(SessionEnd::Asked("the target drops all connections")),
                    4 => return Err(SessionEnd::Asked("the target wants to negotiate anew")),
                    event => return Err(Violation::new(format!("the unknown event {event}")).into()),
                }
            }
            Response::Reject { reason, .. } => {
                return Err(Violation::new(format!("it rejects a request, reason {reason:#04x}")).into());
            }
            Response::ReadyToTransfer { .. } => {
                return Err(Violation::new("it requests data to write, although nothing is ever written").into());
            }
            Response::Logout { .. } | Response::Login { .. } | Response::Text { .. } => {
                return Err(Violation::new("an answer that was not requested").into());
            }
        }
        Ok(())
    }

    /// Updates the target's numbers (RFC 7143, 4.2.2). Gaps in status numbers are not checked: a lost status leaves a
    /// command outstanding, which the time-out detects.
    fn note(&mut self, sequence: Sequence, has_status: bool) {
        if has_status && !serial::after(self.numbers.exp_stat_sn, sequence.stat_sn) {
            self.numbers.exp_stat_sn = sequence.stat_sn.wrapping_add(1);
        }
        let makes_sense = !serial::after(sequence.exp_cmd_sn, sequence.max_cmd_sn.wrapping_add(1));
        if makes_sense && serial::after(sequence.max_cmd_sn, self.max_cmd_sn) {
            self.max_cmd_sn = sequence.max_cmd_sn;
        }
    }

    fn finish(&mut self, itt: u32) -> Result<Task, Violation> {
        self.tasks.remove(&itt).ok_or_else(|| stray(itt))
    }
}

fn stray(itt: u32) -> Violation {
    Violation::new(format!("an answer to no command (tag {itt:#010x})"))
}

fn outcome(status: u8, data: Bytes, sense: Option<Sense>) -> Outcome {
    match (status, sense) {
        (GOOD, _) => Outcome::Good(data),
        (CHECK_CONDITION, Some(sense)) => Outcome::Check(sense, data),
        (status, _) => Outcome::Status(status),
    }
}

/// The sense data in the data segment of a SCSI response, after its length (RFC 7143, 11.4.7).
fn sense(data: &[u8]) -> Option<Sense> {
    let (len, rest) = data.split_first_chunk()?;
    let len = usize::from(u16::from_be_bytes(*len)).min(rest.len());
    Sense::parse(&rest[..len])
}

/// The reason a session ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionEnd {
    /// The target violates the protocol.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// The target requests it.
    #[error("{0}")]
    Asked(&'static str),
}

#[cfg(test)]
mod tests;

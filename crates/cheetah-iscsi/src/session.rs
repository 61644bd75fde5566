//! A session after its login: commands under way, and what the target says about them. No I/O.
//!
//! With error recovery level 0, whatever goes wrong ends the session: a digest that does not match, a number out of
//! sequence, a tag nobody gave out. The connection's keeper then opens another and asks again.
//!
//! Whatever a target sends, no more memory is taken than what the commands under way may return, plus
//! [`OTHER_LEN_MAX`].

use std::collections::HashMap;

use bytes::{Buf, Bytes, BytesMut};

use crate::login::{Agreement, SEGMENT_LEN_MAX};
use crate::pdu::request::{self, Numbers};
use crate::pdu::{Digests, NO_TAG, Response, Sequence, Violation, frame, serial};
use crate::scsi::{CHECK_CONDITION, Cdb, GOOD, Sense};

/// Segments from here on are received straight into the memory that is handed up; smaller ones are cheaper to copy.
const DIRECT_LEN_MIN: usize = 16 << 10;
/// Room behind what a command returns: digest and next header then come with the same system call.
const SURPLUS_LEN: usize = 256;
/// What is received at once while large segments are expected: enough for a header, so that little is copied.
const HEAD_LEN: usize = 4 << 10;
/// What is received at once otherwise.
const INPUT_LEN: usize = 256 << 10;
/// The longest data segment of anything but what a command reads, in bytes.
pub const OTHER_LEN_MAX: usize = 64 << 10;
/// The most that is left to be sent, in bytes. Only a target that pings without end and reads no answers gets there.
const OUT_LEN_MAX: usize = 1 << 20;

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Well. There may be less than was asked for; then so it is.
    Good(Bytes),
    /// With sense data, and whatever was read.
    Check(Sense, Bytes),
    /// With another SCSI status, or one without sense data.
    Status(u8),
    /// It was not carried out; the target says why (RFC 7143, 11.4.3).
    Failed(u8),
}

/// Where the next bytes are to be received.
pub enum Target<'a> {
    /// Into the input, at most so many bytes.
    Input(usize),
    /// Into this buffer, at most so many bytes; then call [`Session::received`].
    Payload(&'a mut BytesMut, usize),
}

/// A command under way.
#[derive(Debug, Default)]
struct Task {
    /// Bytes it may return.
    len: usize,
    /// What has come. Data comes in order, as was agreed, so this is always a beginning of the whole.
    data: BytesMut,
    /// Those of them whose digest was compared.
    verified: usize,
    /// The number of the next piece.
    data_sn: u32,
}

/// A data segment of which some bytes are still to come.
#[derive(Debug)]
struct Segment {
    response: Response,
    missing: usize,
    /// Where it begins in the task's data.
    start: usize,
    /// The content, unless it is a task's.
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
}

impl Session {
    /// The session that was agreed on, for one logical unit, with at most `in_flight_max` commands under way.
    pub fn new(agreement: &Agreement, lun: u16, in_flight_max: usize) -> Self {
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
        }
    }

    /// Whether the target, and we, allow one more command under way.
    pub fn has_room(&self) -> bool {
        self.tasks.len() < self.in_flight_max && !serial::after(self.numbers.cmd_sn, self.max_cmd_sn)
    }

    /// Appends a command that returns at most `len` bytes to `out`; its tag. Call only while there is room.
    pub fn submit(&mut self, cdb: &Cdb, len: u32, out: &mut BytesMut) -> u32 {
        let itt = self.new_tag();
        frame::put(out, request::command(itt, self.lun, cdb, len, self.numbers), &[], self.digests);
        self.numbers.cmd_sn = self.numbers.cmd_sn.wrapping_add(1);
        // A u32 fits into a usize; the target may return as much, but memory is taken as it comes.
        self.tasks.insert(itt, Task { len: len as usize, ..Task::default() });
        itt
    }

    /// Appends a ping to `out`, unless one is under way.
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

    /// Bytes a command under way has returned so far, of which the digest, if there is one, was compared.
    pub fn verified(&self, itt: u32) -> usize {
        self.tasks.get(&itt).map_or(0, |task| task.verified)
    }

    /// Where the next bytes should go.
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

    /// `len` bytes were received into the payload's own buffer. What is not the payload's goes to `input`.
    pub fn received(&mut self, len: usize, input: &mut BytesMut) {
        let Some(segment) = &mut self.segment else { return };
        let Response::DataIn { itt, .. } = segment.response else { return };
        let Some(task) = self.tasks.get_mut(&itt) else { return };
        let surplus = len.saturating_sub(segment.missing);
        segment.missing -= len - surplus;
        let end = task.data.len() - surplus;
        input.extend_from_slice(&task.data[end..]);
        task.data.truncate(end);
    }

    /// Takes all it can out of `input`: commands that ended go to `ended`, answers to `out`.
    ///
    /// # Errors
    ///
    /// If the session is over, for the reason given.
    pub fn take(
        &mut self,
        input: &mut BytesMut,
        out: &mut BytesMut,
        ended: &mut Vec<(u32, Outcome)>,
    ) -> Result<(), Over> {
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

    /// Checks what can be checked before the data segment has come.
    fn begin(&mut self, response: Response, len: usize) -> Result<Segment, Violation> {
        let mut start = 0;
        if let Response::DataIn { itt, data_sn, offset, .. } = response {
            let task = self.tasks.get_mut(&itt).ok_or_else(|| stray(itt))?;
            start = task.data.len();
            if data_sn != task.data_sn {
                let why = format!("data out of sequence: piece {data_sn} where {} was due", task.data_sn);
                return Err(Violation::new(why));
            }
            if offset as usize != start || len > task.len - start || len > SEGMENT_LEN_MAX {
                let why = format!("{len} bytes at {offset} of a command of {}, of which {start} had come", task.len);
                return Err(Violation::new(why));
            }
            task.data_sn = task.data_sn.wrapping_add(1);
            if task.data.capacity() == 0 && len > 0 {
                task.data.reserve(task.len + SURPLUS_LEN);
            }
            self.segment_len_last = len;
        } else if len > OTHER_LEN_MAX {
            return Err(Violation::new(format!("a data segment of {len} bytes that is not what a command reads")));
        }
        Ok(Segment { response, missing: len, start, other: BytesMut::new() })
    }

    /// Moves the segment's bytes from `input` to where they belong; whether they are all there, and right.
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

    fn complete(&mut self, segment: Segment, out: &mut BytesMut, ended: &mut Vec<(u32, Outcome)>) -> Result<(), Over> {
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
                // A ping of the target's uses up no status number.
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
                    // Something a logical unit wants to tell, which commands will be told as well; vendors' own.
                    0 | 255 => tracing::debug!("the target sends event {event}/{vendor_code}"),
                    1 => return Err(Over::Asked("the target asks for a logout")),
                    2 => return Err(Over::Asked("the target drops the connection")),
                    3 => return Err(Over::Asked("the target drops all connections")),
                    4 => return Err(Over::Asked("the target wants to negotiate anew")),
                    event => return Err(Violation::new(format!("the unknown event {event}")).into()),
                }
            }
            Response::Reject { reason, .. } => {
                return Err(Violation::new(format!("it rejects a request, reason {reason:#04x}")).into());
            }
            Response::ReadyToTransfer { .. } => {
                return Err(Violation::new("it wants data to write, and nothing is ever written").into());
            }
            Response::Logout { .. } | Response::Login { .. } | Response::Text { .. } => {
                return Err(Violation::new("an answer to what was not asked").into());
            }
        }
        Ok(())
    }

    /// Takes note of the target's numbers (RFC 7143, 4.2.2). Status numbers are not checked for gaps: what they count
    /// ends a command, or tells of something, and a command that never ends is noticed.
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

/// Sense data in the data segment of a SCSI response, behind its length (RFC 7143, 11.4.7).
fn sense(data: &[u8]) -> Option<Sense> {
    let (len, rest) = data.split_first_chunk()?;
    let len = usize::from(u16::from_be_bytes(*len)).min(rest.len());
    Sense::parse(&rest[..len])
}

/// Why a session is over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Over {
    /// The target makes no sense.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// The target wants it so.
    #[error("{0}")]
    Asked(&'static str),
}

#[cfg(test)]
mod tests;

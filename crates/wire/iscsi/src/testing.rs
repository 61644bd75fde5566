//! A target whose behaviour a test determines, for tests of this crate and of others.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test may panic")]
#![allow(missing_docs, reason = "a test reads the code")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::pdu::{Digests, Header, NO_TAG, Response, Sequence, frame, text};

pub const TARGET: &str = "iqn.2001-04.com.example:fake";
pub const BLOCK: usize = 512;
/// Pieces that data is sent in: small enough that a command has several, large enough to be received directly.
const PIECE: usize = 32 << 10;

/// A READ, as the target sees it.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// The number of earlier reads, on any connection.
    pub number: usize,
    /// The first block, and the number of blocks.
    pub lba: u64,
    pub blocks: usize,
}

/// The behaviour of the target on a READ.
#[derive(Debug, Clone)]
pub enum Act {
    Answer,
    /// Sense data with this key and code, about this block.
    Sense(u8, (u8, u8), Option<u32>),
    Status(u8),
    Failed(u8),
    Ignore,
    /// Sends that number of pieces, and disconnects.
    HangUpAfter(usize),
    /// The first piece has a wrong digest.
    BadDigest,
    /// Data beyond the requested range.
    TooMuch,
    /// The first piece is sent twice.
    Twice,
    /// A piece is left out.
    Gap,
    /// Less than requested, and success.
    Short,
    WrongTag,
    WantsToWrite,
    Reject,
    Event(u8),
    /// Answers after its ping was answered.
    AfterPing,
    /// Status in a separate response, after the data.
    StatusApart,
    /// Half of the data, then success reported with a recovered error.
    Recovered,
}

/// The state of the target.
pub struct Plan {
    pub disk: Arc<[u8]>,
    pub digests: Digests,
    /// The command window.
    pub window: u32,
    /// The login's status.
    pub status: (u8, u8),
    /// The serial number and the number of blocks, by connection.
    pub serial: fn(usize) -> &'static str,
    pub blocks: fn(usize, usize) -> usize,
    pub act: Box<dyn Fn(Seen) -> Act + Send + Sync>,
}

impl Plan {
    /// A target that behaves, except that `act` decides its answers to reads.
    pub fn new(disk: &Arc<[u8]>, act: impl Fn(Seen) -> Act + Send + Sync + 'static) -> Self {
        Self {
            disk: Arc::clone(disk),
            digests: Digests { header: true, data: true },
            window: 32,
            status: (0, 0),
            serial: |_| "S1",
            blocks: |_, blocks| blocks,
            act: Box::new(act),
        }
    }
}

/// A running target; it ends with the test's runtime.
pub struct Fake {
    pub port: u16,
    pub connections: Arc<AtomicUsize>,
}

impl Fake {
    pub async fn start(plan: Plan) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let fake = Self { port, connections: Arc::clone(&connections) };
        let (plan, reads) = (Arc::new(plan), Arc::new(AtomicUsize::new(0)));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let connection = connections.fetch_add(1, Ordering::SeqCst);
                let (plan, reads) = (Arc::clone(&plan), Arc::clone(&reads));
                tokio::spawn(async move {
                    let mut talk = Talk::new(stream, plan, connection, reads);
                    // Ends when the initiator disconnects, or as planned.
                    let _ = talk.run().await;
                });
            }
        });
        fake
    }

    pub fn uri(&self) -> String {
        format!("iscsi://127.0.0.1:{}/{TARGET}/0", self.port)
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// One connection.
struct Talk {
    stream: TcpStream,
    plan: Arc<Plan>,
    connection: usize,
    reads: Arc<AtomicUsize>,
    input: BytesMut,
    out: BytesMut,
    digests: Digests,
    stat_sn: u32,
    cmd_sn: u32,
    attention: bool,
}

type Ended = Result<(), std::io::Error>;

impl Talk {
    fn new(stream: TcpStream, plan: Arc<Plan>, connection: usize, reads: Arc<AtomicUsize>) -> Self {
        let (input, out) = (BytesMut::new(), BytesMut::new());
        let digests = Digests::default();
        let (stat_sn, cmd_sn, attention) = (7, 0, true);
        Self { stream, plan, connection, reads, input, out, digests, stat_sn, cmd_sn, attention }
    }

    async fn run(&mut self) -> Ended {
        self.login().await?;
        loop {
            // All received commands are in flight at once.
            self.receive().await?;
            let mut under_way = Vec::new();
            while let Some(header) = frame::take_header(&mut self.input, self.digests).unwrap() {
                assert_eq!(header.data_len(), 0, "nothing is ever written");
                if header.opcode() == 0x01 {
                    assert_eq!(u32::from_be_bytes(header.0[24..28].try_into().unwrap()), self.cmd_sn);
                    self.cmd_sn += 1;
                    under_way.push(header);
                } else if header.opcode() == 0x06 {
                    return Ok(());
                } else if header.itt() != NO_TAG {
                    let sequence = self.sequence(true);
                    let pong = Response::NopIn { itt: header.itt(), ttt: NO_TAG, lun: [0; 8], sequence };
                    self.put(&pong, &[]);
                }
            }
            assert!(under_way.len() <= self.plan.window as usize, "the window is respected");
            for header in under_way {
                self.command(header).await?;
            }
            self.flush().await?;
        }
    }

    async fn receive(&mut self) -> Ended {
        match self.stream.read_buf(&mut self.input).await? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    async fn flush(&mut self) -> Ended {
        self.stream.write_all_buf(&mut self.out).await
    }

    fn sequence(&mut self, has_status: bool) -> Sequence {
        let stat_sn = self.stat_sn;
        self.stat_sn += u32::from(has_status);
        // Commands complete at once, so the window moves on.
        let max_cmd_sn = self.cmd_sn.wrapping_add(self.plan.window).wrapping_sub(1);
        Sequence { stat_sn, exp_cmd_sn: self.cmd_sn, max_cmd_sn }
    }

    fn put(&mut self, response: &Response, data: &[u8]) {
        frame::put(&mut self.out, response.header(), data, self.digests);
    }

    async fn login(&mut self) -> Ended {
        loop {
            self.receive().await?;
            while let Some((header, data)) = frame::take_plain(&mut self.input, 1 << 16).unwrap() {
                let (stage, next) = (header.0[1] >> 2 & 3, header.0[1] & 3);
                let mut answer = BytesMut::new();
                for (key, _) in text::parse(&data).unwrap() {
                    let digest = |on: bool| if on { "CRC32C" } else { "None" };
                    match key {
                        "AuthMethod" => text::put(&mut answer, key, "None"),
                        "HeaderDigest" => text::put(&mut answer, key, digest(self.plan.digests.header)),
                        "DataDigest" => text::put(&mut answer, key, digest(self.plan.digests.data)),
                        _ => {}
                    }
                }
                let (class, detail) = self.plan.status;
                let mut isid = [0; 6];
                isid.copy_from_slice(&header.0[8..14]);
                let response = Response::Login {
                    itt: header.itt(),
                    transit: true,
                    more: false,
                    stage,
                    next,
                    version_active: 0,
                    isid,
                    tsih: 1,
                    class,
                    detail,
                    sequence: self.sequence(true),
                };
                if class == 1 {
                    text::put(&mut answer, "TargetAddress", "10.9.8.7:3260,1");
                }
                self.put(&response, &answer);
                self.flush().await?;
                if next == 3 {
                    self.digests = self.plan.digests;
                    return Ok(());
                }
            }
        }
    }

    async fn command(&mut self, header: Header) -> Ended {
        let cdb = &header.0[32..48];
        let field = |at: usize| u32::from_be_bytes(cdb[at..at + 4].try_into().unwrap());
        let blocks = (self.plan.blocks)(self.connection, self.plan.disk.len() / BLOCK);
        match cdb[0] {
            0x12 if cdb[1] == 0 => {
                let mut data = *b"\0\0\x05\x02\x1f\0\0\0ACME    FAKE DISK       1.0 ";
                data[0] = 0;
                self.answer(&header, &data);
            }
            0x12 if cdb[2] == 0x80 => {
                let serial = (self.plan.serial)(self.connection);
                let page = [&[0, 0x80, 0, serial.len() as u8], serial.as_bytes()].concat();
                self.answer(&header, &page);
            }
            // Each connection begins with a unit attention, as after a power on.
            0x00 if std::mem::take(&mut self.attention) => self.sense(&header, 6, (0x29, 0), None),
            0x00 => self.answer(&header, &[]),
            0x9E => {
                let mut data = [0; 32];
                data[..8].copy_from_slice(&(blocks as u64 - 1).to_be_bytes());
                data[8..12].copy_from_slice(&(BLOCK as u32).to_be_bytes());
                data[13] = 3;
                self.answer(&header, &data);
            }
            0x1A => self.answer(&header, &[3, 0, 0x80, 0]),
            0x28 => {
                let lba = u64::from(field(2));
                let blocks = usize::from(u16::from_be_bytes([cdb[7], cdb[8]]));
                return self.read(&header, lba, blocks).await;
            }
            _ => self.sense(&header, 5, (0x20, 0), None),
        }
        Ok(())
    }

    fn answer(&mut self, header: &Header, data: &[u8]) {
        if data.is_empty() {
            return self.status(header, 0, 0, &[]);
        }
        self.pieces(header, data, usize::MAX, Some(0));
    }

    /// Data in pieces, at most `count` of them; the last one carries the status.
    fn pieces(&mut self, header: &Header, data: &[u8], count: usize, status: Option<u8>) {
        let last = data.len().div_ceil(PIECE) - 1;
        for (number, piece) in data.chunks(PIECE).enumerate().take(count) {
            self.piece(header.itt(), number as u32, (number * PIECE) as u32, piece, status.filter(|_| number == last));
        }
    }

    fn piece(&mut self, itt: u32, data_sn: u32, offset: u32, data: &[u8], status: Option<u8>) {
        let sequence = self.sequence(status.is_some());
        self.put(&Response::DataIn { itt, status, data_sn, offset, sequence }, data);
    }

    fn status(&mut self, header: &Header, response: u8, status: u8, data: &[u8]) {
        let sequence = self.sequence(true);
        self.put(&Response::Scsi { itt: header.itt(), response, status, sequence }, data);
    }

    fn sense(&mut self, header: &Header, key: u8, code: (u8, u8), block: Option<u32>) {
        let mut sense = [0; 20];
        sense[1] = 18;
        sense[2] = 0x70 | if block.is_some() { 0x80 } else { 0 };
        sense[4] = key;
        sense[5..9].copy_from_slice(&block.unwrap_or(0).to_be_bytes());
        sense[9] = 10;
        (sense[14], sense[15]) = code;
        self.status(header, 0, 2, &sense);
    }

    async fn read(&mut self, header: &Header, lba: u64, blocks: usize) -> Ended {
        let number = self.reads.fetch_add(1, Ordering::SeqCst);
        let seen = Seen { number, lba, blocks };
        let start = lba as usize * BLOCK;
        let disk = Arc::clone(&self.plan.disk);
        let data = &disk[start..start + blocks * BLOCK];
        let itt = header.itt();
        let first = &data[..PIECE.min(data.len())];
        match (self.plan.act)(seen) {
            Act::Answer => self.answer(header, data),
            Act::Sense(key, code, block) => self.sense(header, key, code, block),
            Act::Status(status) => self.status(header, 0, status, &[]),
            Act::Failed(response) => self.status(header, response, 0, &[]),
            Act::Ignore => {}
            Act::HangUpAfter(count) => {
                self.pieces(header, data, count, Some(0));
                self.flush().await?;
                return Err(std::io::ErrorKind::ConnectionAborted.into());
            }
            Act::BadDigest => {
                let begin = self.out.len();
                self.answer(header, data);
                self.out[begin + 60] ^= 1;
            }
            Act::TooMuch => {
                let more = [data, &[0xEE; BLOCK]].concat();
                self.answer(header, &more);
            }
            Act::Twice => {
                self.piece(itt, 0, 0, first, None);
                self.piece(itt, 1, 0, first, None);
            }
            Act::Gap => {
                self.piece(itt, 0, 0, first, None);
                self.piece(itt, 2, PIECE as u32, first, None);
            }
            Act::Short => self.answer(header, &data[..data.len() - BLOCK]),
            Act::WrongTag => self.piece(itt ^ 0x5555_0000, 0, 0, first, None),
            Act::WantsToWrite => self.put(&Response::ReadyToTransfer { itt }, &[]),
            Act::Reject => {
                let sequence = self.sequence(true);
                self.put(&Response::Reject { reason: 4, sequence }, &header.0);
            }
            Act::Event(event) => {
                let sequence = self.sequence(true);
                self.put(&Response::Async { event, vendor_code: 0, sequence }, &[]);
            }
            Act::AfterPing => {
                let sequence = self.sequence(false);
                self.put(&Response::NopIn { itt: NO_TAG, ttt: 99, lun: [9; 8], sequence }, &[]);
                self.flush().await?;
                let pong = self.pong().await?;
                assert_eq!((pong.itt(), &pong.0[8..16], &pong.0[20..24]), (NO_TAG, &[9; 8][..], &[0, 0, 0, 99][..]));
                self.answer(header, data);
            }
            Act::StatusApart => {
                self.pieces(header, data, usize::MAX, None);
                self.status(header, 0, 0, &[]);
            }
            Act::Recovered => {
                self.pieces(header, data, usize::MAX, None);
                self.sense(header, 1, (0x17, 1), None);
            }
        }
        Ok(())
    }

    /// Receives the initiator's answer to a ping; no other PDU may arrive meanwhile.
    async fn pong(&mut self) -> Result<Header, std::io::Error> {
        loop {
            if let Some(header) = frame::take_header(&mut self.input, self.digests).unwrap() {
                assert_eq!(header.opcode(), 0x00);
                return Ok(header);
            }
            self.receive().await?;
        }
    }
}

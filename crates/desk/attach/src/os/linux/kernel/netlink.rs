//! Messages of the kernel's generic netlink family `nbd` (linux/genetlink.h, linux/nbd-netlink.h). No I/O.
//!
//! Not encoded by the crate `neli`, which the probe uses: the family's commands and attributes would have to be defined
//! for it as well, and each message built by fallible builders, so the code would not be shorter.
//!
//! Numbers are in the byte order of this machine. Each message and attribute begins at a multiple of four bytes.

use std::io;
use std::time::Duration;

/// Bytes of a `struct nlmsghdr`.
const HEADER_LEN: usize = 16;
/// Bytes of a `struct genlmsghdr`.
const GENERIC_LEN: usize = 4;
/// Bytes of a `struct nlattr`.
const ATTRIBUTE_LEN: usize = 4;

/// `NLM_F_REQUEST` and `NLM_F_ACK`.
const REQUEST_AND_ACK: u16 = 1 | 4;
/// `NLMSG_ERROR`; an acknowledgement is one of error 0.
const ERROR: u16 = 2;
/// `GENL_ID_CTRL`, the family that returns the numbers of the others.
const CONTROL: u16 = 0x10;
/// The bits of an attribute's type that are flags: `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
const TYPE_FLAGS: u16 = 0xC000;
/// `NLA_F_NESTED`
const NESTED: u16 = 0x8000;

/// The name of the family.
const FAMILY: &[u8] = b"nbd\0";
/// `NBD_GENL_VERSION`
const VERSION: u8 = 1;

/// `CTRL_CMD_GETFAMILY`, `CTRL_ATTR_FAMILY_ID`, `CTRL_ATTR_FAMILY_NAME`
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// `NBD_CMD_*`
const CONNECT: u8 = 1;
const DISCONNECT: u8 = 2;
const RECONFIGURE: u8 = 3;

/// `NBD_ATTR_*`
const INDEX: u16 = 1;
const SIZE_BYTES: u16 = 2;
const BLOCK_SIZE_BYTES: u16 = 3;
const TIMEOUT: u16 = 4;
const SERVER_FLAGS: u16 = 5;
const SOCKETS: u16 = 7;
const DEAD_CONNECTION_TIMEOUT: u16 = 8;
const BACKEND_IDENTIFIER: u16 = 10;
/// `NBD_SOCK_ITEM`, `NBD_SOCK_FD`
const SOCKET_ITEM: u16 = 1;
const SOCKET_FD: u16 = 1;

/// The settings of a device that the kernel is given when it is connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Connect<'a> {
    /// The device's number.
    pub(crate) index: u32,
    /// Its size in bytes.
    pub(crate) size: u64,
    /// Bytes of a logical sector.
    pub(crate) sector_bytes: u64,
    /// The transmission flags of NBD.
    pub(crate) flags: u16,
    /// How it is served.
    pub(crate) serving: Serving<'a>,
}

/// The settings that a process gives the kernel when it starts to serve a device, or takes it over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Serving<'a> {
    /// File descriptors of the kernel's ends of the connections.
    pub(crate) sockets: &'a [i32],
    /// After this time without an answer, the kernel cuts the connection. Whole seconds.
    pub(crate) timeout: Duration,
    /// How long requests wait for another connection before they fail. Whole seconds.
    pub(crate) grace: Duration,
    /// The text by which the kernel recognises the content of the device.
    pub(crate) identifier: &'a str,
}

/// Returns the request for the number of the family.
pub(crate) fn get_family() -> Vec<u8> {
    let mut message = Message::new(CONTROL, GET_FAMILY, 1);
    message.attribute(FAMILY_NAME, FAMILY);
    message.finish()
}

/// Returns the request that makes a device.
pub(crate) fn connect(family: u16, settings: &Connect<'_>) -> Vec<u8> {
    let mut message = Message::new(family, CONNECT, VERSION);
    message.attribute(INDEX, &settings.index.to_ne_bytes());
    message.attribute(SIZE_BYTES, &settings.size.to_ne_bytes());
    message.attribute(BLOCK_SIZE_BYTES, &settings.sector_bytes.to_ne_bytes());
    message.attribute(SERVER_FLAGS, &u64::from(settings.flags).to_ne_bytes());
    message.serving(&settings.serving);
    message.finish()
}

/// Returns the request that gives a device, whose connections are dead, new ones.
pub(crate) fn reconfigure(family: u16, index: u32, serving: &Serving<'_>) -> Vec<u8> {
    let mut message = Message::new(family, RECONFIGURE, VERSION);
    message.attribute(INDEX, &index.to_ne_bytes());
    message.serving(serving);
    message.finish()
}

/// Returns the request that ends a device.
pub(crate) fn disconnect(family: u16, index: u32) -> Vec<u8> {
    let mut message = Message::new(family, DISCONNECT, VERSION);
    message.attribute(INDEX, &index.to_ne_bytes());
    message.finish()
}

/// A message that is being built.
struct Message(Vec<u8>);

impl Message {
    fn new(family: u16, command: u8, version: u8) -> Self {
        let mut bytes = vec![0; HEADER_LEN];
        bytes[4..6].copy_from_slice(&family.to_ne_bytes());
        bytes[6..8].copy_from_slice(&REQUEST_AND_ACK.to_ne_bytes());
        bytes.extend([command, version, 0, 0]);
        Self(bytes)
    }

    fn attribute(&mut self, kind: u16, content: &[u8]) {
        self.0.extend(attribute(kind, content));
    }

    fn serving(&mut self, serving: &Serving<'_>) {
        self.attribute(TIMEOUT, &serving.timeout.as_secs().to_ne_bytes());
        self.attribute(DEAD_CONNECTION_TIMEOUT, &serving.grace.as_secs().to_ne_bytes());
        self.attribute(BACKEND_IDENTIFIER, &[serving.identifier.as_bytes(), b"\0"].concat());
        let socket = |fd: &i32| attribute(SOCKET_ITEM | NESTED, &attribute(SOCKET_FD, &fd.to_ne_bytes()));
        self.attribute(SOCKETS | NESTED, &serving.sockets.iter().flat_map(socket).collect::<Vec<_>>());
    }

    fn finish(mut self) -> Vec<u8> {
        // Not truncated: a few hundred bytes.
        let len = (self.0.len() as u32).to_ne_bytes();
        self.0[..4].copy_from_slice(&len);
        self.0
    }
}

fn attribute(kind: u16, content: &[u8]) -> Vec<u8> {
    // Not truncated: contents are short.
    let len = (ATTRIBUTE_LEN + content.len()) as u16;
    let mut bytes = [len.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The kernel's answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The request was carried out.
    Done,
    /// The request failed, with this error number.
    Failed(i32),
    /// The number of a family.
    Family(u16),
}

/// Parses the messages of one datagram; skips messages that are no [`Answer`].
pub(crate) fn answers(datagram: &[u8]) -> Vec<Answer> {
    let mut found = Vec::new();
    let mut rest = datagram;
    while let Some((kind, content, after)) = message(rest) {
        match kind {
            ERROR => found.extend(acknowledgement(content)),
            CONTROL => found.extend(family(content)),
            _ => {}
        }
        rest = after;
    }
    found
}

/// Returns the type and the content of the first message, and the bytes behind it.
fn message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let len = usize::try_from(u32::from_ne_bytes(*bytes.first_chunk()?)).ok()?;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    let content = bytes.get(HEADER_LEN..len)?;
    Some((kind, content, bytes.get(len.next_multiple_of(4)..).unwrap_or_default()))
}

fn acknowledgement(content: &[u8]) -> Option<Answer> {
    match i32::from_ne_bytes(*content.first_chunk()?) {
        0 => Some(Answer::Done),
        error => Some(Answer::Failed(error.saturating_neg())),
    }
}

fn family(content: &[u8]) -> Option<Answer> {
    let mut rest = content.get(GENERIC_LEN..)?;
    loop {
        let len = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        let kind = u16::from_ne_bytes(*rest.get(2..)?.first_chunk()?) & !TYPE_FLAGS;
        let content = rest.get(ATTRIBUTE_LEN..len)?;
        if kind == FAMILY_ID {
            return content.first_chunk().map(|id| Answer::Family(u16::from_ne_bytes(*id)));
        }
        rest = rest.get(len.next_multiple_of(4)..)?;
    }
}

impl Answer {
    /// Returns the kernel's error, if it is one.
    pub(crate) fn into_result(self) -> io::Result<()> {
        match self {
            Self::Failed(errno) => Err(io::Error::from_raw_os_error(errno)),
            Self::Done | Self::Family(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_request_to_connect_has_the_kernels_layout() {
        let serving = Serving {
            sockets: &[5, 6],
            timeout: Duration::from_secs(30),
            grace: Duration::from_secs(20),
            identifier: "cheetah:x",
        };
        let settings = Connect { index: 3, size: 1 << 20, sector_bytes: 512, flags: 3, serving };
        let bytes = connect(0x1c, &settings);
        // strace's words for it, on a little-endian machine.
        let expected = [
            // len, type, flags, sequence, port; command, version
            "84000000 1c00 0500 00000000 00000000 01010000",
            "0800 0100 03000000",
            "0c00 0200 0000100000000000",
            "0c00 0300 0002000000000000",
            "0c00 0500 0300000000000000",
            "0c00 0400 1e00000000000000",
            "0c00 0800 1400000000000000",
            "0e00 0a00 636865657461683a7800 0000",
            "1c00 0780 0c00 0180 0800 0100 05000000 0c00 0180 0800 0100 06000000",
        ];
        let expected: String = expected.concat().replace(' ', "");
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        if cfg!(target_endian = "little") {
            assert_eq!(hex, expected);
        }
        assert_eq!(bytes.len(), 0x84);
    }

    #[test]
    fn answers_are_found_among_other_messages() {
        let mut family = Message::new(CONTROL, 1, 2);
        family.attribute(FAMILY_NAME, FAMILY);
        family.attribute(FAMILY_ID, &0x1cu16.to_ne_bytes());
        let acknowledged = |error: i32| {
            let mut message = Message::new(ERROR, 0, 0);
            message.0.truncate(HEADER_LEN);
            message.0.extend(error.to_ne_bytes());
            message.finish()
        };
        let other = Message::new(0x1c, CONNECT, VERSION).finish();
        let datagram = [other, family.finish(), acknowledged(0), acknowledged(-16)].concat();
        assert_eq!(answers(&datagram), [Answer::Family(0x1c), Answer::Done, Answer::Failed(16)]);
        let busy = Answer::Failed(16).into_result().unwrap_err();
        assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            answers(&bytes);
        }
    }
}

//! Asking the kernel about the network (rtnetlink(7)).

use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use neli::consts::nl::{NlTypeWrapper, NlmF, Nlmsg};
use neli::consts::rtnl::{RtAddrFamily, Rtm};
use neli::consts::socket::NlFamily;
use neli::nl::{NlPayload, NlmsghdrBuilder};
use neli::rtnl::Rtattr;
use neli::socket::synchronous::NlSocketHandle;
use neli::types::{Buffer, RtBuffer};
use neli::utils::Groups;
use neli::{FromBytesWithInput, Size, ToBytes};

/// Requests one object, or all objects of its kind (`NlmF::DUMP`), and selects from the answers.
pub(crate) fn ask<Q, A, R>(
    kind: Rtm,
    flags: NlmF,
    question: Q,
    mut pick: impl FnMut(&A) -> Option<R>,
) -> io::Result<Vec<R>>
where
    Q: Size + ToBytes + Debug,
    A: Size + FromBytesWithInput<Input = usize> + Debug,
{
    let socket = NlSocketHandle::connect(NlFamily::Route, None, Groups::empty()).map_err(io::Error::other)?;
    let question = NlmsghdrBuilder::default()
        .nl_type(kind)
        .nl_flags(flags | NlmF::REQUEST)
        .nl_payload(NlPayload::Payload(question))
        .build()
        .map_err(io::Error::other)?;
    socket.send(&question).map_err(io::Error::other)?;
    let mut picked = Vec::new();
    loop {
        let (messages, _) = socket.recv::<NlTypeWrapper, A>().map_err(io::Error::other)?;
        for message in messages {
            let message = message.map_err(io::Error::other)?;
            if *message.nl_type() == NlTypeWrapper::Nlmsg(Nlmsg::Done) {
                return Ok(picked);
            }
            match message.nl_payload() {
                NlPayload::Err(error) => return Err(io::Error::from_raw_os_error(-error.error())),
                NlPayload::Payload(answer) => picked.extend(pick(answer)),
                _ => {}
            }
        }
        if !flags.contains(NlmF::DUMP) {
            return Ok(picked);
        }
    }
}

/// Returns the content of the first attribute of a kind.
pub(crate) fn attribute<T: PartialEq>(attributes: &RtBuffer<T, Buffer>, kind: T) -> Option<&[u8]> {
    attributes.iter().find(|attribute| *attribute.rta_type() == kind).map(|found| found.rta_payload().as_ref())
}

/// Parses a number.
pub(crate) fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// Parses an address; its length gives the family.
pub(super) fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(bytes).into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|bytes| Ipv6Addr::from(bytes).into())
}

/// Returns the bytes of an address.
pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

pub(super) const fn family(address: IpAddr) -> RtAddrFamily {
    if address.is_ipv4() { RtAddrFamily::Inet } else { RtAddrFamily::Inet6 }
}

/// Creates an attribute with this content.
pub(super) fn with<T: Size>(kind: T, content: Vec<u8>) -> io::Result<Rtattr<T, Buffer>> {
    neli::rtnl::RtattrBuilder::default().rta_type(kind).rta_payload(content).build().map_err(io::Error::other)
}

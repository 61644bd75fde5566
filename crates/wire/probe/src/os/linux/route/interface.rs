//! The kind of the interface through which packets leave.

use neli::consts::nl::NlmF;
use neli::consts::rtnl::{Ifla, RtAddrFamily, Rtm};
use neli::rtnl::{Ifinfomsg, IfinfomsgBuilder};

use super::netlink::{ask, attribute};

/// `IFLA_INFO_KIND`, nested in `IFLA_LINKINFO`.
const KIND: u16 = 1;

/// Whether the interface is one end of a virtual pair (veth), so that its other end is on this machine. False if the
/// kernel does not report it.
pub(crate) fn is_virtual_pair(index: u32) -> bool {
    let question = IfinfomsgBuilder::default()
        .ifi_family(RtAddrFamily::Unspecified)
        .ifi_index(i32::try_from(index).unwrap_or_default())
        .build();
    let Ok(question) = question else { return false };
    let kinds = ask(Rtm::Getlink, NlmF::empty(), question, |link: &Ifinfomsg| {
        attribute(link.rtattrs(), Ifla::Linkinfo).map(|nested| kind(nested) == Some(b"veth"))
    });
    kinds.is_ok_and(|kinds| kinds.contains(&true))
}

/// Finds the kind's name among nested attributes. Each has a length, header included, a type, and content padded to a
/// multiple of four bytes.
fn kind(mut nested: &[u8]) -> Option<&[u8]> {
    loop {
        let (&[len0, len1, kind0, kind1], _) = nested.split_first_chunk::<4>()?;
        let len = usize::from(u16::from_ne_bytes([len0, len1]));
        let content = nested.get(4..len)?;
        if u16::from_ne_bytes([kind0, kind1]) == KIND {
            return Some(content.strip_suffix(&[0]).unwrap_or(content));
        }
        nested = nested.get(len.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_is_found_among_other_attributes_and_not_in_truncated_ones() {
        let attribute = |kind: u16, content: &[u8]| {
            let len = u16::try_from(content.len() + 4).unwrap();
            let mut bytes = [len.to_ne_bytes(), kind.to_ne_bytes()].concat();
            bytes.extend_from_slice(content);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let both = [attribute(2, b"x"), attribute(KIND, b"veth\0")].concat();
        assert_eq!(kind(&both), Some(&b"veth"[..]));
        for len in 0..16 {
            assert_eq!(kind(&both[..len]), None, "{len}");
        }
        assert_eq!(kind(&[0; 64]), None);
        assert!(!is_virtual_pair(1), "the loopback interface is none");
    }
}

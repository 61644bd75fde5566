//! The queue disciplines of an interface, tc(8).

use std::io;

use neli::consts::nl::NlmF;
use neli::consts::rtnl::{Rtm, Tca};
use neli::rtnl::{Tcmsg, TcmsgBuilder};

use super::netlink::{ask, attribute};

/// The parent of the root (`TC_H_ROOT`).
pub(crate) const ROOT: u32 = u32::MAX;

/// The disciplines that send more slowly than the interface, or that can.
const SHAPERS: [&str; 7] = ["tbf", "htb", "hfsc", "cbs", "cake", "netem", "taprio"];

/// A queue discipline of an interface, as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Qdisc {
    pub(crate) handle: u32,
    pub(crate) parent: u32,
    pub(crate) kind: String,
    pub(crate) options: Vec<u8>,
}

/// Returns the disciplines of the interface of that index.
pub(crate) fn of(index: u32) -> io::Result<Vec<Qdisc>> {
    let question = TcmsgBuilder::default()
        .tcm_family(0)
        .tcm_ifindex(i32::try_from(index).unwrap_or_default())
        .tcm_handle(0)
        .tcm_parent(0)
        .tcm_info(0)
        .build()
        .map_err(io::Error::other)?;
    ask(Rtm::Getqdisc, NlmF::DUMP, question, |qdisc: &Tcmsg| {
        let kind = String::from_utf8_lossy(attribute(qdisc.rtattrs(), Tca::Kind)?).trim_end_matches('\0').to_owned();
        let options = attribute(qdisc.rtattrs(), Tca::Options).unwrap_or_default().to_vec();
        let (handle, parent) = (*qdisc.tcm_handle(), *qdisc.tcm_parent());
        // Older kernels report those of all interfaces.
        (u32::try_from(*qdisc.tcm_ifindex()) == Ok(index)).then_some(Qdisc { handle, parent, kind, options })
    })
}

/// Returns the kind of the first discipline of an interface that shapes its traffic. `None` if there is none, or the kernel does
/// not report it.
pub(crate) fn shaper(index: u32) -> Option<String> {
    let mut kinds = of(index).ok()?.into_iter().map(|qdisc| qdisc.kind);
    kinds.find(|kind| SHAPERS.contains(&kind.as_str()))
}

//! Finds out whether an interface holds packets until they are due. The kernel accepts a time with any packet, but only
//! two queue disciplines respect it.

use std::io;

use super::super::super::route::number;
use super::super::super::route::qdisc::{self, Qdisc, ROOT};

/// `TCA_FQ_FLOW_PLIMIT`: the most packets of one socket that FQ holds.
const FQ_FLOW_PACKETS_MAX: u16 = 2;

/// FQ's default, assumed where the kernel does not report the limit.
const FQ_FLOW_PACKETS_MAX_DEFAULT: u32 = 100;

/// `TCA_ETF_PARMS`, a `struct tc_etf_qopt`.
const ETF_PARAMETERS: u16 = 1;
const ETF_DEADLINE: u32 = 1;
const ETF_OFFLOAD: u32 = 1 << 1;

/// A queue discipline that holds packets until they are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holding {
    /// Fair queueing, tc-fq(8), by `CLOCK_MONOTONIC`.
    Fq {
        /// The most packets of one socket that it holds.
        packets_max: u32,
    },
    /// Earliest TxTime first, tc-etf(8).
    Etf {
        /// How long before its time a packet is passed to the driver, in nanoseconds.
        delta_ns: u32,
        /// The clock of the times.
        clock: i32,
        /// Whether the network card waits for the remaining time.
        offload: bool,
        /// Whether times are deadlines, before which packets may leave.
        deadline: bool,
    },
}

/// The name of a queue discipline that holds no packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HoldsNothing(pub(super) String);

/// Returns the discipline that holds packets on the interface of that index, or else the name of the one it has.
pub(super) fn of(index: u32) -> io::Result<Result<Holding, HoldsNothing>> {
    Ok(holding(&qdisc::of(index)?))
}

/// Returns the root discipline, or the one that all queues of a card (`mq`) have in common.
fn holding(qdiscs: &[Qdisc]) -> Result<Holding, HoldsNothing> {
    let none = || HoldsNothing("noqueue".to_owned());
    let root = qdiscs.iter().find(|qdisc| qdisc.parent == ROOT).ok_or_else(none)?;
    if root.kind != "mq" {
        return one(root);
    }
    let mut queues =
        qdiscs.iter().filter(|qdisc| qdisc.parent != ROOT && qdisc.parent >> 16 == root.handle >> 16).map(one);
    let first = queues.next().ok_or_else(|| HoldsNothing(root.kind.clone()))??;
    for other in queues {
        if other? != first {
            return Err(HoldsNothing("mq with different disciplines".to_owned()));
        }
    }
    Ok(first)
}

fn one(qdisc: &Qdisc) -> Result<Holding, HoldsNothing> {
    let held = match qdisc.kind.as_str() {
        "fq" => {
            let packets_max = nested(&qdisc.options, FQ_FLOW_PACKETS_MAX).and_then(number);
            Some(Holding::Fq { packets_max: packets_max.unwrap_or(FQ_FLOW_PACKETS_MAX_DEFAULT) })
        }
        "etf" => nested(&qdisc.options, ETF_PARAMETERS).and_then(|parameters| {
            let [delta, clock, flags] = [0, 4, 8].map(|at| parameters.get(at..).and_then(number));
            let (delta_ns, clock, flags) = (delta?, clock?.cast_signed(), flags?);
            let (offload, deadline) = (flags & ETF_OFFLOAD != 0, flags & ETF_DEADLINE != 0);
            Some(Holding::Etf { delta_ns, clock, offload, deadline })
        }),
        _ => None,
    };
    held.ok_or_else(|| HoldsNothing(qdisc.kind.clone()))
}

/// Returns the content of a nested attribute. Each has a length and a kind of 16 bits, and content padded to a multiple
/// of 4.
fn nested(mut options: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let ([length0, length1, kind0, kind1], _) = options.split_first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([*length0, *length1]));
        if u16::from_ne_bytes([*kind0, *kind1]) == wanted {
            return options.get(4..length);
        }
        options = options.get(length.max(4).next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn option(kind: u16, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + content.len()).unwrap();
        let mut option = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        option.extend(content);
        option.resize(option.len().next_multiple_of(4), 0);
        option
    }

    fn qdisc(handle: u32, parent: u32, kind: &str, options: Vec<u8>) -> Qdisc {
        Qdisc { handle, parent, kind: kind.to_owned(), options }
    }

    fn fq(parent: u32, packets_max: u32) -> Qdisc {
        let options = [option(1, &10_000_u32.to_ne_bytes()), option(2, &packets_max.to_ne_bytes())].concat();
        qdisc(0x10_0000, parent, "fq", options)
    }

    #[test]
    fn fq_and_etf_are_recognised() {
        assert_eq!(holding(&[fq(ROOT, 70)]), Ok(Holding::Fq { packets_max: 70 }));
        let parameters = [300_000_u32, 11, ETF_OFFLOAD].map(u32::to_ne_bytes).concat();
        assert_eq!(
            holding(&[qdisc(1 << 16, ROOT, "etf", option(1, &parameters))]),
            Ok(Holding::Etf { delta_ns: 300_000, clock: 11, offload: true, deadline: false })
        );
    }

    #[test]
    fn a_card_with_several_queues_holds_packets_if_each_does() {
        let mq = qdisc(1 << 16, ROOT, "mq", Vec::new());
        let [one, two] = [1, 2].map(|queue| fq(1 << 16 | queue, 100));
        assert_eq!(holding(&[mq.clone(), one.clone(), two]), Ok(Holding::Fq { packets_max: 100 }));
        let other = qdisc(0, 1 << 16 | 2, "fq_codel", Vec::new());
        assert_eq!(holding(&[mq.clone(), one, other]), Err(HoldsNothing("fq_codel".to_owned())));
        assert_eq!(holding(&[mq]), Err(HoldsNothing("mq".to_owned())));
    }

    #[test]
    fn disciplines_that_hold_nothing_are_named() {
        assert_eq!(holding(&[]), Err(HoldsNothing("noqueue".to_owned())));
        for kind in ["noqueue", "pfifo_fast", "fq_codel", "etf"] {
            assert_eq!(holding(&[qdisc(0, ROOT, kind, Vec::new())]), Err(HoldsNothing(kind.to_owned())));
        }
        // An inner discipline does not see all packets.
        let inner = [qdisc(1 << 16, ROOT, "prio", Vec::new()), fq(1 << 16 | 1, 100)];
        assert_eq!(holding(&inner), Err(HoldsNothing("prio".to_owned())));
    }

    proptest! {
        #[test]
        fn any_options_are_parsed_without_panic(options in proptest::collection::vec(any::<u8>(), 0..64), wanted in 0_u16..4) {
            let _ = nested(&options, wanted);
        }
    }
}

//! What a measurement could not tell, and what makes a figure doubtful: facts, of which a program makes sentences.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use super::options::Aspect;
use super::prober::ProbeKind;
use super::stop::Stop;
use crate::estimate::available::NotKnown;
use crate::estimate::capacity::Unknown;
use crate::path::Method;
use crate::send::SendNote;

/// Why there is no figure, or what makes one doubtful.
#[derive(Debug)]
pub enum Problem {
    /// Nothing was measured.
    Nothing(Stop),
    /// Raw sockets cannot be used, so ordinary ones were.
    NoRawSockets(Stop),
    /// Measuring with raw sockets ended early: the rest was not measured.
    EndedEarly(Stop),
    /// Measuring one aspect with ordinary sockets ended early.
    AspectEndedEarly {
        /// The aspect.
        aspect: Aspect,
        /// Why.
        why: Stop,
    },
    /// The aspect cannot be measured without raw sockets.
    NeedsRawSockets(Aspect),
    /// Sending was less accurate than it could be.
    Sending(SendNote),
    /// This many answers came faster than they could be received.
    AnswersLost(u64),
    /// The host answers no probe.
    NoAnswer {
        /// The method that was asked for; `None` if all were tried.
        method: Option<Method>,
        /// How long each answer was waited for.
        timeout: Duration,
    },
    /// A router reports that the host cannot be reached.
    Unreachable {
        /// The router, or the host itself.
        from: IpAddr,
        /// The host.
        remote: IpAddr,
        /// The code of the ICMP error (RFC 792, RFC 4443).
        code: u8,
    },
    /// The host answers no probes that count hops, so there may be more routers.
    HostBeyondHops,
    /// Of round trips.
    RoundTrip(RoundTripProblem),
    /// Of the path's MTU.
    Mtu(MtuProblem),
    /// Of the capacity.
    Capacity(CapacityProblem),
    /// Of the available bandwidth.
    Available(AvailableProblem),
}

/// Why there are no round trips by a method, or what makes them doubtful.
#[derive(Debug)]
pub enum RoundTripProblem {
    /// Measuring by UDP was asked for, which needs raw sockets.
    UdpNeedsRawSockets,
    /// The host does not answer probes of this kind, though it answers others.
    Silent(ProbeKind),
    /// Answers that came after the time-out count as lost.
    Late {
        /// How many.
        answers: u32,
        /// The time-out.
        timeout: Duration,
    },
    /// The host answered a smaller share of the probes of one kind than of another: it seems to limit the rate of such answers.
    RateLimited {
        /// The kind.
        kind: ProbeKind,
        /// Probes of this kind that were answered.
        answered: u32,
        /// Probes of this kind that were sent.
        sent: u32,
        /// The other kind.
        other: ProbeKind,
    },
    /// Packets were lost by UDP, whose answers hosts limit.
    LossMayBeTheHosts,
    /// The system permits no ICMP socket to this user.
    NoIcmpSocket {
        /// Whether the host is this machine, to which ICMP needs such a socket.
        is_this_machine: bool,
    },
    /// Measuring by ICMP failed for another reason.
    IcmpSkipped(Stop),
    /// The host does not answer ICMP echo requests.
    IcmpSilent,
    /// Connecting gave no round trip.
    NoConnection {
        /// The port.
        port: u16,
        /// The error; `None` if there was no answer.
        why: Option<io::Error>,
    },
}

/// Why the path's MTU was not measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MtuProblem {
    /// No probe that carries data is answered, which the MTU needs.
    NeedsData,
    /// The host does not report closed UDP ports, by which ordinary sockets measure the MTU.
    NeedsClosedPort,
    /// Not even packets of this size, which every path carries, are answered.
    LeastSizeFails {
        /// The size of the IP packet, with its header.
        bytes: usize,
    },
}

/// Why the capacity is not known, or what makes it doubtful.
#[derive(Debug, Clone, PartialEq)]
pub enum CapacityProblem {
    /// It is not known: this machine shapes what other programs send, and the packets of a measurement avoid that.
    Shaped {
        /// The interface.
        interface: String,
        /// Its queue discipline.
        shaper: String,
    },
    /// It is not known. There is a reason for each kind of probe that the host answers; none if it answers none that
    /// carries data.
    Unknown(Vec<NoCapacity>),
    /// The path back is narrower than that there, so its capacity is the one reported.
    NarrowerBack {
        /// The capacity there, in bits a second.
        there: f64,
        /// The capacity back, in bits a second.
        back: f64,
    },
    /// The interface of this name is virtual: the capacity is one that this machine emulates, or its own speed.
    VirtualInterface(String),
}

/// Why the available bandwidth is not known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AvailableProblem {
    /// The path is faster than this machine sends, so it cannot be filled.
    TooFast,
    /// Packets arrive in batches, which hides whether their delays grow.
    Batched,
    /// Most packets sent at this rate were not answered: the path lost them, or the host limits its answers.
    Silent {
        /// The rate, in bits a second.
        rate: f64,
    },
    /// The search ended early: the time was up, or trains could not be sent.
    EndedEarly,
    /// It is not known.
    Unknown(NotKnown),
}

/// Why the trains of a prober determine no capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoCapacity {
    /// Most trains did not leave on time. Those that happened to are not representative.
    LeftLate {
        /// The kind of the probes.
        kind: ProbeKind,
        /// Trains sent.
        sent: u32,
        /// Those that did not leave on time.
        discarded: u32,
    },
    /// The answers do not tell it.
    Unknown {
        /// The kind of the probes.
        kind: ProbeKind,
        /// Why.
        why: Unknown,
        /// Trains sent.
        sent: u32,
        /// Those that did not leave on time.
        discarded: u32,
        /// Those of which some packet was not answered once and in order.
        unanswered: u32,
        /// Whether the time was up.
        late: bool,
    },
}

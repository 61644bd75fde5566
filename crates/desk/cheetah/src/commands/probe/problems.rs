//! What a measurement could not tell, in sentences.

use std::fmt::Display;

use cheetah_probe::estimate::available::NotKnown;
use cheetah_probe::measure::{
    Aspect, AvailableProblem, CapacityProblem, MtuProblem, NoCapacity, ProbeKind, Problem, RoundTripProblem,
};
use cheetah_probe::units::BitRate;

/// A problem as a sentence.
pub fn sentence(problem: &Problem) -> String {
    match problem {
        Problem::Nothing(why) => format!("Nothing was measured: {why}."),
        Problem::NoRawSockets(why) => capitalized(why),
        Problem::EndedEarly(why) => format!("Nothing more was measured: {why}."),
        Problem::AspectEndedEarly { aspect, why } => format!("Measuring {} ended early: {why}.", noun(*aspect)),
        Problem::NeedsRawSockets(aspect) => format!("Without raw sockets, {} cannot be measured.", noun(*aspect)),
        Problem::Sending(note) => capitalized(note),
        Problem::AnswersLost(count) => {
            format!("{count} answers came faster than they could be received, and were lost here.")
        }
        Problem::NoAnswer { method, timeout } => {
            let methods = method.map_or_else(|| "ICMP echo, TCP or UDP".to_owned(), |method| format!("{method:?}"));
            format!("The host does not answer {methods} within {} ms.", timeout.as_millis())
        }
        Problem::Unreachable { from, remote, code } => {
            format!("{from} says that {remote} cannot be reached (ICMP code {code}).")
        }
        Problem::HostBeyondHops => {
            "The host did not answer probes that count hops, so there may be more routers.".into()
        }
        Problem::RoundTrip(problem) => round_trip(problem),
        Problem::Mtu(problem) => mtu(*problem),
        Problem::Capacity(problem) => capacity(problem),
        Problem::Available(problem) => available(*problem),
    }
}

fn round_trip(problem: &RoundTripProblem) -> String {
    match problem {
        RoundTripProblem::UdpNeedsRawSockets => "Measuring by UDP needs the right to raw sockets.".into(),
        RoundTripProblem::Silent(kind) => format!("The host does not answer {}.", probes(*kind)),
        RoundTripProblem::Late { answers, timeout } => {
            format!("{answers} answers came later than {} ms and count as lost.", timeout.as_millis())
        }
        RoundTripProblem::RateLimited { kind, answered, sent, other } => {
            let (kind, other) = (probes(*kind), probes(*other));
            let limits = "it seems to limit the rate of such answers";
            format!("The host answered {answered} of {sent} {kind}, and more {other}: {limits}.")
        }
        RoundTripProblem::LossMayBeTheHosts => {
            "Hosts limit how often they say that a port is closed, so the loss may be theirs, not the path's.".into()
        }
        RoundTripProblem::NoIcmpSocket { is_this_machine: true } => {
            "ICMP was skipped: to this machine itself it needs an ICMP socket, which the system permits to no \
             user, or not to this one (net.ipv4.ping_group_range)."
                .into()
        }
        RoundTripProblem::NoIcmpSocket { is_this_machine: false } => {
            "ICMP was skipped: not permitted for this user.".into()
        }
        RoundTripProblem::IcmpSkipped(why) => format!("ICMP was skipped: {why}."),
        RoundTripProblem::IcmpSilent => "The host does not answer ICMP echo requests.".into(),
        RoundTripProblem::NoConnection { port, why } => {
            let why = why.as_ref().map_or_else(|| "no answer".to_owned(), ToString::to_string);
            format!("Connecting to port {port} gave no round trip ({why}).")
        }
    }
}

fn mtu(problem: MtuProblem) -> String {
    match problem {
        MtuProblem::NeedsData => "The path's MTU was not measured: the host answers no probes that carry data.".into(),
        MtuProblem::NeedsClosedPort => {
            "The path's MTU was not measured: the host does not report that its UDP ports are closed.".into()
        }
        MtuProblem::LeastSizeFails { bytes } => {
            format!("Not even packets of {bytes} bytes are answered, though small ones are.")
        }
    }
}

fn capacity(problem: &CapacityProblem) -> String {
    match problem {
        CapacityProblem::Shaped { interface, shaper } => format!(
            "The capacity is not known: {interface} shapes what other programs send (queue discipline {shaper}), and the \
             packets of this measurement go around that."
        ),
        CapacityProblem::Unknown(whys) if whys.is_empty() => {
            "The capacity is not known: the host answers no probes that carry data.".into()
        }
        CapacityProblem::Unknown(whys) => {
            let whys = whys.iter().map(|why| no_capacity(*why)).collect::<Vec<_>>();
            format!("The capacity is not known: {}.", whys.join("; "))
        }
        CapacityProblem::NarrowerBack { there, back } => {
            let (there, back) = (BitRate(*there), BitRate(*back));
            format!("The path there carries {there}, the path back only {back}: the capacity is that of the path back.")
        }
        CapacityProblem::VirtualInterface(name) => {
            format!("{name} is a virtual interface: the capacity is what this machine emulates, or its own speed.")
        }
    }
}

/// Why the trains of a prober determine no capacity, as a clause.
fn no_capacity(why: NoCapacity) -> String {
    match why {
        NoCapacity::LeftLate { kind, sent, discarded } => {
            format!("{}, {discarded} of {sent} trains did not leave on time", by(kind))
        }
        NoCapacity::Unknown { kind, why, sent, discarded, unanswered, late } => {
            let late = if late { ", and the time was up" } else { "" };
            format!(
                "{}, {why} ({discarded} of {sent} trains did not leave on time, {unanswered} were not answered whole{late})",
                by(kind)
            )
        }
    }
}

fn available(problem: AvailableProblem) -> String {
    let why = match problem {
        AvailableProblem::TooFast => {
            "was not measured: the path is faster than this machine can send, so it cannot be filled".to_owned()
        }
        AvailableProblem::Batched => {
            "was not measured: packets arrive in batches, which hides whether their delays grow".to_owned()
        }
        AvailableProblem::Silent { rate } => format!(
            "was not measured: of packets sent at {} most were not answered, and it cannot be determined whether the path \
             lost them or the host limits its answers",
            BitRate(rate)
        ),
        AvailableProblem::EndedEarly => {
            return "The search for the available bandwidth ended early: the time was up, or trains could not be sent."
                .into();
        }
        AvailableProblem::Unknown(NotKnown::Range { low, high }) => {
            format!("is not known more precisely than that it is between {} and {}", BitRate(low), BitRate(high))
        }
        AvailableProblem::Unknown(NotKnown::Uneven(rate)) => format!(
            "is not known: delays begin to grow at {}, but beyond that not as they should. Other traffic comes in bursts, or \
             the narrowest link is not the one with the least left",
            BitRate(rate)
        ),
    };
    format!("The available bandwidth {why}.")
}

/// An aspect as a noun.
const fn noun(aspect: Aspect) -> &'static str {
    match aspect {
        Aspect::RoundTrip => "round trips",
        Aspect::Mtu => "the path's MTU",
        Aspect::Hops => "routers",
        Aspect::Capacity => "the capacity",
        Aspect::Available => "the available bandwidth",
    }
}

/// Probes of a kind as a noun.
const fn probes(kind: ProbeKind) -> &'static str {
    match kind {
        ProbeKind::Echo => "ICMP echo requests",
        ProbeKind::Syn => "TCP SYNs",
        ProbeKind::Ack => "TCP segments outside of a connection",
        ProbeKind::Udp => "UDP to a closed port",
    }
}

/// The protocol by which probes of a kind are answered, as a phrase.
const fn by(kind: ProbeKind) -> &'static str {
    match kind {
        ProbeKind::Ack | ProbeKind::Syn => "by TCP",
        ProbeKind::Echo => "by ICMP echo",
        ProbeKind::Udp => "by UDP",
    }
}

/// The text with its first letter capitalized, and one full stop at its end.
pub fn capitalized(text: &impl Display) -> String {
    let text = text.to_string();
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_uppercase().collect::<String>()).unwrap_or_default();
    format!("{first}{}.", chars.as_str().trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cheetah_probe::estimate::capacity::Unknown;
    use cheetah_probe::measure::Stop;

    use super::*;

    #[test]
    fn problem_is_one_sentence_that_begins_with_a_capital_and_ends_with_one_full_stop() {
        let (kind, sent, discarded) = (ProbeKind::Ack, 60, 40);
        let late = NoCapacity::LeftLate { kind, sent, discarded };
        let unknown = NoCapacity::Unknown { kind, why: Unknown::Disagree, sent, discarded, unanswered: 3, late: true };
        for problem in [
            Problem::NoRawSockets(Stop::Loopback),
            Problem::AspectEndedEarly { aspect: Aspect::Mtu, why: Stop::Exhausted },
            Problem::NoAnswer { method: None, timeout: Duration::from_secs(1) },
            Problem::RoundTrip(RoundTripProblem::NoConnection { port: 9, why: None }),
            Problem::Mtu(MtuProblem::LeastSizeFails { bytes: 576 }),
            Problem::Capacity(CapacityProblem::Unknown(Vec::new())),
            Problem::Capacity(CapacityProblem::Unknown(vec![late, unknown])),
            Problem::Available(AvailableProblem::Silent { rate: 1e6 }),
            Problem::Available(AvailableProblem::Unknown(NotKnown::Range { low: 1e6, high: 2e6 })),
        ] {
            let text = sentence(&problem);
            assert!(text.starts_with(char::is_uppercase) && text.ends_with('.') && !text.ends_with(".."), "{text}");
        }
    }
}

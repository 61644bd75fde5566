//! Measures the path MTU: by routers' errors about packets that are too large (RFC 1191, RFC 8201), or, without such
//! errors, by trying sizes (RFC 8899).

use std::ops::ControlFlow;
use std::time::Duration;

use super::options::{Aspect, Options};
use super::prober::{ProbeKind, Prober};
use super::problem::{MtuProblem, Problem};
use super::stop::Stop;
use super::wire::{Shape, Wire};
use crate::clock::Nanos;
use crate::frame::ReplyKind;
use crate::path::Mtu;

/// Sizes that are common, tried before those in between (after RFC 1191 section 7.1): jumbo frames, Ethernet, `PPPoE`,
/// tunnels.
const COMMON: [usize; 8] = [9000, 1500, 1492, 1480, 1460, 1420, 1400, 1280];
/// The sizes that every path should carry over IPv4 (RFC 791 section 3.2), and must over IPv6 (RFC 8200 section 5).
const LEAST: (usize, usize) = (576, 1280);
/// Probes of each size before it counts as too large.
pub(super) const TRIES: u32 = 3;
/// The most sizes to try: the common ones, and a search between two of them.
pub(super) const SIZES_MAX: u32 = 32;

/// The fate of packets of one size.
pub(super) enum ProbeOutcome {
    /// One was answered.
    Passed,
    /// A router's link has a smaller MTU, which it may have reported.
    TooBig(Option<usize>),
    /// There was no answer and no error.
    Silence,
}

/// Measures with the first answered prober that carries data.
pub(super) fn measure(
    wire: &mut Wire<'_>,
    probers: &mut [Prober],
    options: &Options,
    problems: &mut Vec<Problem>,
) -> Result<Option<Mtu>, Stop> {
    let carries = |prober: &&mut Prober| prober.shortest.is_some() && prober.kind != ProbeKind::Syn;
    let Some(prober) = probers.iter_mut().find(carries) else {
        problems.push(Problem::Mtu(MtuProblem::NeedsData));
        return Ok(None);
    };
    let (largest, ipv4) = (wire.ip_bytes_max(), wire.route.local.is_ipv4());
    search(largest, ipv4, problems, |done, size| {
        wire.watch.progress(Aspect::Mtu, done, SIZES_MAX);
        fate(wire, prober, size, options.timeout)
    })
}

/// Searches for the largest size that passes: `fate` takes the number of sizes tried before and the size of the whole
/// IP packet, and returns the fate of packets of that size.
pub(super) fn search(
    largest: usize,
    ipv4: bool,
    problems: &mut Vec<Problem>,
    mut fate: impl FnMut(u32, usize) -> Result<ProbeOutcome, Stop>,
) -> Result<Option<Mtu>, Stop> {
    let mut search = Search::new(largest, if ipv4 { LEAST.0 } else { LEAST.1 });
    for done in 0..SIZES_MAX {
        let Some(size) = search.next() else { break };
        search.note(size, &fate(done, size)?);
    }
    if search.passed.is_none() {
        problems.push(Problem::Mtu(MtuProblem::LeastSizeFails { bytes: search.least }));
    }
    let reported = search.passed.is_some_and(|passed| passed == largest || Some(passed) == search.reported);
    Ok(search.passed.map(|passed| Mtu { bytes: u32::try_from(passed).unwrap_or(u32::MAX), reported }))
}

/// Returns the fate of packets of `ip_bytes` bytes.
pub(super) fn fate(
    wire: &mut Wire<'_>,
    prober: &mut Prober,
    ip_bytes: usize,
    timeout: Duration,
) -> Result<ProbeOutcome, Stop> {
    let remote = wire.route.remote;
    for _ in 0..TRIES {
        let (seqs, _) = wire.send(prober, Shape::large(ip_bytes), &[Duration::ZERO])?;
        let mut fate = ProbeOutcome::Silence;
        wire.answers(&[prober.session], Nanos::now() + prober.patience(1, timeout), |_, _, reply| {
            if !seqs.contains(&reply.seq) {
                return ControlFlow::Continue(());
            }
            match reply.kind {
                ReplyKind::TooBig { mtu } => {
                    fate = ProbeOutcome::TooBig(usize::try_from(mtu).ok().filter(|mtu| *mtu > 0 && *mtu < ip_bytes));
                }
                _ if Prober::is_answer(&reply, remote) => fate = ProbeOutcome::Passed,
                _ => return ControlFlow::Continue(()),
            }
            ControlFlow::Break(())
        })?;
        if !matches!(fate, ProbeOutcome::Silence) {
            return Ok(fate);
        }
    }
    Ok(ProbeOutcome::Silence)
}

/// A binary search for the largest size that passes.
#[derive(Debug)]
struct Search {
    least: usize,
    /// The largest size known to pass.
    passed: Option<usize>,
    /// The smallest size known or assumed not to pass; at first, one more than can be sent.
    failed: usize,
    /// The MTU that a router reported last.
    reported: Option<usize>,
    tried: bool,
}

impl Search {
    const fn new(largest: usize, least: usize) -> Self {
        Self { least, passed: None, failed: largest + 1, reported: None, tried: false }
    }

    /// Returns the size to try next; `None` when the search is done.
    fn next(&self) -> Option<usize> {
        let low = self.passed.unwrap_or(self.least - 1);
        let open = |size: &usize| *size > low && *size < self.failed;
        if self.reported.is_some_and(|reported| self.passed == Some(reported)) {
            return None;
        }
        let reported = self.reported.filter(open);
        // Most paths carry the largest packet of the first link.
        let largest = (!self.tried).then(|| self.failed - 1);
        let common = || COMMON.into_iter().find(open);
        // A size that is common is most likely the largest.
        let above = || Some(low + 1).filter(|_| COMMON.contains(&low)).filter(open);
        let between = || Some(low.midpoint(self.failed)).filter(open);
        reported.or(largest).or_else(common).or_else(above).or_else(between)
    }

    fn note(&mut self, size: usize, fate: &ProbeOutcome) {
        self.tried = true;
        match fate {
            ProbeOutcome::Passed => self.passed = Some(size),
            ProbeOutcome::Silence => self.failed = size,
            ProbeOutcome::TooBig(reported) => {
                self.failed = size;
                // A value below the minimum MTU of IP is ignored.
                self.reported = reported.filter(|reported| *reported >= self.least).or(self.reported);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A path of links. Routers report the MTU, or only that a packet was too large, or nothing.
    fn fate(links: &[(usize, u8)], size: usize) -> ProbeOutcome {
        match links.iter().find(|(mtu, _)| *mtu < size) {
            None => ProbeOutcome::Passed,
            Some((mtu, 0)) => ProbeOutcome::TooBig(Some(*mtu)),
            Some((_, 1)) => ProbeOutcome::TooBig(None),
            Some(_) => ProbeOutcome::Silence,
        }
    }

    fn find(links: &[(usize, u8)], largest: usize) -> (Option<usize>, Vec<usize>) {
        let mut search = Search::new(largest, 576);
        let mut sizes = Vec::new();
        while let Some(size) = search.next() {
            sizes.push(size);
            search.note(size, &fate(links, size));
        }
        (search.passed, sizes)
    }

    #[test]
    fn the_usual_paths_take_few_probes() {
        assert_eq!(find(&[], 1500), (Some(1500), vec![1500]));
        assert_eq!(find(&[(1500, 2), (1400, 0)], 1500), (Some(1400), vec![1500, 1400]));
        assert_eq!(find(&[(1492, 2)], 1500), (Some(1492), vec![1500, 1492, 1493]));
    }

    proptest! {
        #[test]
        fn the_largest_that_passes_is_found(links in prop::collection::vec((576usize..9100, 0u8..3), 0..5), largest in 576usize..65_536) {
            let (found, sizes) = find(&links, largest);
            let right = links.iter().map(|(mtu, _)| *mtu).chain([largest]).min();
            prop_assert_eq!(found, right);
            prop_assert!(sizes.len() <= SIZES_MAX as usize, "{:?}", sizes);
        }

        #[test]
        fn contradictory_answers_do_not_prolong_the_search(fates in prop::collection::vec((0u8..4, any::<u16>()), 100)) {
            let mut search = Search::new(9000, 576);
            let mut steps = 0;
            for (kind, reported) in fates {
                let Some(size) = search.next() else { break };
                prop_assert!((576..=9000).contains(&size));
                let reported = usize::from(reported);
                let fate = match kind {
                    0 => ProbeOutcome::Passed,
                    1 => ProbeOutcome::Silence,
                    2 => ProbeOutcome::TooBig(None),
                    _ => ProbeOutcome::TooBig(Some(reported).filter(|reported| *reported < size)),
                };
                search.note(size, &fate);
                steps += 1;
            }
            prop_assert!(steps < 100);
        }
    }
}

//! The report on a path as text.

use cheetah_device::Size;
use cheetah_probe::path::{Advice, Available, Capacity, FarEnd, Hop, Method, Mtu, PathReport, RoundTrip};
use cheetah_probe::units::{BitRate, Span};
use comfy_table::Table;

use crate::commands::compared::wrapped;
use crate::ui::table::table;

/// Formats a report: a table, the routers, the problems, and the advice.
pub fn report(report: &PathReport) -> String {
    let mut text = heading(report);
    let mut rows = table(&["", ">value", "how it is known"]);
    fill(&mut rows, report);
    if rows.row_count() > 0 {
        text.push_str(&format!("\n{rows}"));
    }
    if !report.hops.is_empty() {
        text.push_str("\nrouters:");
        report.hops.iter().for_each(|hop| text.push_str(&router(hop)));
    }
    if report.trains.sent > 0 {
        let trains = report.trains;
        let sent = format!(
            "{} packets sent; {} of {} trains did not leave on time and were discarded",
            trains.packets, trains.spoiled, trains.sent
        );
        text.push_str(&format!("\n{}", wrapped(&sent, 0)));
    }
    for problem in &report.problems {
        text.push_str(&format!("\n{}", wrapped(&format!("- {problem}"), 0)));
    }
    if let Some(advice) = &report.advice {
        let advice = describe_advice(advice);
        let lines = advice.lines().map(|line| wrapped(line, line.len() - line.trim_start().len()));
        text.push_str(&format!("\n\n{}", lines.collect::<Vec<_>>().join("\n")));
    }
    text
}

fn describe_advice(advice: &Advice) -> String {
    let (disk, raw, packed) = (Size(advice.disk_bytes), Span(advice.raw_s), Span(advice.compressed_s));
    let mut lines = vec![format!("A disk of {disk} takes {raw} uncompressed, and about {packed} compressed.")];
    lines.push(match advice.compress {
        true => format!("Compress on the way: --compress {}, or auto.", advice.method),
        false => "Do not compress on the way: --compress none.".to_owned(),
    });
    let plural = if advice.connections == 1 { "" } else { "s" };
    let (window, prefetch) = (Size(advice.window_bytes), Size(advice.prefetch_bytes));
    let connections = advice.connections;
    lines.push(format!("Use {connections} connection{plural}, {window} in flight, and up to {prefetch} of prefetch."));
    lines.extend(advice.why.iter().map(|why| format!("  {why}")));
    lines.join("\n")
}

fn heading(report: &PathReport) -> String {
    let mut text = format!("the path to {}", report.host);
    if report.address.to_string() != report.host {
        text.push_str(&format!(" ({})", report.address));
    }
    if let Some(interface) = &report.interface {
        text.push_str(&format!(", through {interface}"));
    }
    if let Some(backend) = &report.backend {
        text.push_str(&format!(", packets sent by {backend}"));
    }
    wrapped(&text, 0)
}

fn fill(rows: &mut Table, report: &PathReport) {
    let mut row = |what: &str, value: String, how: String| {
        rows.add_row([what, &value, &how]);
    };
    if let Some(trip) = &report.round_trip {
        row("round trip", ms(trip.median_us), round_trip(trip));
    }
    if let Some(found) = &report.capacity {
        row("capacity", rate(found.bits_per_s, found.at_least), capacity(found));
    }
    if let Some(Available { bits_per_s, low_bits_per_s, high_bits_per_s }) = report.available {
        row(
            "available",
            rate(bits_per_s, false),
            format!("{} to {}", BitRate(low_bits_per_s), BitRate(high_bits_per_s)),
        );
    }
    if let Some(Mtu { bytes, reported }) = report.mtu {
        let how = if reported { "a router said so" } else { "the largest that passed" };
        row("largest packet", format!("{bytes} bytes"), how.into());
    }
    let Some(far) = &report.far else { return };
    let FarEnd { name, .. } = far;
    for (what, found, at_least, how) in [
        ("capacity there", far.to_bits_per_s, far.to_at_least, "trains that arrived at"),
        ("capacity back", far.from_bits_per_s, far.from_at_least, "trains sent by"),
        ("TCP there", far.tcp_to_bits_per_s, false, "one connection to"),
        ("TCP back", far.tcp_from_bits_per_s, false, "one connection from"),
    ] {
        if let Some(found) = found {
            row(what, rate(found, at_least), format!("{how} {name}"));
        }
    }
}

fn round_trip(trip: &RoundTrip) -> String {
    let mut text = format!(
        "{}: {} to {}, jitter {}, {} of {} answered",
        method(trip.method),
        ms(trip.min_us),
        ms(trip.max_us),
        ms(trip.jitter_us),
        trip.answered,
        trip.sent
    );
    if trip.loss > 0.0 {
        text.push_str(&format!(", {:.1} % lost", trip.loss * 100.0));
    }
    text
}

fn capacity(found: &Capacity) -> String {
    let from = format!("{}: {} pairs and trains", method(found.method), found.samples);
    if found.at_least {
        return format!("{from}; faster than this machine sends");
    }
    let (low, high) = (BitRate(found.low_bits_per_s), BitRate(found.high_bits_per_s));
    let batched = if found.batched { ", in batches" } else { "" };
    format!("{from}{batched}, {:.0} % of them around {low} to {high}", found.confidence * 100.0)
}

fn router(hop: &Hop) -> String {
    let address = hop.address.map_or_else(|| "does not answer".to_owned(), |address| address.to_string());
    match hop.min_us {
        Some(us) => format!("\n  {:>2}  {address}  {}", hop.ttl, ms(us)),
        None => format!("\n  {:>2}  {address}", hop.ttl),
    }
}

fn rate(bits_per_s: f64, at_least: bool) -> String {
    format!("{}{}", if at_least { "≥ " } else { "" }, BitRate(bits_per_s))
}

fn ms(us: f64) -> String {
    if us < 1000.0 { format!("{us:.1} µs") } else { format!("{:.2} ms", us / 1e3) }
}

fn method(method: Method) -> &'static str {
    match method {
        Method::Icmp => "ICMP echo",
        Method::Tcp => "TCP",
        Method::Udp => "UDP",
        Method::TcpConnect => "TCP connect",
        Method::Far => "the far end",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_shows_figures_and_problems() {
        let mut path = PathReport::new("lab", "10.0.0.7".parse().unwrap());
        path.problems.push("No packets on time.".into());
        path.interface = Some("eth0".into());
        let text = report(&path);
        assert_eq!(text, "the path to lab (10.0.0.7), through eth0\n- No packets on time.");
        path.problems.push("words ".repeat(30));
        path.mtu = Some(Mtu { bytes: 1500, reported: false });
        path.hops = vec![Hop { ttl: 1, address: None, min_us: None }];
        let text = report(&path);
        assert!(text.contains("1500 bytes") && text.contains("1  does not answer"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!((ms(20.04), ms(20_040.0)), ("20.0 µs".into(), "20.04 ms".into()));
    }
}

//! The metrics page, in Prometheus' text format.

use std::fmt::{Display, Write};

use cheetah_device::supervise;

use crate::export::ExportStats;
use crate::shared::Shared;
use cheetah_control::api::ExportStatus;

/// Name, help and value of a family with one sample for each export.
type Family<T> = (&'static str, &'static str, fn(&T) -> u64);

/// The page as of now.
pub(super) fn render(node: &Shared) -> String {
    let status = node.status();
    let memory = status.memory;
    let mut page = Page::default();
    let about = [("name", &*status.name), ("version", &*status.version), ("instance", &*status.instance)];
    page.family("cheetah_node_info", "gauge", "Which node this is.");
    page.sample("cheetah_node_info", &about, 1);
    page.single("cheetah_uptime_seconds", "gauge", "Seconds since the start.", status.uptime_s);
    page.single("cheetah_memory_lent_bytes", "gauge", "Memory lent, digests included.", memory.lent_bytes);
    page.single("cheetah_memory_usable_bytes", "gauge", "Content that fits in it.", memory.usable_bytes);
    page.single("cheetah_memory_reserved_bytes", "gauge", "Set aside for exports.", memory.reserved_bytes);
    page.single("cheetah_memory_used_bytes", "gauge", "Holding content.", memory.used_bytes);
    page.single("cheetah_memory_free_bytes", "gauge", "Not promised to any export.", memory.free_bytes);
    page.single("cheetah_memory_ready_bytes", "gauge", "Faulted in ahead of use.", memory.ready_bytes);
    page.single("cheetah_memory_locked", "gauge", "1 if the memory is locked.", u8::from(memory.locked));
    let store = node.exports.store();
    page.single("cheetah_wiped_bytes_total", "counter", "Memory wiped so far.", store.wiped().0);
    let digests = "Pages found not to match their digest, in all exports there were.";
    page.single("cheetah_digest_errors_total", "counter", digests, store.digest_errors());
    let panics = "Connections and requests that ended by a defect of the program.";
    page.single("cheetah_panics_total", "counter", panics, supervise::contained_total());

    let gauges: [Family<ExportStatus>; 4] = [
        ("cheetah_export_size_bytes", "Size of the export.", |export| export.size_bytes),
        ("cheetah_export_used_bytes", "Memory its content takes.", |export| export.used_bytes),
        ("cheetah_export_connections", "NBD connections open on it.", |export| export.connections as u64),
        ("cheetah_export_leased", "1 while a writer holds its lease.", |export| export.lease.is_some().into()),
    ];
    for (name, help, value) in gauges {
        page.family(name, "gauge", help);
        status.exports.iter().for_each(|export| page.sample(name, &[("export", &export.name)], value(export)));
    }
    let stats = node.exports.stats();
    let counters: [Family<ExportStats>; 5] = [
        ("cheetah_export_reads_total", "Reads.", |stats| stats.reads),
        ("cheetah_export_read_bytes_total", "Bytes read.", |stats| stats.read_bytes),
        ("cheetah_export_writes_total", "Writes, zeroing and trimming included.", |stats| stats.writes),
        ("cheetah_export_written_bytes_total", "Bytes written.", |stats| stats.written_bytes),
        ("cheetah_export_digest_errors_total", "Pages that did not match.", |stats| stats.digest_errors),
    ];
    for (name, help, value) in counters {
        page.family(name, "counter", help);
        stats.iter().for_each(|(export, stats)| page.sample(name, &[("export", export)], value(stats)));
    }
    page.text
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String cannot fail, here and below.
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<_> = labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escape(value))).collect();
        let _ = match labels.is_empty() {
            true => writeln!(self.text, "{name} {value}"),
            false => writeln!(self.text, "{name}{{{}}} {value}", labels.join(",")),
        };
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

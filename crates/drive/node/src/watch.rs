//! Follows the memory of a machine that others use too. See [`lending`](crate::lending).

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use cheetah_device::machine_memory::{MachineMemory, machine_memory};

use crate::exports::Exports;
use crate::lending::{Held, HeldPart, Lending, Rules, Seen};
use crate::os::waited_for_memory;
use crate::search_memory::SearchMemory;

/// The interval of looks: a program that fills memory at 4 GB/s takes 400 MB meanwhile.
const LOOK: Duration = Duration::from_millis(100);
/// Processes wait for memory if some of them waited for this share of the time between looks.
const WAIT_SHARE: f64 = 0.1;

/// Starts to follow the machine's memory, of which searches need some. Ends with the exports.
///
/// # Errors
///
/// If the machine does not say how much memory is available, or no thread can be started.
pub(crate) fn start(exports: &Arc<Exports>, rules: Rules, searches: Arc<SearchMemory>) -> std::io::Result<()> {
    let memory = machine_memory().ok_or(std::io::ErrorKind::Unsupported)?;
    let mut stalls = Stalls::default();
    let lending = Lending::new(rules, Instant::now(), stalls.seen(memory, &searches));
    exports.store().set_lent_bytes(lending.lent_bytes());
    prefer_as_victim();
    let exports = Arc::downgrade(exports);
    let watcher = Watcher { exports, searches, lending, stalls, dropping: None, told: Vec::new() };
    thread::Builder::new().name("memory".into()).spawn(move || watcher.run())?;
    Ok(())
}

/// If the machine runs out of memory all the same, the kernel ends the node, and no program of the machine's user.
fn prefer_as_victim() {
    if let Err(error) = cheetah_kit::process::prefer_as_victim() {
        tracing::debug!(%error, "the kernel may end other programs before the node if the machine runs out of memory");
    }
}

struct Watcher {
    exports: Weak<Exports>,
    searches: Arc<SearchMemory>,
    lending: Lending,
    stalls: Stalls,
    /// Drops an export.
    dropping: Option<thread::JoinHandle<()>>,
    /// The exports of the last message.
    told: Vec<String>,
}

impl Watcher {
    fn run(mut self) {
        loop {
            thread::sleep(LOOK);
            let Some(exports) = self.exports.upgrade() else { return };
            // Also while an export is dropped: its memory goes back as it is wiped.
            exports.store().give_back_free();
            if let Some(memory) = machine_memory() {
                self.look(&exports, memory);
            }
        }
    }

    fn look(&mut self, exports: &Arc<Exports>, memory: MachineMemory) {
        let seen = self.stalls.seen(memory, &self.searches);
        let decision = self.lending.look(Instant::now(), seen, &held(exports));
        exports.store().set_lent_bytes(decision.lent_bytes);
        exports.set_leaving(&decision.leaving);
        let leaving: Vec<String> = decision.leaving.into_keys().collect();
        if !leaving.is_empty() && leaving != self.told {
            tracing::warn!(
                "this machine needs memory: parts of drives are to move to other nodes: {}",
                leaving.join(", ")
            );
        }
        self.told = leaving;
        self.dropping = self.dropping.take().filter(|dropping| !dropping.is_finished());
        if let Some(name) = decision.drop.filter(|_| self.dropping.is_none()) {
            tracing::error!(
                "this machine has too little memory left: the part {name} is dropped, and its content is lost"
            );
            let exports = Arc::clone(exports);
            let dropping = thread::Builder::new().name("drop".into()).spawn(move || {
                if let Err(error) = exports.drop_export(&name) {
                    tracing::debug!("{name} is not dropped: {error}");
                }
            });
            self.dropping = dropping.inspect_err(|error| tracing::error!(%error, "the part cannot be dropped")).ok();
        }
    }
}

fn held(exports: &Exports) -> Held {
    let memory = exports.store().status();
    let parts = exports.status().into_iter().map(|export| HeldPart {
        name: export.name,
        promised_bytes: if export.reserved { export.size_bytes } else { export.used_bytes },
        used_bytes: export.used_bytes,
        has_writer: export.lease.is_some(),
    });
    let promised_bytes = exports.store().promised_bytes();
    Held { used_bytes: memory.used_bytes, promised_bytes, parts: parts.collect() }
}

/// How long processes waited for memory until the last look.
#[derive(Default)]
struct Stalls {
    last: Option<(Instant, Duration)>,
}

impl Stalls {
    /// The memory of the machine now. Memory that is kept for searches does not count as available.
    fn seen(&mut self, memory: MachineMemory, searches: &SearchMemory) -> Seen {
        let total = waited_for_memory();
        let now = Instant::now();
        let is_pressed = match (self.last, total) {
            (Some((at, before)), Some(total)) => {
                let waited = total.saturating_sub(before);
                waited.as_secs_f64() > WAIT_SHARE * now.saturating_duration_since(at).as_secs_f64()
            }
            _ => false,
        };
        self.last = total.map(|total| (now, total));
        Seen { available_bytes: memory.available_bytes.saturating_sub(searches.reserved_bytes()), is_pressed }
    }
}

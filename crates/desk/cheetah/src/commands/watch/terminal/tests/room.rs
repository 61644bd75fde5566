//! A room in which several things are wrong.

use cheetah_custody::LastRecord;
use cheetah_drive::chart::ChartRow;
use cheetah_drive::status::{Condition, Content, CoveredStatus, DriveStatus, ImageStatus, NodeState, NodeStatus};
use cheetah_drive::{Hashes, ImageState};

use crate::answers::watch::{
    Capacity, CapacityMethod, Carried, Job, JobKind, Lends, Link, LogEnd, Machine, Picture, WatchedDrive,
};
use crate::commands::watch::board::totals;
use crate::commands::watch::judge::judge;

const GIB: u64 = 1 << 30;
const NOW_MS: u64 = 1_795_862_400_000;

/// The room.
pub fn room() -> Picture {
    let machines = vec![
        machine("lab-7", None),
        machine("lab-1", Some(lends(11 * GIB, true))),
        machine("lab-2", Some(Lends { boot_image: true, ..lends(12 * GIB, true) })),
        machine("lab-3", Some(lends(3 * GIB, false))),
    ];
    let drives = vec![drive()];
    let custody = vec![log()];
    let (state, sentence) = judge(&machines, &drives, &custody, 0);
    Picture {
        at_ms: NOW_MS,
        custody,
        jobs: vec![job()],
        links: links(),
        totals: totals(&machines),
        drives,
        machines,
        room: Some("lab".into()),
        sentence,
        state,
    }
}

fn machine(name: &str, lends: Option<Lends>) -> Machine {
    let is_lost = lends.is_none();
    Machine {
        address: format!("{name}:10810"),
        last_seen_ms: Some(if is_lost { NOW_MS - 12_000 } else { NOW_MS }),
        lends,
        name: name.into(),
        problem: is_lost.then(|| format!("{name}:10810: cannot connect: Connection refused; is a node running there?")),
        restarts: 0,
        role: "node",
        state: if is_lost { NodeState::Lost } else { NodeState::Ok },
    }
}

fn lends(used_bytes: u64, locked: bool) -> Lends {
    Lends {
        boot_image: false,
        disks_visible: Some(0),
        draining: false,
        dropped: Vec::new(),
        exports: 1,
        free_bytes: 14 * GIB - used_bytes,
        lent_bytes: 14 * GIB,
        locked,
        read_bytes_per_s: Some(96 << 20),
        uptime_s: 4000,
        used_bytes,
        version: "0.1.0".into(),
        wiped_bytes: 2 * GIB,
    }
}

fn drive() -> WatchedDrive {
    let node = |name: &str, state: NodeState| NodeStatus {
        node: name.into(),
        set: 0,
        nbd: format!("nbd://{name}/case42"),
        size_bytes: 12 * GIB,
        state,
        sync: None,
        behind_bytes: None,
        moving: None,
        problem: None,
        next: Vec::new(),
        used_bytes: Some(GIB),
        reserved: Some(true),
        connections: Some(1),
        writer: None,
        leave_in_s: None,
        transport: None,
    };
    let nodes = vec![
        node("lab-1", NodeState::Ok),
        node("lab-2", NodeState::Ok),
        node("lab-3", NodeState::Ok),
        node("lab-7", NodeState::Lost),
    ];
    // A linear drive: each node has a quarter of it.
    let part = |index: usize, cells: &str| format!("{}{cells}{}", ".".repeat(index * 16), ".".repeat(48 - index * 16));
    let rows = [
        part(0, "rrrrrrrrrrrrzzzz"),
        part(1, "rrrxrrrrrrrrrrrr"),
        part(2, "rrrrrrrruuuuuuuu"),
        part(3, "llllllllllllllll"),
    ];
    let chart = nodes.iter().zip(rows).map(|(node, cells)| ChartRow { node: node.node.clone(), cells }).collect();
    let image = ImageStatus {
        source: "nbd://suspect/".into(),
        size: 48 * GIB,
        state: Condition::Recorded(ImageState::Filling),
        digests: None,
        hashes: Hashes::default(),
        note: None,
    };
    let covered = CoveredStatus {
        read_bytes: 41 * GIB,
        unread_bytes: 7 * GIB,
        unreadable_bytes: 4096,
        unreadable_ranges: 1,
        filling: true,
        filler: None,
    };
    let status = DriveStatus {
        name: "case42".into(),
        id: "0".repeat(32),
        size_bytes: 48 * GIB,
        layout: "linear".into(),
        sealed_for: None,
        image: Some(image),
        covered: Some(covered),
        load: None,
        content: Content::Lost,
        healthy: false,
        refetching: false,
        diverged: None,
        divergence: None,
        bad: Vec::new(),
        recovery: None,
        survives_losses: None,
        survives_losses_max: 0,
        nodes,
        acting_as: None,
    };
    WatchedDrive {
        chart,
        file: "case42.drive".into(),
        problem: None,
        status: Some(status),
        verification: None,
        wiped: Vec::new(),
    }
}

fn job() -> Job {
    Job {
        bytes_per_s: Some(96 << 20),
        done_bytes: Some(41 * GIB),
        drive: "case42".into(),
        kind: JobKind::Fill,
        left_s: Some(75),
        node: None,
        to: None,
        total_bytes: 48 * GIB,
        unreadable_bytes: Some(4096),
        unreadable_ranges: Some(1),
        writer: Some("cheetah mount on examiner (4711)".into()),
    }
}

fn links() -> Vec<Link> {
    let most = Some(Carried { at_ms: NOW_MS - 60_000, bytes_per_s: 112 << 20 });
    let capacity = Capacity {
        at: "2026-11-28T07:40:00Z".into(),
        at_least: false,
        bytes_per_s: 118 << 20,
        method: CapacityMethod::Trains,
    };
    vec![
        Link { capacity: Some(capacity), host: "lab-1".into(), most, read_bytes_per_s: Some(96 << 20) },
        Link { capacity: None, host: "lab-2".into(), most, read_bytes_per_s: Some(96 << 20) },
        Link { capacity: None, host: "lab-3".into(), most: None, read_bytes_per_s: None },
    ]
}

fn log() -> LogEnd {
    let record = |seq, event: &str, text: Option<&str>| LastRecord {
        seq,
        time: format!("2026-11-28T08:0{seq}:00Z"),
        user: "ann".into(),
        event: event.into(),
        text: text.map(str::to_owned),
    };
    let records = vec![
        record(1, "started", None),
        record(2, "retry", Some("sector 4711 cannot be read")),
        record(3, "verified", None),
    ];
    LogEnd { log: "case42.drive.custody".into(), problems: Vec::new(), records }
}

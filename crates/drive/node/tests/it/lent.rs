//! Keys of sealed drives that are lent to a node, over its control API.

use std::num::NonZeroUsize;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cheetah_control::api::{KeyLent, NewExport};
use cheetah_control::jobs::{
    JOB_BODY_BYTES_MAX, JobLine, LENT_KEY_DIGITS_MAX, LentKey, NewJob, SearchOrder, Stretch, UnitPlace, Units, Work,
};
use cheetah_control::receipt::Asked;
use cheetah_control::{ControlClient, ControlError};
use cheetah_error::next;
use cheetah_nbd::server::Exports as _;
use cheetah_node::{Node, NodeConfig, Scan};
use cheetah_seal::age::Identity;
use cheetah_seal::unit::EpochKey;
use cheetah_seal::{DriveKey, Record, Stamp, lent};
use cheetah_tls::Role;
use cheetah_tls::testing::Room;

use crate::node::loopback;

const UNIT: u64 = 4096;
const STRIDE: u64 = UNIT + 24;
const UNITS: u64 = 6;
/// The unit that is altered, and the one that is a hole.
const ALTERED: u64 = 3;
const HOLE: u64 = 4;

/// A node, an examiner's client, and the key of a sealed drive that lies on it.
struct Stage {
    node: Node,
    control: ControlClient,
    key: DriveKey,
    record: Record,
}

impl Stage {
    /// The node's role; `None`: it is in no room.
    async fn new(role: Option<Role>) -> Self {
        let room = Room::new();
        let credential = role.map(|role| room.credential("pc7", role));
        let examiner = role.map(|_| room.credential("desk", Role::Examiner));
        let scan = NonZeroUsize::new(1).map(Scan::with);
        let config = NodeConfig { credential, scan, ..NodeConfig::new(8 << 20, loopback(0)) };
        let node = Node::start(config).unwrap();
        let control = ControlClient::new(node.http_address(), examiner.as_ref());
        control.create_export(&NewExport::reserved("e", UNITS * STRIDE)).await.unwrap();
        let units = cheetah_seal::Units::new(UNIT, UNITS * UNIT).unwrap();
        let (key, mut record) = (DriveKey::from_bytes(&[3; 32]).unwrap(), Record::new([1; 16], units, false));
        let epoch = record.begin_epoch([2; 32]).unwrap();
        let sealing = EpochKey::derive(&key, record.binding(), &epoch).unwrap();
        let device = node.exports().open("e", &[]).unwrap().device;
        for unit in (0..UNITS).filter(|unit| *unit != HOLE) {
            let mut content = vec![b'.'; UNIT as usize];
            content[1000..1006].copy_from_slice(b"secret");
            let (stamp, mut trailer) = (Stamp::new(epoch.number, unit + 1).unwrap(), [0; 24]);
            sealing.seal(unit, stamp, &mut content, &mut trailer).unwrap();
            content[7] ^= u8::from(unit == ALTERED);
            content.extend_from_slice(&trailer);
            device.write(unit * STRIDE, content.into(), false).await.unwrap();
            record.stamps[unit as usize] = stamp;
        }
        Self { node, control, key, record }
    }

    /// A search of the export, with the key wrapped for `recipient`.
    fn job(&self, task: u128, recipient: &cheetah_seal::age::Recipient) -> NewJob {
        let wrapped = lent::lend(&self.key, &self.record, recipient).unwrap().unwrap();
        let units = vec![UnitPlace { export: 0, text: 0 }];
        let stretches = vec![Stretch { rounds: UNITS, units, export_step: STRIDE, text_step: UNIT }];
        let order = SearchOrder {
            version: self.node.status().version,
            words: vec!["secret".into()],
            encodings: vec!["utf-8".into()],
            ..SearchOrder::default()
        };
        NewJob {
            instance: self.node.status().instance,
            export: "e".into(),
            units: Units { unit_bytes: UNIT, stretches },
            work: Work::Search(order),
            key: Some(LentKey { task: format!("{task:032x}"), age: STANDARD.encode(wrapped) }),
        }
    }

    /// The same, with the key wrapped for this run of the node.
    fn own_job(&self, task: u128) -> NewJob {
        self.job(task, &self.node.status().scan.unwrap().recipient.unwrap().parse().unwrap())
    }

    async fn refusal(&self, job: &NewJob) -> (u16, String, Vec<cheetah_error::Next>) {
        match self.control.start_job(job).await.unwrap_err() {
            ControlError::Refused { status, error, next, .. } => (status, error, next),
            other => panic!("expected a refusal, got: {other}"),
        }
    }

    async fn lines(&self, job: &NewJob) -> Vec<JobLine> {
        let id = self.control.start_job(job).await.unwrap().id;
        let mut lines: Vec<JobLine> = Vec::new();
        while !lines.last().is_some_and(JobLine::is_last) {
            lines.extend(self.control.job_lines(&id, lines.len() as u64, 30).await.unwrap());
        }
        lines
    }
}

#[tokio::test]
async fn sealed_units_are_searched_with_a_lent_key_and_the_receipt_of_the_export_names_the_task() {
    let stage = Stage::new(Some(Role::TrustedNode)).await;
    for _ in 0..2 {
        let lines = stage.lines(&stage.own_job(5)).await;
        assert_eq!(lines.len() as u64, UNITS + 1);
        for (unit, line) in (0..UNITS).zip(&lines) {
            let expected = stage.record.stamps[unit as usize];
            match line {
                JobLine::Unopened { unit: altered } => assert_eq!((*altered, unit), (ALTERED, ALTERED)),
                JobLine::Searched { hits, stamp: Some(stamp), .. } => {
                    assert_eq!((hits.len(), stamp), (usize::from(unit != HOLE), &expected.to_hex()), "{unit}");
                    assert!(hits.iter().all(|hit| hit.at == unit * UNIT + 1000), "{hits:?}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
    let asked = Asked { drive: "d".into(), nonce: "n".into() };
    let receipt = stage.control.delete_export("e", None, &asked).await.unwrap();
    let signer = receipt.check(&asked, "e", &stage.node.status().instance).unwrap().unwrap();
    assert_eq!(signer.name, "pc7");
    let [lent] = &receipt.statement.keys_lent[..] else { panic!("{receipt:?}") };
    let expected =
        KeyLent { task: format!("{:032x}", 5), by: "desk (examiner)".into(), times: 2, wiped: true, ..lent.clone() };
    assert_eq!(*lent, expected);
    assert!(lent.first <= lent.last && !lent.first.is_empty());
}

#[tokio::test]
async fn a_key_is_refused_in_clear_and_by_a_node_that_the_room_does_not_trust_with_it() {
    let recipient = Identity::generate().unwrap().recipient();
    let step = next::Room::InviteWithRole { role: "trusted-node".into() };
    for role in [None, Some(Role::Node)] {
        let stage = Stage::new(role).await;
        assert_eq!(stage.node.status().scan.unwrap().recipient, None);
        let (status, error, next) = stage.refusal(&stage.job(1, &recipient)).await;
        assert_eq!((status, next), (403, vec![step.clone().into()]), "{error}");
        let receipt = stage.control.delete_export("e", None, &Asked::default()).await.unwrap();
        assert_eq!(receipt.statement.keys_lent, []);
    }
}

#[tokio::test]
async fn hostile_requests_with_keys_are_refused() {
    let stage = Stage::new(Some(Role::TrustedNode)).await;
    let good = stage.own_job(1);
    let key = good.key.clone().unwrap();
    for (bad, status) in [
        (LentKey { age: "A".repeat(LENT_KEY_DIGITS_MAX + 1), ..key.clone() }, 400),
        (LentKey { age: "A".repeat(JOB_BODY_BYTES_MAX), ..key.clone() }, 413),
        (LentKey { task: "a".repeat(1 << 20), ..key.clone() }, 400),
        (LentKey { task: "x".repeat(32), ..key.clone() }, 400),
        (stage.job(1, &Identity::generate().unwrap().recipient()).key.unwrap(), 400),
    ] {
        assert_eq!(stage.refusal(&NewJob { key: Some(bad), ..good.clone() }).await.0, status);
    }
    // As many tasks as a receipt names.
    for task in 0..100 {
        let id = stage.control.start_job(&stage.own_job(task)).await.unwrap().id;
        stage.control.cancel_job(&id).await.unwrap();
    }
    assert_eq!(stage.refusal(&stage.own_job(100)).await.0, 507);
    stage.lines(&stage.own_job(99)).await;
}

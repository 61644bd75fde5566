//! Drive files for tests.

use super::*;

/// A drive with parity over three nodes, one of them stale.
pub fn redundant() -> DriveFile {
    let mut node = example().sets[0].nodes[0].clone();
    let mut nodes = Vec::new();
    for name in ["a", "b", "c"] {
        let instance = Some(name.repeat(32));
        let [nbd, http] = [format!("nbd://{name}:10809/case42-0"), format!("{name}:10810")];
        node = SetNode { name: name.into(), nbd, http: Some(http), instance, ..node };
        nodes.push(node.clone());
    }
    nodes[1].state = Some(NodeSync::Stale);
    let mut set = Set::new(Layout::Parity { unit: 64 << 10, parities: 1 }, nodes);
    (set.epoch, set.bad) = (7, "0,2-3".into());
    DriveFile { size: set.size - 512, sets: vec![set], image: None, ..example() }
}

/// A drive over a set of two nodes and a set of a foreign server, with an image.
pub fn example() -> DriveFile {
    let node = |name: &str, size| SetNode {
        name: name.into(),
        nbd: format!("nbd://{name}:10809/case42-0"),
        http: Some(format!("{name}:10810")),
        instance: Some("ab".repeat(16)),
        size,
        state: None,
        receipt: None,
    };
    let foreign = SetNode { http: None, instance: None, ..node("ceph", 1 << 20) };
    DriveFile {
        path: PathBuf::from("dir/case42.drive"),
        version: VERSION,
        name: "case42".into(),
        id: "0123456789abcdef".repeat(2),
        size: (4 << 20) - 512,
        spares: Vec::new(),
        sets: vec![
            Set::new(Layout::Stripe { unit: 64 << 10 }, vec![node("a", 2 << 20), node("b", 1 << 20)]),
            Set::new(Layout::Linear, vec![foreign]),
        ],
        image: Some(Image {
            source: "/evidence/disk \"1\".raw".into(),
            size: 1 << 20,
            sector_size: Some(512),
            state: ImageState::Intact,
            digests: Some(DigestsRef { file: "case42.drive.digests".into(), chunk: 1 << 20, blake3: "0".repeat(64) }),
            hashes: Hashes { md5: Some("9".repeat(32)), ..Hashes::default() },
            differ_bytes_max: 0,
        }),
        sealed: None,
        fill: None,
        map: None,
    }
}

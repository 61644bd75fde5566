//! Positions in pictures: the same in an image and at the nodes, in the table and in the feature file.

use std::fs;

use crate::support::{Desk, KIB, MIB, Node, cheetah, noise, number};

const SIZE: u64 = 2 * MIB;

/// Metadata with a position, by hand: big-endian, with the GPS directory at `gps_at` and the values behind it.
fn metadata(gps_at: u32, [degrees, minutes]: [u32; 2]) -> Vec<u8> {
    let entry = |tag: u16, kind: u16, count: u32, value: [u8; 4]| {
        [&tag.to_be_bytes()[..], &kind.to_be_bytes(), &count.to_be_bytes(), &value].concat()
    };
    let values_at = gps_at + 2 + 4 * 12 + 4;
    let angle = [degrees, 1, minutes, 1, 0, 1].map(u32::to_be_bytes).concat();
    let mut bytes =
        [b"Exif\0\0MM\0\x2a\0\0\0\x08\0\x01".to_vec(), entry(0x8825, 4, 1, gps_at.to_be_bytes()), vec![0; 4]].concat();
    bytes.resize(6 + gps_at as usize, 0);
    let directory = [
        vec![0, 4],
        entry(1, 2, 2, *b"N\0\0\0"),
        entry(2, 5, 3, values_at.to_be_bytes()),
        entry(3, 2, 2, *b"W\0\0\0"),
        entry(4, 5, 3, values_at.to_be_bytes()),
        vec![0; 4],
        angle,
    ];
    bytes.extend(directory.concat());
    bytes
}

/// Where pictures lie, where their GPS directories are in them, and what is found.
const PICTURES: [(u64, u32, [u32; 2], &str); 4] = [
    (4096, 26, [52, 30], "52.500000,-52.500000,,"),
    // Across the seams of stripe units, and of parts of a search.
    (128 * KIB - 10, 3000, [10, 15], "10.250000,-10.250000,,"),
    (MIB - 4000, 7000, [0, 6], "0.100000,-0.100000,,"),
    (MIB + 512 * KIB - 100, 9000, [1, 0], "out of reach: 9006 bytes after the header"),
];

#[test]
fn positions_are_the_same_in_an_image_and_at_the_nodes() {
    let desk = Desk::new();
    let mut content = noise(SIZE, 51);
    for (offset, gps_at, angle, _) in PICTURES {
        let bytes = metadata(gps_at, angle);
        content[offset as usize..offset as usize + bytes.len()].copy_from_slice(&bytes);
    }
    let disk = desk.file("disk.raw", &content);
    let searched = |source: &str, out: &str, more: &[&str]| {
        let args = ["search", source, "--find", "gps", "--context", "0", "--out", &desk.arg(out)];
        let answer = cheetah(&[&args[..], more].concat()).ok().json();
        assert_eq!(number(&answer, "hits"), PICTURES.len() as u64, "{answer}");
        ["hits.csv", "features/gps.txt"].map(|name| fs::read_to_string(desk.at(out).join(name)).unwrap())
    };
    let [table, features] = searched(&disk, "of-raw", &["--workers", "3"]);
    let lines: Vec<_> = features.lines().filter(|line| !line.starts_with('#')).collect();
    let expected = PICTURES.map(|(offset, _, _, text)| format!("{offset}\t{text}\t{text}"));
    assert_eq!(lines, expected);
    let nodes: Vec<_> = (0..3).map(|_| Node::start_with("8MiB", "127.0.0.1:0", &["--scan", "2"])).collect();
    let drive = desk.drive("striped", &nodes.iter().collect::<Vec<_>>(), &disk, &[]);
    let [at_nodes, _] = searched(&drive, "at-nodes", &["--at-nodes"]);
    assert_eq!(at_nodes, table);
}

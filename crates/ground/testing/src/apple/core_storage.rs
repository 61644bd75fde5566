//! Physical volumes of Core Storage.

use super::Bytes;

/// Bytes of a block of metadata, and of the blocks that places are counted in.
pub const METADATA_BLOCK: usize = 8192;
/// See above.
pub const BLOCK: usize = 4096;
/// Where the label and the log are, in blocks.
pub const LABEL_AT: usize = 1;
/// See above.
pub const LOG_AT: usize = 5;
/// The identifier of the disk, and the key of its metadata.
pub const DISK_ID: [u8; 16] = [6; 16];
/// See above.
pub const KEY: [u8; 16] = [5; 16];
/// The identifier of the volume and of its family.
pub const VOLUME_ID: &str = "420AF122-CF73-4A30-8B0A-A593A65FBEF5";
/// See above.
pub const FAMILY_ID: &str = "1F01CA34-5F6C-4123-AC0C-B0A256889DB2";

/// A block of the log, with an object of this kind.
fn object(kind: u16, id: u64, transaction: u64, fill: impl FnOnce(&mut Bytes)) -> Vec<u8> {
    let mut content = Bytes(vec![0; METADATA_BLOCK - 64]);
    fill(&mut content);
    let mut block = Bytes(vec![0; 64]);
    block.put(8, &[1, 0]).put(10, &kind.to_le_bytes()).numbers(16, [transaction, id]);
    [block.0, content.0].concat()
}

/// The description of a volume.
pub fn volume(id: u64, transaction: u64, name: &str, size_bytes: u64) -> Vec<u8> {
    let list = format!(
        "<dict><key>com.apple.corestorage.lv.familyUUID</key><string>{FAMILY_ID}</string>\
         <key>com.apple.corestorage.lv.name</key><string>{name}</string>\
         <key>com.apple.corestorage.lv.size</key><integer size=\"64\">{size_bytes:#x}</integer>\
         <key>com.apple.corestorage.lv.uuid</key><string>{VOLUME_ID}</string></dict>"
    );
    object(0x1a, id, transaction, |content| {
        content.numbers(0, [10, 8]).put(64, &184_u32.to_le_bytes()).put(68, &(list.len() as u32).to_le_bytes());
        content.put(120, list.as_bytes());
    })
}

/// The pieces of the volume: their places in it, lengths and places on the disk, in blocks.
pub fn segments(places: &[(u64, u64, u64)]) -> Vec<u8> {
    object(0x305, 8, 6, |content| {
        content.numbers(0, [places.len() as u64]);
        for (number, (at, len, on_disk)) in places.iter().enumerate() {
            content.numbers(8 + 40 * number, [0, *at, *len, 0, *on_disk]);
        }
    })
}

/// The description of the family of the volume, with the property list of its keys.
pub fn family(context: &str) -> Vec<u8> {
    let list = format!("<dict><key>com.apple.corestorage.lvf.encryption.context</key>{context}</dict>");
    object(0x19, 10, 6, |content| {
        content.numbers(24, [12]).put(40, &[1, 0, 0, 0, 1]).put(48, &164_u32.to_le_bytes());
        content.put(52, &(list.len() as u32).to_le_bytes()).put(100, list.as_bytes());
    })
}

/// What lists the volume, from the top down.
pub fn lists() -> Vec<Vec<u8>> {
    let list = |kind, id, numbers: [u64; 3]| object(kind, id, 6, |content| _ = content.numbers(0, numbers));
    vec![list(0x18, 1, [2, 0, 0]), list(0x105, 2, [1, 10, 0]), list(0x205, 12, [1, 0, 11])]
}

/// A disk with objects in its log.
pub fn disk(objects: &[Vec<u8>], bytes: usize) -> Vec<u8> {
    let mut disk = Bytes(vec![0; bytes]);
    disk.put(8, &[1, 0, 0x10, 0]).put(88, b"CS").put(94, &[1]).put(96, &(BLOCK as u32).to_le_bytes());
    disk.numbers(104, [LABEL_AT as u64]).put(168, &[16, 0, 0, 0, 2]).put(176, &KEY).put(304, &DISK_ID);
    let (label, description) = (LABEL_AT * BLOCK, LABEL_AT * BLOCK + METADATA_BLOCK);
    disk.put(label + 10, &[0x11]).put(label + 64 + 156, &(METADATA_BLOCK as u32).to_le_bytes());
    let blocks = (objects.len() * METADATA_BLOCK / BLOCK) as u64;
    disk.numbers(description + 8, [blocks]).numbers(description + 32, [LOG_AT as u64, 0]);
    for (number, object) in objects.iter().enumerate() {
        let at = LOG_AT * BLOCK + number * METADATA_BLOCK;
        disk.put(at, object).numbers(at + 32, [number as u64]);
    }
    disk.0
}

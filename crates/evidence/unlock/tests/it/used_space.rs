//! BitLocker that encrypted only the used space of a volume: a volume that is made here, from "BitLocker Drive Encryption (BDE) format
//! specification" (J. Metz, libbde). Its metadata are those of a volume that is encrypted as a whole; sectors that were free, and
//! were not written to since, hold what they held before.

use cheetah_device::ByteRange;
use crc_fast::CrcAlgorithm::Crc32IsoHdlc;
use crc_fast::checksum;

use crate::apple::{encrypt_unit, noise};
use crate::common::{device, opened, read};
use crate::vista::{entry, key_entry, sealed};

const SECTOR: usize = 512;
const VOLUME_BYTES: usize = 4 << 20;
/// Where the first sectors of the volume lie, and how many bytes of them.
const HEADER_AT: usize = 1 << 20;
const HEADER_BYTES: usize = 16 * SECTOR;
const PLACES: [usize; 3] = [0x11_0000, 0x20_0000, 0x30_0000];
const PLACE_BYTES: usize = 64 << 10;
/// What was free when the volume was encrypted.
const FREE: std::ops::Range<usize> = 0x28_0000..0x2f_0000;
/// A part of it, which was written to since.
const WRITTEN: std::ops::Range<usize> = 0x29_0000..0x29_2000;
const LEFT_BEHIND: &[u8] = b"a letter of the former owner... ";

const VOLUME_KEY: [u8; 32] = [7; 32];
const MASTER_KEY: [u8; 32] = [8; 32];
const CLEAR_KEY: [u8; 32] = [9; 32];
const XTS_128: u32 = 0x8004;

fn metadata() -> Vec<u8> {
    let protector = [
        &[3; 16][..],
        &[0; 10],
        // A clear key.
        &0_u16.to_le_bytes(),
        &key_entry(0, &CLEAR_KEY),
        &sealed(0, &CLEAR_KEY, &key_entry(0x2002, &MASTER_KEY), 1),
    ]
    .concat();
    let header = [HEADER_AT as u64, HEADER_BYTES as u64].map(u64::to_le_bytes).concat();
    let key = sealed(3, &MASTER_KEY, &key_entry(XTS_128, &VOLUME_KEY), 2);
    let entries = [entry(2, 8, &protector), key, entry(15, 15, &header)].concat();
    let size = 48 + entries.len();
    let units = (64 + size).div_ceil(16);
    let mut block = b"-FVE-FS-".to_vec();
    [units as u16, 2, 4, 4].iter().for_each(|number| block.extend(number.to_le_bytes()));
    block.extend((VOLUME_BYTES as u64).to_le_bytes());
    [0, (HEADER_BYTES / SECTOR) as u32].iter().for_each(|number| block.extend(number.to_le_bytes()));
    PLACES.iter().for_each(|place| block.extend((*place as u64).to_le_bytes()));
    block.extend((HEADER_AT as u64).to_le_bytes());
    [size as u32, 1, 48, size as u32].iter().for_each(|number| block.extend(number.to_le_bytes()));
    block.extend([4; 16]);
    [3, XTS_128, 0, 0].iter().for_each(|number| block.extend(number.to_le_bytes()));
    block.extend(entries);
    block.resize(16 * units, 0);
    let crc = checksum(Crc32IsoHdlc, &block) as u32;
    block.extend([8, 0, 1, 0]);
    block.extend(crc.to_le_bytes());
    block
}

/// Encrypts the sectors of a part of the volume, which lies there.
fn encrypt(at: usize, part: &mut [u8]) {
    for (nth, sector) in part.chunks_mut(SECTOR).enumerate() {
        encrypt_unit(&VOLUME_KEY[..16], &VOLUME_KEY[16..], (at / SECTOR + nth) as u64, sector);
    }
}

/// A volume, and its content; the free part of that is what was left behind.
fn volume() -> (Vec<u8>, Vec<u8>) {
    let mut content = noise(VOLUME_BYTES);
    content[..11].copy_from_slice(b"\xeb\x52\x90NTFS    ");
    content[11..14].copy_from_slice(&[0, 2, 8]);
    content[510..512].copy_from_slice(&[0x55, 0xaa]);
    let written = content[WRITTEN].to_vec();
    for piece in content[FREE].chunks_mut(LEFT_BEHIND.len()) {
        piece.copy_from_slice(LEFT_BEHIND);
    }
    content[WRITTEN].copy_from_slice(&written);
    let mut disk = content.clone();
    disk[HEADER_AT..][..HEADER_BYTES].copy_from_slice(&content[..HEADER_BYTES]);
    for part in [0..FREE.start, WRITTEN, FREE.end..VOLUME_BYTES] {
        encrypt(part.start, &mut disk[part.clone()]);
    }
    disk[..HEADER_BYTES].fill(0);
    disk[..11].copy_from_slice(b"\xeb\x58\x90-FVE-FS-");
    disk[11..14].copy_from_slice(&[0, 2, 8]);
    disk[160..176].copy_from_slice(b"\x3b\xd6\x67\x49\x29\x2e\xd8\x4a\x83\x99\xf6\xa3\x39\xe3\xd0\x01");
    for (nth, place) in PLACES.iter().enumerate() {
        disk[176 + 8 * nth..][..8].copy_from_slice(&(*place as u64).to_le_bytes());
    }
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    content[HEADER_AT..][..HEADER_BYTES].fill(0);
    let block = metadata();
    for place in PLACES {
        disk[place..][..PLACE_BYTES].fill(0);
        disk[place..][..block.len()].copy_from_slice(&block);
        content[place..][..PLACE_BYTES].fill(0);
    }
    (disk, content)
}

#[tokio::test]
async fn what_was_used_is_decrypted_and_what_was_free_reads_as_if_it_were_encrypted() {
    let (disk, content) = volume();
    let (decrypted, protector, layer) = opened(&device(&disk), b"").await;
    assert!(protector.starts_with("clear key 03030303-"), "{protector}");
    for used in [0..FREE.start, WRITTEN, FREE.end..VOLUME_BYTES] {
        assert!(decrypted[used.clone()] == content[used.clone()], "{used:?}");
    }
    // Nothing says which sectors these are, so they read as in Windows and in libbde: what is on the disk, decrypted.
    for free in [FREE.start..WRITTEN.start, WRITTEN.end..FREE.end] {
        assert!(disk[free.clone()].starts_with(LEFT_BEHIND));
        let mut read_back = decrypted[free.clone()].to_vec();
        assert!(!read_back.windows(LEFT_BEHIND.len()).any(|window| window == LEFT_BEHIND));
        encrypt(free.start, &mut read_back);
        assert!(read_back == disk[free.clone()], "{free:?}");
    }
    // Also over the border, at odd places.
    for at in [FREE.start, WRITTEN.start, WRITTEN.end, FREE.end] {
        let part = read(&layer, ByteRange::new(at as u64 - 7, 1000)).await;
        assert!(part == decrypted[at - 7..at + 993], "{at}");
    }
}

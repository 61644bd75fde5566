//! BitLocker of Windows Vista: a volume that is made here, from "BitLocker Drive Encryption (BDE) format specification" (J. Metz,
//! libbde), and that dislocker decrypts, too.

use aes::cipher::{Block, BlockCipherEncrypt as _, KeyInit as _};
use aes::{Aes128, Aes256};
use ccm::Ccm;
use ccm::aead::AeadInOut as _;
use ccm::aead::consts::{U12, U16};
use cheetah_testing::programs;
use cheetah_unlock::Refusal;
use crc_fast::CrcAlgorithm::Crc32IsoHdlc;
use crc_fast::checksum;

use crate::common::{device, opened, refused, run, text};

const SECTOR: usize = 512;
const CLUSTER: usize = 8 * SECTOR;
const VOLUME_BYTES: usize = 4 << 20;
/// Sectors that are not encrypted, and the bytes of a place of the metadata.
const CLEAR_BYTES: usize = 16 * SECTOR;
const PLACE_BYTES: usize = 16 << 10;
const PLACES: [usize; 3] = [64 * CLUSTER, 300 * CLUSTER, 700 * CLUSTER];
/// The cluster of the copy of NTFS's file table.
const COPY: u64 = 2;
/// Keys: of the volume (AES-CBC with 128 bits), the master key, and the one that lies beside it since the protection is suspended.
const VOLUME_KEY: [u8; 16] = [7; 16];
const MASTER_KEY: [u8; 32] = [8; 32];
const CLEAR_KEY: [u8; 32] = [9; 32];
const CBC_128: u32 = 0x8002;

fn noise() -> impl Iterator<Item = u8> {
    let mut state = 5_u64;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    })
}

pub fn entry(kind: u16, value: u16, content: &[u8]) -> Vec<u8> {
    let head = [8 + content.len() as u16, kind, value, 1];
    [&head.map(u16::to_le_bytes).concat(), content].concat()
}

pub fn key_entry(method: u32, key: &[u8]) -> Vec<u8> {
    entry(0, 1, &[&method.to_le_bytes()[..], key].concat())
}

/// An entry with a key that another one seals.
pub fn sealed(kind: u16, by: &[u8; 32], inner: &[u8], nonce: u8) -> Vec<u8> {
    let (nonce, mut bytes) = ([nonce; 12], inner.to_vec());
    let ccm = Ccm::<Aes256, U16, U12>::new(by.into());
    let mac = ccm.encrypt_inout_detached(&nonce.into(), &[], (&mut bytes[..]).into()).unwrap();
    entry(kind, 5, &[&nonce[..], &mac, &bytes].concat())
}

/// A block of metadata, and its checksum behind it. Vista states no size.
fn metadata(state: u16, stated_bytes: u64) -> Vec<u8> {
    let protector = [
        &[3; 16][..],
        &[0; 10],
        // A clear key.
        &0_u16.to_le_bytes(),
        &key_entry(0, &CLEAR_KEY),
        &sealed(0, &CLEAR_KEY, &key_entry(0x2002, &MASTER_KEY), 1),
    ]
    .concat();
    let entries = [entry(2, 8, &protector), sealed(3, &MASTER_KEY, &key_entry(CBC_128, &VOLUME_KEY), 2)].concat();
    let size = 48 + entries.len() as u32;
    let mut block = b"-FVE-FS-".to_vec();
    [64 + size as u16, 1, 4, state].iter().for_each(|number| block.extend(number.to_le_bytes()));
    block.extend(stated_bytes.to_le_bytes());
    block.extend([0; 8]);
    PLACES.iter().for_each(|place| block.extend((*place as u64).to_le_bytes()));
    block.extend(COPY.to_le_bytes());
    [size, 1, 48, size].iter().for_each(|number| block.extend(number.to_le_bytes()));
    block.extend([4; 16]);
    [3, CBC_128, 0, 0].iter().for_each(|number| block.extend(number.to_le_bytes()));
    block.extend(entries);
    let crc = checksum(Crc32IsoHdlc, &block) as u32;
    block.extend([8, 0, 1, 0]);
    block.extend(crc.to_le_bytes());
    block
}

/// AES-CBC, whose first vector is the encrypted offset of the sector.
fn encrypt(offset: usize, sector: &mut [u8]) {
    let aes = Aes128::new(&VOLUME_KEY.into());
    let mut last = [0; 16];
    last[..8].copy_from_slice(&(offset as u64).to_le_bytes());
    let encrypt = |bytes: [u8; 16]| {
        let mut block = Block::<Aes128>::from(bytes);
        aes.encrypt_block(&mut block);
        <[u8; 16]>::from(block)
    };
    last = encrypt(last);
    for block in sector.as_chunks_mut::<16>().0 {
        block.iter_mut().zip(last).for_each(|(byte, other)| *byte ^= other);
        *block = encrypt(*block);
        last = *block;
    }
}

/// A volume, and its content.
fn volume(state: u16) -> (Vec<u8>, Vec<u8>) {
    volume_that_states(state, 0)
}

fn volume_that_states(state: u16, bytes: u64) -> (Vec<u8>, Vec<u8>) {
    let mut content: Vec<u8> = noise().take(VOLUME_BYTES).collect();
    content[..11].copy_from_slice(b"\xeb\x52\x90NTFS    ");
    content[11..14].copy_from_slice(&[0, 2, 8]);
    content[14..56].fill(0);
    content[40..48].copy_from_slice(&((VOLUME_BYTES / SECTOR) as u64 - 1).to_le_bytes());
    content[56..64].copy_from_slice(&COPY.to_le_bytes());
    content[510..512].copy_from_slice(&[0x55, 0xaa]);
    PLACES.iter().for_each(|place| content[*place..][..PLACE_BYTES].fill(0));
    let mut volume = content.clone();
    for (number, sector) in volume.chunks_mut(SECTOR).enumerate().skip(CLEAR_BYTES / SECTOR) {
        encrypt(number * SECTOR, sector);
    }
    volume[3..11].copy_from_slice(b"-FVE-FS-");
    volume[56..64].copy_from_slice(&((PLACES[0] / CLUSTER) as u64).to_le_bytes());
    let block = metadata(state, bytes);
    for place in PLACES {
        volume[place..][..PLACE_BYTES].fill(0);
        volume[place..][..block.len()].copy_from_slice(&block);
    }
    (volume, content)
}

#[tokio::test]
async fn a_volume_of_vista_is_decrypted() {
    let (volume, content) = volume(4);
    let (decrypted, protector, _) = opened(&device(&volume), b"").await;
    assert!(protector.starts_with("clear key 03030303-"), "{protector}");
    assert!(decrypted == content);
}

#[tokio::test]
async fn a_conversion_of_vista_and_damage_are_refused() {
    assert!(matches!(refused(&device(&volume(5).0), b"").await, Refusal::Unsupported(_)));
    let sized = volume_that_states(4, VOLUME_BYTES as u64).0;
    assert!(matches!(refused(&device(&sized), b"").await, Refusal::Unsupported(_)));
    let mut damaged = volume(4).0;
    damaged[PLACES[0] + 100] ^= 1;
    assert!(matches!(refused(&device(&damaged), b"").await, Refusal::Damaged(_)));
    // A block of a later version belongs to another boot sector.
    let mut later = volume(4).0;
    later[2] = 0x58;
    assert!(matches!(refused(&device(&later), b"").await, Refusal::Damaged(_)));
}

#[test]
fn dislocker_decrypts_the_volume_that_is_made_here() {
    if !programs(&["dislocker-file"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (path, out) = (folder.path().join("volume"), folder.path().join("out"));
    // It wants a size, and leaves the place of the metadata in the boot sector.
    let (volume, mut content) = volume_that_states(4, VOLUME_BYTES as u64);
    content[56..64].copy_from_slice(&volume[56..64]);
    std::fs::write(&path, volume).unwrap();
    run("dislocker-file", &["-r", "-c", "-V", text(&path), "--", text(&out)], b"");
    assert!(std::fs::read(&out).unwrap() == content);
}

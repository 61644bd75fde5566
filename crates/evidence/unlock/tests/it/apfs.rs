//! Encrypted volumes of APFS: containers that are made here, and real ones. The files in these are what libfsapfs decrypts.

use cheetah_device::ByteRange;
use cheetah_testing::apple::apfs::{
    BLOCK, CHECKPOINTS, CONTAINER_BAG, CONTAINER_ID, CONTAINER_MAP, LEAF, ROOT, SUPERBLOCK, VOLUME_BAG, VOLUME_ID,
    VOLUME_MAP, blob, container, extent,
};
use cheetah_testing::evidence;
use cheetah_unlock::{Keys, Refusal};
use sha2::{Digest as _, Sha256};

use crate::apple::{derive, encrypt_unit, noise, wrap};
use crate::common::{device, opened, read, refused, sha256, unlock, unpacked};

const BLOCKS: usize = 40;
const SECTOR: usize = 512;
const PASSWORD: &str = "correct horse";
const SALT: &[u8] = b"0123456789abcdef";
const ITERATIONS: u16 = 1000;
/// Parts of files: the first block of each, how many, and the number of the first. The second was moved.
const PARTS: [(u64, u64, u64); 2] = [(20, 3, 20), (30, 2, 7)];
/// Ways in which keys are wrapped.
const AES_256: u8 = 0;
const AES_128: u8 = 2;

/// Two sums over all words, the first of which is that of the words so far; what makes both zero with it (Fletcher).
fn check(object: &mut [u8]) {
    let (mut low, mut high) = (0_u64, 0_u64);
    for word in object[8..].as_chunks::<4>().0 {
        low = (low + u64::from(u32::from_le_bytes(*word))) % 0xffff_ffff;
        high = (high + low) % 0xffff_ffff;
    }
    let first = 0xffff_ffff - (low + high) % 0xffff_ffff;
    let second = 0xffff_ffff - (low + first) % 0xffff_ffff;
    object[..4].copy_from_slice(&(first as u32).to_le_bytes());
    object[4..8].copy_from_slice(&(second as u32).to_le_bytes());
}

fn block(bytes: &mut [u8], number: u64) -> &mut [u8] {
    &mut bytes[number as usize * BLOCK..][..BLOCK]
}

/// Encrypts the sectors of a block, which is counted as if it were `number`.
fn encrypt(block: &mut [u8], number: u64, keys: [&[u8]; 2]) {
    for (nth, sector) in block.chunks_mut(SECTOR).enumerate() {
        encrypt_unit(keys[0], keys[1], number * (BLOCK / SECTOR) as u64 + nth as u64, sector);
    }
}

/// A container whose keys are wrapped in a way, and its content with its volume decrypted.
fn made(method: u8) -> (Vec<u8>, Vec<u8>) {
    let (user, key) = ([5_u8; 32], [6_u8; 32]);
    let len = if method == AES_256 { 32 } else { 16 };
    let padded = |wrapped: Vec<u8>| {
        let mut padded = [0; 40];
        padded[..wrapped.len()].copy_from_slice(&wrapped);
        padded
    };
    let by = derive(PASSWORD.as_bytes(), SALT, u32::from(ITERATIONS), len);
    let opener = blob(method, &padded(wrap(&by, &user[..len])), ITERATIONS, SALT);
    let volume_key = blob(method, &padded(wrap(&user[..len], &key[..len])), 0, b"");
    let extents = PARTS.map(|(block, count, number)| extent(block, 0, count * BLOCK as u64, block, number));
    let mut plain = container(BLOCKS, &volume_key, &opener, &extents);
    let files = noise(BLOCKS * BLOCK);
    for (at, count, _) in PARTS {
        let range = at as usize * BLOCK..(at + count) as usize * BLOCK;
        plain[range.clone()].copy_from_slice(&files[range]);
    }
    for object in [0, CHECKPOINTS, CHECKPOINTS + 1, CONTAINER_MAP, CONTAINER_MAP + 1, SUPERBLOCK, CONTAINER_BAG]
        .into_iter()
        .chain([VOLUME_BAG, VOLUME_MAP, VOLUME_MAP + 1, ROOT, LEAF])
    {
        check(block(&mut plain, object));
    }
    let mut sealed = plain.clone();
    for (bag, id) in [(CONTAINER_BAG, CONTAINER_ID), (VOLUME_BAG, VOLUME_ID)] {
        encrypt(block(&mut sealed, bag), bag, [&id, &id]);
        // It is shown as it is.
        block(&mut plain, bag).copy_from_slice(block(&mut sealed, bag));
    }
    let tweak = Sha256::digest([&key[..16], &VOLUME_ID].concat());
    let tweak = if method == AES_256 { &key[16..] } else { &tweak[..16] };
    for (at, count, number) in PARTS.into_iter().chain([(ROOT, 1, ROOT), (LEAF, 1, LEAF)]) {
        (0..count).for_each(|nth| encrypt(block(&mut sealed, at + nth), number + nth, [&key[..16], tweak]));
    }
    let superblock = block(&mut plain, SUPERBLOCK);
    superblock[264] = 1;
    check(superblock);
    (sealed, plain)
}

#[tokio::test]
async fn a_password_opens_a_volume_whichever_way_its_keys_are_wrapped() {
    for method in [AES_256, AES_128] {
        let (sealed, plain) = made(method);
        let (content, protector, layer) = opened(&device(&sealed), format!("wrong\n{PASSWORD}\n").as_bytes()).await;
        assert!(content == plain, "{method}");
        assert_eq!(protector, "password of \"Disk\" (02020202-0202-0202-0202-020202020202)");
        for (at, len) in [(20 * BLOCK as u64 - 3, 9), (31 * BLOCK as u64 + 511, 2), (10 * BLOCK as u64 + 7, 5000)] {
            let part = read(&layer, ByteRange::new(at, len)).await;
            assert!(part == plain[at as usize..(at + len) as usize], "{at} {len}");
        }
    }
}

#[tokio::test]
async fn a_container_stays_locked_with_a_wrong_password_and_is_named() {
    let tried = unlock(&device(&made(AES_256).0), &Keys::parse(b"wrong\n").unwrap()).await;
    let words = "APFS (01010101-0101-0101-0101-010101010101, AES-XTS 128; opened by: password of \"Disk\" \
                 (02020202-0202-0202-0202-020202020202))";
    assert_eq!((&*tried.locked[0].format, &tried.locked[0].why), (words, &Refusal::WrongKeys { untried: Vec::new() }));
    // What was decrypted is no locked volume any more.
    let tried = unlock(&device(&made(AES_256).1), &Keys::parse(PASSWORD.as_bytes()).unwrap()).await;
    assert!(tried.opened.is_empty() && tried.locked.is_empty(), "{:?}", tried.locked);
}

#[tokio::test]
async fn damage_and_what_the_hardware_encrypts_are_refused() {
    let mut damaged = made(AES_256).0;
    block(&mut damaged, LEAF)[100] ^= 1;
    assert!(matches!(refused(&device(&damaged), PASSWORD.as_bytes()).await, Refusal::Damaged(_)));
    let mut hardware = made(AES_256).0;
    for number in [0, CHECKPOINTS, CHECKPOINTS + 1] {
        let superblock = block(&mut hardware, number);
        superblock[1264] = 0;
        check(superblock);
    }
    block(&mut hardware, CONTAINER_BAG)[100] ^= 1;
    assert!(matches!(refused(&device(&hardware), PASSWORD.as_bytes()).await, Refusal::Unsupported(_)));
}

#[tokio::test]
async fn what_cannot_be_described_is_named_and_keeps_no_key_from_other_volumes() {
    let changed = |at: usize, byte: u8| {
        let mut sealed = made(AES_256).0;
        for number in [0, CHECKPOINTS, CHECKPOINTS + 1] {
            let superblock = block(&mut sealed, number);
            superblock[at] = byte;
            check(superblock);
        }
        sealed
    };
    let fusion = refused(&device(&changed(65, 1)), PASSWORD.as_bytes()).await;
    assert!(matches!(fusion, Refusal::Unsupported(_)), "{fusion}");
    // A second volume, which lies nowhere.
    let tried = unlock(&device(&changed(192, 9)), &Keys::parse(PASSWORD.as_bytes()).unwrap()).await;
    assert_eq!((tried.opened.len(), tried.locked.len()), (1, 1));
    let why = &tried.locked[0].why;
    assert!(matches!(why, Refusal::Partly { closed } if closed.len() == 1), "{why}");
    let mut damaged = made(AES_256).0;
    block(&mut damaged, VOLUME_BAG)[100] ^= 1;
    let bag = refused(&device(&damaged), PASSWORD.as_bytes()).await;
    assert!(matches!(bag, Refusal::Unsupported(_)), "{bag}");
}

/// The volumes of two systems, with the hashes of the containers as another program decrypts them by the same description.
#[tokio::test]
async fn real_containers_are_decrypted() {
    let first = unpacked("apfs-encrypted.bin");
    let second = evidence("locked/apfs_encrypted.dmg").map(|path| std::fs::read(path).unwrap()[20480..].to_vec());
    let expected = [
        (first, "password", "c622fdfae88f2e7e7f63fd8bccfad78ba2a37d0b1b00ded9867f24ed52c40762", "Encrypted"),
        (second, "apfs-TEST", "d739aaad0a4445cf037f0004c4000ae99ac8a8c163de817def2f0122b69e6a18", "SingleVolume"),
    ];
    for (image, password, hash, name) in expected {
        let Some(image) = image else { continue };
        let (content, protector, _) = opened(&device(&image), password.as_bytes()).await;
        assert_eq!(sha256(&content), hash, "{name}");
        assert!(protector.starts_with(&format!("password of \"{name}\" (")), "{protector}");
        assert!(matches!(refused(&device(&image), b"wrong").await, Refusal::WrongKeys { .. }));
    }
}

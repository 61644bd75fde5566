//! FileVault 2 in Core Storage: volumes that are made here, from "FileVault Drive Encryption (FVDE)" (O. Choudary, J. Metz, libfvde).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cheetah_testing::apple::core_storage::{
    BLOCK, DISK_ID, KEY, LABEL_AT, LOG_AT, METADATA_BLOCK, VOLUME_ID, disk, family, lists, segments, volume,
};
use cheetah_testing::evidence;
use cheetah_unlock::{Keys, Refusal, Untried};
use crc_fast::CrcAlgorithm::Crc32Iscsi;
use crc_fast::checksum;
use sha2::{Digest as _, Sha256};

use crate::apple::{derive, encrypt_unit, noise, wrap};
use crate::common::{device, opened, read, refused, unlock};

const DISK_BYTES: usize = 256 << 10;
const VOLUME_BYTES: usize = 8 * BLOCK;
/// The pieces of the volume: their places in it, lengths and places on the disk, in blocks.
const PIECES: [(u64, u64, u64); 2] = [(0, 5, 24), (5, 3, 40)];
const SECTOR: usize = 512;
/// The keys of the volume and of its users, and the identifier of its family as it is in the metadata.
const MASTER: [u8; 16] = [3; 16];
const USER: [u8; 16] = [4; 16];
const FAMILY: [u8; 16] = *b"\x1f\x01\xca\x34\x5f\x6c\x41\x23\xac\x0c\xb0\xa2\x56\x88\x9d\xb2";
const SALT: [u8; 16] = [8; 16];
const ITERATIONS: u32 = 1000;
const PASSWORD: &str = "correct horse";
const RECOVERY_KEY: &str = "35AJ-AC98-TI1H-N4M3-HDUQ-UQFG";
/// Kinds of users.
const WITH_PASSWORD: u32 = 0x1000_0001;
const OTHER: u32 = 0x1006_0002;

/// A user whose key a passphrase wraps.
fn user(id: &str, kind: u32, passphrase: &str, iterations: u32) -> String {
    let mut sealed = vec![0; 284];
    sealed[..8].copy_from_slice(&[3, 0, 0, 0, 16, 0, 0, 0]);
    sealed[8..24].copy_from_slice(&SALT);
    sealed[24..32].copy_from_slice(&[16, 0, 0, 0, 24, 0, 0, 0]);
    let by = derive(passphrase.as_bytes(), &SALT, ITERATIONS, 16);
    sealed[32..56].copy_from_slice(&wrap(&by, &USER));
    sealed[168..172].copy_from_slice(&iterations.to_le_bytes());
    format!(
        "<dict><key>PassphraseWrappedKEKStruct</key><data>{}</data><key>UserType</key><integer>{kind:#x}</integer>\
         <key>UserIdent</key><string>{id}</string></dict>",
        STANDARD.encode(sealed)
    )
}

fn context(users: &str, status: &str) -> String {
    let mut sealed = vec![0; 256];
    sealed[..8].copy_from_slice(&[2, 0, 0, 0, 24, 0, 0, 0]);
    sealed[8..32].copy_from_slice(&wrap(&USER, &MASTER));
    format!(
        "<dict><key>CryptoUsers</key><array>{users}</array><key>WrappedVolumeKeys</key><array>\
         <dict><key>BlockAlgorithm</key><string>None</string><key>KEKWrappedVolumeKeyStruct</key><data></data></dict>\
         <dict><key>BlockAlgorithm</key><string>AES-XTS</string><key>KEKWrappedVolumeKeyStruct</key><data>{}</data></dict>\
         </array><key>ConversionInfo</key><dict><key>ConversionStatus</key><string>{status}</string></dict></dict>",
        STANDARD.encode(sealed)
    )
}

fn usual_users() -> String {
    user("A27BFBF4", WITH_PASSWORD, PASSWORD, ITERATIONS) + &user("C8787204", OTHER, RECOVERY_KEY, ITERATIONS)
}

/// Writes the checksum of a header or a block.
fn check(block: &mut [u8]) {
    block[4..8].fill(0xff);
    let sum = !(checksum(Crc32Iscsi, &block[8..]) as u32);
    block[..4].copy_from_slice(&sum.to_le_bytes());
}

/// The content of a volume with HFS+.
fn content() -> Vec<u8> {
    let mut content = noise(VOLUME_BYTES);
    content[1024..1028].copy_from_slice(b"H+\0\x04");
    content
}

/// A disk with these keys, or none in its metadata, and this content.
fn made(context: Option<&str>, content: &[u8], is_encrypted: bool) -> Vec<u8> {
    let mut objects = lists();
    objects.extend([
        segments(&PIECES),
        volume(11, 6, "Disk", VOLUME_BYTES as u64),
        family(context.unwrap_or("<dict/>")),
    ]);
    let count = objects.len();
    let mut disk = disk(&objects, DISK_BYTES);
    check(&mut disk[..SECTOR]);
    disk.copy_within(..SECTOR, DISK_BYTES - SECTOR);
    check(&mut disk[LABEL_AT * BLOCK..][..METADATA_BLOCK]);
    for (number, block) in disk[LOG_AT * BLOCK..].chunks_mut(METADATA_BLOCK).take(count).enumerate() {
        check(block);
        if number == count - 1 && context.is_none() {
            block[64..].fill(0);
            block[..8].copy_from_slice(b"LVFwiped");
        }
        encrypt_unit(&KEY, &DISK_ID, number as u64, block);
    }
    let tweak = Sha256::digest([MASTER, FAMILY].concat());
    let mut sealed = content.to_vec();
    if is_encrypted {
        for (number, sector) in sealed.chunks_mut(SECTOR).enumerate() {
            encrypt_unit(&MASTER, &tweak[..16], number as u64, sector);
        }
    }
    for (at, len, on_disk) in PIECES.map(|(at, len, on_disk)| (at as usize, len as usize, on_disk as usize)) {
        disk[on_disk * BLOCK..][..len * BLOCK].copy_from_slice(&sealed[at * BLOCK..][..len * BLOCK]);
    }
    disk
}

fn usual() -> Vec<u8> {
    made(Some(&context(&usual_users(), "Complete")), &content(), true)
}

#[tokio::test]
async fn passwords_and_recovery_keys_open_a_volume_in_pieces() {
    let disk = device(&usual());
    for (key, by) in [(PASSWORD, "password A27BFBF4"), (RECOVERY_KEY, "password or recovery key C8787204")] {
        let (decrypted, protector, layer) = opened(&disk, format!("wrong\n{key}\n").as_bytes()).await;
        assert!(decrypted == content(), "{key}");
        assert_eq!(protector, by);
        // Across the border of the pieces, at odd places.
        let start = 24 * BLOCK as u64;
        for (at, len) in [(0, 5), (1023, 3), (5 * BLOCK as u64 - 7, 700), (VOLUME_BYTES as u64 - 1, 1)] {
            let part = read(&layer, cheetah_device::ByteRange::new(start + at, len)).await;
            assert!(part == content()[at as usize..(at + len) as usize], "{at} {len}");
        }
    }
}

#[tokio::test]
async fn a_locked_volume_is_named_with_its_users() {
    let tried = unlock(&device(&usual()), &Keys::parse(b"wrong\n").unwrap()).await;
    let words = format!(
        "Apple Core Storage (FileVault 2) ({VOLUME_ID}, \"Disk\", AES-XTS 128; opened by: password (A27BFBF4), \
         password or recovery key (C8787204))"
    );
    assert_eq!(
        (&*tried.locked[0].format, &tried.locked[0].why),
        (&*words, &Refusal::WrongKeys { untried: Vec::new() })
    );
}

#[tokio::test]
async fn copies_of_damaged_headers_count() {
    let mut disk = usual();
    disk[300] ^= 1;
    assert!(opened(&device(&disk), PASSWORD.as_bytes()).await.0 == content());
    disk[DISK_BYTES - 100] ^= 1;
    assert!(matches!(refused(&device(&disk), PASSWORD.as_bytes()).await, Refusal::Damaged(_)));
    let mut damaged = usual();
    damaged[LOG_AT * BLOCK + 4 * METADATA_BLOCK + 500] ^= 1;
    assert!(matches!(refused(&device(&damaged), PASSWORD.as_bytes()).await, Refusal::Damaged(_)));
}

#[tokio::test]
async fn conversions_and_other_contents_are_refused_by_name() {
    let converting = made(Some(&context(&usual_users(), "Converting")), &content(), true);
    assert!(matches!(refused(&device(&converting), PASSWORD.as_bytes()).await, Refusal::Unsupported(_)));
    // As it is where the metadata say that all is encrypted, and it is not.
    let plain = made(Some(&context(&usual_users(), "Complete")), &content(), false);
    assert!(matches!(refused(&device(&plain), PASSWORD.as_bytes()).await, Refusal::Unsupported(_)));
}

#[tokio::test]
async fn a_user_whose_key_costs_too_much_is_left_out_and_named() {
    let users =
        user("A27BFBF4", WITH_PASSWORD, PASSWORD, u32::MAX) + &user("C8787204", OTHER, RECOVERY_KEY, ITERATIONS);
    let disk = device(&made(Some(&context(&users, "Complete")), &content(), true));
    opened(&disk, RECOVERY_KEY.as_bytes()).await;
    let Refusal::WrongKeys { untried } = refused(&disk, PASSWORD.as_bytes()).await else { panic!() };
    let [Untried::Way { what, why }] = &untried[..] else { panic!("{untried:?}") };
    assert!(what == "password A27BFBF4" && matches!(**why, Refusal::TooCostly(_)), "{untried:?}");
}

#[tokio::test]
async fn a_volume_that_is_not_encrypted_needs_no_key() {
    let context = "<dict><key>CryptoUsers</key><array></array><key>WrappedVolumeKeys</key><array></array></dict>";
    let disk = made(Some(context), &content(), false);
    let (plain, protector, _) = opened(&device(&disk), b"").await;
    assert!(plain == content());
    assert_eq!(protector, "no key, since it is not encrypted");
}

/// A real one, of which every byte is what lies on the disk.
#[tokio::test]
async fn a_real_volume_that_is_not_encrypted_is_shown() {
    let Some(path) = evidence("locked/cs_single_volume.raw") else { return };
    let disk = std::fs::read(path).unwrap();
    let (content, ..) = opened(&device(&disk), b"").await;
    assert!(content == disk[7169 * BLOCK..][..0xbf_4000]);
}

/// The disk of a system has its keys in a file on another partition, which the key of the metadata encrypts.
#[tokio::test]
async fn a_file_with_the_keys_of_a_system_opens_it_with_a_password() {
    let disk = device(&made(None, &content(), true));
    assert!(matches!(refused(&disk, PASSWORD.as_bytes()).await, Refusal::Unsupported(_)));
    let folder = tempfile::tempdir().unwrap();
    let (list, keys) = (folder.path().join("EncryptedRoot.plist.wipekey"), folder.path().join("keys.txt"));
    std::fs::write(&keys, PASSWORD).unwrap();
    for by in [KEY, DISK_ID] {
        let mut file = format!("<plist version=\"1.0\">{}</plist>", context(&usual_users(), "Complete")).into_bytes();
        file.resize(file.len().next_multiple_of(16), b'\n');
        encrypt_unit(&by, &[0; 16], 0, &mut file);
        std::fs::write(&list, file).unwrap();
        let tried = unlock(&disk, &Keys::read(&[&list, &keys]).unwrap()).await;
        assert_eq!(tried.opened[0].protector, "password A27BFBF4");
        assert!(read(&tried.over(disk.clone()), tried.opened[0].range()).await == content());
    }
}

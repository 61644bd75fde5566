//! LUKS, made by cryptsetup and by others.

use std::path::{Path, PathBuf};

use cheetah_device::ByteRange;
use cheetah_testing::programs;
use cheetah_unlock::{Keys, Refusal};

use crate::common::{Tried, device, opened, read, refused, run, sha256, text, tried, unlock, unpacked};

const PASSPHRASE: &[u8] = b"correct horse";
/// Few iterations, so that tests end soon. They are the least that cryptsetup takes.
const PBKDF2: &[&str] = &["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"];
const SMALL: &[&str] = &["--luks2-metadata-size", "16k", "--luks2-keyslots-size", "1024k"];

/// Makes a volume; its data are whatever was there, which is no less a ciphertext.
fn format(folder: &Path, options: &[&str]) -> PathBuf {
    let path = folder.join("volume");
    let mut state = 1_u64;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    });
    std::fs::write(&path, noise.take(4 << 20).collect::<Vec<u8>>()).unwrap();
    let mut args = vec!["luksFormat", "--batch-mode", "--key-file", "-"];
    args.extend(options);
    args.push(text(&path));
    run("cryptsetup", &args, PASSPHRASE);
    path
}

/// The key of the volume, in hexadecimal digits, as cryptsetup prints it.
fn volume_key(path: &Path) -> String {
    let args = ["luksDump", "--dump-volume-key", "--batch-mode", "--key-file", "-", text(path)];
    let dump = run("cryptsetup", &args, PASSPHRASE);
    let (_, digits) = dump.split_once("dump:").unwrap();
    digits.split_whitespace().filter(|word| word.len() == 2).collect()
}

#[tokio::test]
async fn every_cipher_of_both_versions_is_opened_by_passphrase_and_by_the_key_of_the_volume() {
    if !programs(&["cryptsetup"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let ciphers: [&[&str]; 9] = [
        &["--cipher", "aes-xts-plain64", "--key-size", "256", "--hash", "ripemd160"],
        &["--cipher", "aes-xts-plain64", "--key-size", "512", "--hash", "whirlpool"],
        &["--cipher", "aes-xts-plain64", "--key-size", "256"],
        &["--cipher", "aes-xts-plain64", "--key-size", "512", "--hash", "sha512"],
        &["--cipher", "aes-xts-plain", "--key-size", "512"],
        &["--cipher", "aes-cbc-essiv:sha256", "--key-size", "256", "--hash", "sha1"],
        &["--cipher", "aes-cbc-plain64", "--key-size", "128"],
        &["--cipher", "aes-cbc-plain", "--key-size", "192"],
        &["--cipher", "aes-ecb", "--key-size", "256"],
    ];
    for cipher in ciphers {
        for version in [
            &["--type", "luks1", "--pbkdf-force-iterations", "1000"][..],
            &[&["--type", "luks2"], SMALL, PBKDF2].concat(),
        ] {
            let path = format(folder.path(), &[cipher, version].concat());
            let image = device(&std::fs::read(&path).unwrap());
            let (content, protector, _) = opened(&image, PASSPHRASE).await;
            assert_eq!(protector, "key slot 0", "{cipher:?}");
            let (same, protector, _) = opened(&image, volume_key(&path).as_bytes()).await;
            assert_eq!(protector, "master key");
            assert!(content == same, "{cipher:?} {version:?}");
            assert_eq!(refused(&image, b"correct horsf").await, Refusal::WrongKeys { untried: Vec::new() });
        }
    }
}

#[tokio::test]
async fn argon2_large_sectors_further_slots_and_key_files_are_opened() {
    if !programs(&["cryptsetup"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let argon2 = ["--pbkdf-force-iterations", "4", "--pbkdf-memory", "1024", "--pbkdf-parallel", "2"];
    for (kdf, sector) in [("argon2i", "4096"), ("argon2id", "512"), ("argon2id", "2048")] {
        let options = [&["--type", "luks2", "--pbkdf", kdf, "--sector-size", sector][..], &argon2, SMALL].concat();
        let path = format(folder.path(), &options);
        let key_file = folder.path().join("key");
        let key: Vec<_> = (0..=255).collect();
        std::fs::write(&key_file, &key).unwrap();
        let adding = ["luksAddKey", "--batch-mode", "--key-file", "-", "--key-slot", "5"];
        run("cryptsetup", &[&adding[..], PBKDF2, &[text(&path), text(&key_file)]].concat(), PASSPHRASE);
        let image = device(&std::fs::read(&path).unwrap());
        let (content, protector, layer) = opened(&image, PASSPHRASE).await;
        assert_eq!(protector, "key slot 0");
        let (same, protector, _) = opened(&image, &key).await;
        assert_eq!(protector, "key slot 5");
        assert!(content == same);
        let keys = [b"wrong\n", PASSPHRASE, b"\n"].concat();
        assert!(opened(&image, &keys).await.0 == content);
        let offset = tried(&image, PASSPHRASE).await.opened[0].offset;
        for (at, len) in [(0, 1), (511, 2), (4095, 4098), (100_000, 1), (1 << 20, 300_000)] {
            let part = read(&layer, ByteRange::new(offset + at, len)).await;
            assert!(part == content[at as usize..(at + len) as usize], "{at} {len}");
        }
        // What lies before the data is shown as it is.
        let before = ByteRange::new(0, offset + 512);
        assert!(read(&layer, before).await[..offset as usize] == read(&image, before).await[..offset as usize]);
    }
}

#[tokio::test]
async fn the_second_header_counts_if_the_first_is_damaged() {
    if !programs(&["cryptsetup"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = format(folder.path(), &[&["--type", "luks2"], SMALL, PBKDF2].concat());
    let mut bytes = std::fs::read(&path).unwrap();
    let (content, ..) = opened(&device(&bytes), PASSPHRASE).await;
    bytes[5000] ^= 1;
    assert!(opened(&device(&bytes), PASSPHRASE).await.0 == content);
    bytes[..4096].fill(0);
    assert!(opened(&device(&bytes), PASSPHRASE).await.0 == content);
    bytes[(16 << 10) + 5000] ^= 1;
    assert!(matches!(refused(&device(&bytes), PASSPHRASE).await, Refusal::Damaged(_)));
}

/// A small file system, and the same as openssl encrypts it with a key in hexadecimal digits.
fn encrypted_file_system(folder: &Path, key: &str) -> (Vec<u8>, Vec<u8>) {
    let (plain, sealed) = (folder.join("plain"), folder.join("sealed"));
    run("mkfs.ext4", &["-q", "-F", "-O", "^has_journal", text(&plain), "2M"], b"");
    run("openssl", &["enc", "-aes-256-ecb", "-nopad", "-K", key, "-in", text(&plain), "-out", text(&sealed)], b"");
    (std::fs::read(plain).unwrap(), std::fs::read(sealed).unwrap())
}

/// What the passphrase and a header do to a volume.
async fn with_header(folder: &Path, volume: &[u8], passphrase: &[u8], header: &Path) -> Tried {
    let keys = folder.join("keys");
    std::fs::write(&keys, passphrase).unwrap();
    unlock(&device(volume), &Keys::read(&[&keys, header]).unwrap()).await
}

const ECB: &[&str] = &["--cipher", "aes-ecb", "--key-size", "256"];

#[tokio::test]
async fn a_header_apart_from_its_volume_opens_what_then_has_a_known_format() {
    if !programs(&["cryptsetup", "openssl", "mkfs.ext4"]) {
        return;
    }
    for version in
        [&["--type", "luks1", "--pbkdf-force-iterations", "1000"][..], &[&["--type", "luks2"], SMALL, PBKDF2].concat()]
    {
        let folder = tempfile::tempdir().unwrap();
        let (header, data) = (folder.path().join("header"), folder.path().join("data"));
        std::fs::write(&data, vec![0; 2 << 20]).unwrap();
        let begin = ["luksFormat", "--batch-mode", "--key-file", "-", "--header", text(&header)];
        run("cryptsetup", &[&begin[..], ECB, version, &[text(&data)]].concat(), PASSPHRASE);
        let (plain, sealed) = encrypted_file_system(folder.path(), &volume_key(&header));
        let unlocked = with_header(folder.path(), &sealed, PASSPHRASE, &header).await;
        let [volume] = &unlocked.opened[..] else { panic!("{:?}", unlocked.locked) };
        assert!(volume.format.ends_with(&format!("whose header is in {}", text(&header))), "{volume}");
        assert_eq!((volume.partition, volume.protector.as_str()), (None, "key slot 0"));
        assert!(read(&unlocked.over(device(&sealed)), volume.range()).await == plain);
        // What has no known format with it is not the volume of this header; nor is one opened with another key.
        let refused = |unlocked: Tried| {
            assert!(unlocked.opened.is_empty());
            unlocked.locked[0].why.clone()
        };
        let noise: Vec<_> = sealed.iter().rev().copied().collect();
        assert_eq!(refused(with_header(folder.path(), &noise, PASSPHRASE, &header).await), Refusal::NoVolume);
        let wrong = with_header(folder.path(), &sealed, b"correct horsf", &header).await;
        assert_eq!(refused(wrong), Refusal::WrongKeys { untried: Vec::new() });
    }
}

#[tokio::test]
async fn a_copy_of_the_header_opens_a_volume_whose_own_header_is_gone() {
    if !programs(&["cryptsetup", "openssl", "mkfs.ext4"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = format(folder.path(), &[&["--type", "luks2"], SMALL, PBKDF2, ECB].concat());
    let mut volume = std::fs::read(&path).unwrap();
    let (plain, sealed) = encrypted_file_system(folder.path(), &volume_key(&path));
    let offset = tried(&device(&volume), PASSPHRASE).await.opened[0].offset as usize;
    volume[offset..][..sealed.len()].copy_from_slice(&sealed);
    let copy = folder.path().join("copy");
    std::fs::write(&copy, &volume[..offset]).unwrap();
    volume[..offset].fill(0);
    let unlocked = with_header(folder.path(), &volume, PASSPHRASE, &copy).await;
    let [opened] = &unlocked.opened[..] else { panic!("{:?}", unlocked.locked) };
    assert!(read(&unlocked.over(device(&volume)), opened.range()).await[..plain.len()] == plain);
}

#[tokio::test]
async fn damaged_key_material_opens_nothing() {
    if !programs(&["cryptsetup"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for version in
        [&["--type", "luks1", "--pbkdf-force-iterations", "1000"][..], &[&["--type", "luks2"], SMALL, PBKDF2].concat()]
    {
        let path = format(folder.path(), version);
        let mut bytes = std::fs::read(&path).unwrap();
        // The material of slot 0 begins at 4 KiB, or after both headers.
        bytes[(64 << 10) + 77] ^= 1;
        refused(&device(&bytes), PASSPHRASE).await;
    }
}

#[tokio::test]
async fn what_cannot_be_read_right_is_refused_by_name() {
    if !programs(&["cryptsetup"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let options = [
        "--cipher",
        "aes-xts-essiv:sha256",
        "--key-size",
        "512",
        "--type",
        "luks1",
        "--pbkdf-force-iterations",
        "1000",
    ];
    let mut bytes = std::fs::read(format(folder.path(), &options)).unwrap();
    let why = refused(&device(&bytes), PASSPHRASE).await;
    assert_eq!(why, Refusal::Unsupported("the cipher aes-xts-essiv:sha256 with a key of 512 bits".to_owned()));
    bytes[8..16].copy_from_slice(b"serpent\0");
    assert!(matches!(refused(&device(&bytes), PASSPHRASE).await, Refusal::Unsupported(_)));
    let path = folder.path().join("begun");
    let beginning =
        ["reencrypt", "--encrypt", "--init-only", "--reduce-device-size", "32M", "--batch-mode", "--key-file", "-"];
    std::fs::write(&path, vec![0; 64 << 20]).unwrap();
    run("cryptsetup", &[&beginning[..], PBKDF2, &[text(&path)]].concat(), PASSPHRASE);
    assert!(matches!(refused(&device(&std::fs::read(&path).unwrap()), PASSPHRASE).await, Refusal::Unsupported(_)));
}

#[tokio::test]
async fn volumes_of_others_are_decrypted_as_two_other_programs_do() {
    // By libluksde and dissect.fve.
    let content = "9a62d6c7b90b4ff89818c67f5b5fb93f6b11d80a26b64cb04d4c33309c63025d";
    for name in ["luks1-sha1.bin", "luks2-aes-cbc-essiv.bin"] {
        let Some(image) = unpacked(name) else { return };
        let (decrypted, ..) = opened(&device(&image), b"password\n").await;
        assert_eq!(sha256(&decrypted), content, "{name}");
    }
}

/// Kinds that are in fewer collections of images.
#[tokio::test]
async fn further_volumes_of_others_are_decrypted_as_dissect_does() {
    let content = "9a62d6c7b90b4ff89818c67f5b5fb93f6b11d80a26b64cb04d4c33309c63025d";
    for name in ["aes-cbc-plain", "aes-ecb-pbkdf2", "aes-ecb", "aes-xts-plain64", "multiple-slots"] {
        let Some(image) = unpacked(&format!("luks2-{name}.bin")) else { return };
        let (decrypted, ..) = opened(&device(&image), b"password\n").await;
        assert_eq!(sha256(&decrypted), content, "{name}");
    }
}

//! Volumes of VeraCrypt and TrueCrypt: made here, one block at a time, from the description of the format; their headers are read by
//! cryptsetup, too. Real ones, if there are any.

use std::io::Write as _;
use std::path::Path;

use aes::cipher::{Block, BlockCipherEncrypt, KeyInit};
use cheetah_device::ByteRange;
use cheetah_testing::{evidence, programs, skip};
use cheetah_unlock::{Keys, Refusal};
use pbkdf2::hmac::{Mac, SimpleHmac};

use crate::common::{device, opened, read, refused, run, text, tried};

const PASSWORD: &[u8] = b"correct horse";
const KEY: &[u8] = b"veracrypt,pim=1:correct horse";
/// Iterations with a PIM of 1.
const ITERATIONS: u32 = 16_000;
const DATA_AT: usize = 128 << 10;
const UNITS: usize = 40;
const VOLUME_BYTES: usize = 2 * DATA_AT + 512 * UNITS;

/// Encrypts a data unit: 512 bytes or a header.
type Encrypt = fn(key: &[u8], tweak: &[u8], number: u64, unit: &mut [u8]);

/// XTS (IEEE 1619), block by block.
fn xts<C: BlockCipherEncrypt + KeyInit>(key: &[u8], tweak: &[u8], number: u64, unit: &mut [u8]) {
    let (data, tweak) = (C::new_from_slice(key).unwrap(), C::new_from_slice(tweak).unwrap());
    let mut value = [0; 16];
    value[..8].copy_from_slice(&number.to_le_bytes());
    let encrypt = |cipher: &C, bytes: &mut [u8]| {
        let mut block = Block::<C>::try_from(&*bytes).unwrap();
        cipher.encrypt_block(&mut block);
        bytes.copy_from_slice(&block);
    };
    encrypt(&tweak, &mut value);
    for block in unit.chunks_exact_mut(16) {
        let add = |block: &mut [u8]| block.iter_mut().zip(value).for_each(|(byte, tweak)| *byte ^= tweak);
        add(block);
        encrypt(&data, block);
        add(block);
        let mut carry = 0;
        for byte in &mut value {
            (*byte, carry) = (*byte << 1 | carry, *byte >> 7);
        }
        value[0] ^= 0x87 * carry;
    }
}

/// Derives the key of a header from its salt.
type Derive = fn(salt: &[u8]) -> Vec<u8>;

const AES: Encrypt = xts::<aes::Aes256>;
const SERPENT: Encrypt = xts::<serpent::Serpent>;
const TWOFISH: Encrypt = xts::<twofish::Twofish>;
const CAMELLIA: Encrypt = xts::<camellia::Camellia256>;
const KUZNYECHIK: Encrypt = xts::<kuznyechik::Kuznyechik>;

/// Names, and the ciphers in the order in which they encrypt.
const ENCRYPTIONS: [(&str, &[Encrypt]); 15] = [
    ("AES", &[AES]),
    ("Serpent", &[SERPENT]),
    ("Twofish", &[TWOFISH]),
    ("Camellia", &[CAMELLIA]),
    ("Kuznyechik", &[KUZNYECHIK]),
    ("AES-Twofish", &[TWOFISH, AES]),
    ("AES-Twofish-Serpent", &[SERPENT, TWOFISH, AES]),
    ("Serpent-AES", &[AES, SERPENT]),
    ("Serpent-Twofish-AES", &[AES, TWOFISH, SERPENT]),
    ("Twofish-Serpent", &[SERPENT, TWOFISH]),
    ("Camellia-Kuznyechik", &[KUZNYECHIK, CAMELLIA]),
    ("Kuznyechik-Twofish", &[TWOFISH, KUZNYECHIK]),
    ("Camellia-Serpent", &[SERPENT, CAMELLIA]),
    ("Kuznyechik-AES", &[AES, KUZNYECHIK]),
    ("Kuznyechik-Serpent-Camellia", &[CAMELLIA, SERPENT, KUZNYECHIK]),
];

fn cascade(ciphers: &[Encrypt], keys: &[u8], number: u64, unit: &mut [u8]) {
    for (nth, encrypt) in ciphers.iter().enumerate() {
        let key = |nth: usize| &keys[32 * nth..32 * (nth + 1)];
        encrypt(key(nth), key(ciphers.len() + nth), number, unit);
    }
}

/// PBKDF2 (RFC 8018) of the password.
fn pbkdf2<D>(iterations: u32, salt: &[u8]) -> Vec<u8>
where
    SimpleHmac<D>: Mac + KeyInit + Clone,
    D: pbkdf2::hmac::digest::Digest + pbkdf2::hmac::digest::block_api::BlockSizeUser,
{
    pbkdf2_of::<D>(PASSWORD, iterations, salt)
}

/// PBKDF2, one block after the other.
fn pbkdf2_of<D>(password: &[u8], iterations: u32, salt: &[u8]) -> Vec<u8>
where
    SimpleHmac<D>: Mac + KeyInit + Clone,
    D: pbkdf2::hmac::digest::Digest + pbkdf2::hmac::digest::block_api::BlockSizeUser,
{
    let mut key = Vec::new();
    for number in 1u32.. {
        let mac = |parts: &[&[u8]]| {
            let mut mac = SimpleHmac::<D>::new_from_slice(password).unwrap();
            parts.iter().for_each(|part| mac.update(part));
            mac.finalize().into_bytes().to_vec()
        };
        let mut last = mac(&[salt, &number.to_be_bytes()]);
        let mut sum = last.clone();
        for _ in 1..iterations {
            last = mac(&[&last]);
            sum.iter_mut().zip(&last).for_each(|(sum, byte)| *sum ^= byte);
        }
        key.extend(sum);
        if key.len() >= 192 {
            break;
        }
    }
    key
}

fn noise(seed: u64) -> impl Iterator<Item = u8> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    })
}

/// A volume that is made.
struct Made {
    magic: &'static [u8; 4],
    ciphers: &'static [Encrypt],
    derive: Derive,
    /// Where its data lie, in units.
    data: std::ops::Range<usize>,
    /// Where its header lies.
    header_at: usize,
}

impl Made {
    fn new(ciphers: &'static [Encrypt]) -> Self {
        let first = DATA_AT / 512;
        Self {
            magic: b"VERA",
            ciphers,
            derive: |salt| pbkdf2::<sha2::Sha256>(ITERATIONS, salt),
            data: first..first + UNITS,
            header_at: 0,
        }
    }

    /// The keys of its data.
    fn keys(&self) -> Vec<u8> {
        noise(7 + self.header_at as u64).take(256).collect()
    }

    /// Writes its header into a volume.
    fn write_header(&self, volume: &mut [u8]) {
        let mut header: Vec<u8> = noise(3 + self.header_at as u64).take(64).collect();
        header.resize(256, 0);
        header.extend(self.keys());
        header[64..68].copy_from_slice(self.magic);
        header[68..72].copy_from_slice(&[0, 5, 1, 11]);
        let bytes = (512 * self.data.len() as u64).to_be_bytes();
        header[100..108].copy_from_slice(&bytes);
        header[108..116].copy_from_slice(&(512 * self.data.start as u64).to_be_bytes());
        header[116..124].copy_from_slice(&bytes);
        header[128..132].copy_from_slice(&512_u32.to_be_bytes());
        let crc32 = |bytes: &[u8]| {
            let mut crc = flate2::Crc::new();
            crc.update(bytes);
            crc.sum().to_be_bytes()
        };
        let sum = crc32(&header[256..]);
        header[72..76].copy_from_slice(&sum);
        let sum = crc32(&header[64..252]);
        header[252..256].copy_from_slice(&sum);
        let (salt, sealed) = header.split_at_mut(64);
        cascade(self.ciphers, &(self.derive)(salt), 0, sealed);
        volume[self.header_at..self.header_at + 512].copy_from_slice(&header);
    }

    /// Writes content into a volume, and returns it.
    fn write_content(&self, volume: &mut [u8]) -> Vec<u8> {
        let content: Vec<u8> = (0..512 * self.data.len()).map(|at| (at / 511 % 251) as u8).collect();
        for (number, unit) in self.data.clone().zip(content.chunks(512)) {
            let place = &mut volume[512 * number..512 * (number + 1)];
            place.copy_from_slice(unit);
            cascade(self.ciphers, &self.keys(), number as u64, place);
        }
        content
    }

    /// A volume with it, and its content.
    fn volume(&self) -> (Vec<u8>, Vec<u8>) {
        let mut volume: Vec<u8> = noise(1).take(VOLUME_BYTES).collect();
        self.write_header(&mut volume);
        let content = self.write_content(&mut volume);
        (volume, content)
    }
}

#[tokio::test]
async fn every_cipher_and_cascade_is_opened() {
    for (name, ciphers) in ENCRYPTIONS {
        let (volume, content) = Made::new(ciphers).volume();
        let image = device(&volume);
        let (found, protector, layer) = opened(&image, KEY).await;
        assert_eq!(protector, format!("password, header of VeraCrypt ({name}, SHA-256)"));
        assert!(found == content, "{name}");
        for (at, len) in [(0, 1), (511, 2), (1000, 5000), (512 * UNITS - 1, 1)] {
            let part = read(&layer, ByteRange::new((DATA_AT + at) as u64, len as u64)).await;
            assert!(part == content[at..at + len], "{name} {at} {len}");
        }
        // What is outside the data is shown as it is.
        assert!(read(&layer, ByteRange::new(0, DATA_AT as u64)).await == volume[..DATA_AT]);
    }
}

#[tokio::test]
async fn every_hash_function_is_tried() {
    let hashes: [(&str, Derive); 5] = [
        ("SHA-512", |salt| pbkdf2::<sha2::Sha512>(ITERATIONS, salt)),
        ("BLAKE2s-256", |salt| pbkdf2::<blake2::Blake2s256>(ITERATIONS, salt)),
        ("Whirlpool", |salt| pbkdf2::<whirlpool::Whirlpool>(ITERATIONS, salt)),
        ("Streebog", |salt| pbkdf2::<streebog::Streebog512>(ITERATIONS, salt)),
        ("RIPEMD-160", |salt| pbkdf2::<ripemd::Ripemd160>(ITERATIONS, salt)),
    ];
    for (name, derive) in hashes {
        let (volume, content) = Made { derive, ..Made::new(&[AES]) }.volume();
        let (found, protector, _) = opened(&device(&volume), KEY).await;
        assert_eq!(protector, format!("password, header of VeraCrypt (AES, {name})"));
        assert!(found == content, "{name}");
    }
}

#[tokio::test]
async fn a_volume_of_truecrypt_is_opened_without_a_pim() {
    let derive: Derive = |salt| pbkdf2::<ripemd::Ripemd160>(2000, salt);
    let (volume, content) = Made { magic: b"TRUE", derive, ..Made::new(&[SERPENT, TWOFISH, AES]) }.volume();
    let (found, protector, _) = opened(&device(&volume), b"veracrypt:correct horse").await;
    assert_eq!(protector, "password, header of TrueCrypt (AES-Twofish-Serpent, RIPEMD-160)");
    assert!(found == content);
    // As in VeraCrypt, 0 stands for none.
    assert!(opened(&device(&volume), b"veracrypt,pim=0:correct horse").await.0 == content);
}

#[tokio::test]
async fn a_hidden_volume_and_the_copies_of_headers_are_opened() {
    let first = DATA_AT / 512;
    for (header_at, place) in [
        (64 << 10, "header of the hidden volume"),
        (VOLUME_BYTES - (128 << 10), "copy of the header"),
        (VOLUME_BYTES - (64 << 10), "copy of the header of the hidden volume"),
    ] {
        let made = Made { header_at, data: first + 10..first + UNITS, ..Made::new(&[AES]) };
        let (volume, content) = made.volume();
        let (found, protector, _) = opened(&device(&volume), KEY).await;
        assert_eq!(protector, format!("password, {place} of VeraCrypt (AES, SHA-256)"));
        assert!(found == content, "{place}");
    }
}

#[tokio::test]
async fn with_keys_of_the_outer_and_the_hidden_volume_the_first_is_opened_and_the_other_named() {
    let hidden_key = b"veracrypt,pim=1:battery staple";
    let derive: Derive = |salt| pbkdf2_of::<sha2::Sha256>(b"battery staple", ITERATIONS, salt);
    let (outer, first) = (Made::new(&[AES]), DATA_AT / 512);
    let hidden = Made { header_at: 64 << 10, derive, data: first + 20..first + UNITS, ..Made::new(&[SERPENT]) };
    let mut volume: Vec<u8> = noise(1).take(VOLUME_BYTES).collect();
    outer.write_header(&mut volume);
    hidden.write_header(&mut volume);
    outer.write_content(&mut volume);
    let hidden_content = hidden.write_content(&mut volume);
    let image = device(&volume);
    let cases: [(&[u8], &[u8], &str, &str); 2] = [
        (KEY, hidden_key, "header of VeraCrypt", "the hidden volume of VeraCrypt"),
        (hidden_key, KEY, "header of the hidden volume of VeraCrypt", "the outer volume of VeraCrypt"),
    ];
    for (open, other, protector, named) in cases {
        let tried = tried(&image, &[open, b"\nveracrypt,pim=1:neither\n", other].concat()).await;
        assert!(tried.opened[0].protector.contains(protector), "{:?}", tried.opened);
        let [locked] = &tried.locked[..] else { panic!("{:?}", tried.locked) };
        assert_eq!((&*locked.format, &locked.why), (named, &Refusal::Covered));
    }
    assert!(opened(&image, hidden_key).await.0 == hidden_content);
}

#[tokio::test]
async fn units_are_numbered_from_the_start_of_the_partition() {
    let (volume, content) = Made::new(&[TWOFISH]).volume();
    let start = 2048_u32;
    let mut disk = vec![0; 512 * start as usize + volume.len()];
    disk[446 + 4] = 0x0c;
    disk[446 + 8..446 + 12].copy_from_slice(&start.to_le_bytes());
    disk[446 + 12..446 + 16].copy_from_slice(&(volume.len() as u32 / 512).to_le_bytes());
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk[512 * start as usize..].copy_from_slice(&volume);
    let disk = device(&disk);
    let (found, ..) = opened(&disk, KEY).await;
    assert!(found == content);
    assert_eq!(tried(&disk, KEY).await.opened[0].partition, Some(1));
}

#[tokio::test]
async fn a_wrong_password_a_wrong_pim_and_altered_headers_open_nothing() {
    let (mut volume, _) = Made::new(&[AES]).volume();
    let wrong = Refusal::WrongKeys { untried: Vec::new() };
    for key in [&b"veracrypt,pim=1:correct horsf"[..], b"veracrypt,pim=2:correct horse"] {
        assert_eq!(refused(&device(&volume), key).await, wrong);
    }
    // Of the header only: keys are tried, and its checksums are wrong.
    volume[300] ^= 1;
    assert_eq!(refused(&device(&volume), KEY).await, wrong);
}

#[tokio::test]
async fn a_key_that_costs_too_much_keeps_no_other_from_being_tried() {
    let (volume, content) = Made::new(&[AES]).volume();
    let keys = [b"veracrypt,pim=70000:correct horse\n", KEY].concat();
    assert!(opened(&device(&volume), &keys).await.0 == content);
    let Refusal::WrongKeys { untried } = refused(&device(&volume), b"veracrypt,pim=70000:correct horse").await else {
        panic!("another refusal");
    };
    assert!(untried.len() > 1, "{untried:?}");
}

#[tokio::test]
async fn a_line_without_the_name_is_not_tried_and_neither_is_what_is_no_noise() {
    let (volume, _) = Made::new(&[AES]).volume();
    for (image, key) in [(volume, PASSWORD), (vec![0; VOLUME_BYTES], KEY), (vec![0; 1000], KEY)] {
        let unlocked = tried(&device(&image), key).await;
        assert!(unlocked.opened.is_empty() && unlocked.locked.is_empty());
    }
}

#[tokio::test]
async fn remains_of_a_log_of_xfs_keep_no_volume_from_being_opened() {
    let (mut volume, content) = Made::new(&[AES]).volume();
    let mut record = [0; 512];
    for (at, number) in [(0, 0xfeed_babe_u32), (8, 2), (12, 512), (300, 1)] {
        record[at..at + 4].copy_from_slice(&number.to_be_bytes());
    }
    volume[80 << 10..][..512].copy_from_slice(&record);
    assert!(opened(&device(&volume), KEY).await.0 == content);
}

#[tokio::test]
async fn data_beyond_the_end_of_the_volume_are_refused() {
    let first = DATA_AT / 512;
    let made = Made { data: first..VOLUME_BYTES / 512 + 1, ..Made::new(&[AES]) };
    let mut volume: Vec<u8> = noise(1).take(VOLUME_BYTES).collect();
    made.write_header(&mut volume);
    assert!(matches!(refused(&device(&volume), KEY).await, Refusal::Damaged(_)));
}

/// Two key files, the second of which is longer than what counts.
fn key_files() -> [Vec<u8>; 2] {
    [noise(21).take(100).collect(), noise(22).take((1 << 20) + 1).collect()]
}

/// The password with the key files, as VeraCrypt's description has it.
fn with_key_files(password: &[u8]) -> Vec<u8> {
    let mut pool = vec![0_u8; if password.len() > 64 { 128 } else { 64 }];
    for file in key_files() {
        let mut state = crc32::Crc::new();
        for (nth, byte) in file.iter().take(1 << 20).enumerate() {
            for (place, part) in state.add(*byte).to_be_bytes().into_iter().enumerate() {
                let at = (4 * nth + place) % pool.len();
                pool[at] = pool[at].wrapping_add(part);
            }
        }
    }
    pool.iter_mut().zip(password).for_each(|(sum, byte)| *sum = sum.wrapping_add(*byte));
    pool
}

/// CRC-32 by a table.
mod crc32 {
    pub struct Crc {
        table: [u32; 256],
        register: u32,
    }

    impl Crc {
        pub fn new() -> Self {
            let step = |value: u32| if value & 1 == 1 { 0xedb8_8320 ^ value >> 1 } else { value >> 1 };
            let table = std::array::from_fn(|index| (0..8).fold(index as u32, |value, _| step(value)));
            Self { table, register: u32::MAX }
        }

        /// The register after one more byte.
        pub fn add(&mut self, byte: u8) -> u32 {
            self.register = self.table[usize::from(self.register as u8 ^ byte)] ^ self.register >> 8;
            self.register
        }
    }
}

const LONG_PASSWORD: &[u8] = b"a password that is longer than sixty-four bytes, so that key files have more room";

/// The lines of a volume with key files: its password is short, long, or none.
fn lines_with_key_files(folder: &Path) -> [(Vec<u8>, Derive); 3] {
    let paths: Vec<_> = key_files()
        .iter()
        .enumerate()
        .map(|(nth, content)| {
            let path = folder.join(format!("key{nth}"));
            std::fs::write(&path, content).unwrap();
            format!("keyfile={}", text(&path))
        })
        .collect();
    let line = |password: &[u8]| [format!("veracrypt,{},pim=1,{}:", paths[0], paths[1]).as_bytes(), password].concat();
    [
        (line(PASSWORD), |salt| pbkdf2_of::<sha2::Sha512>(&with_key_files(PASSWORD), ITERATIONS, salt)),
        (line(LONG_PASSWORD), |salt| pbkdf2_of::<sha2::Sha512>(&with_key_files(LONG_PASSWORD), ITERATIONS, salt)),
        (line(b""), |salt| pbkdf2_of::<sha2::Sha512>(&with_key_files(b""), ITERATIONS, salt)),
    ]
}

#[tokio::test]
async fn key_files_open_a_volume_with_their_password_and_not_without() {
    let folder = tempfile::tempdir().unwrap();
    for (line, derive) in lines_with_key_files(folder.path()) {
        let (volume, content) = Made { derive, ..Made::new(&[AES]) }.volume();
        let (read, protector, _) = opened(&device(&volume), &line).await;
        assert!(read == content);
        assert!(protector.starts_with("password, header of VeraCrypt (AES, SHA-512)"), "{protector}");
        let wrong = Refusal::WrongKeys { untried: Vec::new() };
        assert_eq!(refused(&device(&volume), KEY).await, wrong);
    }
    let missing = Keys::parse(b"veracrypt,keyfile=/none:x");
    assert!(missing.unwrap_err().is_misuse());
}

#[test]
fn cryptsetup_reads_the_headers_that_are_made_here() {
    if !programs(&["cryptsetup"]) {
        return;
    }
    if !Path::new("/sys/module/algif_skcipher").exists() {
        return skip("needs the kernel's interface to its ciphers (modprobe algif_skcipher)");
    }
    let folder = tempfile::tempdir().unwrap();
    // Those that the kernel has everywhere.
    for (name, cipher, ciphers) in [("AES", "aes", &[AES][..]), ("AES-Twofish", "twofish-aes", &[TWOFISH, AES])] {
        let made = Made { derive: |salt| pbkdf2::<sha2::Sha512>(ITERATIONS, salt), ..Made::new(ciphers) };
        let (volume, _) = made.volume();
        let path = folder.path().join("volume");
        std::fs::File::create(&path).unwrap().write_all(&volume).unwrap();
        let asked =
            ["tcryptDump", "--veracrypt", "--veracrypt-pim", "1", "--dump-volume-key", "--batch-mode", text(&path)];
        let dump = run("cryptsetup", &asked, PASSWORD);
        assert!(dump.contains(cipher) && dump.contains("256"), "{name}: {dump}");
        let (_, digits) = dump.split_once("dump:").unwrap();
        let key: String = digits.split_whitespace().filter(|word| word.len() == 2).collect();
        let keys: String = made.keys()[..64 * ciphers.len()].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(key, keys, "{name}");
    }
    for (password, (_, derive)) in [PASSWORD, LONG_PASSWORD].into_iter().zip(lines_with_key_files(folder.path())) {
        let (volume, _) = Made { derive, ..Made::new(&[AES]) }.volume();
        let path = folder.path().join("volume");
        std::fs::write(&path, volume).unwrap();
        let files = ["key0", "key1"].map(|name| folder.path().join(name));
        let asked = [
            "tcryptDump",
            "--veracrypt",
            "--veracrypt-pim",
            "1",
            "--batch-mode",
            "--key-file",
            text(&files[0]),
            "--key-file",
            text(&files[1]),
            text(&path),
        ];
        assert!(run("cryptsetup", &asked, password).contains("aes"));
    }
}

/// The images of cryptsetup's own tests, whose names say how each is encrypted. Each holds a FAT with a serial number.
#[tokio::test]
async fn the_images_of_cryptsetups_tests_are_opened() {
    let Some(readme) = evidence("locked/tcrypt-images/README") else { return };
    let mut opened_count = 0;
    for entry in std::fs::read_dir(readme.parent().unwrap()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let known = ["tc_4-", "tc_5-", "vc_1-", "vcpim_1-"].iter().any(|start| name.starts_with(start));
        if !known {
            continue;
        }
        let image = device(&std::fs::read(&path).unwrap());
        let key = if name.starts_with("vcpim") { "veracrypt,pim=1234:aaaaaaaaaaaa" } else { "veracrypt:aaaaaaaaaaaa" };
        let mut keys = vec![(key, 0xdead_babe_u32, false)];
        if name.ends_with("-hidden") {
            keys.push(("veracrypt:bbbbbbbbbbbb", 0xcafe_babe, true));
        }
        for (key, serial, is_hidden) in keys {
            let (content, protector, _) = opened(&image, key.as_bytes()).await;
            assert_eq!(content[39..43], serial.to_le_bytes(), "{name}: {protector}");
            assert_eq!(protector.contains("hidden"), is_hidden, "{name}: {protector}");
        }
        opened_count += 1;
    }
    assert!(opened_count > 20);
}

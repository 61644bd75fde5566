//! BitLocker, of images that others made. Their content is what libbde and dissect.fve decrypt, byte by byte.

use cheetah_device::ByteRange;
use cheetah_testing::evidence;
use cheetah_unlock::Refusal;

use crate::common::{device, opened, read, refused, sha256, unpacked};

const PASSWORD: &[u8] = b"password12!@\n";
const RECOVERY_PASSWORD: &[u8] = b"284867-596541-514998-422114-660297-261613-215424-199408\n";

#[tokio::test]
async fn every_kind_of_protector_opens_what_two_other_programs_decrypt() {
    let Some(startup_key) = evidence("locked/startup_key.bek") else { return };
    let startup_key = std::fs::read(startup_key).unwrap();
    let cases: [(&str, &[u8], &str, &str); 5] = [
        (
            "aes-xts_128.bin",
            PASSWORD,
            "password 55faeded-",
            "2765001e256eb8ca9a38db007225706d9ec3228ba56bdace3642fd5280f2543d",
        ),
        (
            "aes_128_diffuser.bin",
            PASSWORD,
            "password 026194ab-",
            "c6da77807a5bf228cff85665d70dbc94c2d69e45f001bc8144b201808cd0c8d5",
        ),
        (
            "recovery_password.bin",
            RECOVERY_PASSWORD,
            "recovery password ",
            "f97cc63acafc01b818a72240219fe8212ed249995c017c3d97334dde0fc59c65",
        ),
        (
            "startup_key.bin",
            &startup_key,
            "startup key ",
            "2b03452675750d10795cdb2048ee9a501f6475347e4bceb0cb2960b88453af48",
        ),
        ("suspended.bin", b"", "clear key ", "d421f4a2ec130af8b7b8abcdeade66dac0d4d552dead0994aafd8c6e3e74fe79"),
    ];
    for (name, key, protector, content) in cases {
        let Some(image) = unpacked(name) else { return };
        let (decrypted, by, _) = opened(&device(&image), key).await;
        assert!(by.starts_with(protector), "{name}: {by}");
        assert_eq!(sha256(&decrypted), content, "{name}");
    }
}

#[tokio::test]
async fn a_wrong_key_and_damaged_metadata_open_nothing() {
    let Some(mut image) = unpacked("aes-xts_128.bin") else { return };
    let why = refused(&device(&image), b"password12!\n00ff\n").await;
    assert_eq!(why, Refusal::WrongKeys { untried: Vec::new() });
    // Two of the three copies of the metadata are damaged.
    for at in [0x21f_0000, 0x294_6000] {
        image[at + 300] ^= 1;
        opened(&device(&image), PASSWORD).await;
    }
    image[0x309_b000 + 300] ^= 1;
    assert!(matches!(refused(&device(&image), PASSWORD).await, Refusal::Damaged(_)));
}

#[tokio::test]
async fn conversions_that_are_not_finished_are_refused_by_name() {
    let Some(image) = unpacked("aes-xts_128.bin") else { return };
    // The identifier of a volume that is encrypted where it is written.
    let mut on_write = image.clone();
    on_write[160..176].copy_from_slice(b"\x3b\x4d\xa8\x92\x80\xdd\x0e\x4d\x9e\x4e\xb1\xe3\x28\x4e\xae\xd8");
    assert!(matches!(refused(&device(&on_write), PASSWORD).await, Refusal::Unsupported(_)));
    // Another one, which was decrypted since.
    let Some(decrypted) = unpacked("decrypted.bin") else { return };
    assert!(matches!(refused(&device(&decrypted), b"").await, Refusal::Unsupported(_)));
    let mut unknown = image;
    unknown[160..176].fill(0);
    assert!(matches!(refused(&device(&unknown), PASSWORD).await, Refusal::Damaged(_)));
}

/// Kinds that are in fewer collections of images.
#[tokio::test]
async fn every_cipher_and_a_recovery_key_in_a_file_are_decrypted_as_libbde_does() {
    let cases = [
        ("aes-xts_256.bin", "b8c012482b9e8219db651d2414a7685fca9a7fff94e45575145883f19be6e4ff"),
        ("aes_128.bin", "d90b6e46f837d9b2f25c7ebca4cf42d6c17dbd08fc7f2ef1a8aed7d149becf75"),
        ("aes_256.bin", "c0b7b3e40e55b02e84432a93c95256a2a19438848fe65c66627b0c32056aff5a"),
        ("aes_256_diffuser.bin", "bb5817a7f1a81b6840bbb8906d6ff833d0137f38cd95f99ea76ce7e49b5a5642"),
    ];
    for (name, content) in cases {
        let Some(image) = unpacked(name) else { return };
        assert_eq!(sha256(&opened(&device(&image), PASSWORD).await.0), content, "{name}");
    }
    let Some((image, key)) = unpacked("recovery_key.bin").zip(evidence("locked/recovery_key.bek")) else { return };
    let (content, ..) = opened(&device(&image), &std::fs::read(key).unwrap()).await;
    assert_eq!(sha256(&content), "0db7f24a13553f4c6dc8afcdd98d7c0fa39b97f624aa3c4fbbbce6b84f4fac60");
}

#[tokio::test]
async fn reads_of_any_place_are_parts_of_the_whole() {
    let Some(image) = unpacked("aes_128_diffuser.bin") else { return };
    let (content, _, layer) = opened(&device(&image), PASSWORD).await;
    // At the beginning, which lies elsewhere; across the places of the metadata and of the beginning; at odd places.
    for (at, len) in
        [(0, 3), (8191, 2), (511, 9000), (0x210_0000 - 5, 0x1_0010), (0x298_a000 - 1, 0x2002), (1_000_001, 70_001)]
    {
        let part = read(&layer, ByteRange::new(at, len)).await;
        assert!(part == content[at as usize..(at + len) as usize], "{at} {len}");
    }
}

//! Headers of encrypted volumes: whatever they say, a volume lies within its place.

use cheetah_device::ByteRange;
use cheetah_unlock::offline::open_any;

const PLACE: ByteRange = ByteRange::new(1 << 20, 1 << 30);

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let mut header = vec![0; 8192];
    let len = data.len().min(header.len());
    header[..len].copy_from_slice(&data[..len]);
    match choice % 4 {
        0 => header[..8].copy_from_slice(b"LUKS\xba\xbe\0\x01"),
        1 => {
            header[160..176].copy_from_slice(b"\x3b\xd6\x67\x49\x29\x2e\xd8\x4a\x83\x99\xf6\xa3\x39\xe3\xd0\x01");
            header[512..520].copy_from_slice(b"-FVE-FS-");
            header[522] = 2;
            header[584..588].copy_from_slice(&48_u32.to_le_bytes());
        }
        // BitLocker of Windows Vista.
        2 => {
            header[..14].copy_from_slice(b"\xeb\x52\x90-FVE-FS-\0\x02\x08");
            header[512..520].copy_from_slice(b"-FVE-FS-");
            header[522..529].copy_from_slice(b"\x01\0\x04\0\x04\0\0");
            header[584..588].copy_from_slice(&48_u32.to_le_bytes());
        }
        // The description of LUKS 2, as it is.
        _ => {}
    }
    let opened = open_any(&header, PLACE);
    assert!(opened.iter().all(|volume| PLACE.contains(*volume) && !volume.is_empty()), "{opened:?}");
}

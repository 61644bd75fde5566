//! Formats of volumes: naming one, and describing how it is locked, does not panic, and what is printed is short and safe.

use cheetah_device::memory::Memory;
use cheetah_device::visible::is_control;
use cheetah_device::{ByteRange, Device as _};
use cheetah_volume::formats::identify;

const SIZE: usize = 160 << 10;
/// Where the metadata of BitLocker is put.
const METADATA: usize = 80 << 10;
const CHARS_MAX: usize = 8 << 10;

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let mut volume = vec![0; SIZE];
    let len = data.len().min(METADATA);
    volume[..len].copy_from_slice(&data[..len]);
    match choice % 4 {
        // LUKS 1 and 2.
        1 | 2 => volume[..8].copy_from_slice(&[b'L', b'U', b'K', b'S', 0xba, 0xbe, 0, choice % 4]),
        3 => {
            volume[3..11].copy_from_slice(b"-FVE-FS-");
            volume[160..164].copy_from_slice(b"\x3b\xd6\x67\x49");
            volume[176..184].copy_from_slice(&(METADATA as u64).to_le_bytes());
            volume[METADATA..][..len].copy_from_slice(&data[..len]);
            volume[METADATA..][..8].copy_from_slice(b"-FVE-FS-");
            volume[METADATA + 72..][..4].copy_from_slice(&48_u32.to_le_bytes());
        }
        _ => {}
    }
    let volume = Memory::new(volume);
    let whole = ByteRange::new(0, volume.geometry().size);
    let found = futures::executor::block_on(identify(&volume, whole));
    for format in found.formats {
        let text = format.to_string();
        assert!(text.chars().count() <= CHARS_MAX && !text.contains(is_control), "{text}");
    }
}

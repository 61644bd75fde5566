//! The numbers and layouts of the kernel's ublk driver (linux/ublk_cmd.h).

/// The direction bits of a command: the kernel reads, or reads and writes, the structure.
const READ: u32 = 2 << 30;
const READ_WRITE: u32 = 3 << 30;
/// The length of the structures of commands: `ublksrv_ctrl_cmd` and `ublksrv_io_cmd`.
pub(crate) const CONTROL_BYTES: usize = 32;
pub(crate) const IO_BYTES: usize = 16;

const fn control(direction: u32, number: u32) -> u32 {
    // Not truncated: 32.
    direction | (CONTROL_BYTES as u32) << 16 | (b'u' as u32) << 8 | number
}

const fn io(number: u32) -> u32 {
    // Not truncated: 16.
    READ_WRITE | (IO_BYTES as u32) << 16 | (b'u' as u32) << 8 | number
}

pub(crate) const ADD_DEV: u32 = control(READ_WRITE, 0x04);
pub(crate) const START_DEV: u32 = control(READ_WRITE, 0x06);
pub(crate) const STOP_DEV: u32 = control(READ_WRITE, 0x07);
pub(crate) const SET_PARAMS: u32 = control(READ_WRITE, 0x08);
pub(crate) const GET_FEATURES: u32 = control(READ, 0x13);
pub(crate) const DEL_DEV_ASYNC: u32 = control(READ, 0x14);

pub(crate) const FETCH_REQ: u32 = io(0x20);
pub(crate) const COMMIT_AND_FETCH_REQ: u32 = io(0x21);

/// Features: commands are numbered like ioctls, and content is copied with `pread` and `pwrite`.
pub(crate) const F_CMD_IOCTL_ENCODE: u64 = 1 << 6;
pub(crate) const F_USER_COPY: u64 = 1 << 7;

/// Attributes of a device.
pub(crate) const ATTR_READ_ONLY: u32 = 1 << 0;
pub(crate) const ATTR_VOLATILE_CACHE: u32 = 1 << 2;
pub(crate) const ATTR_FUA: u32 = 1 << 3;
/// Which parameters are set.
pub(crate) const PARAM_BASIC: u32 = 1 << 0;
pub(crate) const PARAM_DISCARD: u32 = 1 << 1;

/// Operations, in the lowest byte of a request's flags.
pub(crate) const OP_READ: u32 = 0;
pub(crate) const OP_WRITE: u32 = 1;
pub(crate) const OP_FLUSH: u32 = 2;
pub(crate) const OP_DISCARD: u32 = 3;
pub(crate) const OP_WRITE_ZEROES: u32 = 5;
/// Flags of a request.
pub(crate) const IO_FUA: u32 = 1 << 13;
pub(crate) const IO_NOUNMAP: u32 = 1 << 15;

/// The unit of sizes and offsets.
pub(crate) const SECTOR_BYTES: u64 = 512;
/// The command of a request: its number, and the result of the one before.
pub(crate) fn io_command(tag: u16, result: i32) -> [u8; IO_BYTES] {
    let mut bytes = [0; IO_BYTES];
    bytes[2..4].copy_from_slice(&tag.to_ne_bytes());
    bytes[4..8].copy_from_slice(&result.to_ne_bytes());
    bytes
}

/// Where the content of a request lies in `/dev/ublkcN`.
pub(crate) fn content_offset(tag: u16) -> u64 {
    const START: u64 = 0x8000_0000;
    const TAG_SHIFT: u32 = 25;
    START + (u64::from(tag) << TAG_SHIFT)
}

/// What a device is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// The most requests in flight.
    pub(crate) depth: u16,
    /// The longest request in bytes, a multiple of 4096.
    pub(crate) request_bytes_max: u32,
    /// Its size in bytes.
    pub(crate) size: u64,
    /// Bytes of a logical sector.
    pub(crate) sector_bytes: u32,
    /// Whether the kernel may write.
    pub(crate) writable: bool,
}

impl Settings {
    /// `ublksrv_ctrl_dev_info`, for a device with one queue.
    pub(crate) fn info(&self, index: Option<u32>) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[0..2].copy_from_slice(&1_u16.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.depth.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.request_bytes_max.to_ne_bytes());
        bytes[12..16].copy_from_slice(&index.unwrap_or(u32::MAX).to_ne_bytes());
        bytes[24..32].copy_from_slice(&(F_CMD_IOCTL_ENCODE | F_USER_COPY).to_ne_bytes());
        bytes
    }

    /// The number of a device, from the same structure after the kernel has filled it in.
    pub(crate) fn index(info: &[u8; 64]) -> u32 {
        u32::from_ne_bytes([info[12], info[13], info[14], info[15]])
    }

    /// `ublk_params`, as far as the parameters of discarding.
    pub(crate) fn parameters(&self) -> [u8; 60] {
        let shift = self.sector_bytes.trailing_zeros().to_ne_bytes()[0];
        let attributes = if self.writable { ATTR_VOLATILE_CACHE | ATTR_FUA } else { ATTR_READ_ONLY };
        let sectors_max = u32::MAX >> 9;
        let mut bytes = [0; 60];
        bytes[0..4].copy_from_slice(&60_u32.to_ne_bytes());
        bytes[4..8].copy_from_slice(&(PARAM_BASIC | if self.writable { PARAM_DISCARD } else { 0 }).to_ne_bytes());
        bytes[8..12].copy_from_slice(&attributes.to_ne_bytes());
        bytes[12..16].copy_from_slice(&[shift; 4]);
        bytes[16..20].copy_from_slice(&(self.request_bytes_max >> 9).to_ne_bytes());
        bytes[24..32].copy_from_slice(&(self.size / SECTOR_BYTES).to_ne_bytes());
        bytes[44..48].copy_from_slice(&self.sector_bytes.to_ne_bytes());
        bytes[48..52].copy_from_slice(&sectors_max.to_ne_bytes());
        bytes[52..56].copy_from_slice(&sectors_max.to_ne_bytes());
        bytes[56..58].copy_from_slice(&1_u16.to_ne_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_numbered_as_in_the_kernels_header() {
        assert_eq!([ADD_DEV, GET_FEATURES], [0xc020_7504, 0x8020_7513]);
        assert_eq!([FETCH_REQ, COMMIT_AND_FETCH_REQ], [0xc010_7520, 0xc010_7521]);
        assert_eq!(content_offset(0), 0x8000_0000);
        assert_eq!(content_offset(3), 0x8600_0000);
    }

    #[test]
    fn a_device_that_is_not_writable_is_read_only_for_the_kernel() {
        let settings =
            Settings { depth: 64, request_bytes_max: 1 << 20, size: 1 << 30, sector_bytes: 4096, writable: false };
        let bytes = settings.parameters();
        assert_eq!((bytes[8], bytes[12], bytes[4]), (1, 12, 1));
        assert_eq!(u64::from_ne_bytes(bytes[24..32].try_into().unwrap()), 1 << 21);
        assert_eq!(Settings::index(&settings.info(Some(7))), 7);
    }
}

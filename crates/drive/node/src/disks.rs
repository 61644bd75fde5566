//! The disks that this machine's kernel has a driver for.

use std::path::Path;

use cheetah_kit::disks::{SYS_BLOCK, names};

/// The file by which the boot image marks itself.
const BOOT_IMAGE_MARK: &str = "/run/cheetah-boot-image";

/// Whether this machine was started from the boot image.
pub(crate) fn is_boot_image() -> bool {
    Path::new(BOOT_IMAGE_MARK).exists()
}

/// The number of disks that programs on this machine could read: 0 on a machine that was started from the lending boot image,
/// which has no storage driver. `None` if the kernel does not say.
pub(crate) fn visible() -> Option<u32> {
    u32::try_from(names(Path::new(SYS_BLOCK)).ok()?.len()).ok()
}

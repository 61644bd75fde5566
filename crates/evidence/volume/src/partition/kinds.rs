//! The types of partitions that a table records, as people call them.

/// The type of a physical volume of LVM.
pub(super) const LVM: &str = "Linux LVM";
/// The type of a member of an array of Linux.
pub(super) const LINUX_RAID: &str = "Linux RAID";

/// The type of an entry of an MBR.
pub(super) fn of_mbr(kind: u8) -> String {
    let name = match kind {
        0x01 => "FAT12",
        0x04 | 0x06 | 0x0e => "FAT16",
        0x07 => "NTFS or exFAT",
        0x0b | 0x0c => "FAT32",
        0x11 | 0x14 | 0x16 | 0x17 | 0x1b | 0x1c | 0x1e => "hidden FAT or NTFS",
        0x27 => "Windows recovery",
        0x39 => "Plan 9",
        0x42 => "Windows dynamic disk (LDM)",
        0x63 => "GNU HURD or System V",
        0x82 => "Linux swap or Solaris",
        0x83 => "Linux",
        0x8e => LVM,
        0xa5 => "FreeBSD",
        0xa6 => "OpenBSD",
        0xa8 => "macOS UFS",
        0xa9 => "NetBSD",
        0xab => "macOS boot",
        0xaf => "HFS",
        0xbe | 0xbf => "Solaris",
        0xeb => "BeFS",
        0xee => "GPT protective",
        0xef => "EFI system",
        0xfb => "VMware VMFS",
        0xfc => "VMware core dump",
        0xfd => LINUX_RAID,
        _ => return format!("type 0x{kind:02x}"),
    };
    format!("{name} (0x{kind:02x})")
}

/// The type of an entry of a GPT, from the bytes of its GUID as they are stored.
pub(super) fn of_gpt(guid: &[u8]) -> String {
    let text = guid_text(guid);
    let name = match text.as_str() {
        "C12A7328-F81F-11D2-BA4B-00A0C93EC93B" => "EFI system",
        "21686148-6449-6E6F-744E-656564454649" => "BIOS boot",
        "E3C9E316-0B5C-4DB8-817D-F92DF00215AE" => "Microsoft reserved",
        "EBD0A0A2-B9E5-4433-87C0-68B6B72699C7" => "basic data",
        "5808C8AA-7E8F-42E0-85D2-E1E90434CFB3" => "Windows dynamic disk (LDM), metadata",
        "AF9B60A0-1431-4F62-BC68-3311714A69AD" => "Windows dynamic disk (LDM), data",
        "DE94BBA4-06D1-4D40-A16A-BFD50179D6AC" => "Windows recovery",
        "E75CAF8F-F680-4CEE-AFA3-B001E56EFC2D" => "Windows Storage Spaces",
        "0FC63DAF-8483-4772-8E79-3D69D8477DE4" => "Linux",
        "A19D880F-05FC-4D3B-A006-743F0F84911E" => LINUX_RAID,
        "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F" => "Linux swap",
        "E6D6D379-F507-44C2-A23C-238F2A3DF928" => LVM,
        "CA7D7CCB-63ED-4C53-861C-1742536059CC" => "LUKS",
        "48465300-0000-11AA-AA11-00306543ECAC" => "HFS+",
        "7C3457EF-0000-11AA-AA11-00306543ECAC" => "APFS",
        "53746F72-6167-11AA-AA11-00306543ECAC" => "Apple Core Storage",
        "426F6F74-0000-11AA-AA11-00306543ECAC" => "Apple boot",
        "516E7CBA-6ECF-11D6-8FF8-00022D09712B" => "FreeBSD ZFS",
        "6A898CC3-1DD2-11B2-99A6-080020736631" => "ZFS",
        "AA31E02A-400F-11DB-9590-000C2911D1B8" => "VMware VMFS",
        _ => return format!("type {text}"),
    };
    name.to_owned()
}

/// A GUID as text: its first three numbers are stored with the low byte first.
pub fn guid_text(guid: &[u8]) -> String {
    const ORDER: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let mut text = String::new();
    for (place, at) in ORDER.into_iter().enumerate() {
        if matches!(place, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{:02X}", guid.get(at).copied().unwrap_or(0)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_guid_has_a_name_and_another_is_printed() {
        let esp = b"\x28\x73\x2a\xc1\x1f\xf8\xd2\x11\xba\x4b\x00\xa0\xc9\x3e\xc9\x3b";
        assert_eq!(of_gpt(esp), "EFI system");
        assert_eq!(of_gpt(&[1; 16]), "type 01010101-0101-0101-0101-010101010101");
        assert_eq!((of_mbr(0x83), of_mbr(0x99)), ("Linux (0x83)".to_owned(), "type 0x99".to_owned()));
    }
}

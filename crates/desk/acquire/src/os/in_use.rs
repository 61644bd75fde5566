//! What must be known of a disk that the running system may write to while it is read.

/// What must be known of a disk or a volume. Each has its name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Remark {
    /// It may change while it is read: its users cannot be had.
    #[error(
        "whether this system writes to {0} while it is read is not known: if it does, the image mixes several moments"
    )]
    UsersUnknown(String),
    /// It changes while it is read: these are its users.
    #[error(
        "{0} is in use ({users}): this system writes to it while it is read, so the image mixes several moments",
        users = .1.join(", ")
    )]
    InUse(String, Vec<String>),
    /// It changes while it is read.
    #[cfg(windows)]
    #[error("{0} is a mounted volume: this system writes to it while it is read, so the image mixes several moments")]
    Mounted(String),
    /// It is encrypted on its disk.
    #[cfg(any(windows, test))]
    #[error("{0} is encrypted with BitLocker on its disk, and is read in clear here; the disk itself gives ciphertext")]
    ReadInClear(String),
    /// It is encrypted, and so it is in its image.
    #[cfg(any(windows, test))]
    #[error("{0} is encrypted with BitLocker, and is read as it is on the medium: its image is ciphertext")]
    ReadAsCiphertext(String),
    /// These of its partitions are encrypted, and so they are in its image.
    #[cfg(any(windows, test))]
    #[error(
        "{0} is read as it is on the medium: what BitLocker encrypts there is ciphertext ({partitions})",
        partitions = numbered(.1)
    )]
    ReadEncrypted(String, Vec<u32>),
    /// How it begins here, or on its disk, cannot be had.
    #[cfg(any(windows, test))]
    #[error("whether {0} is encrypted with BitLocker on its disk, and is read in clear here, is not known")]
    EncryptionUnknown(String),
    /// How some of its partitions begin cannot be had.
    #[cfg(any(windows, test))]
    #[error(
        "whether {0} has partitions that BitLocker encrypts, so that they are ciphertext in its image, is not known"
    )]
    PartitionsUnknown(String),
}

/// Partitions by their numbers.
#[cfg(any(windows, test))]
fn numbered(partitions: &[u32]) -> String {
    let numbers: Vec<_> = partitions.iter().map(ToString::to_string).collect();
    let noun = if numbers.len() == 1 { "partition" } else { "partitions" };
    format!("{noun} {}", numbers.join(", "))
}

/// What is said of a disk with these users; `None` if they cannot be had.
pub(super) fn of_disk(text: &str, users: Option<Vec<String>>) -> Vec<Remark> {
    match users {
        None => vec![Remark::UsersUnknown(text.to_owned())],
        Some(users) if users.is_empty() => Vec::new(),
        Some(users) => vec![Remark::InUse(text.to_owned(), users)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_whose_users_cannot_be_had_is_not_one_without_users() {
        let disk = "/dev/ada0";
        assert_eq!(of_disk(disk, Some(Vec::new())), []);
        let users = vec!["ada0p2".to_owned()];
        assert_eq!(of_disk(disk, Some(users.clone())), [Remark::InUse(disk.to_owned(), users)]);
        assert_eq!(of_disk(disk, None), [Remark::UsersUnknown(disk.to_owned())]);
    }

    #[test]
    fn partitions_are_named_by_their_numbers() {
        assert_eq!([numbered(&[3]), numbered(&[1, 3])], ["partition 3", "partitions 1, 3"]);
    }
}

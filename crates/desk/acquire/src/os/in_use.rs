//! What must be known of a disk that the running system may write to while it is read.

/// What is said of a disk with these users; `None` if they cannot be had.
pub(super) fn of_disk(text: &str, users: Option<Vec<String>>) -> Vec<String> {
    match users {
        None => vec![format!(
            "whether this system writes to {text} while it is read is not known: if it does, the image mixes several moments"
        )],
        Some(users) if users.is_empty() => Vec::new(),
        Some(users) => vec![format!(
            "{text} is in use ({}): this system writes to it while it is read, so the image mixes several moments",
            users.join(", ")
        )],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_whose_users_cannot_be_had_is_not_one_without_users() {
        let said = |users| of_disk("/dev/ada0", users);
        assert_eq!(said(Some(Vec::new())), Vec::<String>::new());
        assert!(said(Some(vec!["ada0p2".to_owned()]))[0].contains("is in use (ada0p2)"));
        assert!(said(None)[0].contains("is not known"));
    }
}

//! The names of this machine and of its user.

pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// From `/etc/passwd`.
pub(crate) fn user_name() -> String {
    let uid = rustix::process::getuid().as_raw();
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    name_in_passwd(uid, &passwd).map_or_else(|| format!("uid {uid}"), str::to_owned)
}

/// The name of a user in the text of a passwd(5) file.
fn name_in_passwd(uid: u32, passwd: &str) -> Option<&str> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_name_is_found_by_number() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nexaminer:x:1000:1000::/home/e:/bin/sh\nbad\n";
        assert_eq!(name_in_passwd(1000, passwd), Some("examiner"));
        assert_eq!(name_in_passwd(7, passwd), None);
    }
}

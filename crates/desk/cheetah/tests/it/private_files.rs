//! Files that are created for evidence are their owner's alone, whatever the umask is.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::support::run::{Ran, program, run};
use crate::support::{Desk, MIB, Mounted, Node, Service, need, node, text, until};

/// `cheetah --json ARGS…` under the umask 000, with all places for files in a desk.
fn open_minded(desk: &Desk, args: &[&str]) -> Command {
    let own = program();
    let mut command = Command::new("sh");
    command.args(["-c", "umask 000; exec \"$0\" \"$@\""]).arg(own.get_program()).arg("--json").args(args);
    command.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
    for (name, folder) in
        [("TMPDIR", "tmp"), ("XDG_CONFIG_HOME", "config"), ("XDG_CACHE_HOME", "cache"), ("HOME", "home")]
    {
        command.env(name, desk.at(folder));
    }
    command.env("XDG_STATE_HOME", desk.at("state")).env("CHEETAH_KEY", desk.at("key.pem"));
    command
}

fn ran(desk: &Desk, args: &[&str]) -> Ran {
    run(open_minded(desk, args))
}

fn started(desk: &Desk, args: &[&str]) -> Service {
    Service::spawn(open_minded(desk, args), "ready").unwrap_or_else(|why| panic!("{args:?}: {why}"))
}

/// Everything below a folder that other users have a right to.
fn open_to_others(folder: &Path, except: &[PathBuf]) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let (path, metadata) = (entry.path(), entry.metadata().unwrap());
            if except.contains(&path) || metadata.is_symlink() {
                continue;
            }
            let mode = metadata.permissions().mode();
            if mode & 0o077 != 0 {
                found.push(format!("{} {:o}", path.display(), mode & 0o7777));
            }
            if metadata.is_dir() {
                folders.push(path);
            }
        }
    }
    found
}

#[test]
fn every_file_and_socket_is_its_owners_alone_under_a_umask_of_000() {
    let desk = Desk::new();
    let (image, _) = desk.image("disk.raw", 3 * MIB);
    let ours: Vec<PathBuf> = ["tmp", "cache", "home", "disk.raw", "mnt"].iter().map(|name| desk.at(name)).collect();
    for folder in ["tmp", "cache", "home"] {
        desk.dir(folder);
    }
    let nodes = [Node::start("16MiB"), Node::start("16MiB")];
    let list = node::list(&[&nodes[0], &nodes[1]]);
    let drive = desk.arg("case.drive");
    ran(&desk, &["create", &drive, "--nodes", &list, "--layout", "mirror", "--from", &image]).ok();
    let sealed = desk.arg("sealed.drive");
    ran(&desk, &["create", &sealed, "--nodes", &list, "--layout", "mirror", "--seal", "--from", &image]);
    for copy in ["copy.raw", "copy.E01"] {
        ran(&desk, &["acquire", &image, &desk.arg(copy)]).ok();
    }
    ran(&desk, &["save", &drive, &desk.arg("saved.raw")]).ok();
    ran(&desk, &["save", &drive, &desk.arg("part.raw"), "--partial"]).ok();
    ran(&desk, &["verify", &drive]).ok();
    // A lazy drive has a map, and a cache, an overlay and a socket are there while it is served.
    let lazy = desk.arg("lazy.drive");
    ran(&desk, &["create", &lazy, "--nodes", &list, "--layout", "mirror", "--from", &image, "--lazy"]).ok();
    let over = desk.arg("overlay");
    let export = started(&desk, &["export", &drive, "--unix", &desk.arg("sock"), "--overlay", &over]);
    // Last, because a machine with a room uses it.
    ran(&desk, &["room", "init", "lab"]).ok();
    let mut expected = vec!["case.drive", "copy.raw", "copy.raw.custody", "copy.raw.report.txt", "copy.E01", "sock"];
    expected.extend(["saved.raw", "part.raw", "part.raw.map", "lazy.drive", "key.pem"]);
    for name in expected {
        assert!(desk.at(name).symlink_metadata().is_ok(), "no {name}");
    }
    assert_eq!(open_to_others(desk.path(), &ours), Vec::<String>::new());
    export.stop(Signal::INT);
}

#[test]
fn a_mount_its_cache_and_a_drive_that_fills_are_their_owners_alone_under_a_umask_of_000() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    let (image, content) = desk.image("disk.raw", 3 * MIB);
    let ours: Vec<PathBuf> = ["tmp", "home", "disk.raw"].iter().map(|name| desk.at(name)).collect();
    for folder in ["tmp", "home", "cache", "mnt"] {
        desk.dir(folder);
    }
    std::fs::set_permissions(desk.at("cache"), std::fs::Permissions::from_mode(0o700)).unwrap();
    let node = Node::start("16MiB");
    let lazy = desk.arg("lazy.drive");
    ran(&desk, &["create", &lazy, "--nodes", node.address(), "--from", &image, "--lazy"]).ok();
    let socket = desk.arg("lazy.sock");
    let filling = started(&desk, &["export", &lazy, "--unix", &socket]);
    let uri = format!("nbd+unix:///lazy?socket={socket}");
    let cache = format!("{}:8MiB", desk.arg("cache"));
    let mount = started(&desk, &["mount", &uri, &desk.arg("mnt"), "--cache", &cache]);
    // While it fills, there are more files beside the drive file.
    assert_eq!(open_to_others(desk.path(), &ours), Vec::<String>::new());
    assert!(std::fs::read(text(&mount.ready, "file")).unwrap() == content);
    for name in ["lazy.drive", "lazy.drive.custody", "lazy.sock", "mnt/lazy.raw"] {
        assert!(desk.at(name).symlink_metadata().is_ok(), "no {name}");
    }
    assert_eq!(open_to_others(desk.path(), &ours), Vec::<String>::new());
    assert_eq!(mount.stop(Signal::INT).0, Some(0));
    filling.stop(Signal::INT);
    assert_eq!(open_to_others(desk.path(), &[&ours[..], &[desk.at("mnt")]].concat()), Vec::<String>::new());
}

#[test]
fn what_an_interrupted_acquisition_leaves_is_its_owners_alone_under_a_umask_of_000() {
    let desk = Desk::new();
    let (image, _) = desk.image("disk.raw", 12 * MIB);
    for folder in ["tmp", "cache", "home"] {
        desk.dir(folder);
    }
    let ours: Vec<PathBuf> = ["tmp", "cache", "home", "disk.raw"].iter().map(|name| desk.at(name)).collect();
    let agent = Service::start(&["serve", &image, "--listen", "127.0.0.1:0", "--rate-max", "1MiB"]);
    let args = ["acquire", text(&agent.ready, "uri"), &desk.arg("x.raw"), &desk.arg("x.E01")];
    let mut acquisition = open_minded(&desk, &args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("the images are begun", || ["x.raw.partial", "x.E01.partial"].iter().all(|name| desk.at(name).exists()));
    rustix::process::kill_process(rustix::process::Pid::from_child(&acquisition), Signal::TERM).unwrap();
    assert_eq!(acquisition.wait().unwrap().code(), Some(1));
    for name in ["x.raw.partial", "x.raw.acquire", "x.raw.custody", "x.E01.partial"] {
        assert!(desk.at(name).symlink_metadata().is_ok(), "no {name}");
    }
    assert_eq!(open_to_others(desk.path(), &ours), Vec::<String>::new());
}

#[test]
fn a_mount_by_root_is_roots_alone_unless_others_are_allowed() {
    if !need::fuse() || !need::is_root() || !need::programs(&["setpriv"]) {
        return;
    }
    let desk = Desk::new();
    let (image, _) = desk.image("disk.raw", MIB);
    for path in [desk.path().to_owned(), PathBuf::from(desk.dir("mnt"))] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let as_nobody = |file: &Path| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "cat"]).arg(file);
        run(command).code == Some(0)
    };
    for (more, allowed) in [(&[][..], false), (&["--allow-other"], true)] {
        let mount = Mounted::new(&image, &desk.arg("mnt"), more);
        assert_eq!(as_nobody(&mount.file), allowed, "{more:?}");
        let mode = mount.file.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, if allowed { 0o444 } else { 0o400 }, "{more:?}");
        assert_eq!(mount.read().len(), MIB as usize);
        mount.unmount();
    }
}

#[test]
fn an_unreadable_folder_in_path_does_not_hide_fusermount3() {
    if !need::fuse() || !need::is_root() || !need::programs(&["setpriv", "unshare", "nsenter", "mknod", "fusermount3"])
    {
        return;
    }
    let desk = Desk::new();
    let (image, content) = desk.image("disk.raw", MIB);
    let (secret, mnt) = (desk.dir("secret"), desk.dir("mnt"));
    let set = |path: &str, mode: u32| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    set(desk.path().to_str().unwrap(), 0o755);
    set(&image, 0o644);
    set(&secret, 0o700);
    set(&mnt, 0o777);
    // A file of that name that this user may not run is no program, either.
    let odd = desk.dir("odd");
    set(&odd, 0o755);
    set(&desk.file("odd/fusermount3", b"#!/bin/sh\nexit 1\n"), 0o700);
    let own = desk.arg("cheetah");
    std::fs::copy(program().get_program(), &own).unwrap();
    set(&own, 0o755);
    // A user may open /dev/fuse on most machines.
    let script = format!(
        "mknod {fuse} c 10 229 && chmod 666 {fuse} && mount --bind {fuse} /dev/fuse && \
         exec setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/ PATH={secret}:{odd}:$PATH \
         {own} --json mount {image} {mnt}",
        fuse = desk.arg("fuse"),
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
    let service = Service::spawn(command, "ready").unwrap_or_else(|why| panic!("{why}"));
    // Root does not see the mount of another user, and its user sees it in its own namespace of mounts.
    let mut cat = Command::new("nsenter");
    cat.args(["--mount", "--target", &service.pid().to_string()]);
    cat.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "cat", text(&service.ready, "file")]);
    assert!(run(cat).ok().stdout == content);
    assert_eq!(service.stop(Signal::TERM).0, Some(0));
}

#[test]
fn a_copy_of_a_drive_file_is_shown_under_its_own_name() {
    let desk = Desk::new();
    let node = Node::start("16MiB");
    let (image, _) = desk.image("disk.raw", MIB);
    let drive = desk.drive("big", &[&node], &image, &["--layout", "linear"]);
    std::fs::copy(&drive, desk.at("ann.drive")).unwrap();
    if !need::fuse() {
        return;
    }
    let mount = Mounted::new(&desk.arg("ann.drive"), &desk.dir("mnt"), &[]);
    assert_eq!(mount.file.file_name().unwrap(), "ann.raw");
    assert!(text(&mount.service().ready, "file").ends_with("/ann.raw"));
    mount.unmount();
}

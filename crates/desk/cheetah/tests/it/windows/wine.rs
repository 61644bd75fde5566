//! Wine, and the program for Windows in it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::SystemTime;

use crate::support::run::{Ran, run_with_stderr};
use crate::support::service::Service;
use crate::support::{Desk, Node, need, until};

/// The target of `make static`.
const TARGET: &str = "x86_64-pc-windows-gnu";
/// Where Debian's package has Wine, besides the folders of programs.
const WINE: &str = "/usr/lib/wine/wine64";

/// Wine's folder, one for nearly all tests: making it takes longer than any of them.
const PREFIX: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/wine");
/// Lines of the user's registry with which windows can be made, though nothing shows them.
pub const UNSEEN_WINDOWS: &str = "\n[Software\\\\Wine\\\\Drivers] 0\n\"Graphics\"=\"null\"\n";

/// The exit code of Wine if a library that a program needs does not exist.
const NO_LIBRARY: i32 = 53;

/// How long the server of a test's own goes on without a program, should nothing end it.
const SERVER_ENDS_S: u32 = 600;

/// The folder of the binary of `make static TARGET=…`; `None`, and it says so, if that is not built.
pub fn folder() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/static").join(TARGET);
    if folder.join("cheetah.exe").exists() {
        return Some(folder);
    }
    need::skip(&format!("needs a binary for {TARGET} (make test-windows builds it)"));
    None
}

/// The bytes of `cheetah.exe`.
pub fn program() -> Option<Vec<u8>> {
    folder().map(|folder| fs::read(folder.join("cheetah.exe")).unwrap())
}

/// `cheetah.exe`, and what runs it.
pub struct Windows {
    wine: PathBuf,
    binary: PathBuf,
    /// Libraries that Wine lacks.
    libraries: PathBuf,
    prefix: PathBuf,
}

impl Windows {
    /// The binary of `make static TARGET=…`, if it is built and can be run. If not, reports that the test is skipped.
    pub fn find() -> Option<Self> {
        let folder = folder()?;
        let wine = need::find("wine64").or_else(|| Some(PathBuf::from(WINE)).filter(|wine| wine.exists()));
        if wine.is_none() {
            need::skip("needs Wine (the package wine64; make test-windows installs it)");
        }
        let (binary, libraries) = (folder.join("cheetah.exe"), folder.join("wine"));
        let windows = Self { wine: wine?, binary, libraries, prefix: PREFIX.into() };
        // Wine makes its folder, which it had better not do twice at once.
        static FIRST: OnceLock<Option<i32>> = OnceLock::new();
        if *FIRST.get_or_init(|| windows.run(&Desk::new(), &["--version"]).code) == Some(NO_LIBRARY) {
            need::skip("needs a library that this Wine lacks (make test-windows builds it)");
            return None;
        }
        Some(windows)
    }

    /// Wine, which gets the program that it runs and its arguments yet. It has no screen, even where there is one.
    pub fn wine(&self) -> Command {
        let mut command = Command::new(&self.wine);
        command.env("WINEPREFIX", &self.prefix).env("WINEDEBUG", "-all").env_remove("DISPLAY");
        command.env("WINEPATH", there(&self.libraries.display().to_string()));
        command
    }

    /// `cheetah.exe --json ARGS…`, with settings of its own in a folder of the desk.
    pub fn command(&self, desk: &Desk, args: &[&str]) -> Command {
        let mut command = self.wine();
        command.env("XDG_CONFIG_HOME", there(&desk.arg("windows"))).env("XDG_STATE_HOME", there(&desk.arg("windows")));
        command.env("CHEETAH_KEY", there(&desk.arg("windows.key"))).env_remove("CHEETAH_ROOM");
        command.arg(&self.binary).arg("--json").args(args);
        command
    }

    pub fn run(&self, desk: &Desk, args: &[&str]) -> Ran {
        Self::to_its_end(self.command(desk, args))
    }

    /// Runs a command to its end. Wine's own processes outlive it and keep its stderr open, so that is no pipe.
    pub fn to_its_end(command: Command) -> Ran {
        let mut stderr = tempfile::tempfile().unwrap();
        let mut ran = run_with_stderr(command, stderr.try_clone().unwrap().into());
        stderr.rewind().unwrap();
        stderr.read_to_string(&mut ran.stderr).unwrap();
        ran
    }

    #[track_caller]
    pub fn start(&self, desk: &Desk, args: &[&str]) -> Service {
        Service::spawn(self.command(desk, args), "ready").unwrap_or_else(|why| panic!("{args:?}: {why}"))
    }

    /// What Wine has for a device: a link beside the folder of the drive letter. Each test has letters of its own, since nearly all
    /// share Wine's folder.
    pub fn volume(letter: char, desk: &Desk, disk: &str) -> String {
        let devices = Path::new(PREFIX).join("dosdevices");
        let small = letter.to_ascii_lowercase();
        for (link, to) in [(format!("{small}:"), desk.path()), (format!("{small}::"), Path::new(disk))] {
            let link = devices.join(link);
            let _ = fs::remove_file(&link);
            symlink(to, link).unwrap();
        }
        format!(r"\\.\{letter}:")
    }

    /// A node without a room.
    pub fn node(&self, desk: &Desk) -> Node {
        Node::of(self.start(desk, &["node", "--memory", "64MiB", "--listen", "127.0.0.1:0", "--room", "none"]))
    }
}

/// Wine with a folder of its own, which no other test changes. Its server goes on between two programs: each start of it writes the
/// devices of this machine into the registry.
pub struct Alone {
    pub windows: Windows,
    server: PathBuf,
}

impl Alone {
    /// A copy of the folder that all tests have, with more lines in the user's registry.
    pub fn new(windows: Windows, name: &str, user: &str) -> Option<Self> {
        let beside = |name: &str| Some(windows.wine.with_file_name(name)).filter(|path| path.exists());
        let server = beside("wineserver64").or_else(|| beside("wineserver")).or_else(|| need::find("wineserver"));
        if server.is_none() {
            need::skip("needs the server of Wine (the package wine64; make test-windows installs it)");
        }
        let alone = Self { windows: Windows { prefix: format!("{PREFIX}-{name}").into(), ..windows }, server: server? };
        let (common, own) = (Path::new(PREFIX), alone.windows.prefix.as_path());
        // Of a run that was killed.
        let _ = fs::remove_dir_all(own);
        fs::create_dir(own).unwrap();
        for name in ["system.reg", "user.reg", "userdef.reg", ".update-timestamp"] {
            // Wine stores its registry each half minute, and when its last program has ended.
            until("Wine has stored its registry", || common.join(name).exists());
            fs::copy(common.join(name), own.join(name)).unwrap();
        }
        File::options().append(true).open(own.join("user.reg")).unwrap().write_all(user.as_bytes()).unwrap();
        copy_all(&common.join("drive_c"), &own.join("drive_c"), false);
        fs::create_dir(own.join("dosdevices")).unwrap();
        symlink("../drive_c", own.join("dosdevices/c:")).unwrap();
        symlink("/", own.join("dosdevices/z:")).unwrap();
        alone.serve(&format!("-p{SERVER_ENDS_S}"));
        alone.windows.run(&Desk::new(), &["--version"]).ok();
        alone.settle();
        Some(alone)
    }

    fn serve(&self, option: &str) {
        let mut command = Command::new(&self.server);
        command.env("WINEPREFIX", &self.windows.prefix).env("WINEDEBUG", "-all").arg(option);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    }

    /// Waits until Wine's own services have written all that they write when they start.
    fn settle(&self) {
        let devices = || self.exported(r"HKLM\System");
        let mut before = devices();
        until("Wine's services have started", || {
            let now = devices();
            now == std::mem::replace(&mut before, now.clone())
        });
    }

    /// The folder `C:`.
    pub fn c(&self) -> PathBuf {
        self.windows.prefix.join("drive_c")
    }

    /// The lines of the registry: keys, and the values in each.
    pub fn registry(&self) -> Vec<String> {
        ["HKLM", "HKCU"].map(|root| self.exported(root)).concat()
    }

    fn exported(&self, key: &str) -> Vec<String> {
        let desk = Desk::new();
        let file = desk.arg("exported.reg");
        let mut command = self.windows.wine();
        command.args(["reg", "export", key, &there(&file), "/y"]);
        Windows::to_its_end(command).ok();
        // UTF-16 with a mark at its start.
        let bytes = fs::read(file).unwrap();
        let units: Vec<u16> = bytes.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]])).collect();
        String::from_utf16_lossy(&units).lines().map(str::to_owned).collect()
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.serve("-k");
        let _ = fs::remove_dir_all(&self.windows.prefix);
    }
}

/// Folders with nearly all of the 700 MB. Programs read their files, and no test writes to one.
const LINKED: [&str; 3] = ["windows/system32", "windows/syswow64", "windows/winsxs"];

/// Copies a folder, so that a program that writes to a file of one does not change the other. Only the files of [`LINKED`] are the same in both.
fn copy_all(from: &Path, to: &Path, is_linked: bool) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, copy, kind) = (entry.path(), to.join(entry.file_name()), entry.file_type().unwrap());
        match () {
            () if kind.is_dir() => {
                copy_all(&path, &copy, is_linked || LINKED.iter().any(|folder| path.ends_with(folder)))
            }
            () if kind.is_symlink() => symlink(fs::read_link(path).unwrap(), copy).unwrap(),
            () if is_linked => fs::hard_link(path, copy).unwrap(),
            () => {
                fs::copy(path, copy).unwrap();
            }
        }
    }
}

/// A path of this machine, as Wine has it.
pub fn there(path: &str) -> String {
    format!("Z:{}", path.replace('/', "\\"))
}

/// The files below a folder: their lengths, and when they were changed. Links are not followed.
pub fn files(folder: &Path) -> BTreeMap<PathBuf, (u64, SystemTime)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            if metadata.is_dir() {
                folders.push(path);
            } else {
                found.insert(path, (metadata.len(), metadata.modified().unwrap()));
            }
        }
    }
    found
}

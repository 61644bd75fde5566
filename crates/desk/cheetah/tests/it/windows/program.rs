//! The file of the program itself, which is not run here.

use super::wine::program;

/// What every Windows has in its own folder, in small letters. Sets of functions have names of their own (`api-ms-win-…`).
const OF_WINDOWS: [&str; 14] = [
    "advapi32.dll",
    "bcrypt.dll",
    "bcryptprimitives.dll",
    "crypt32.dll",
    "iphlpapi.dll",
    "kernel32.dll",
    "msvcrt.dll",
    "ncrypt.dll",
    "ntdll.dll",
    "secur32.dll",
    "user32.dll",
    "userenv.dll",
    "wer.dll",
    "ws2_32.dll",
];
const SET: &str = "api-ms-win-core-";

/// A program of Windows (PE32+, as the specification of PE and COFF describes it).
struct Pe<'a> {
    bytes: &'a [u8],
    /// Where its optional header begins.
    optional: usize,
}

impl<'a> Pe<'a> {
    const MAGIC: u16 = 0x20b;
    /// The places of entries in the list of tables: what it imports, and what it imports when it is first used.
    const IMPORTS: usize = 1;
    const IMPORTS_LATER: usize = 13;

    fn new(bytes: &'a [u8]) -> Self {
        let header = Self { bytes, optional: 0 }.u32_at(0x3c) as usize;
        assert_eq!(bytes[header..header + 4], *b"PE\0\0");
        let pe = Self { bytes, optional: header + 24 };
        assert_eq!(pe.u16_at(pe.optional), Self::MAGIC);
        pe
    }

    fn u16_at(&self, at: usize) -> u16 {
        u16::from_le_bytes(*self.bytes[at..].first_chunk().unwrap())
    }

    fn u32_at(&self, at: usize) -> u32 {
        u32::from_le_bytes(*self.bytes[at..].first_chunk().unwrap())
    }

    /// Where in the file something lies that is at this address once it is loaded.
    fn place_of(&self, address: u32) -> usize {
        let (count, len) = (self.u16_at(self.optional - 18), self.u16_at(self.optional - 4));
        let sections = self.optional + usize::from(len);
        let sections = (0..usize::from(count)).map(|number| sections + 40 * number);
        let mut places = sections.filter_map(|section| {
            let [begins, len, stored] = [12, 16, 20].map(|at| self.u32_at(section + at));
            (begins..begins + len).contains(&address).then(|| (stored + (address - begins)) as usize)
        });
        places.next().unwrap_or_else(|| panic!("no section has {address:#x}"))
    }

    /// The names of libraries in a table whose entries have `len` bytes, and the address of the name `name_at` from their start.
    fn names(&self, table: usize, len: usize, name_at: usize) -> Vec<String> {
        let address = self.u32_at(self.optional + 112 + 8 * table);
        if address == 0 {
            return Vec::new();
        }
        let entries = (0..).map(|number| self.place_of(address) + len * number);
        let names = entries.map(|entry| self.u32_at(entry + name_at)).take_while(|name| *name != 0);
        names
            .map(|name| {
                let name = self.bytes[self.place_of(name)..].split(|byte| *byte == 0).next().unwrap();
                String::from_utf8(name.to_vec()).unwrap().to_lowercase()
            })
            .collect()
    }

    fn libraries(&self) -> Vec<String> {
        [self.names(Self::IMPORTS, 20, 12), self.names(Self::IMPORTS_LATER, 32, 4)].concat()
    }
}

#[test]
fn the_program_for_windows_needs_libraries_of_windows_only() {
    let Some(program) = program() else { return };
    let libraries = Pe::new(&program).libraries();
    assert!(libraries.iter().any(|name| name == "kernel32.dll"), "{libraries:?}");
    let others = libraries.iter().filter(|name| !OF_WINDOWS.contains(&name.as_str()) && !name.starts_with(SET));
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn the_program_for_windows_has_no_call_that_writes_to_the_registry_or_the_event_log() {
    let Some(program) = program() else { return };
    let has = |name: &str| memchr::memmem::find(&program, name.as_bytes()).is_some();
    // The names of the functions that it imports are in it.
    assert!(has("VirtualLock"));
    let writing = ["RegCreateKey", "RegSetValue", "RegSetKeyValue", "RegDelete", "RegSaveKey", "ReportEvent"];
    assert_eq!(writing.into_iter().filter(|name| has(name)).collect::<Vec<_>>(), Vec::<&str>::new());
}

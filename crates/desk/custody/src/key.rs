//! The keys that sign custody logs: Ed25519 (RFC 8032), stored and printed as OpenSSL does (RFC 8410).

use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cheetah_device::os_error;
use cheetah_error::{Error, Kind, Result};
use cheetah_image::hash::hex;
use cheetah_image::regular;
use cheetah_kit::file::sync_folder;
use ed25519_dalek::Signer as _;
use serde::{Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use crate::os::{self, Owner};

/// The bytes before the 32 bytes of a private key in PKCS #8 (RFC 8410, section 7).
const PRIVATE_BEGINS: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
/// The bytes before the 32 bytes of a public key in a SubjectPublicKeyInfo (RFC 8410, section 4).
const PUBLIC_BEGINS: [u8; 12] = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];

const PRIVATE_LABEL: &str = "PRIVATE KEY";
const PUBLIC_LABEL: &str = "PUBLIC KEY";

/// The maximum length of a key file; a key takes about a hundred bytes.
const FILE_BYTES_MAX: u64 = 4 << 10;

/// An examiner's private key.
#[derive(Clone)]
pub struct SigningKey(ed25519_dalek::SigningKey);

impl SigningKey {
    /// Returns the path of the key: `$CHEETAH_KEY`, or `cheetah/custody.key` in `$XDG_CONFIG_HOME` (or `~/.config`; on Windows
    /// `%LOCALAPPDATA%`).
    ///
    /// # Errors
    ///
    /// If none of these variables is set.
    pub fn path() -> Result<PathBuf> {
        if let Some(path) = std::env::var_os("CHEETAH_KEY").filter(|path| !path.is_empty()) {
            return Ok(path.into());
        }
        os::settings()
            .map(|settings| settings.join("cheetah").join("custody.key"))
            .ok_or_else(|| Error::misuse("no home directory for the custody key; name a file for it with CHEETAH_KEY"))
    }

    /// Returns the key at [`Self::path`]; creates it if there is none.
    pub fn own() -> Result<Self> {
        Self::load_or_make(&Self::path()?)
    }

    /// Returns the key at [`Self::path`], if there is one.
    pub fn existing() -> Result<Option<Self>> {
        Self::path().map_or(Ok(None), |path| Self::load(&path))
    }

    /// Returns the key in a file; creates it, readable by its owner alone, if there is no such file. Processes that
    /// create it at the same time all get the same key.
    pub fn load_or_make(path: &Path) -> Result<Self> {
        loop {
            if let Some(key) = Self::load(path)? {
                return Ok(key);
            }
            match Self::make(path) {
                Ok(key) => return Ok(key),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io(format_args!("making the custody key {}", path.display()), &error)),
            }
        }
    }

    /// Returns the key in a file; `None` if there is no such file.
    ///
    /// # Errors
    ///
    /// If it cannot be read, is no Ed25519 key in PEM, or may be read by users other than its owner.
    pub fn load(path: &Path) -> Result<Option<Self>> {
        let doing = || format!("reading the custody key {}", path.display());
        let foreign = || {
            Error::failed(format!(
                "the custody key {} is not a file of yours, so it proves nothing; name another with CHEETAH_KEY",
                path.display()
            ))
        };
        // Opening a pipe would wait for its other end.
        let file = match regular::open_file(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == ErrorKind::InvalidInput => return Err(foreign()),
            opened => opened.map_err(|error| Error::io(doing(), &error))?,
        };
        let metadata = file.metadata().map_err(|error| Error::io(doing(), &error))?;
        if !metadata.is_file() {
            return Err(foreign());
        }
        // Links are followed, since a key may be kept elsewhere, but the file must belong to this user.
        match Owner::of(&file).map_err(|error| Error::io(doing(), &error))? {
            Owner::Own => {}
            Owner::Other => return Err(foreign()),
            Owner::Shared(mode) => {
                return Err(Error::caused(Kind::Failed, ReadByOthers { path: path.to_owned(), mode }));
            }
        }
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(|error| Error::io(doing(), &error))?;
        let seed = pem_decode(&text, PRIVATE_LABEL).and_then(|der| strip(&der, &PRIVATE_BEGINS));
        let seed = seed.ok_or_else(|| Error::caused(Kind::Failed, NoKey(path.to_owned())))?;
        Ok(Some(Self(ed25519_dalek::SigningKey::from_bytes(&seed))))
    }

    /// Creates a key in a new file, which gets its name only when it is complete.
    fn make(path: &Path) -> std::io::Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        os::make_own_folder(folder)?;
        let key = Self::generate()?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(key.to_pem().as_bytes())?;
        file.as_file().sync_all()?;
        file.persist_noclobber(path).map_err(|error| error.error)?;
        sync_folder(folder)?;
        Ok(key)
    }

    fn generate() -> std::io::Result<Self> {
        Ok(Self(ed25519_dalek::SigningKey::from_bytes(&cheetah_kit::random::bytes()?)))
    }

    fn to_pem(&self) -> String {
        pem_encode(&[&PRIVATE_BEGINS[..], self.0.as_bytes()].concat(), PRIVATE_LABEL)
    }

    /// Returns the public key.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    /// Signs bytes.
    pub(crate) fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }
}

impl fmt::Debug for SigningKey {
    /// Prints the public key's name, never the private key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public().id())
    }
}

/// The key that a log is checked with. Its text is base64 of its DER form: the middle line of its PEM form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(ed25519_dalek::VerifyingKey);

impl PublicKey {
    /// Returns the key that an examiner names: base64, or a PEM file.
    ///
    /// # Errors
    ///
    /// If it is neither (misuse).
    pub fn named(text: &str) -> Result<Self> {
        if let Ok(key) = text.parse() {
            return Ok(key);
        }
        let mut content = String::new();
        let read = File::open(text).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut content));
        let bad = |why: &dyn fmt::Display| Error::misuse(format!("'{text}' is not a public key: {why}"));
        read.map_err(|error| bad(&format_args!("not base64 of one, and as a file: {}", os_error::describe(&error))))?;
        if let Some(der) = pem_decode(&content, PUBLIC_LABEL) {
            return Self::from_der(&der).ok_or_else(|| bad(&"the file holds a key of another kind, not Ed25519"));
        }
        content.trim().parse().map_err(|BadKey| bad(&"the file holds neither PEM nor base64 of one"))
    }

    fn from_der(der: &[u8]) -> Option<Self> {
        let key = ed25519_dalek::VerifyingKey::from_bytes(&strip(der, &PUBLIC_BEGINS)?).ok()?;
        // A weak key has signatures that fit any message.
        (!key.is_weak()).then_some(Self(key))
    }

    fn to_der(self) -> Vec<u8> {
        [&PUBLIC_BEGINS[..], self.0.as_bytes()].concat()
    }

    /// Returns the PEM form, as `openssl pkey -pubin` reads it.
    pub fn to_pem(self) -> String {
        pem_encode(&self.to_der(), PUBLIC_LABEL)
    }

    /// Returns its short name.
    pub fn id(self) -> KeyId {
        let digest: [u8; 32] = Sha256::digest(self.to_der()).into();
        let [a, b, c, d, e, f, g, h, ..] = digest;
        KeyId([a, b, c, d, e, f, g, h])
    }

    /// Whether `signature` is this key's over `message`. Strict: no second signature is valid for the same message and
    /// key.
    pub(crate) fn has_signed(self, message: &[u8], signature: &[u8; 64]) -> bool {
        self.0.verify_strict(message, &ed25519_dalek::Signature::from_bytes(signature)).is_ok()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.to_der()))
    }
}

/// A file holds no private key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} holds no Ed25519 key in PEM (PKCS #8); move it away or name another", .0.display())]
struct NoKey(PathBuf);

/// Users other than its owner may read the file of a private key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the custody key {path} may be read by others (mode {mode:03o}), so it proves nothing; if it was never copied, run: \
     chmod 600 {path}", path = .path.display()
)]
struct ReadByOthers {
    path: PathBuf,
    /// Its permissions.
    mode: u32,
}

/// The error for a text that is not a public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an Ed25519 public key in base64 of DER")]
pub struct BadKey;

impl FromStr for PublicKey {
    type Err = BadKey;

    fn from_str(text: &str) -> std::result::Result<Self, BadKey> {
        STANDARD.decode(text).ok().and_then(|der| Self::from_der(&der)).ok_or(BadKey)
    }
}

/// The short name of a key: the first 16 digits of the SHA-256 of its DER form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(with = "String"))]
pub struct KeyId([u8; 8]);

impl KeyId {
    /// Parses its printed form.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = cheetah_image::hash::is_hex(text, 16).then_some(text)?;
        Some(Self(u64::from_str_radix(digits, 16).ok()?.to_be_bytes()))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl Serialize for KeyId {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Returns the 32 bytes after `begins`.
fn strip(der: &[u8], begins: &[u8]) -> Option<[u8; 32]> {
    der.strip_prefix(begins)?.try_into().ok()
}

/// Returns the PEM form (RFC 7468) of data that fits one line, as all Ed25519 keys do.
fn pem_encode(der: &[u8], label: &str) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
}

fn pem_decode(text: &str, label: &str) -> Option<Vec<u8>> {
    let (_, rest) = text.split_once(&format!("-----BEGIN {label}-----"))?;
    let (body, _) = rest.split_once(&format!("-----END {label}-----"))?;
    STANDARD.decode(body.split_ascii_whitespace().collect::<String>()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    #[test]
    fn a_key_is_made_once_and_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/custody.key");
        assert!(SigningKey::load(&path).unwrap().is_none());
        let made = SigningKey::load_or_make(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(SigningKey::load_or_make(&path).unwrap().public(), made.public());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let refusal = SigningKey::load(&path).unwrap_err();
        assert_eq!(refusal.cause(), Some(&ReadByOthers { path: path.clone(), mode: 0o640 }), "{refusal}");
    }

    #[test]
    fn threads_that_create_a_key_at_once_get_the_same_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("custody.key");
        let make = || SigningKey::load_or_make(&path).unwrap().public().id();
        let ids = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_invalid_or_weak_key_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("custody.key");
        std::fs::write(&path, "-----BEGIN PRIVATE KEY-----\nMC4C\n-----END PRIVATE KEY-----\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(SigningKey::load(&path).unwrap_err().cause(), Some(&NoKey(path.clone())));
        assert_eq!(PublicKey::named(path.to_str().unwrap()).unwrap_err().exit_code(), 2);
        assert_eq!(PublicKey::named("nonsense").unwrap_err().exit_code(), 2);
        // A point of small order: anything is signed by it.
        let weak = STANDARD.encode([&PUBLIC_BEGINS[..], &[1], &[0; 31]].concat());
        assert_eq!(weak.parse::<PublicKey>(), Err(BadKey));
    }

    /// The key and signature of RFC 8032, section 7.1, test 1.
    #[test]
    fn keys_read_as_they_print_and_sign_as_the_standard_says() {
        let seed = *b"\x9d\x61\xb1\x9d\xef\xfd\x5a\x60\xba\x84\x4a\xf4\x92\xec\x2c\xc4\x44\x49\xc5\x69\x7b\x32\x69\x19\x70\x3b\xac\x03\x1c\xae\x7f\x60";
        let key = SigningKey(ed25519_dalek::SigningKey::from_bytes(&seed));
        assert!(hex(&key.sign(b"")).starts_with("e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"));
        let public = key.public();
        assert_eq!(public.to_string().parse(), Ok(public));
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("examiner.pem");
        std::fs::write(&file, public.to_pem()).unwrap();
        assert_eq!(PublicKey::named(file.to_str().unwrap()).unwrap(), public);
        assert_eq!(KeyId::parse(&public.id().to_string()), Some(public.id()));
    }
}

//! The keys of a logical volume, and what seals them.

use cheetah_device::le::u32_at;

use super::super::plist::Value;

/// The most users and keys that are kept.
const USERS_MAX: usize = 64;
const KEYS_MAX: usize = 16;
/// The cipher of volumes that are encrypted.
const AES_XTS: &str = "AES-XTS";
/// Kinds of users that have passwords. What another kind has may be a recovery key.
const WITH_PASSWORD: [u64; 2] = [0x1000_0001, 0x1001_0005];
/// Kinds of values, and their lengths, in what a passphrase seals and what a user's key seals.
const SALT: (u32, u32) = (3, 16);
const SEALED_BY_PASSPHRASE: (u32, u32) = (16, 24);
const SEALED_BY_KEY: (u32, u32) = (2, 24);

/// The keys of a volume, and the users that can open it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// What can open it.
    pub users: Vec<User>,
    /// Its keys. It has none if it is not encrypted.
    pub keys: Vec<VolumeKey>,
    /// Whether it is being encrypted or decrypted.
    pub is_converting: bool,
}

/// A user, or another way to the key of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Its identifier.
    pub id: String,
    /// Its kind: `password`, `password or recovery key`, or `external key`.
    pub kind: &'static str,
    /// Its full name; may be empty.
    pub name: String,
    /// Its key, sealed with a passphrase; `None` if something else seals it.
    pub sealed: Option<SealedByPassphrase>,
}

/// The key of a user, sealed with a passphrase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedByPassphrase {
    /// The salt of PBKDF2.
    pub salt: [u8; 16],
    /// Its iterations.
    pub iterations: u32,
    /// The key, wrapped.
    pub wrapped: [u8; 24],
}

/// The key of a volume, wrapped with that of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeKey(
    /// The key, wrapped.
    pub [u8; 24],
);

impl Context {
    /// The keys in the description of a family; `None` if it has none.
    pub(super) fn of_family(list: &Value) -> Option<Self> {
        Self::of(list.get("com.apple.corestorage.lvf.encryption.context")?)
    }

    /// The keys in a property list; `None` if it is none.
    pub(super) fn parse(list: &[u8]) -> Option<Self> {
        Self::of(&Value::parse(list)?)
    }

    fn of(list: &Value) -> Option<Self> {
        let keys = list.get("WrappedVolumeKeys")?.items().iter();
        let status = list.get("ConversionInfo").and_then(|info| info.get("ConversionStatus")?.text());
        Some(Self {
            users: list.get("CryptoUsers")?.items().iter().take(USERS_MAX).map(User::of).collect(),
            keys: keys.filter_map(VolumeKey::of).take(KEYS_MAX).collect(),
            is_converting: matches!(status, Some("Converting" | "Pending")),
        })
    }

    /// Whether the volume is encrypted.
    pub fn is_encrypted(&self) -> bool {
        !self.keys.is_empty() || !self.users.is_empty()
    }
}

impl User {
    fn of(list: &Value) -> Self {
        let sealed = list.get("PassphraseWrappedKEKStruct").and_then(|data| SealedByPassphrase::of(data.data()?));
        let kind = match list.get("UserType").and_then(Value::number) {
            _ if sealed.is_none() => "external key",
            Some(kind) if WITH_PASSWORD.contains(&kind) => "password",
            _ => "password or recovery key",
        };
        Self { id: list.name("UserIdent"), kind, name: list.name("UserFullName"), sealed }
    }
}

impl SealedByPassphrase {
    fn of(data: &[u8]) -> Option<Self> {
        let is_known = kind_at(data, 0) == SALT && kind_at(data, 24) == SEALED_BY_PASSPHRASE;
        let (salt, wrapped) = (data.get(8..)?.first_chunk()?, data.get(32..)?.first_chunk()?);
        is_known.then_some(Self { salt: *salt, iterations: u32_at(data, 168), wrapped: *wrapped })
    }
}

impl VolumeKey {
    fn of(list: &Value) -> Option<Self> {
        let is_cipher = list.get("BlockAlgorithm")?.text() == Some(AES_XTS);
        let data = list.get("KEKWrappedVolumeKeyStruct")?.data()?;
        let wrapped = data.get(8..)?.first_chunk()?;
        (is_cipher && kind_at(data, 0) == SEALED_BY_KEY).then_some(Self(*wrapped))
    }
}

/// The kind and the length of a value.
fn kind_at(data: &[u8], at: usize) -> (u32, u32) {
    (u32_at(data, at), u32_at(data, at + 4))
}

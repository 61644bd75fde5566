//! Joining without an invitation: a code that both machines show. No I/O.
//!
//! ```text
//! joining machine                                     the room
//!   commitment = H(key ‖ nonce of the joiner)  ────▶
//!                                              ◀────  nonce of the room
//!   key, nonce of the joiner                   ────▶  checks the commitment
//!   code = H(room's key ‖ key ‖ both nonces)          the same code
//! ```
//!
//! The examiner reads the code on the joining machine and types it at the room's. A man in the middle has two
//! conversations, with two codes. It must commit itself to its key before it learns the nonce that decides the code, so
//! each attempt succeeds with a probability of 1 in 10⁸.
//!
//! It could make many attempts: begin, look at the code, give up, and begin again. An attempt therefore occupies its
//! place for [`PLACE_S`] from its beginning, finished or not, and there are [`PLACES`] places: the probability stays
//! below one in a million for each ten minutes that a code is shown. The price is that any machine that reaches the
//! port can occupy all places; invitations are not affected.
//!
//! The joining machine cannot know what the examiner typed. Therefore it takes only the role that it asked for, and a
//! role other than node must be confirmed at its own terminal.

use cheetah_error::{Next, next};
use cheetah_tls::{Fingerprint, Role};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::register::{Seconds, clean_name};

/// The most machines that wait at the same time.
pub const PLACES: usize = 64;
/// The most of them from one address.
pub const PLACES_PER_ADDRESS: usize = 8;
/// How long a machine may wait, in seconds.
pub const PLACE_S: u64 = 600;
/// The most bytes of the table as text.
pub const TEXT_LEN_MAX: usize = 1 << 20;

/// The number of random bytes on each side.
pub const NONCE_LEN: usize = 32;
/// Random bytes.
pub type Nonce = [u8; NONCE_LEN];

/// The code that both machines show: 8 digits. Text: `1234-5678`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Code(u32);

impl Code {
    /// The code of a conversation.
    pub fn of(room_key: &Fingerprint, key: &Fingerprint, joiner: &Nonce, room: &Nonce) -> Self {
        let mut digest = Sha256::new_with_prefix(b"cheetah room code v1\0");
        for part in [&room_key.0, &key.0, joiner, room] {
            digest.update(part);
        }
        let digest: [u8; 32] = digest.finalize().into();
        let [a, b, c, d, e, f, g, h, ..] = digest;
        // 10⁸ divides 2⁶⁴ almost evenly: the bias is below 10⁻¹¹.
        let number = u64::from_be_bytes([a, b, c, d, e, f, g, h]) % 100_000_000;
        Self(u32::try_from(number).unwrap_or_default())
    }

    /// Parses a code as a person types it: 8 digits, with `-` or spaces between them.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > 32 {
            return None;
        }
        let digits: String = text.chars().filter(|c| !matches!(c, '-' | ' ')).collect();
        let legal = digits.len() == 8 && digits.bytes().all(|digit| digit.is_ascii_digit());
        legal.then(|| digits.parse().ok().map(Self)).flatten()
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04}-{:04}", self.0 / 10_000, self.0 % 10_000)
    }
}

/// The commitment of a joining machine.
pub fn commitment(key: &Fingerprint, joiner: &Nonce) -> [u8; 32] {
    let mut digest = Sha256::new_with_prefix(b"cheetah room commitment v1\0");
    digest.update(key.0);
    digest.update(joiner);
    digest.finalize().into()
}

/// The joining machine's side.
#[derive(Debug)]
pub struct Joiner {
    key: Fingerprint,
    nonce: Nonce,
}

impl Joiner {
    /// A conversation for the machine with this key. `nonce` must be random, and used once.
    pub fn new(key: Fingerprint, nonce: Nonce) -> Self {
        Self { key, nonce }
    }

    /// Its first message.
    pub fn commitment(&self) -> [u8; 32] {
        commitment(&self.key, &self.nonce)
    }

    /// The nonce to reveal and the code to show, once the room has sent its nonce.
    pub fn reveal(self, room_key: &Fingerprint, room: &Nonce) -> (Nonce, Code) {
        (self.nonce, Code::of(room_key, &self.key, &self.nonce, room))
    }
}

/// The machines that wait for approval.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pending {
    #[serde(default, rename = "place")]
    places: Vec<Place>,
}

/// A machine that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// 32 random hexadecimal digits, which only this machine knows.
    id: String,
    #[serde(with = "bytes32")]
    commitment: [u8; 32],
    #[serde(with = "bytes32")]
    nonce: Nonce,
    /// When it began.
    pub began: Seconds,
    /// The name that it requests.
    pub name: String,
    /// The role that it asks for: the only one that it takes.
    #[serde(with = "role")]
    pub role: Role,
    /// The address that it called from.
    pub address: String,
    /// Once it has revealed its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// The key, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    public_key: Option<String>,
    /// The addresses that it named.
    #[serde(default)]
    hosts: Vec<String>,
    /// Whether it was approved.
    #[serde(default)]
    pub approved: bool,
}

/// Why a table is not read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTable {
    /// It is not such a table.
    #[error("{}", .0.message().replace('\n', " "))]
    Malformed(#[from] toml::de::Error),
    /// It has more machines than there are places.
    #[error("it has too many entries")]
    TooMany,
    /// It cannot be written as text.
    #[error(transparent)]
    Encode(#[from] toml::ser::Error),
}

/// Why a machine cannot wait, or cannot continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// All places are taken.
    #[error("too many machines have asked to join in the last ten minutes")]
    NoPlace,
    /// It asks for the role `room`, which no machine can get.
    #[error("nobody has the role 'room' but the room itself")]
    Role,
    /// There is no such place, or its time is over.
    #[error("the request to join is not known, or older than ten minutes; ask again")]
    Unknown,
    /// It revealed another value than it had committed itself to.
    #[error("the key is not the one that was committed to")]
    OtherKey,
}

impl Refused {
    /// The next step, if there is one.
    pub fn next(self) -> Option<Next> {
        (self == Self::NoPlace).then(|| next::Room::WaitOrInvite.into())
    }
}

/// Why a code cannot be approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotApproved {
    /// No waiting machine has it.
    #[error(
        "no waiting machine has this code. If the machine shows it, another machine intercepts the connection: do not \
         let it in"
    )]
    NoSuchCode,
    /// The machine asked for another role.
    #[error("the machine asks for the role {asked}")]
    OtherRole {
        /// The role that it asked for.
        asked: Role,
    },
}

impl NotApproved {
    /// The next step.
    pub fn next(self) -> Next {
        match self {
            Self::NoSuchCode => next::Room::SeePending.into(),
            Self::OtherRole { asked } => next::Room::SayRole { role: asked.to_string() }.into(),
        }
    }
}

/// The values that a machine reveals.
#[derive(Debug, Clone)]
pub struct Revealed {
    /// Its key's fingerprint.
    pub key: Fingerprint,
    /// Its key, in base64.
    pub public_key: String,
    /// Its nonce.
    pub nonce: Nonce,
    /// Its addresses.
    pub hosts: Vec<String>,
}

impl Pending {
    /// Parses the table's text.
    ///
    /// # Errors
    ///
    /// If it is malformed.
    pub fn decode(text: &str) -> Result<Self, BadTable> {
        let table: Self = toml::from_str(text)?;
        if table.places.len() > PLACES {
            return Err(BadTable::TooMany);
        }
        Ok(table)
    }

    /// The table as text.
    ///
    /// # Errors
    ///
    /// If it cannot be encoded.
    pub fn encode(&self) -> Result<String, BadTable> {
        Ok(toml::to_string(self)?)
    }

    /// Reserves a place. `id` and `nonce` must be random.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn begin(
        &mut self,
        (id, nonce): (u128, Nonce),
        commitment: [u8; 32],
        (name, role): (&str, Role),
        address: &str,
        now: Seconds,
    ) -> Result<String, Refused> {
        if role == Role::Room {
            return Err(Refused::Role);
        }
        self.places.retain(|place| !place.has_ended(now));
        let here = self.places.iter().filter(|place| place.address == address).count();
        if self.places.len() >= PLACES || here >= PLACES_PER_ADDRESS {
            return Err(Refused::NoPlace);
        }
        let id = format!("{id:032x}");
        self.places.push(Place {
            id: id.clone(),
            commitment,
            nonce,
            began: now,
            name: clean_name(name),
            role,
            address: address.to_owned(),
            code: None,
            public_key: None,
            hosts: Vec::new(),
            approved: false,
        });
        Ok(id)
    }

    /// Accepts the values that a machine reveals. From then on the machine has a code.
    ///
    /// # Errors
    ///
    /// If it is not what it committed itself to. A place has one attempt.
    pub fn reveal(
        &mut self,
        id: &str,
        revealed: Revealed,
        room_key: &Fingerprint,
        now: Seconds,
    ) -> Result<Code, Refused> {
        let place = self.place_mut(id, now)?;
        if !bool::from(commitment(&revealed.key, &revealed.nonce).ct_eq(&place.commitment)) {
            // The place stays taken.
            place.commitment = [0; 32];
            return Err(Refused::OtherKey);
        }
        let code = Code::of(room_key, &revealed.key, &revealed.nonce, &place.nonce);
        place.code = Some(code);
        place.public_key = Some(revealed.public_key);
        place.hosts = revealed.hosts;
        Ok(code)
    }

    /// The machines that show a code and are not approved yet.
    pub fn waiting(&self, now: Seconds) -> impl Iterator<Item = &Place> {
        self.places.iter().filter(move |place| place.code.is_some() && !place.approved && !place.has_ended(now))
    }

    /// Whether any place is taken.
    pub fn is_empty(&self, now: Seconds) -> bool {
        self.places.iter().all(|place| place.has_ended(now))
    }

    /// Approves the machine with a code, if it asked for the role. Returns its name and address.
    ///
    /// # Errors
    ///
    /// If there is none, or it asked for another role.
    pub fn approve(&mut self, code: Code, role: Role, now: Seconds) -> Result<Place, NotApproved> {
        let found = self.places.iter_mut().find(|place| place.code == Some(code) && !place.has_ended(now));
        let place = found.ok_or(NotApproved::NoSuchCode)?;
        if place.role != role {
            return Err(NotApproved::OtherRole { asked: place.role });
        }
        place.approved = true;
        Ok(place.clone())
    }

    /// The place of this id.
    ///
    /// # Errors
    ///
    /// If there is none, or its time is over.
    pub fn place(&self, id: &str, now: Seconds) -> Result<&Place, Refused> {
        let same = |place: &&Place| bool::from(place.id.as_bytes().ct_eq(id.as_bytes()));
        self.places.iter().find(same).filter(|place| !place.has_ended(now)).ok_or(Refused::Unknown)
    }

    fn place_mut(&mut self, id: &str, now: Seconds) -> Result<&mut Place, Refused> {
        let same = |place: &&mut Place| bool::from(place.id.as_bytes().ct_eq(id.as_bytes()));
        self.places.iter_mut().find(same).filter(|place| !place.has_ended(now)).ok_or(Refused::Unknown)
    }

    /// The nonce that the room sends to the machine with this id.
    ///
    /// # Errors
    ///
    /// As [`Self::place`].
    pub fn nonce(&self, id: &str, now: Seconds) -> Result<Nonce, Refused> {
        self.place(id, now).map(|place| place.nonce)
    }
}

impl Place {
    fn has_ended(&self, now: Seconds) -> bool {
        // A clock that was set back ends the wait, too.
        now.checked_sub(self.began).is_none_or(|waited| waited >= PLACE_S)
    }

    /// The key and its addresses, once revealed.
    pub fn revealed(&self) -> Option<(&str, &[String])> {
        Some((self.public_key.as_deref()?, &self.hosts))
    }
}

mod bytes32 {
    use cheetah_tls::Fingerprint;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(bytes: &[u8; 32], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Fingerprint(*bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(from)?;
        text.parse::<Fingerprint>().map(|fingerprint| fingerprint.0).map_err(de::Error::custom)
    }
}

mod role {
    use cheetah_tls::Role;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(role: &Role, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(role)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Role, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Fingerprint = Fingerprint([1; 32]);
    const KEY: Fingerprint = Fingerprint([2; 32]);
    const NOW: Seconds = 1_000_000;

    fn begin(
        pending: &mut Pending,
        number: u8,
        commitment: [u8; 32],
        address: &str,
        now: Seconds,
    ) -> Result<String, Refused> {
        pending.begin((number.into(), [number; 32]), commitment, ("lab 7", Role::Node), address, now)
    }

    fn revealed(key: Fingerprint, nonce: Nonce) -> Revealed {
        Revealed { key, public_key: "AAAA".into(), nonce, hosts: Vec::new() }
    }

    /// The codes that the joiner and the room show, and the room's table.
    fn converse() -> (Code, Code, Pending) {
        let (mut pending, joiner) = (Pending::default(), Joiner::new(KEY, [3; 32]));
        let id = begin(&mut pending, 4, joiner.commitment(), "10.0.0.7", NOW).unwrap();
        let (nonce, shown) = joiner.reveal(&ROOM, &pending.nonce(&id, NOW).unwrap());
        let code = pending.reveal(&id, revealed(KEY, nonce), &ROOM, NOW).unwrap();
        (shown, code, pending)
    }

    #[test]
    fn both_machines_show_the_same_code_and_its_approval_admits() {
        let (shown, code, mut pending) = converse();
        assert_eq!(shown, code);
        assert_eq!(Code::parse(&code.to_string()), Some(code));
        let waiting: Vec<_> = pending.waiting(NOW).map(|place| (place.name.clone(), place.code)).collect();
        assert_eq!(waiting, [("lab-7".to_owned(), Some(code))]);
        assert_eq!(pending.approve(code, Role::Examiner, NOW), Err(NotApproved::OtherRole { asked: Role::Node }));
        assert!(pending.approve(code, Role::Node, NOW).unwrap().approved);
        assert_eq!(pending.waiting(NOW).count(), 0);
        assert_eq!(Pending::decode(&pending.encode().unwrap()), Ok(pending));
    }

    #[test]
    fn with_a_man_in_the_middle_the_codes_differ() {
        // The man in the middle shows the joiner its own room, and the room its own key.
        let (false_room, false_key) = (Fingerprint([8; 32]), Fingerprint([9; 32]));
        let joiner = Joiner::new(KEY, [3; 32]);
        let between = Joiner::new(false_key, [5; 32]);
        let mut pending = Pending::default();
        let id = begin(&mut pending, 4, between.commitment(), "10.0.0.66", NOW).unwrap();
        let room_nonce = pending.nonce(&id, NOW).unwrap();
        // It forwards what it can: the room's nonce.
        let (_, shown) = joiner.reveal(&false_room, &room_nonce);
        let (nonce, _) = between.reveal(&ROOM, &room_nonce);
        let code = pending.reveal(&id, revealed(false_key, nonce), &ROOM, NOW).unwrap();
        assert_ne!(shown, code);
        assert_eq!(pending.approve(shown, Role::Node, NOW), Err(NotApproved::NoSuchCode));
    }

    #[test]
    fn another_key_than_the_committed_one_is_refused_for_good() {
        let (mut pending, joiner) = (Pending::default(), Joiner::new(KEY, [3; 32]));
        let id = begin(&mut pending, 4, joiner.commitment(), "h", NOW).unwrap();
        let other = revealed(Fingerprint([9; 32]), [3; 32]);
        assert_eq!(pending.reveal(&id, other, &ROOM, NOW), Err(Refused::OtherKey));
        assert_eq!(pending.reveal(&id, revealed(KEY, [3; 32]), &ROOM, NOW), Err(Refused::OtherKey));
        assert_eq!(pending.reveal("none", revealed(KEY, [3; 32]), &ROOM, NOW), Err(Refused::Unknown));
        assert_eq!(pending.waiting(NOW).count(), 0);
    }

    #[test]
    fn attempts_are_limited_whether_they_are_finished_or_not() {
        let mut pending = Pending::default();
        let mut refused = 0;
        for number in 0..=u8::MAX {
            let address = format!("10.0.0.{}", number % 16);
            refused += usize::from(begin(&mut pending, number, [0; 32], &address, NOW).is_err());
        }
        assert_eq!(refused, 256 - PLACES);
        assert_eq!(begin(&mut pending, 1, [0; 32], "x", NOW + PLACE_S - 1), Err(Refused::NoPlace));
        assert!(begin(&mut pending, 1, [0; 32], "x", NOW + PLACE_S).is_ok());
        let mut pending = Pending::default();
        let taken = (0..20).filter(|number| begin(&mut pending, *number, [0; 32], "x", NOW).is_ok()).count();
        assert_eq!(taken, PLACES_PER_ADDRESS);
    }

    #[test]
    fn nobody_waits_longer_than_ten_minutes() {
        let (_, code, mut pending) = converse();
        assert_eq!(pending.approve(code, Role::Node, NOW + PLACE_S), Err(NotApproved::NoSuchCode));
        assert_eq!(pending.approve(code, Role::Node, NOW - 1), Err(NotApproved::NoSuchCode));
        assert!(pending.is_empty(NOW + PLACE_S) && !pending.is_empty(NOW));
    }

    #[test]
    fn codes_are_typed_with_or_without_separators() {
        for text in ["00120034", "0012-0034", "0012 0034", " 0012 - 0034 "] {
            assert_eq!(Code::parse(text), Some(Code(120_034)), "{text}");
        }
        assert_eq!(Code(120_034).to_string(), "0012-0034");
        for text in ["", "1234", "123456789", "1234567x", "+1234567", "１２３４５６７８"] {
            assert_eq!(Code::parse(text), None, "{text}");
        }
    }
}

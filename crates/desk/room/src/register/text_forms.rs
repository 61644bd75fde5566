//! How the register's values are written as text, for serde.

/// Values with a text form.
pub(super) mod text {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

/// Addresses of a member.
pub(super) mod hosts {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    use crate::invitation::Host;

    pub fn serialize<S: Serializer>(hosts: &[Host], serializer: S) -> Result<S::Ok, S::Error> {
        hosts.iter().map(ToString::to_string).collect::<Vec<_>>().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Host>, D::Error> {
        let texts = Vec::<String>::deserialize(from)?;
        texts.iter().map(|text| text.parse().map_err(de::Error::custom)).collect()
    }
}

/// Hashes, as 64 hexadecimal digits.
pub(super) mod hex32 {
    use cheetah_tls::Fingerprint;
    use serde::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8; 32], serializer: S) -> Result<S::Ok, S::Error> {
        super::text::serialize(&Fingerprint(*bytes), serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
        super::text::deserialize::<Fingerprint, D>(from).map(|fingerprint| fingerprint.0)
    }
}

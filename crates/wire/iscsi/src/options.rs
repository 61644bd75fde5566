//! The options of a URI: commands in flight, sessions, and keys of the login (RFC 7143, section 13).

use std::fmt;

/// The maximum number of outstanding commands of a session.
pub const COMMANDS_MAX: u16 = 256;
/// The maximum number of sessions with one logical unit.
pub const SESSIONS_MAX: u8 = 16;
/// The least and the greatest length of a segment or burst, in bytes (RFC 7143, 13.12 to 13.14).
const LEN_MIN: u32 = 512;
const LEN_MAX: u32 = (1 << 24) - 1;

/// Reasons to refuse a parameter.
const UNKNOWN: &str = "the parameters are initiator, commands, sessions, MaxRecvDataSegmentLength, MaxBurstLength, \
                       FirstBurstLength and ImmediateData";
const BAD_COMMANDS: &str = "commands must be a number from 1 to 256";
const BAD_SESSIONS: &str = "sessions must be a number from 1 to 16";
const BAD_LEN: &str = "a length must be a number of bytes from 512 to 16777215";
const BAD_FIRST_BURST: &str = "FirstBurstLength may not exceed MaxBurstLength";
const BAD_IMMEDIATE_DATA: &str = "ImmediateData must be Yes or No";

/// Options of the sessions with a logical unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionOptions {
    /// The maximum number of outstanding commands of each session: 1 to [`COMMANDS_MAX`]. The target may allow fewer.
    pub commands: u16,
    /// Sessions, each with a connection of its own, that share the reads: 1 to [`SESSIONS_MAX`].
    pub sessions: u8,
    /// The keys offered at each login.
    pub keys: LoginKeys,
}

/// Keys of a login: the values that are offered, or those that were agreed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LoginKeys {
    /// MaxRecvDataSegmentLength: the longest data segment the target may send, in bytes.
    pub segment_len_max: u32,
    /// MaxBurstLength: the longest sequence of data segments, in bytes.
    pub burst_len_max: u32,
    /// FirstBurstLength: the most unsolicited data of a write, in bytes; at most `burst_len_max`. Nothing is ever
    /// written, but some targets reserve memory by it.
    pub first_burst_len_max: u32,
    /// ImmediateData: whether a write's command may carry data. Nothing is ever written.
    pub immediate_data: bool,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self { commands: 32, sessions: 1, keys: LoginKeys::default() }
    }
}

impl Default for LoginKeys {
    fn default() -> Self {
        Self {
            segment_len_max: 256 << 10,
            burst_len_max: 1 << 20,
            first_burst_len_max: 64 << 10,
            immediate_data: false,
        }
    }
}

impl LoginKeys {
    /// The values of keys that no login mentions (RFC 7143, section 13).
    pub(crate) const UNMENTIONED: Self = Self {
        segment_len_max: 8 << 10,
        burst_len_max: 256 << 10,
        first_burst_len_max: 64 << 10,
        immediate_data: true,
    };
}

/// Formats the keys as a login does, separated by commas.
impl fmt::Display for LoginKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { segment_len_max, burst_len_max, first_burst_len_max, immediate_data } = self;
        write!(
            f,
            "MaxRecvDataSegmentLength={segment_len_max}, MaxBurstLength={burst_len_max}, \
             FirstBurstLength={first_burst_len_max}, ImmediateData={}",
            yes_no(*immediate_data)
        )
    }
}

impl SessionOptions {
    /// Parses the parameters of a URI's query.
    ///
    /// # Errors
    ///
    /// If one is unknown or out of range, with the reason.
    pub(crate) fn parse<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Self, &'static str> {
        let (mut options, mut first_burst) = (Self::default(), None);
        let keys = &mut options.keys;
        for (key, value) in pairs {
            match key {
                "commands" => options.commands = commands(value)?,
                "sessions" => options.sessions = sessions(value)?,
                "MaxRecvDataSegmentLength" => keys.segment_len_max = len(value)?,
                "MaxBurstLength" => keys.burst_len_max = len(value)?,
                "FirstBurstLength" => first_burst = Some(len(value)?),
                "ImmediateData" => keys.immediate_data = parse_yes_no(value)?,
                _ => return Err(UNKNOWN),
            }
        }
        if first_burst.is_some_and(|first| first > keys.burst_len_max) {
            return Err(BAD_FIRST_BURST);
        }
        keys.first_burst_len_max = first_burst.unwrap_or(keys.first_burst_len_max.min(keys.burst_len_max));
        Ok(options)
    }

    /// The parameters that differ from the defaults, as they are written in a URI.
    pub(crate) fn parameters(&self) -> Vec<String> {
        let (usual, keys) = (Self::default(), &self.keys);
        let first_burst_usual = usual.keys.first_burst_len_max.min(keys.burst_len_max);
        let all = [
            ("commands", u32::from(self.commands), u32::from(usual.commands)),
            ("sessions", u32::from(self.sessions), u32::from(usual.sessions)),
            ("MaxRecvDataSegmentLength", keys.segment_len_max, usual.keys.segment_len_max),
            ("MaxBurstLength", keys.burst_len_max, usual.keys.burst_len_max),
            ("FirstBurstLength", keys.first_burst_len_max, first_burst_usual),
        ];
        let changed = all.into_iter().filter(|(_, value, usual)| value != usual);
        let mut texts: Vec<String> = changed.map(|(key, value, _)| format!("{key}={value}")).collect();
        if keys.immediate_data != usual.keys.immediate_data {
            texts.push(format!("ImmediateData={}", yes_no(keys.immediate_data)));
        }
        texts
    }
}

/// A yes or no, as keys have it.
pub(crate) fn yes_no(value: bool) -> &'static str {
    if value { "Yes" } else { "No" }
}

fn parse_yes_no(text: &str) -> Result<bool, &'static str> {
    match text {
        "Yes" => Ok(true),
        "No" => Ok(false),
        _ => Err(BAD_IMMEDIATE_DATA),
    }
}

fn commands(text: &str) -> Result<u16, &'static str> {
    let number = text.parse().ok().filter(|number| (1..=COMMANDS_MAX).contains(number));
    number.ok_or(BAD_COMMANDS)
}

fn sessions(text: &str) -> Result<u8, &'static str> {
    let number = text.parse().ok().filter(|number| (1..=SESSIONS_MAX).contains(number));
    number.ok_or(BAD_SESSIONS)
}

fn len(text: &str) -> Result<u32, &'static str> {
    let number = text.parse().ok().filter(|number| (LEN_MIN..=LEN_MAX).contains(number));
    number.ok_or(BAD_LEN)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(query: &str) -> Result<SessionOptions, &'static str> {
        SessionOptions::parse(query.split('&').filter_map(|pair| pair.split_once('=')))
    }

    #[test]
    fn every_option_is_read() {
        let query = "commands=4&sessions=2&MaxRecvDataSegmentLength=512&MaxBurstLength=16777215&FirstBurstLength=1024\
                     &ImmediateData=Yes";
        let keys = LoginKeys {
            segment_len_max: 512,
            burst_len_max: (1 << 24) - 1,
            first_burst_len_max: 1024,
            immediate_data: true,
        };
        assert_eq!(parse(query), Ok(SessionOptions { commands: 4, sessions: 2, keys }));
        assert_eq!(parse(""), Ok(SessionOptions::default()));
    }

    #[test]
    fn a_small_burst_lowers_the_first_one() {
        assert_eq!(parse("MaxBurstLength=4096").unwrap().keys.first_burst_len_max, 4096);
    }

    #[test]
    fn values_out_of_range_are_refused_with_the_reason() {
        for (query, why) in [
            ("commands=0", BAD_COMMANDS),
            ("commands=257", BAD_COMMANDS),
            ("commands=many", BAD_COMMANDS),
            ("sessions=0", BAD_SESSIONS),
            ("sessions=17", BAD_SESSIONS),
            ("MaxRecvDataSegmentLength=511", BAD_LEN),
            ("MaxBurstLength=16777216", BAD_LEN),
            ("FirstBurstLength=-1", BAD_LEN),
            ("ImmediateData=yes", BAD_IMMEDIATE_DATA),
            ("FirstBurstLength=2048&MaxBurstLength=1024", BAD_FIRST_BURST),
            ("maxburstlength=1024", UNKNOWN),
        ] {
            assert_eq!(parse(query), Err(why), "{query}");
        }
    }

    /// Any options that a URI can have.
    pub(crate) fn any_options() -> impl Strategy<Value = SessionOptions> {
        let lens = (LEN_MIN..=LEN_MAX, LEN_MIN..=LEN_MAX, LEN_MIN..=LEN_MAX);
        (1..=COMMANDS_MAX, 1..=SESSIONS_MAX, lens, any::<bool>()).prop_map(
            |(commands, sessions, (segment_len_max, burst_len_max, first), immediate_data)| {
                let first_burst_len_max = first.min(burst_len_max);
                let keys = LoginKeys { segment_len_max, burst_len_max, first_burst_len_max, immediate_data };
                SessionOptions { commands, sessions, keys }
            },
        )
    }

    proptest! {
        #[test]
        fn parameters_are_parsed_to_the_same_options(options in any_options()) {
            prop_assert_eq!(parse(&options.parameters().join("&")), Ok(options));
        }
    }
}

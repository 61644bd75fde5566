//! Matches answers to probes.

/// Largest sequence number: the field of ICMP, and the identification of IPv4, have 16 bits.
pub const SEQ_MAX: u32 = 0xFFFF;

/// Bytes of the tag at the start of a probe's data: the nonce and the sequence number.
pub const TAG_BYTES: usize = NONCE_BYTES + 4;

const NONCE_BYTES: usize = 8;

/// A sender of probes. Answers are matched by the nonce, which is in the data of each probe and, as far as there is
/// room, in its identification, ports and sequence numbers: an ICMP error need quote no more than eight bytes of a
/// probe's data (RFC 792).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// A random number, different for each session.
    pub nonce: u64,
    /// The source port of TCP and UDP probes.
    pub local_port: u16,
    /// Their destination port, which differs from it.
    pub port: u16,
}

impl Session {
    /// The identifier of ICMP echo requests.
    #[must_use]
    pub const fn id(&self) -> u16 {
        (self.nonce >> 48) as u16
    }

    /// Returns the data of a probe, `len` bytes: the tag, truncated if necessary, and then incompressible bytes.
    #[must_use]
    pub fn payload(&self, seq: u32, len: usize) -> Vec<u8> {
        let mut data = Vec::with_capacity(len.max(TAG_BYTES) + 8);
        data.extend_from_slice(&self.nonce.to_be_bytes());
        data.extend_from_slice(&(seq & SEQ_MAX).to_be_bytes());
        // Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (2014): the mixing of SplitMix64.
        let mut state = self.nonce ^ u64::from(seq);
        while data.len() < len {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            data.extend_from_slice(&(mixed ^ (mixed >> 31)).to_be_bytes());
        }
        data.truncate(len);
        data
    }

    /// Returns the sequence number of the probe with this data, if it is one of ours.
    #[must_use]
    pub fn sequence(&self, data: &[u8]) -> Option<u32> {
        let (nonce, rest) = data.split_first_chunk::<NONCE_BYTES>()?;
        let seq = u32::from_be_bytes(*rest.first_chunk()?);
        (u64::from_be_bytes(*nonce) == self.nonce && seq <= SEQ_MAX).then_some(seq)
    }

    /// The sequence number of a TCP probe.
    pub(super) const fn tcp_number(&self, seq: u32) -> u32 {
        (self.nonce as u32) ^ (seq & SEQ_MAX)
    }

    /// Returns the probe with this TCP sequence number.
    pub(super) fn of_tcp_number(&self, number: u32) -> Option<u32> {
        let seq = number ^ self.tcp_number(0);
        (seq <= SEQ_MAX).then_some(seq)
    }

    /// The identification of a probe over IPv4.
    pub(super) const fn identification(&self, seq: u32) -> u16 {
        (self.nonce >> 32) as u16 ^ (seq & SEQ_MAX) as u16
    }

    /// Returns the probe with this identification.
    pub(super) const fn of_identification(&self, identification: u16) -> u32 {
        (identification ^ self.identification(0)) as u32
    }
}

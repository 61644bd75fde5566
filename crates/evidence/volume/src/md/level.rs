//! The levels and layouts that are supported.

use super::geometry::Rotation;
use super::refused::Why;
use super::superblock::Shape;

/// The maximum number of members of an array.
pub(super) const MEMBERS_MAX: usize = 128;
/// The chunks of arrays with redundancy that are supported, in bytes.
const CHUNK_BYTES: std::ops::RangeInclusive<u64> = 4 << 10..=1 << 30;

/// How the bytes of an array lie on its members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// On one member after the other.
    Linear,
    /// On all members in turns, without redundancy.
    Striped,
    /// All of it on each member.
    Mirror,
    /// The number of consecutive members that hold each chunk.
    Near(usize),
    /// With parity.
    Parity {
        /// Where the parity lies.
        rotation: Rotation,
        /// Whether there is Q, beside P.
        has_q: bool,
    },
}

impl Level {
    /// The level of an array of this shape.
    pub fn of(shape: &Shape) -> Result<Self, Why> {
        let members = members(shape)?;
        let level = match shape.level {
            -1 => return Ok(Self::Linear),
            0 => return Ok(Self::Striped),
            1 => return Ok(Self::Mirror),
            4 => Self::Parity { rotation: Rotation::Last, has_q: false },
            5 | 6 => Self::Parity { rotation: rotation(shape)?, has_q: shape.level == 6 },
            10 => Self::Near(near(shape.layout.unwrap_or(0), members)?),
            -4 => return Err(Why::Kind("a multipath device".to_owned())),
            -5 => return Err(Why::Kind("a device for tests of failures".to_owned())),
            other => return Err(Why::Kind(format!("of level {other}"))),
        };
        if !shape.chunk_bytes.is_power_of_two() || !CHUNK_BYTES.contains(&shape.chunk_bytes) {
            return Err(Why::Kind(format!("{} in chunks of {} bytes", words(shape.level), shape.chunk_bytes)));
        }
        let least = match level {
            Self::Parity { has_q: true, .. } => 4,
            Self::Parity { .. } => 2,
            _ => 1,
        };
        if members < least { Err(Why::Damaged("it has too few members for its level")) } else { Ok(level) }
    }
}

/// The number of members, within the limit.
fn members(shape: &Shape) -> Result<usize, Why> {
    match usize::try_from(shape.members) {
        Ok(0) => Err(Why::Damaged("it has no members")),
        Ok(members) if members <= MEMBERS_MAX => Ok(members),
        _ => Err(Why::Kind(format!("an array of {} members", shape.members))),
    }
}

/// The number of copies that lie near each other, in a RAID 10.
fn near(layout: u32, members: usize) -> Result<usize, Why> {
    let [near, far, ..] = layout.to_le_bytes();
    match far {
        1 if layout >> 16 == 0 && (2..=members).contains(&usize::from(near)) => Ok(near.into()),
        0 | 1 => Err(Why::Damaged("its copies are too few or too many")),
        _ if layout & (1 << 16) != 0 => Err(Why::Kind("RAID 10 with offset copies".to_owned())),
        _ => Err(Why::Kind("RAID 10 with far copies".to_owned())),
    }
}

fn rotation(shape: &Shape) -> Result<Rotation, Why> {
    let layout = shape.layout.unwrap_or(0);
    Ok(match layout {
        0 => Rotation::LeftAsymmetric,
        1 => Rotation::RightAsymmetric,
        2 => Rotation::LeftSymmetric,
        3 => Rotation::RightSymmetric,
        4 => Rotation::First,
        5 => Rotation::Last,
        8..=10 => return Err(Why::Kind(format!("{} with a layout of DDF", words(shape.level)))),
        16..=20 => return Err(Why::Kind("RAID 6 with the layout of a RAID 5 and Q on the last member".to_owned())),
        _ => return Err(Why::Kind(format!("{} with the layout {layout}", words(shape.level)))),
    })
}

/// A level, for people.
pub(super) fn words(level: i32) -> String {
    match level {
        -1 => "linear".to_owned(),
        level => format!("RAID {level}"),
    }
}

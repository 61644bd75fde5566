//! Where the chunks of an array with redundancy lie on its members. No I/O.
//!
//! A *row* is one chunk of each member, at the same place of each. The layouts of parity, as the kernel numbers them, for a RAID 5 of
//! three members, a letter being a chunk:
//!
//! ```text
//! left asymmetric   right asymmetric   left symmetric   right symmetric   first   last
//!      a b P             P a b             a b P             P a b        P a b   a b P
//!      c P d             c P d             d P c             d P c        P c d   c d P
//!      P e f             e f P             P e f             e f P        P e f   e f P
//! ```
//!
//! Of a RAID 6, Q follows P, on the first member if P is on the last.

/// How the parity moves from row to row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rotation {
    /// From the last member to the first; the data take the places that are left.
    LeftAsymmetric,
    /// From the first member to the last; the data take the places that are left.
    RightAsymmetric,
    /// From the last member to the first; the data follow the parity.
    LeftSymmetric,
    /// From the first member to the last; the data follow the parity.
    RightSymmetric,
    /// It stays on the first members.
    First,
    /// It stays on the last members.
    Last,
}

/// Where chunks lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Geometry {
    /// Each chunk on `copies` of the members, which take turns.
    Copies { members: usize, copies: usize },
    /// Rows with `parities` chunks of parity, P or P and Q.
    Parity { members: usize, parities: usize, rotation: Rotation },
}

/// A row with parity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    /// The members that hold its data, in the order of the array.
    pub data: Vec<usize>,
    /// The members of the code: those that hold data, in the order in which Q counts them, then P, then Q.
    pub code: Vec<usize>,
}

impl Geometry {
    /// The number of chunks of an array whose members have this number of rows.
    pub fn chunks(&self, rows: u64) -> Option<u64> {
        match *self {
            Self::Copies { members, copies } => Some(rows.checked_mul(members as u64)? / copies as u64),
            Self::Parity { members, parities, .. } => rows.checked_mul((members - parities) as u64),
        }
    }

    /// The members that hold a chunk, and in which row; `None` if that is beyond any array.
    pub fn copies(members: usize, copies: usize, chunk: u64) -> Option<Vec<(usize, u64)>> {
        let first = chunk.checked_mul(copies as u64)?;
        let place = |copy: u64| {
            let (row, member) = ((first + copy) / members as u64, (first + copy) % members as u64);
            // Not truncated: less than the number of members.
            (member as usize, row)
        };
        first.checked_add(copies as u64)?;
        Some((0..copies as u64).map(place).collect())
    }

    /// Where a row has its data and its parity.
    pub fn row(members: usize, parities: usize, rotation: Rotation, row: u64) -> Row {
        // Not truncated: less than the number of members.
        let turn = (row % members as u64) as usize;
        let p = match rotation {
            Rotation::LeftAsymmetric | Rotation::LeftSymmetric => members - 1 - turn,
            Rotation::RightAsymmetric | Rotation::RightSymmetric => turn,
            Rotation::First => 0,
            Rotation::Last => members - parities,
        };
        let parity: Vec<_> = (0..parities).map(|index| (p + index) % members).collect();
        let behind_parity =
            || (0..members - parities).map(|index| (p + parities + index) % members).collect::<Vec<_>>();
        let data = match rotation {
            Rotation::LeftSymmetric | Rotation::RightSymmetric => behind_parity(),
            _ => (0..members).filter(|member| !parity.contains(member)).collect(),
        };
        // Q counts from the member behind its own.
        Row { data, code: behind_parity().into_iter().chain(parity).collect() }
    }
}

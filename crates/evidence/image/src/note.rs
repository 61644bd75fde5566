//! What is in doubt about an image that can be read.

use cheetah_error::{Error, list};

/// What is in doubt about an image although it can be read: a sentence without its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageNote {
    /// A compressed file is damaged, and where the content after the damage lies is not known.
    #[error(
        "{refused}; the place of what follows cannot be known: all content from byte {from} on is missing, and the image is \
         longer than it seems, by an unknown number of bytes"
    )]
    EndUnknown {
        /// What is wrong with the file.
        refused: Error,
        /// The first byte of the content that is missing.
        from: u64,
    },
    /// The file of a virtual disk ends within a piece of the disk's content.
    #[error(
        "the file {path} ends within the last piece of content in it, at offset {at}; what it lacks there reads as zeros"
    )]
    PieceCut {
        /// The file.
        path: String,
        /// The offset of the piece in the file.
        at: u64,
    },
    /// A virtual disk has snapshots, which are other states of the disk.
    #[error(
        "{path} also holds {count} snapshot(s) of the disk ({}{}), which are not read; qemu-img convert -l reads them",
        .names.join(", "), if .names.len() < *.count as usize { ", …" } else { "" }
    )]
    Snapshots {
        /// The file.
        path: String,
        /// Their number.
        count: u32,
        /// The names of the first of them.
        names: Vec<String>,
    },
    /// An image is named like one of several, and no other one is beside it.
    #[error("{path} is named like {}, and no other part is beside it", part(.total.as_ref()))]
    LonePart {
        /// The image.
        path: String,
        /// The number of parts, if the name says it; otherwise it is that of a first part.
        total: Option<u64>,
    },
    /// An image is read alone, although others beside it are named like its parts.
    #[error(
        "{path} was read alone, although the name of {beside} beside it is that of another part: by their sizes and their \
         beginnings they are images of their own", beside = list(.beside)
    )]
    ReadAlone {
        /// The image.
        path: String,
        /// The names of the first of the others.
        beside: Vec<String>,
    },
}

fn part(total: Option<&u64>) -> String {
    total.map_or_else(|| "the first part of several".to_owned(), |total| format!("a part of {total}"))
}

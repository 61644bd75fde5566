//! The files beside an image, other than its custody log and the journal.

use cheetah_custody::acquisition_report::REPORT;
use cheetah_error::Result;
use cheetah_image::own_file::OwnFile;

use crate::order::{Destination, Form};

/// The coverage map of an image that is not whole: `x.raw.map`.
pub const MAP: OwnFile =
    OwnFile { name: "coverage map", begins: |head| head.starts_with(b"# Mapfile. Written by Cheetah") };

/// Fails if a file that is not Cheetah's occupies the path of the map or the report of `destination`.
pub fn check(destination: &Destination) -> Result<()> {
    REPORT.check(&destination.beside("report.txt"))?;
    match destination.form {
        Form::Raw | Form::E01 => MAP.check(&destination.beside("map")),
        // Written with the drive file.
        Form::Drive => Ok(()),
    }
}

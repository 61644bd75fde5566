//! An image in a folder of this machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cheetah_device::Device as _;

use super::names::{claimed_format, stem};
use super::place::{Parts, Place};
use crate::coverage;
use crate::detect::Unsupported;
use crate::ewf::Ewf;
use crate::file::SharedFile;
use crate::hashed::HashedFiles;
use crate::identity::{Identity, Kind};
use crate::os;
use crate::raw::RawFile;
use crate::source::{OpenOptions, Source, SourceFile};
use crate::split::{self, Found, Split};
use crate::{side_file, spec};
use cheetah_error::{Error, Result};

/// The file or the disk that the user named.
pub(super) struct Here {
    spec: String,
    path: PathBuf,
    /// Whether the user wants its bytes as they are.
    asked_raw: bool,
    file: RawFile,
    apply_map: bool,
}

impl Here {
    /// Opens what the user calls `spec`. Blocks.
    pub fn open(spec: &str, options: &OpenOptions) -> Result<Self> {
        let (path, asked_raw) = spec::path_of(spec).unwrap_or_else(|| (spec.into(), false));
        let file = RawFile::open(&path)?.with_buffers(options.exclusive);
        Ok(Self { spec: spec.to_owned(), path, asked_raw, file, apply_map: options.apply_map })
    }

    /// Whether it is read as it is: a disk's content must not choose how the disk is read.
    pub fn is_raw(&self) -> bool {
        self.asked_raw || self.file.is_block()
    }

    /// Fails if it is an image that is being acquired.
    pub fn check_finished(&self) -> Result<()> {
        side_file::unfinished(&self.path).map_or(Ok(()), |(unfinished, next)| {
            Err(Error::evidence(format!("{unfinished} (its own bytes are read as raw:{})", self.spec)).next(next))
        })
    }
}

impl Place for Here {
    fn location(&self) -> &str {
        &self.spec
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self) -> SharedFile {
        Arc::new(self.file.clone())
    }

    fn only_file(&self) -> Vec<SourceFile> {
        vec![SourceFile { path: self.path.clone(), size: self.file.geometry().size }]
    }

    /// Files of this machine are hashed beside the pass over their content.
    fn hashed_file(&self, _: bool) -> (SharedFile, Option<Arc<HashedFiles>>) {
        (self.file(), None)
    }

    fn ewf(&self, in_order: bool) -> Result<(Ewf, Option<Arc<HashedFiles>>)> {
        let image = if in_order { Ewf::open(&self.path) } else { Ewf::open_at_random(&self.path) };
        Ok((image?, None))
    }

    fn parts(&self) -> Result<Parts> {
        match split::look(&self.path)? {
            Found::Parts(paths) => Split::open(paths).map(Parts::Several),
            Found::Alone(note) => Ok(Parts::Alone(note)),
        }
    }

    fn raw(&self) -> Source {
        let (spec, size) = (self.spec.as_str(), self.file.geometry().size);
        let identity = match self.file.disk() {
            None => Identity::new(Kind::Raw, spec, size),
            Some(disk) => Identity {
                sector_size: disk.sector_size,
                physical_sector_size: disk.physical_sector_size,
                model: disk.model,
                serial: disk.serial,
                write_protected: disk.write_protected,
                aoe: disk.aoe,
                ..Identity::new(Kind::Block, spec, size)
            }
            .cleaned(),
        };
        let files = if self.file.is_block() { Vec::new() } else { self.only_file() };
        let identity = Identity { watched: Some(self.file.watched()), ..identity };
        Source::new(Arc::new(self.file.clone()), identity, stem(&self.path)).with_files(files)
    }

    fn watched(&self) -> Option<String> {
        Some(format!("{} (of each of its files)", os::TIMES))
    }

    /// It may be an incomplete image of our own, or of ddrescue's.
    fn mapped(&self, source: Source) -> Result<Source> {
        if self.apply_map { coverage::applied(source, &self.path) } else { Ok(source) }
    }

    fn virtual_disk(&self) -> Result<PathBuf> {
        Ok(self.path.clone())
    }

    fn check_name(&self, start: &[u8]) -> Result<()> {
        let spec = &self.spec;
        if let Some(refusal) = side_file::refusal(&self.path, start) {
            return Err(Error::misuse(format!("{refusal} (its own bytes are read as raw:{spec})")));
        }
        claimed_format(&self.path).map_or(Ok(()), |claimed| {
            Err(Error::evidence(format!(
                "{spec} has the name of {claimed}, but not its signature: it is damaged, or in another format; to read its \
                 bytes as they are, give raw:{spec}"
            )))
        })
    }

    fn unsupported(&self, format: Unsupported) -> Error {
        let (spec, Unsupported { what, instead }) = (&self.spec, format);
        Error::failed(format!(
            "{spec} is {what}, which is not supported; {instead} (its own bytes are read as raw:{spec})"
        ))
    }
}

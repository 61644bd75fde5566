//! How a source is to be opened.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use cheetah_device::Size;
use cheetah_device::cache::CachePlace;
use cheetah_device::path_text::text_to_path;
use cheetah_device::size::BadSize;
use cheetah_drive::Session;
use cheetah_drive::fill::FillObservers;
use cheetah_unlock::Keys;

use crate::link::LinkUse;
use crate::stack::ShadowCopies;
use crate::volume::{Shown, WhichVolume};

/// How to open a source.
#[derive(Debug, Clone)]
pub struct Access {
    /// Whether to open for writing; drives only.
    pub writable: bool,
    /// Where an overlay keeps writes, if there is one.
    pub overlay: Option<OverlayPlace>,
    /// Memory for prefetching.
    pub prefetch_bytes: u64,
    /// How to use the link to a remote source.
    pub link: LinkUse,
    /// The cache for data that crosses the link to a remote source.
    pub cache: Option<CacheOption>,
    /// Whether to fetch file systems' metadata and contents into that cache ahead of reads.
    pub foresight: bool,
    /// Take the write lease, or the right to fill the drive, from its holder.
    pub force_lease: bool,
    /// Fill a drive that is not full yet, while it is read, and record the fill with its observer. Otherwise such a
    /// drive is refused.
    pub fill: Option<Arc<dyn FillObservers>>,
    /// Open a drive although nodes are lost.
    pub allow_lost: bool,
    /// Open a drive although the load of its image never finished.
    pub half_loaded: bool,
    /// After which time a lost node of a redundant drive is replaced by a spare
    /// ([`OpenOptions::replace_after`](cheetah_drive::OpenOptions::replace_after)).
    pub replace_after: Option<Duration>,
    /// Whether it will be read from start to end. Otherwise an image that can only be read so is refused.
    pub in_order: bool,
    /// The keys that are tried on encrypted volumes; `None` if these are left as they are.
    pub unlock: Option<Arc<Keys>>,
    /// What is shown of it.
    pub shown: Shown,
    /// The shadow copies that are asked for, beside one that is shown in place of the source.
    pub shadow_copies: ShadowCopies,
    /// Other sources that have parts of the same arrays and volume groups.
    pub with: Vec<String>,
    /// What a drive is opened with. Any peer may be silent as long as a node.
    pub session: Session,
}

impl Access {
    /// The shadow copies that are asked for in any way.
    pub(crate) fn copies(&self) -> ShadowCopies {
        match &self.shown {
            Shown::Volume(WhichVolume::Named(name)) => self.shadow_copies.clone().and(name),
            Shown::Volume(_) | Shown::Source => self.shadow_copies.clone(),
        }
    }

    /// Returns the settings for one read from start to end.
    pub fn read_once(session: Session) -> Self {
        let (writable, force_lease, allow_lost, half_loaded) = (false, false, false, false);
        Self {
            writable,
            overlay: None,
            prefetch_bytes: 0,
            link: LinkUse::default(),
            cache: None,
            foresight: false,
            force_lease,
            fill: None,
            allow_lost,
            half_loaded,
            replace_after: None,
            in_order: true,
            unlock: None,
            shown: Shown::Source,
            shadow_copies: ShadowCopies::Unasked,
            with: Vec::new(),
            session,
        }
    }
}

/// The place and size of the cache for data that crosses a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheOption {
    /// The place.
    pub place: CachePlace,
    /// The size.
    pub size: Size,
}

impl CacheOption {
    /// The default size in memory: enough for the metadata of some hundred thousand files.
    pub const MEMORY_DEFAULT: Size = Size(256 << 20);
    /// The default size in a directory, which has more room.
    pub const DIRECTORY_DEFAULT: Size = Size(16 << 30);
}

impl FromStr for CacheOption {
    type Err = BadSize;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let memory = |size| Self { place: CachePlace::Memory, size };
        let directory = |path: &str, size| Self { place: CachePlace::Directory(text_to_path(path)), size };
        Ok(match text.rsplit_once(':') {
            _ if text == "memory" => memory(Self::MEMORY_DEFAULT),
            Some(("memory", size)) => memory(size.parse()?),
            // A path may hold a colon too.
            Some((path, size)) if !matches!(size.parse::<Size>(), Err(BadSize::Unreadable(_))) => {
                directory(path, size.parse()?)
            }
            _ => directory(text, Self::DIRECTORY_DEFAULT),
        })
    }
}

/// Where an overlay keeps writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OverlayPlace {
    /// In memory, up to this many bytes.
    Memory(Size),
    /// In a new file, which is removed afterwards.
    File(PathBuf),
}

impl FromStr for OverlayPlace {
    type Err = BadSize;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        /// Enough for the journals and access times that tools write.
        const DEFAULT: Size = Size(256 << 20);
        match text.split_once(':') {
            _ if text == "memory" => Ok(Self::Memory(DEFAULT)),
            Some(("memory", size)) => size.parse().map(Self::Memory),
            _ => Ok(Self::File(text_to_path(text))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::Path;

    #[test]
    fn overlay_places_are_parsed() {
        assert_eq!("memory".parse(), Ok(OverlayPlace::Memory(Size(256 << 20))));
        assert_eq!("memory:2GiB".parse(), Ok(OverlayPlace::Memory(Size(2 << 30))));
        assert_eq!("/tmp/changes".parse(), Ok(OverlayPlace::File("/tmp/changes".into())));
        assert_eq!(r"C:\changes".parse(), Ok(OverlayPlace::File(r"C:\changes".into())));
        assert!("memory:lots".parse::<OverlayPlace>().is_err());
    }

    #[test]
    fn cache_options_are_parsed() {
        let parse = |text: &str| text.parse::<CacheOption>().map(|option| (option.place, option.size));
        let directory = |path: &str| CachePlace::Directory(path.into());
        assert_eq!(parse("memory"), Ok((CachePlace::Memory, CacheOption::MEMORY_DEFAULT)));
        assert_eq!(parse("memory:1GiB"), Ok((CachePlace::Memory, Size(1 << 30))));
        assert_eq!(parse("/var/tmp"), Ok((directory("/var/tmp"), CacheOption::DIRECTORY_DEFAULT)));
        let odd = Path::new(OsStr::from_bytes(b"/caf\xe9"));
        assert_eq!(parse("bytes:/caf%E9:2GiB"), Ok((CachePlace::Directory(odd.into()), Size(2 << 30))));
        assert_eq!(parse("bytes:/caf%E9"), Ok((CachePlace::Directory(odd.into()), CacheOption::DIRECTORY_DEFAULT)));
        assert_eq!("bytes:/caf%E9".parse(), Ok(OverlayPlace::File(odd.into())));
        assert_eq!(parse("/a:b:2GiB"), Ok((directory("/a:b"), Size(2 << 30))));
        assert_eq!(parse(r"C:\cache"), Ok((directory(r"C:\cache"), CacheOption::DIRECTORY_DEFAULT)));
        assert_eq!(parse(r"C:\cache:2GiB"), Ok((directory(r"C:\cache"), Size(2 << 30))));
        assert!(parse("memory:lots").is_err());
        assert!(parse("/a:64").is_err());
    }
}

//! The [`Device`] trait and its layers.
//!
//! A *device* is anything with a size that can be read at an offset, and perhaps written. A drive is a stack of
//! devices: each layer takes devices and is one. This file, [`device`], [`layer`] and one layer (start with
//! [`readonly`]) are enough to write another.

#![forbid(unsafe_code)]

pub mod around;
pub mod buffers;
pub mod cache;
pub mod compare;
pub mod copy_on_read;
pub mod coverage;
pub mod coverage_filter;
pub mod data;
pub mod device;
pub mod error;
pub mod fatal_reads;
mod fetch;
pub mod io;
pub mod layer;
pub mod le;
pub mod linear;
pub mod link_estimate;
pub mod memory;
mod os;
pub mod os_error;
pub mod overlay;
pub mod path_text;
pub mod placement;
pub mod prefetch;
pub mod program;
pub mod range;
pub mod readonly;
pub mod receive;
pub mod reconnect;
pub mod size;
mod spread;
pub mod stripe;
pub mod supervise;
pub mod visible;
pub mod window;

pub use cheetah_kit::machine_memory;
pub use coverage::Coverage;
pub use data::Data;
pub use device::{Device, DynDevice, Extent, Fill, Geometry, Zeroing};
pub use error::{Error, Result};
pub use io::Io;
pub use layer::Layer;
pub use range::{ByteRange, coalesce};
pub use size::Size;

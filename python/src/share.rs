//! An open source that is served to other processes.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use cheetah_nbd::server::{Listener, Server, ServerConfig, SingleExport};
use cheetah_nbd::uri::{Address, NbdUri};
use cheetah_source::{OpenedSource, ReadCounter, Stats};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::device::{logical, unlocked, whole};
use crate::open_options::OpenOptions;
use crate::{failure, runtime};

/// The maximum number of connections: a hub has a worker per processor, each with a few connections.
const CONNECTIONS_MAX: usize = 4096;

/// A source served over NBD on a Unix socket.
#[pyclass(frozen, module = "cheetah._native")]
pub struct Share {
    /// `None` once closed.
    serving: RwLock<Option<Serving>>,
    /// The URI for `cheetah.open` in other processes of this user on this machine.
    #[pyo3(get)]
    uri: String,
    /// The name of the source.
    #[pyo3(get)]
    name: String,
    /// The size in bytes.
    #[pyo3(get)]
    size: u64,
    /// The size of a sector in bytes, if known.
    #[pyo3(get)]
    sector_size: Option<u32>,
    /// Sentences about parts that are lost.
    #[pyo3(get)]
    lost: Vec<String>,
    /// What the keys did, if any were given: see `cheetah.Device.unlocked`.
    #[pyo3(get)]
    unlocked: Option<String>,
    /// What the keys did not do, a sentence each.
    #[pyo3(get)]
    locked: Vec<String>,
    /// The logical volumes, as JSON: see `cheetah.Device.logical`.
    #[pyo3(get)]
    logical: String,
    /// How long a look for doubts may take.
    patience: Duration,
}

struct Serving {
    opened: OpenedSource,
    served: Arc<ReadCounter>,
    /// Stops the server when dropped.
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

#[pymethods]
impl Share {
    /// Opens a source, and serves it on a new socket at `socket`.
    #[new]
    fn new(py: Python<'_>, source: &str, socket: PathBuf, options: &OpenOptions) -> PyResult<Self> {
        let access = options.access(py)?;
        let opened = runtime::wait(py, OpenedSource::open(source, &access))?;
        let opened = opened.map_err(|error| failure::opening(source, &error))?;
        let (name, size, lost) = (opened.name.clone(), opened.size(), opened.lost.clone());
        let ((unlocked, locked), logical) = (unlocked(&opened)?, logical(&opened)?);
        let uri = NbdUri::new(Address::Unix(socket.clone()), name.clone()).to_string();

        let runtime = runtime::get()?;
        let _guard = runtime.enter();
        let listener = Listener::unix(&socket)
            .map_err(|error| failure::failed(format!("cannot make the socket {}: {error}", socket.display())))?;
        let (device, served) = ReadCounter::over(whole(&opened)?);
        let only = SingleExport::described_by_name(name.clone(), device);
        let config = ServerConfig { connections_max: CONNECTIONS_MAX, ..ServerConfig::default() };
        let (stop, stopped) = oneshot::channel();
        let server = runtime.spawn(async move {
            let stopped = async { _ = stopped.await };
            Server::new(Arc::new(only), config).listen_until(stopped, listener).await;
        });
        let (sector_size, patience) = (opened.identity.sector_size, options.timeout);
        let serving = RwLock::new(Some(Serving { opened, served, stop, server }));
        Ok(Self { serving, uri, name, size, sector_size, lost, unlocked, locked, logical, patience })
    }

    /// Counters: see `cheetah.Share.stats`.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let serving = self.serving.read().unwrap_or_else(PoisonError::into_inner);
        let serving = serving.as_ref().ok_or_else(|| PyValueError::new_err("stats of a share that is closed"))?;
        let counters = PyDict::new(py);
        counters.set_item("served_requests", serving.served.requests())?;
        counters.set_item("served_bytes", serving.served.bytes())?;
        add(&counters, &serving.opened.stats())?;
        Ok(counters)
    }

    /// How the source's connections are protected: see `cheetah.Device.connections`.
    fn connections(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let serving = self.serving.read().unwrap_or_else(PoisonError::into_inner);
        let serving = serving.as_ref().ok_or_else(|| PyValueError::new_err("connections of a share that is closed"))?;
        runtime::wait(py, serving.opened.connections())?.map_err(|error| failure::opening(&self.name, &error))
    }

    /// Looks for doubts about the source: see `cheetah.Device.doubts`.
    fn doubts(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let serving = self.serving.read().unwrap_or_else(PoisonError::into_inner);
        let serving = serving.as_ref().ok_or_else(|| PyValueError::new_err("doubts about a share that is closed"))?;
        runtime::wait(py, serving.opened.all_doubts(self.patience))
    }

    /// Stops serving, and disconnects clients.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let serving = self.serving.write().unwrap_or_else(PoisonError::into_inner).take();
        match serving {
            Some(Serving { opened, stop, server, .. }) if runtime::is_here() => {
                drop(stop);
                // If it panicked, it does not serve either.
                let _ = runtime::wait(py, server)?;
                runtime::wait(py, opened.close())?.map_err(|error| failure::of(&error))
            }
            forked => {
                runtime::discard(forked);
                Ok(())
            }
        }
    }
}

fn add(counters: &Bound<'_, PyDict>, stats: &Stats) -> PyResult<()> {
    if let Some(source) = &stats.source {
        counters.set_item("source_requests", source.requests)?;
        counters.set_item("source_bytes", source.bytes)?;
    }
    if let Some(cache) = &stats.cache {
        counters.set_item("cache_hits", cache.hits)?;
        counters.set_item("cache_misses", cache.misses)?;
        counters.set_item("cache_waits", cache.waits)?;
        counters.set_item("cache_crossed_bytes", cache.crossed_bytes())?;
        counters.set_item("cache_unused_bytes", cache.unused_bytes())?;
        counters.set_item("cache_held_bytes", cache.held_bytes)?;
    }
    if let Some(files) = stats.files {
        counters.set_item("foreseen_files", files)?;
    }
    if let Some(prefetch) = &stats.prefetch {
        counters.set_item("prefetch_hits", prefetch.hits)?;
        counters.set_item("prefetch_misses", prefetch.misses)?;
        counters.set_item("prefetch_waits", prefetch.waits)?;
        counters.set_item("prefetch_fetched_bytes", prefetch.prefetched_bytes)?;
        counters.set_item("prefetch_used_bytes", prefetch.used_bytes)?;
    }
    Ok(())
}

impl Drop for Share {
    fn drop(&mut self) {
        runtime::discard(self.serving.get_mut().unwrap_or_else(PoisonError::into_inner).take());
    }
}

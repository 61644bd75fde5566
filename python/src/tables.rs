//! Partition tables and signatures of formats, of whatever a function of Python reads.

use cheetah_device::{ByteRange, Data, Device, Error, Geometry, Io};
use cheetah_volume::formats;
use cheetah_volume::partition::{self, Partition, Remark, SectorSize};
use futures::executor::block_on;
use pyo3::exceptions::{PyBaseException, PyOSError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

/// A partition: its range within the source, and that in the table, in bytes.
#[pyclass(frozen, get_all, module = "cheetah._native", name = "Partition")]
pub struct PartitionPlace {
    number: u32,
    start: u64,
    length: u64,
    recorded_length: u64,
    description: String,
    sector_size: u64,
}

impl PartitionPlace {
    fn of(found: Partition) -> Self {
        Self {
            number: found.number,
            start: found.recorded.offset,
            length: found.range.len,
            recorded_length: found.recorded.len,
            description: found.description,
            sector_size: found.sector_bytes,
        }
    }

    fn all(found: Vec<Partition>) -> Vec<Self> {
        found.into_iter().map(Self::of).collect()
    }
}

/// The content of the partition tables of a source; see `_native.pyi`.
#[pyclass(frozen, module = "cheetah._native")]
pub struct PartitionTables {
    partitions: Vec<Py<PartitionPlace>>,
    others: Vec<Py<PartitionPlace>>,
    beyond: Vec<Py<PartitionPlace>>,
    /// Sentences, and whether each is about something that may be missing.
    #[pyo3(get)]
    remarks: Vec<(String, bool)>,
}

#[pymethods]
impl PartitionTables {
    #[getter]
    fn partitions(&self, py: Python<'_>) -> Vec<Py<PartitionPlace>> {
        shared(&self.partitions, py)
    }

    #[getter]
    fn others(&self, py: Python<'_>) -> Vec<Py<PartitionPlace>> {
        shared(&self.others, py)
    }

    #[getter]
    fn beyond(&self, py: Python<'_>) -> Vec<Py<PartitionPlace>> {
        shared(&self.beyond, py)
    }
}

fn shared(places: &[Py<PartitionPlace>], py: Python<'_>) -> Vec<Py<PartitionPlace>> {
    places.iter().map(|place| place.clone_ref(py)).collect()
}

/// Reads the partition tables of a source of `size` bytes; `pread` takes an offset and a length.
#[pyfunction]
#[pyo3(signature = (pread, size, sector_size=None, given=None))]
pub fn read_partition_tables(
    py: Python<'_>,
    pread: Py<PyAny>,
    size: u64,
    sector_size: Option<u32>,
    given: Option<u32>,
) -> PyResult<PartitionTables> {
    let sectors = SectorSize::given_or(given, sector_size);
    let source = PythonSource { pread, size };
    let found = py.detach(|| block_on(partition::read_tables(&source, sectors)));
    let places = |found: Vec<Partition>| -> PyResult<Vec<Py<PartitionPlace>>> {
        PartitionPlace::all(found).into_iter().map(|place| Py::new(py, place)).collect()
    };
    Ok(PartitionTables {
        partitions: places(found.partitions)?,
        others: places(found.others)?,
        beyond: places(found.beyond)?,
        remarks: found.remarks.iter().map(in_words).collect(),
    })
}

/// The sentence of a remark, with the next step.
fn in_words(remark: &Remark) -> (String, bool) {
    (cheetah_words::with(remark, remark.next.as_slice()), remark.is_gap)
}

/// Names the formats of the volume at `start`: pairs of name and family; and why a part of it could not be examined.
#[pyfunction]
pub fn identify(
    py: Python<'_>,
    pread: Py<PyAny>,
    size: u64,
    start: u64,
    length: u64,
) -> (Vec<(String, &'static str)>, Option<String>) {
    let source = PythonSource { pread, size };
    let volume = ByteRange::new(0, size).intersection(ByteRange::new(start, length));
    let Some(volume) = volume else { return (Vec::new(), None) };
    let found = py.detach(|| block_on(formats::identify(&source, volume)));
    (found.formats.iter().map(|format| (format.to_string(), format.family)).collect(), found.unread)
}

/// A source that a function of Python reads.
struct PythonSource {
    pread: Py<PyAny>,
    size: u64,
}

impl Device for PythonSource {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.size, writable: false, block_preferred: 4096 }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        let read = Python::attach(|py| {
            let bytes = self.pread.call1(py, (range.offset, range.len))?;
            bytes.extract::<PyBackedBytes>(py).map_err(PyErr::from)
        });
        Io::done(match read {
            Ok(bytes) if bytes.len() as u64 == range.len => Ok(Data::from(bytes.to_vec())),
            Ok(bytes) => Err(failed(range, format!("{} of {} bytes came back", bytes.len(), range.len))),
            Err(error) => Err(failed(range, Python::attach(|py| why(py, &error)))),
        })
    }
}

fn failed(range: ByteRange, why: String) -> Error {
    Error::Unreadable { device: "the source".into(), range, why: why.into() }
}

/// The reason in an exception: of an error of the system the text, without its number.
fn why(py: Python<'_>, error: &PyErr) -> String {
    let value: &Bound<'_, PyBaseException> = error.value(py);
    let text = || value.str().map(|text| text.to_string()).unwrap_or_default();
    if error.is_instance_of::<PyOSError>(py)
        && let Ok(reason) = value.getattr("strerror").and_then(|reason| reason.extract::<String>())
    {
        return reason;
    }
    text()
}

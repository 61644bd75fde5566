//! Tables of hits. They have the same [`columns`] in each form: a column is added there, and nowhere else.

pub(crate) mod columns;
mod comma;
#[cfg(feature = "parquet")]
mod parquet_file;
mod row;

#[cfg(test)]
mod tests;

pub use columns::{Cell, Layout, cells};
pub use comma::CsvTable;
#[cfg(feature = "parquet")]
pub use parquet_file::ParquetTable;
pub use row::{Row, RowPlace, RowRule};

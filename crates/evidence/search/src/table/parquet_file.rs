//! A table as a file of Apache Parquet, with typed columns. Rows are gathered in groups of limited size, so memory does not depend on
//! their number.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

use crate::table::columns::{Cell, Column, Kind, Layout, columns};

/// The maximum number of rows in a group.
const GROUP_ROWS_MAX: usize = 1 << 16;
/// The bytes of text after which a group is written.
const GROUP_TEXT_BYTES_MAX: usize = 32 << 20;
/// The column by which rows are mostly ordered, whose range each group names, so that readers can leave groups out.
const ORDERED_BY: &str = "offset";

/// A table of hits as a Parquet file, written in groups of rows.
pub struct ParquetTable<W: Write + Send> {
    file: SerializedFileWriter<W>,
    group: Vec<Values>,
    rows: usize,
    text_bytes: usize,
}

/// The values of a column in the rows of a group.
enum Values {
    Numbers(Vec<i64>),
    /// The numbers there are, and of each row whether it has one: 1 or 0.
    SomeNumbers(Vec<i64>, Vec<i16>),
    Texts(Vec<ByteArray>),
    /// The texts there are, and of each row whether it has one: 1 or 0.
    SomeTexts(Vec<ByteArray>, Vec<i16>),
}

impl<W: Write + Send> ParquetTable<W> {
    /// Begins a table. `layout` says what its rows are.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn new(to: W, layout: Layout) -> io::Result<Self> {
        let ordered_by = || ColumnPath::from(ORDERED_BY);
        let properties = WriterProperties::builder()
            .set_created_by(format!("cheetah {}", env!("CARGO_PKG_VERSION")))
            .set_compression(Compression::SNAPPY)
            // Statistics of pages stay in memory up to the end, and those of texts repeat the evidence.
            .set_statistics_enabled(EnabledStatistics::None)
            .set_offset_index_disabled(true)
            .set_column_statistics_enabled(ordered_by(), EnabledStatistics::Chunk)
            .set_column_dictionary_enabled(ordered_by(), false)
            .build();
        let schema = parse_message_type(&schema(layout)).map_err(io_error)?;
        let file = SerializedFileWriter::new(to, Arc::new(schema), Arc::new(properties)).map_err(io_error)?;
        Ok(Self {
            file,
            group: columns(layout).iter().map(|column| Values::none(column.kind_in(layout))).collect(),
            rows: 0,
            text_bytes: 0,
        })
    }

    /// Adds a row: its [`cells`](crate::cells).
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn push(&mut self, cells: &[Cell<'_>]) -> io::Result<()> {
        for (values, cell) in self.group.iter_mut().zip(cells) {
            self.text_bytes += values.push(cell);
        }
        self.rows += 1;
        match self.rows >= GROUP_ROWS_MAX || self.text_bytes >= GROUP_TEXT_BYTES_MAX {
            true => self.write_group(),
            false => Ok(()),
        }
    }

    /// Adds a text to the metadata of the file.
    pub fn note(&mut self, key: &str, text: String) {
        self.file.append_key_value_metadata(KeyValue::new(key.to_owned(), text));
    }

    /// Writes what is left and the end of the file, which is none without it.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn finish(mut self) -> io::Result<()> {
        self.write_group()?;
        self.file.finish().map(drop).map_err(io_error)
    }

    fn write_group(&mut self) -> io::Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = self.file.next_row_group().map_err(io_error)?;
        for values in &self.group {
            let Some(mut column) = group.next_column().map_err(io_error)? else { break };
            values.write(&mut column).and_then(|()| column.close()).map_err(io_error)?;
        }
        group.close().map_err(io_error)?;
        self.group.iter_mut().for_each(Values::clear);
        (self.rows, self.text_bytes) = (0, 0);
        Ok(())
    }
}

impl Values {
    const fn none(kind: Kind) -> Self {
        match kind {
            Kind::Number => Self::Numbers(Vec::new()),
            Kind::SomeNumber => Self::SomeNumbers(Vec::new(), Vec::new()),
            Kind::Text => Self::Texts(Vec::new()),
            Kind::SomeText => Self::SomeTexts(Vec::new(), Vec::new()),
        }
    }

    /// Adds the value of a row, and returns the bytes of its text.
    fn push(&mut self, cell: &Cell<'_>) -> usize {
        match self {
            Self::Numbers(numbers) => {
                let number = if let Cell::Number(number) = cell { *number } else { 0 };
                // A number without a sign is stored as its 64 bits.
                numbers.push(number.cast_signed());
                0
            }
            Self::SomeNumbers(numbers, present) => {
                if let Cell::Number(number) = cell {
                    numbers.push(number.cast_signed());
                }
                present.push(i16::from(matches!(cell, Cell::Number(_))));
                0
            }
            Self::Texts(texts) => push_text(texts, cell),
            Self::SomeTexts(_, present) if *cell == Cell::Nothing => {
                present.push(0);
                0
            }
            Self::SomeTexts(texts, present) => {
                present.push(1);
                push_text(texts, cell)
            }
        }
    }

    fn write(&self, column: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        let written = match self {
            Self::Numbers(numbers) => column.typed::<Int64Type>().write_batch(numbers.as_slice(), None, None),
            Self::SomeNumbers(numbers, present) => {
                column.typed::<Int64Type>().write_batch(numbers.as_slice(), Some(present.as_slice()), None)
            }
            Self::Texts(texts) => column.typed::<ByteArrayType>().write_batch(texts.as_slice(), None, None),
            Self::SomeTexts(texts, present) => {
                column.typed::<ByteArrayType>().write_batch(texts.as_slice(), Some(present.as_slice()), None)
            }
        };
        written.map(drop)
    }

    fn clear(&mut self) {
        match self {
            Self::Numbers(numbers) => numbers.clear(),
            Self::SomeNumbers(numbers, present) => {
                numbers.clear();
                present.clear();
            }
            Self::Texts(texts) => texts.clear(),
            Self::SomeTexts(texts, present) => {
                texts.clear();
                present.clear();
            }
        }
    }
}

fn push_text(texts: &mut Vec<ByteArray>, cell: &Cell<'_>) -> usize {
    let text = cell.to_text().into_owned().into_bytes();
    let bytes = text.len();
    texts.push(ByteArray::from(text));
    bytes
}

/// The schema, in the notation of Parquet.
fn schema(layout: Layout) -> String {
    let column = |column: &Column| {
        let name = column.name;
        match column.kind_in(layout) {
            Kind::Number => format!("REQUIRED INT64 {name} (INTEGER(64,false));"),
            Kind::SomeNumber => format!("OPTIONAL INT64 {name} (INTEGER(64,false));"),
            Kind::Text => format!("REQUIRED BYTE_ARRAY {name} (STRING);"),
            Kind::SomeText => format!("OPTIONAL BYTE_ARRAY {name} (STRING);"),
        }
    };
    let columns: Vec<String> = columns(layout).iter().map(column).collect();
    format!("message hits {{ {} }}", columns.join(" "))
}

/// The error of the file below, such as a full disk, if there is one.
fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(cause) => match cause.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(cause) => io::Error::other(cause),
        },
        error => io::Error::other(error),
    }
}

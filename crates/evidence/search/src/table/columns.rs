//! The columns of a table of hits.

use std::borrow::Cow;

use crate::search::Search;
use crate::table::row::Row;

/// The value of a column in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell<'a> {
    /// A number.
    Number(u64),
    /// A text.
    Text(Cow<'a, str>),
    /// The row has no such value.
    Nothing,
}

impl Cell<'_> {
    /// The value as text; none is empty.
    pub fn to_text(&self) -> Cow<'_, str> {
        match self {
            Self::Number(number) => number.to_string().into(),
            Self::Text(text) => Cow::Borrowed(text),
            Self::Nothing => Cow::Borrowed(""),
        }
    }
}

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A number in each row.
    Number,
    /// A text in each row.
    Text,
    /// A text in some rows.
    SomeText,
}

/// A column.
pub(crate) struct Column {
    pub name: &'static str,
    #[cfg_attr(not(feature = "parquet"), expect(dead_code, reason = "CSV has no types"))]
    pub kind: Kind,
    cell: for<'a, 'b> fn(&'b Row<'a>, &'a Search) -> Cell<'a>,
}

/// The columns, in order. A new one is the last, so that those before it keep their places.
pub(crate) const COLUMNS: [Column; 9] = [
    Column { name: "offset", kind: Kind::Number, cell: |row, _| Cell::Number(row.offset) },
    Column { name: "length", kind: Kind::Number, cell: |row, _| Cell::Number(row.hit.len()) },
    Column { name: "pattern", kind: Kind::Text, cell: |row, search| text(pattern(row, search)) },
    Column { name: "encoding", kind: Kind::Text, cell: |row, _| text(row.hit.encoding.name()) },
    Column { name: "text", kind: Kind::Text, cell: |row, _| text(row.hit.text()) },
    Column { name: "context", kind: Kind::Text, cell: |row, _| text(row.hit.context()) },
    Column { name: "inside", kind: Kind::SomeText, cell: |row, _| some(row.inside) },
    Column { name: "node", kind: Kind::SomeText, cell: |row, _| some(row.node.map(|node| &*node.name)) },
    Column { name: "instance", kind: Kind::SomeText, cell: |row, _| some(row.node.map(|node| &*node.instance)) },
];

/// The cells of a row, in the order of the columns, for the tables of a search.
pub fn cells<'a>(row: &Row<'a>, search: &'a Search) -> Vec<Cell<'a>> {
    COLUMNS.iter().map(|column| (column.cell)(row, search)).collect()
}

/// The pattern's name.
fn pattern<'a>(row: &Row<'_>, search: &'a Search) -> &'a str {
    search.patterns().get(row.hit.pattern).map_or("", |pattern| pattern.name.as_str())
}

fn text<'a>(text: impl Into<Cow<'a, str>>) -> Cell<'a> {
    Cell::Text(text.into())
}

fn some(text: Option<&str>) -> Cell<'_> {
    text.map_or(Cell::Nothing, |text| Cell::Text(Cow::Borrowed(text)))
}

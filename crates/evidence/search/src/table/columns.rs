//! The columns of a table of hits.

use std::borrow::Cow;

use crate::places::Place;
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
    /// A number in some rows.
    SomeNumber,
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

/// What the rows of a table say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Hits.
    Hits,
    /// Hits, and where they lie.
    Places,
    /// Matches of YARA rules in files.
    Rules,
}

/// The number of columns of a table that does not say where hits lie.
const WITHOUT_PLACES: usize = 9;

// The columns of more than one table.
const ENCODING: Column = Column { name: "encoding", kind: Kind::Text, cell: |row, _| text(row.hit.encoding.name()) };
const TEXT: Column = Column { name: "text", kind: Kind::Text, cell: |row, search| text(search.text(row.hit)) };
const VOLUME: Column =
    Column { name: "volume", kind: Kind::SomeNumber, cell: |row, _| number(place(row).and_then(volume)) };
const PATH: Column =
    Column { name: "path", kind: Kind::SomeText, cell: |row, _| some(place(row).and_then(|place| place.path)) };
const STATE: Column =
    Column { name: "state", kind: Kind::Text, cell: |row, _| text(place(row).map_or("", |place| place.state.name())) };
const FILE_OFFSET: Column = Column {
    name: "file_offset",
    kind: Kind::SomeNumber,
    cell: |row, _| number(place(row).and_then(|place| place.file_offset)),
};

/// The columns, in order, those of the places of hits last.
static COLUMNS: [Column; 15] = [
    Column { name: "offset", kind: Kind::Number, cell: |row, _| Cell::Number(row.offset) },
    Column { name: "length", kind: Kind::Number, cell: |row, _| Cell::Number(row.hit.len()) },
    Column { name: "pattern", kind: Kind::Text, cell: |row, search| text(pattern(row, search)) },
    ENCODING,
    TEXT,
    Column { name: "context", kind: Kind::Text, cell: |row, search| text(search.context(row.hit)) },
    Column { name: "inside", kind: Kind::SomeText, cell: |row, _| some(row.inside) },
    Column { name: "node", kind: Kind::SomeText, cell: |row, _| some(row.node.map(|node| &*node.name)) },
    Column { name: "instance", kind: Kind::SomeText, cell: |row, _| some(row.node.map(|node| &*node.instance)) },
    VOLUME,
    PATH,
    STATE,
    FILE_OFFSET,
    Column {
        name: "others",
        kind: Kind::Number,
        cell: |row, _| Cell::Number(place(row).map_or(0, |place| place.others)),
    },
    Column { name: "fragments", kind: Kind::SomeText, cell: |row, _| fragments(row) },
];

/// The columns of a table of matches of rules, in order.
static RULE_COLUMNS: [Column; 12] = [
    Column { name: "offset", kind: Kind::SomeNumber, cell: |row, _| number(row.rule.and_then(|rule| rule.offset)) },
    Column { name: "length", kind: Kind::Number, cell: |row, _| Cell::Number(row.len()) },
    Column { name: "rule", kind: Kind::Text, cell: |row, search| text(pattern(row, search)) },
    Column { name: "rules", kind: Kind::Text, cell: |row, _| text(row.rule.map_or("", |rule| rule.file)) },
    Column { name: "tags", kind: Kind::Text, cell: |row, _| text(row.rule.map_or("", |rule| rule.tags)) },
    Column { name: "string", kind: Kind::SomeText, cell: |row, _| some(row.rule.and_then(|rule| rule.string)) },
    ENCODING,
    TEXT,
    VOLUME,
    PATH,
    STATE,
    FILE_OFFSET,
];

/// The columns of a table.
pub(crate) fn columns(layout: Layout) -> &'static [Column] {
    match layout {
        Layout::Places => &COLUMNS,
        Layout::Hits => COLUMNS.get(..WITHOUT_PLACES).unwrap_or_default(),
        Layout::Rules => &RULE_COLUMNS,
    }
}

/// The cells of a row, in the order of the columns, for the tables of a search. A row with a place has those of a table that says where
/// hits lie, and one of a match of a rule those of a table of these.
pub fn cells<'a>(row: &Row<'a>, search: &'a Search) -> Vec<Cell<'a>> {
    let layout = match (row.rule, row.place) {
        (Some(_), _) => Layout::Rules,
        (None, Some(_)) => Layout::Places,
        (None, None) => Layout::Hits,
    };
    columns(layout).iter().map(|column| (column.cell)(row, search)).collect()
}

const fn place<'a>(row: &Row<'a>) -> Option<Place<'a>> {
    match row.place {
        Some(place) => Some(place.place),
        None => None,
    }
}

fn volume(place: Place<'_>) -> Option<u64> {
    place.volume.map(u64::from)
}

/// The ranges of a hit across fragments of a file.
fn fragments<'a>(row: &Row<'a>) -> Cell<'a> {
    let fragments = row.place.map_or(&[][..], |place| place.fragments);
    let fragments: Vec<_> = fragments.iter().map(|range| format!("{}:{}", range.offset, range.len)).collect();
    if fragments.is_empty() { Cell::Nothing } else { text(fragments.join(" ")) }
}

fn number<'a>(number: Option<u64>) -> Cell<'a> {
    number.map_or(Cell::Nothing, Cell::Number)
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

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

impl Column {
    /// What it holds in a table with this layout.
    #[cfg(feature = "parquet")]
    pub(crate) fn kind_in(&self, layout: Layout) -> Kind {
        let is_optional = layout == Layout::Rules && OPTIONAL_WITH_RULES.contains(&self.name);
        match self.kind {
            Kind::Number if is_optional => Kind::SomeNumber,
            Kind::Text if is_optional => Kind::SomeText,
            kind => kind,
        }
    }
}

/// What the rows of a table say. Each layout has the columns of the one before it, and more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Hits.
    Hits,
    /// Hits, and where they lie.
    Places,
    /// Hits, and matches of YARA rules in files. Where other hits lie may be unknown.
    Rules,
}

/// The number of columns of a table that does not say where hits lie.
const WITHOUT_PLACES: usize = 9;
/// The number of columns of a table without matches of rules.
const WITHOUT_RULES: usize = 15;
/// The columns that some rows of a table with matches of rules do not have.
#[cfg(feature = "parquet")]
const OPTIONAL_WITH_RULES: [&str; 3] = ["offset", "state", "others"];

/// The columns, in order: those of hits, those of their places, and those of matches of rules.
static COLUMNS: [Column; 18] = [
    Column { name: "offset", kind: Kind::Number, cell: |row, _| number(row.known_offset()) },
    Column { name: "length", kind: Kind::Number, cell: |row, _| Cell::Number(row.len()) },
    Column { name: "pattern", kind: Kind::Text, cell: |row, search| text(pattern(row, search)) },
    Column { name: "encoding", kind: Kind::Text, cell: |row, _| text(row.hit.encoding.name()) },
    Column { name: "text", kind: Kind::Text, cell: |row, search| text(search.text(row.hit)) },
    Column { name: "context", kind: Kind::Text, cell: |row, search| text(search.context(row.hit)) },
    Column { name: "inside", kind: Kind::SomeText, cell: |row, _| some(row.inside) },
    Column { name: "node", kind: Kind::SomeText, cell: |row, _| some(row.node.map(|node| &*node.name)) },
    Column { name: "instance", kind: Kind::SomeText, cell: |row, _| some(row.node.map(|node| &*node.instance)) },
    Column { name: "volume", kind: Kind::SomeNumber, cell: |row, _| number(place(row).and_then(volume)) },
    Column { name: "path", kind: Kind::SomeText, cell: |row, _| some(place(row).and_then(|place| place.path)) },
    Column { name: "state", kind: Kind::Text, cell: |row, _| some(place(row).map(|place| place.state.name())) },
    Column {
        name: "file_offset",
        kind: Kind::SomeNumber,
        cell: |row, _| number(place(row).and_then(|place| place.file_offset)),
    },
    Column { name: "others", kind: Kind::Number, cell: |row, _| number(others(row)) },
    Column { name: "fragments", kind: Kind::SomeText, cell: |row, _| fragments(row) },
    Column { name: "rules", kind: Kind::SomeText, cell: |row, _| some(row.rule.map(|rule| rule.file)) },
    Column { name: "tags", kind: Kind::SomeText, cell: |row, _| some(row.rule.map(|rule| rule.tags)) },
    Column { name: "string", kind: Kind::SomeText, cell: |row, _| some(row.rule.and_then(|rule| rule.string)) },
];

/// The columns of a table.
pub(crate) fn columns(layout: Layout) -> &'static [Column] {
    let count = match layout {
        Layout::Hits => WITHOUT_PLACES,
        Layout::Places => WITHOUT_RULES,
        Layout::Rules => COLUMNS.len(),
    };
    COLUMNS.get(..count).unwrap_or_default()
}

/// The cells of a row, in the order of the columns, for tables with this layout.
pub fn cells<'a>(row: &Row<'a>, search: &'a Search, layout: Layout) -> Vec<Cell<'a>> {
    columns(layout).iter().map(|column| (column.cell)(row, search)).collect()
}

const fn place<'a>(row: &Row<'a>) -> Option<Place<'a>> {
    match row.place {
        Some(place) => Some(place.place),
        None => None,
    }
}

/// The number of other files that hold a hit. Those of a match of a rule are not counted.
fn others(row: &Row<'_>) -> Option<u64> {
    place(row).filter(|_| row.rule.is_none()).map(|place| place.others)
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

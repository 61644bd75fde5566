use cheetah_device::ByteRange;

use super::*;
use crate::hit::{Hit, InnerHit};
use crate::node::SearchNode;
use crate::order::Order;
use crate::places::{AcrossHit, Place, PlaceState};
use crate::search::Search;

fn search() -> Search {
    let order = Order {
        words: vec!["=cmd,\"x\"".into(), "word".into()],
        encodings: vec!["utf-8".parse().unwrap(), "utf-16le".parse().unwrap()],
        ..Order::default()
    };
    Search::new(&order).unwrap()
}

fn hit(offset: u64, pattern: usize, bytes: &[u8]) -> Hit {
    Hit {
        offset,
        pattern,
        encoding: "utf-8".parse().unwrap(),
        bytes: bytes.to_vec(),
        before: b"a\n\xff".to_vec(),
        after: "\u{202e}z".as_bytes().to_vec(),
    }
}

fn node() -> SearchNode {
    SearchNode { name: "lab7:7070".into(), instance: "0011".into() }
}

#[test]
fn a_table_has_its_columns_and_names_the_node_that_found_a_hit() {
    let (search, node) = (search(), node());
    let inner = InnerHit { offset: 512, inside: "ZIP-70".into(), hit: hit(70, 1, b"word") };
    let (first, second) = (hit(u64::MAX, 0, b"=cmd,\"x\""), hit(9, 1, b"word"));
    let mut table = CsvTable::new(Vec::new(), Layout::Hits).unwrap();
    for row in [Row::new(&first, Some(&node)), Row::new(&second, None), Row::inner(&inner)] {
        table.push(&cells(&row, &search, Layout::Hits)).unwrap();
    }
    let text = String::from_utf8(table.finish().unwrap()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "offset,length,pattern,encoding,text,context,inside,node,instance");
    assert_eq!(
        lines[1],
        "18446744073709551615,8,\"=cmd,\"\"x\"\"\",utf-8,\"=cmd,\"\"x\"\"\",\"a\\x0a\\xff=cmd,\"\"x\"\"\\u{202e}z\",,lab7:7070,0011"
    );
    assert_eq!(lines[2], "9,4,word,utf-8,word,a\\x0a\\xffword\\u{202e}z,,,");
    assert_eq!(lines[3], "512,4,word,utf-8,word,a\\x0a\\xffword\\u{202e}z,ZIP-70,,");
}

/// A place in a file, and one outside of all volumes.
fn places() -> [Place<'static>; 2] {
    let known =
        Place { volume: Some(3), path: Some("/a,b"), state: PlaceState::Deleted, file_offset: Some(7), others: 1 };
    [known, Place { volume: None, path: None, state: PlaceState::Outside, file_offset: None, others: 0 }]
}

#[test]
fn a_table_that_says_where_hits_lie_has_more_columns_behind_the_others() {
    let (search, [known, outside]) = (search(), places());
    let across = AcrossHit {
        file_offset: 7,
        fragments: vec![ByteRange::new(9, 2), ByteRange::new(100, 2)],
        hit: hit(9, 1, b"word"),
    };
    let first = hit(9, 1, b"word");
    let mut table = CsvTable::new(Vec::new(), Layout::Places).unwrap();
    for row in [Row::new(&first, None).lying(Some(outside)), Row::across(&across, known)] {
        table.push(&cells(&row, &search, Layout::Places)).unwrap();
    }
    let text = String::from_utf8(table.finish().unwrap()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].ends_with(",inside,node,instance,volume,path,state,file_offset,others,fragments"), "{}", lines[0]);
    assert!(lines[1].ends_with(",,,,,,outside,,0,"), "{}", lines[1]);
    assert!(lines[2].ends_with(",,,,3,\"/a,b\",deleted,7,1,9:2 100:2"), "{}", lines[2]);
}

#[test]
fn a_table_with_rules_has_more_columns_and_a_match_without_an_offset_or_a_string_has_none() {
    let search = search().with_rules(["Dropper".to_owned(), "Large".to_owned()]);
    let (word, first, second) = (hit(9, 1, b"word"), hit(0, 2, b"MZ"), hit(0, 3, b""));
    let mut table = CsvTable::new(Vec::new(), Layout::Rules).unwrap();
    for row in [Row::new(&word, None), dropper(&first), large(&second)] {
        table.push(&cells(&row, &search, Layout::Rules)).unwrap();
    }
    let text = String::from_utf8(table.finish().unwrap()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].ends_with(",volume,path,state,file_offset,others,fragments,rules,tags,string"), "{}", lines[0]);
    assert_eq!(lines[1], format!("9,4,word,utf-8,word,a\\x0a\\xffword\\u{{202e}}z{}", ",".repeat(12)));
    let around = "a\\x0a\\xffMZ\\u{202e}z";
    assert_eq!(lines[2], format!("512,900,Dropper,utf-8,MZ,{around},,,,3,\"/a,b\",deleted,7,,,a.yar,pe new,$mz"));
    assert!(lines[3].starts_with(",0,Large,utf-8,,"), "{}", lines[3]);
    assert!(lines[3].ends_with(",,,,3,\"/a,b\",deleted,,,,a.yar,,"), "{}", lines[3]);
}

/// A match of a string of a rule.
fn dropper(hit: &Hit) -> Row<'_> {
    let rule = RowRule { file: "a.yar", tags: "pe new", string: Some("$mz"), offset: Some(512), len: 900 };
    Row::matched(hit, places()[0], rule)
}

/// A rule whose condition holds without a string.
fn large(hit: &Hit) -> Row<'_> {
    let rule = RowRule { file: "a.yar", tags: "", string: None, offset: None, len: 0 };
    Row::matched(hit, Place { file_offset: None, ..places()[0] }, rule)
}

#[cfg(feature = "parquet")]
mod typed {
    use std::io::{self, Write};

    use bytes::Bytes;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    use super::*;

    /// Bytes that several can hold while they are written.
    #[derive(Clone, Default)]
    struct Shared(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A disk with room for this many bytes.
    struct Small(usize);

    impl Write for Small {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match bytes.len() {
                len if len <= self.0 => {
                    self.0 -= len;
                    Ok(len)
                }
                _ => Err(io::ErrorKind::StorageFull.into()),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn text(field: &Field) -> String {
        match field {
            Field::ULong(number) => number.to_string(),
            Field::Str(text) => text.clone(),
            Field::Null => String::new(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_parquet_file_of_several_groups_has_the_rows_of_the_csv_with_numbers_and_nothing_where_there_is_nothing() {
        const ROWS: u64 = (1 << 16) + 3;
        let (search, node, file) = (search(), node(), Shared::default());
        let (mut csv, mut parquet) =
            (CsvTable::new(Vec::new(), Layout::Hits).unwrap(), ParquetTable::new(file.clone(), Layout::Hits).unwrap());
        for at in 0..ROWS {
            let (hit, is_inside) = (hit(at << 46, (at % 2) as usize, b"word"), at % 5 == 0);
            let inner = InnerHit { offset: at, inside: "GZIP-1".into(), hit: hit.clone() };
            let node = (at % 3 == 0).then_some(&node);
            let row = if is_inside { Row::inner(&inner) } else { Row::new(&hit, node) };
            let cells = cells(&row, &search, Layout::Hits);
            csv.push(&cells).unwrap();
            parquet.push(&cells).unwrap();
        }
        parquet.finish().unwrap();
        let bytes = Bytes::from(file.0.lock().unwrap().clone());
        let reader = SerializedFileReader::new(bytes).unwrap();
        assert_eq!(reader.metadata().num_row_groups(), 2);
        let written = csv.finish().unwrap();
        let mut records = ::csv::Reader::from_reader(&written[..]).into_records();
        let mut rows = 0;
        for row in reader.get_row_iter(None).unwrap() {
            let (row, record) = (row.unwrap(), records.next().unwrap().unwrap());
            let fields: Vec<String> = row.get_column_iter().map(|(_, field)| text(field)).collect();
            assert_eq!(fields, record.iter().collect::<Vec<_>>());
            rows += 1;
        }
        assert_eq!((rows, records.next().is_none()), (ROWS, true));
    }

    #[test]
    fn a_parquet_file_that_says_where_hits_lie_has_the_rows_of_the_csv() {
        let (search, file) = (search(), Shared::default());
        let (mut csv, mut parquet) = (
            CsvTable::new(Vec::new(), Layout::Places).unwrap(),
            ParquetTable::new(file.clone(), Layout::Places).unwrap(),
        );
        for (at, place) in (0..).zip([places(), places()].concat()) {
            let hit = hit(at, 1, b"word");
            let row = Row::new(&hit, None).lying(Some(place));
            let cells = cells(&row, &search, Layout::Places);
            csv.push(&cells).unwrap();
            parquet.push(&cells).unwrap();
        }
        parquet.finish().unwrap();
        let reader = SerializedFileReader::new(Bytes::from(file.0.lock().unwrap().clone())).unwrap();
        let written = csv.finish().unwrap();
        let records: Vec<_> = ::csv::Reader::from_reader(&written[..]).into_records().map(Result::unwrap).collect();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!((rows.len(), records.len()), (4, 4));
        for (row, record) in rows.iter().zip(&records) {
            let fields: Vec<String> = row.get_column_iter().map(|(_, field)| text(field)).collect();
            assert_eq!(fields, record.iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_parquet_file_with_matches_of_rules_has_the_rows_of_the_csv() {
        let search = search().with_rules(["Dropper".to_owned(), "Large".to_owned()]);
        let (word, first, second) = (hit(9, 1, b"word"), hit(0, 2, b"MZ"), hit(0, 3, b""));
        let (file, mut csv) = (Shared::default(), CsvTable::new(Vec::new(), Layout::Rules).unwrap());
        let mut parquet = ParquetTable::new(file.clone(), Layout::Rules).unwrap();
        for row in [Row::new(&word, None), dropper(&first), large(&second)] {
            let cells = cells(&row, &search, Layout::Rules);
            csv.push(&cells).unwrap();
            parquet.push(&cells).unwrap();
        }
        parquet.finish().unwrap();
        let reader = SerializedFileReader::new(Bytes::from(file.0.lock().unwrap().clone())).unwrap();
        let written = csv.finish().unwrap();
        let records: Vec<_> = ::csv::Reader::from_reader(&written[..]).into_records().map(Result::unwrap).collect();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!((rows.len(), records.len()), (3, 3));
        for (row, record) in rows.iter().zip(&records) {
            let fields: Vec<String> = row.get_column_iter().map(|(_, field)| text(field)).collect();
            assert_eq!(fields, record.iter().collect::<Vec<_>>());
        }
        let nulls = |row: usize| rows[row].get_column_iter().filter(|(_, field)| matches!(field, Field::Null)).count();
        assert_eq!([nulls(0), nulls(1), nulls(2)], [12, 5, 8]);
    }

    #[test]
    fn a_table_without_hits_has_its_columns() {
        let file = Shared::default();
        let mut table = ParquetTable::new(file.clone(), Layout::Hits).unwrap();
        table.note("cheetah.truncated_bytes", "7".to_owned());
        table.finish().unwrap();
        let reader = SerializedFileReader::new(Bytes::from(file.0.lock().unwrap().clone())).unwrap();
        let metadata = reader.metadata().file_metadata();
        assert_eq!((metadata.num_rows(), metadata.schema_descr().num_columns()), (0, 9));
        let notes = metadata.key_value_metadata().unwrap();
        let note = notes.iter().find(|note| note.key == "cheetah.truncated_bytes").unwrap();
        assert_eq!(note.value.as_deref(), Some("7"));
    }

    #[test]
    fn a_full_disk_is_named_as_such_wherever_it_fills_up() {
        let search = search();
        let write = |room| -> io::Result<()> {
            let mut table = ParquetTable::new(Small(room), Layout::Hits)?;
            for at in 0..1000 {
                let hit = hit(at, 1, b"word");
                table.push(&cells(&Row::new(&hit, None), &search, Layout::Hits))?;
            }
            table.finish()
        };
        for room in [0, 10, 1000] {
            assert_eq!(write(room).unwrap_err().kind(), io::ErrorKind::StorageFull, "{room}");
        }
        write(1 << 20).unwrap();
    }
}

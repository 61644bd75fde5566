//! Requests to control ports, the inbox for nodes, and as the address of a server: bodies in JSON, and NBD URIs. A
//! value that parses prints as its input.

use cheetah_control::api::{Join, LeaseRenewal, LeaseRequest, NewExport, NewMap, NewNote, Status};
use cheetah_nbd::NbdUri;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    match choice % 8 {
        0 => again::<NewExport>(data),
        1 => again::<LeaseRequest>(data),
        2 => again::<LeaseRenewal>(data),
        3 => again::<NewMap>(data),
        4 => again::<NewNote>(data),
        5 => again::<Join>(data),
        6 => again::<Status>(data),
        _ => {
            let Ok(text) = std::str::from_utf8(data) else { return };
            for text in [text.to_owned(), format!("nbd://{text}"), format!("nbds://host:10809/{text}")] {
                if let Ok(uri) = text.parse::<NbdUri>() {
                    assert_eq!(uri.to_string().parse::<NbdUri>().as_ref(), Ok(&uri));
                }
            }
        }
    }
}

/// A body that parses is written as it was read.
fn again<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(data: &[u8]) {
    if let Ok(parsed) = serde_json::from_slice::<T>(data) {
        let text = serde_json::to_vec(&parsed).unwrap();
        assert_eq!(serde_json::from_slice::<T>(&text).unwrap(), parsed);
    }
}

//! The options that list and select metadata contexts.

use bytes::{BufMut, BytesMut};

use crate::proto::{META_QUERIES_MAX, Reader, STRING_LEN_MAX};

/// The data of `NBD_OPT_LIST_META_CONTEXT` or `NBD_OPT_SET_META_CONTEXT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MetaQuery {
    pub export: String,
    pub queries: Vec<String>,
}

/// Why an option's data is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BadOption {
    Invalid(&'static str),
    TooBig(&'static str),
}

impl MetaQuery {
    pub fn parse(data: &[u8]) -> Result<Self, BadOption> {
        let short = BadOption::Invalid("the option's lengths do not fit its data");
        let mut reader = Reader::new(data);
        let export = text(reader.string().ok_or(short.clone())?)?;
        let count = reader.u32().ok_or(short.clone())?;
        if usize::try_from(count).is_ok_and(|count| count > META_QUERIES_MAX) {
            return Err(BadOption::TooBig("too many metadata queries"));
        }
        let mut queries = Vec::new();
        for _ in 0..count {
            let query = text(reader.string().ok_or(short.clone())?)?;
            if !query.contains(':') {
                return Err(BadOption::Invalid("a metadata query names no namespace"));
            }
            queries.push(query);
        }
        if reader.is_empty() { Ok(Self { export, queries }) } else { Err(short) }
    }

    pub fn encode(&self, out: &mut BytesMut) {
        put_string(out, &self.export);
        out.put_u32(u32::try_from(self.queries.len()).unwrap_or(u32::MAX));
        for query in &self.queries {
            put_string(out, query);
        }
    }
}

/// A string within the protocol's limits: UTF-8, no NUL, at most [`STRING_LEN_MAX`] bytes.
pub(super) fn text(bytes: &[u8]) -> Result<String, BadOption> {
    if bytes.len() > STRING_LEN_MAX {
        return Err(BadOption::TooBig("a name is longer than 4096 bytes"));
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text.to_owned()),
        _ => Err(BadOption::Invalid("a name is not UTF-8")),
    }
}

/// 32 bits of length, and the string.
pub(super) fn put_string(out: &mut BytesMut, text: &str) {
    out.put_u32(u32::try_from(text.len()).unwrap_or(u32::MAX));
    out.put_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_encoded_query_parses_to_itself(
            export in "[^\0]{0,20}", queries in prop::collection::vec("[a-z]{1,3}:[^\0]{0,9}", 0..META_QUERIES_MAX)
        ) {
            let query = MetaQuery { export, queries };
            let mut out = BytesMut::new();
            query.encode(&mut out);
            prop_assert_eq!(MetaQuery::parse(&out), Ok(query));
            prop_assert!(MetaQuery::parse(&out[..out.len() - 1]).is_err());
        }
    }
}

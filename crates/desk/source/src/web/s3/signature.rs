//! Signatures of requests, in version 4 of AWS's scheme. No I/O.

use cheetah_error::{Error, Result};
use cheetah_image::hash::hex;
use hyper::header::{self, HeaderValue};
use hyper::{Request, Uri};
use ring::{digest, hmac};
use time::OffsetDateTime;
use time::macros::format_description;

use super::settings::Credentials;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Adds the headers that sign a request with this content. All headers that it has are signed. Its query has only
/// percent-encoded names and values, each name with an equals sign.
///
/// # Errors
///
/// `Kind::Failed` if the credentials have characters that a header cannot have.
pub(super) fn sign(
    credentials: &Credentials,
    region: &str,
    request: &mut Request<()>,
    content: &[u8],
    now: OffsetDateTime,
) -> Result<()> {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let headers = request.headers_mut();
    let format = format_description!("[year][month][day]T[hour][minute][second]Z");
    let time = now.format(format).map_err(|error| Error::failed(format!("the time of a request: {error}")))?;
    let date = &time[..8];
    let content = hex(digest::digest(&digest::SHA256, content).as_ref());
    headers.insert("x-amz-date", value(&time)?);
    headers.insert("x-amz-content-sha256", value(&content)?);
    if let Some(token) = &credentials.token {
        headers.insert("x-amz-security-token", secret(token)?);
    }

    let mut signed: Vec<(&str, String)> = headers.iter().map(|(name, value)| (name.as_str(), shown(value))).collect();
    signed.push(("host", host(&uri)));
    signed.sort();
    let names = signed.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let listed: String = signed.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let mut query: Vec<_> = uri.query().unwrap_or_default().split('&').collect();
    query.sort_unstable();
    let request = format!("{method}\n{}\n{}\n{listed}\n{names}\n{content}", uri.path(), query.join("&"));

    let scope = format!("{date}/{region}/s3/aws4_request");
    let request = hex(digest::digest(&digest::SHA256, request.as_bytes()).as_ref());
    let text = format!("{ALGORITHM}\n{time}\n{scope}\n{request}");
    let first = format!("AWS4{}", credentials.secret).into_bytes();
    let key = [date, region, "s3", "aws4_request"].iter().fold(first, |key, part| keyed(&key, part));
    let signature = hex(&keyed(&key, &text));
    let authorization =
        format!("{ALGORITHM} Credential={}/{scope},SignedHeaders={names},Signature={signature}", credentials.id);
    headers.insert(header::AUTHORIZATION, secret(&authorization)?);
    Ok(())
}

fn keyed(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

/// Returns the value of the `Host` header: hyper leaves out the scheme's own port.
fn host(uri: &Uri) -> String {
    let own = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    let host = uri.host().unwrap_or_default();
    uri.port_u16().filter(|port| *port != own).map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

fn shown(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).trim().to_owned()
}

fn value(text: &str) -> Result<HeaderValue> {
    HeaderValue::from_str(text)
        .map_err(|_| Error::failed("the credentials of the object store have invalid characters"))
}

/// Returns a value that logs leave out.
fn secret(text: &str) -> Result<HeaderValue> {
    let mut value = value(text)?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    fn example() -> Credentials {
        Credentials {
            id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            token: None,
        }
    }

    fn request(method: &str, uri: &str, headers: &[(&str, &str)]) -> Request<()> {
        let builder = Request::builder().method(method).uri(uri);
        headers.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value)).body(()).unwrap()
    }

    fn signature(request: &Request<()>) -> String {
        shown(&request.headers()[header::AUTHORIZATION])
    }

    // The examples in AWS's documentation of signatures: "GET Object", "PUT Object" and "GET Bucket (List Objects)".
    #[test]
    fn requests_have_the_signatures_of_the_published_examples() {
        let now = datetime!(2013-05-24 0:00 UTC);
        let begin =
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders=";
        let signed = |mut request: Request<()>, content: &[u8], expected: &str| {
            sign(&example(), "us-east-1", &mut request, content, now).unwrap();
            assert_eq!(signature(&request), format!("{begin}{expected}"));
            assert!(!format!("{:?}", request.headers()).contains("Signature"));
        };
        signed(
            request("GET", "https://examplebucket.s3.amazonaws.com/test.txt", &[("range", "bytes=0-9")]),
            b"",
            "host;range;x-amz-content-sha256;x-amz-date,\
             Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        );
        let headers = [("date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY")];
        signed(
            request("PUT", "https://examplebucket.s3.amazonaws.com/test%24file.text", &headers),
            b"Welcome to Amazon S3.",
            "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class,\
             Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        );
        signed(
            request("GET", "https://examplebucket.s3.amazonaws.com/?prefix=J&max-keys=2", &[]),
            b"",
            "host;x-amz-content-sha256;x-amz-date,\
             Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        );
    }

    #[test]
    fn a_session_token_is_sent_and_signed() {
        let credentials = Credentials { token: Some("passing".into()), ..example() };
        let mut request = request("GET", "http://127.0.0.1:9000/lab/disk.raw", &[]);
        sign(&credentials, "here", &mut request, b"", OffsetDateTime::UNIX_EPOCH).unwrap();
        assert_eq!(request.headers()["x-amz-security-token"], "passing");
        assert!(signature(&request).contains("x-amz-date;x-amz-security-token,"));
        assert_eq!(host(request.uri()), "127.0.0.1:9000");
    }
}

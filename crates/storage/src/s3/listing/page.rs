//! A page of a listing in the service's XML.

use crate::cloud::object_headers::{read_rfc3339, version};
use crate::cloud::pending_names::sort_key;
use crate::cloud::{percent, xml};
use crate::display;
use crate::entry::WRITTEN_PREFIX;
use crate::{Entry, Kind};

/// A page of the service.
#[derive(Debug, Default)]
pub(super) struct ListPage {
    /// Keys and common prefixes below the requested prefix, in order.
    pub(super) items: Vec<Entry>,
    /// The token of the next page.
    pub(super) token: Option<String>,
}

/// Returns a time as the header of an object states it: some servers list fractions of a second.
fn whole_seconds(nanos: i64) -> i64 {
    nanos.div_euclid(1_000_000_000) * 1_000_000_000
}

pub(super) fn parse(document: &[u8], prefix: &[u8]) -> std::result::Result<ListPage, String> {
    let mut page = ListPage::default();
    let mut encoded = false;
    let mut truncated = None;
    let mut root = String::new();
    let (mut key, mut size) = (Vec::new(), 0);
    let (mut etag, mut written, mut changed) = (None, None, None);
    let mut items: Vec<(Vec<u8>, Entry)> = Vec::new();
    xml::visit(document, |path, text| match path {
        [_, name] if name == "EncodingType" => encoded = text == "url",
        [_, name] if name == "IsTruncated" => truncated = Some(text == "true"),
        [_, name] if name == "NextContinuationToken" => page.token = Some(text.to_owned()),
        [_, contents, name] if contents == "Contents" => match name.as_str() {
            "Key" => key = text.as_bytes().to_vec(),
            "Size" => size = text.parse().unwrap_or(0),
            "ETag" => etag = Some(version(text)).filter(|etag| !etag.is_empty()),
            "LastModified" => {
                written = Some([WRITTEN_PREFIX, text.as_bytes()].concat());
                changed = read_rfc3339(text).map(whole_seconds);
            }
            _ => {}
        },
        [_, contents] if contents == "Contents" => {
            let entry = Entry {
                size,
                changed: changed.take(),
                version: etag.take().or_else(|| written.clone()),
                ..Entry::new(Vec::new(), Kind::File)
            };
            items.push((std::mem::take(&mut key), entry));
            written = None;
        }
        [_, common_prefix, name] if common_prefix == "CommonPrefixes" && name == "Prefix" => {
            items.push((text.into(), Entry::new(Vec::new(), Kind::Folder)));
        }
        [name] => root.clone_from(name),
        _ => {}
    })?;
    // Anything else, such as an error or a proxy's page, must not pass for an empty folder.
    let Some(truncated) = truncated.filter(|_| root == "ListBucketResult") else {
        return Err(format!("the response is not a listing but `{root}`"));
    };
    for (key, mut entry) in items {
        let key = if encoded {
            percent::decode_form(&key)
        } else {
            key
        };
        let Some(name) = key.strip_prefix(prefix) else {
            return Err(format!(
                "the listing contains `{}`, which is outside the prefix",
                display(&key)
            ));
        };
        let is_folder = entry.kind == Kind::Folder;
        let name = if is_folder {
            name.strip_suffix(b"/").unwrap_or(name)
        } else {
            name
        };
        entry.name = name.to_vec();
        page.items.push(entry);
    }
    page.items.sort_by_cached_key(sort_key);
    if truncated != page.token.is_some() {
        return Err("the listing is truncated without a token to continue".to_owned());
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_read_with_their_encoding() {
        let page =
            b"<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>
            <NextContinuationToken>t</NextContinuationToken>
            <Contents><Key>p/a+b%2Bc%0A</Key><Size>5</Size><ETag>&quot;e&quot;</ETag></Contents>
            <CommonPrefixes><Prefix>p//</Prefix></CommonPrefixes></ListBucketResult>";
        let page = parse(page, b"p/").unwrap();
        assert_eq!(page.token.as_deref(), Some("t"));
        assert_eq!(page.items[0], Entry::new(*b"", Kind::Folder));
        assert_eq!(page.items[1].name, b"a b+c\n");
        assert_eq!(
            (page.items[1].size, page.items[1].version.as_deref()),
            (5, Some(&b"e"[..]))
        );
        let page = b"<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a</Key>
            <LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents></ListBucketResult>";
        let bare = parse(page, b"").unwrap();
        let written = bare.items[0].version.as_deref();
        assert_eq!(written, Some(&b"written 2026-01-01T00:00:00.000Z"[..]));
        assert_eq!(bare.items[0].etag(), None);
        let cut = b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>";
        assert!(parse(cut, b"").is_err());
    }

    #[test]
    fn other_documents_are_not_empty_listings() {
        let empty = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";
        assert!(parse(empty, b"").unwrap().items.is_empty());
        for other in [
            &b"<html><body><p>Login please</p></body></html>"[..],
            b"<Error><Code>AccessDenied</Code></Error>",
            b"<ListBucketResult></ListBucketResult>",
            b"<html><IsTruncated>false</IsTruncated></html>",
        ] {
            assert!(parse(other, b"").is_err(), "{}", other.escape_ascii());
        }
    }

    #[test]
    fn damaged_pages_never_panic() {
        let page =
            b"<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>
            <Contents><Key>p/a%2Bc</Key><Size>5</Size><ETag>&quot;e&quot;</ETag></Contents>
            <CommonPrefixes><Prefix>p/x/</Prefix></CommonPrefixes></ListBucketResult>";
        for at in 0..page.len() {
            for bit in 0..8 {
                let mut damaged = page.to_vec();
                damaged[at] ^= 1 << bit;
                let _ = parse(&damaged, b"p/");
                let _ = parse(&damaged[..at], b"p/");
            }
        }
    }
}

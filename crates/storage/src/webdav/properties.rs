//! Properties of files and folders.

use crate::cloud::{percent, xml};
use crate::display;
use crate::{Entry, Kind};

/// The body of a `PROPFIND` request.
pub(super) const PROPFIND_BODY: &str = r#"<?xml version="1.0" encoding="utf-8"?><propfind xmlns="DAV:"><prop><resourcetype/><getcontentlength/><getlastmodified/><getetag/></prop></propfind>"#;

/// Parses the entries of a response, each with its path without a trailing slash.
pub(super) fn read(document: &[u8]) -> std::result::Result<Vec<(Vec<u8>, Entry)>, String> {
    let mut found = Vec::new();
    let mut path = Vec::new();
    let mut entry = Entry::new(Vec::new(), Kind::File);
    let mut etag = None;
    let mut changed = String::new();
    let mut root = String::new();
    let mut failed = None;
    xml::visit(document, |names, text| {
        let last = names.last().map_or("", String::as_str);
        match last {
            "href" if names.len() == 3 => path = path_of(text),
            "collection" => entry.kind = Kind::Folder,
            "getcontentlength" => entry.size = text.trim().parse().unwrap_or(0),
            "getlastmodified" => text.clone_into(&mut changed),
            // The status of the resource itself, not of a missing property.
            "status" if names.len() == 3 && !text.contains(" 2") => {
                failed.get_or_insert_with(|| format!("`{}`: {text}", display(&path)));
            }
            "multistatus" if names.len() == 1 => last.clone_into(&mut root),
            "getetag" if !text.is_empty() => etag = Some(text.trim_matches('"').to_owned()),
            "response" => {
                let mut entry = std::mem::replace(&mut entry, Entry::new(Vec::new(), Kind::File));
                let date = jiff::fmt::rfc2822::parse(changed.trim()).ok();
                match entry.kind {
                    Kind::Folder => entry.size = 0,
                    _ => {
                        entry.modified = date
                            .and_then(|date| i64::try_from(date.timestamp().as_nanosecond()).ok());
                        // Without an etag, time and size are what changes with the bytes.
                        let mark = etag
                            .take()
                            .unwrap_or_else(|| format!("{changed} {}", entry.size));
                        entry.version = Some(mark.into_bytes());
                    }
                }
                etag = None;
                changed.clear();
                let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
                entry.name = name.to_vec();
                found.push((std::mem::take(&mut path), entry));
            }
            _ => {}
        }
    })?;
    // Anything else, such as an error or a proxy's page, must not pass for an empty folder.
    match failed {
        Some(failed) => Err(format!("the server cannot describe {failed}")),
        None if root.is_empty() => Err("the response is not a multistatus".to_owned()),
        None => Ok(found),
    }
}

/// Returns the path of an `href`, which is a URL or a path.
fn path_of(href: &str) -> Vec<u8> {
    let href = href.trim();
    let path = match href.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => href,
    };
    let path = percent::decode(path.as_bytes());
    path.strip_suffix(b"/")
        .map_or_else(|| path.clone(), <[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_parsed() {
        let document = br#"<D:multistatus xmlns:D="DAV:"><D:response><D:href>/root/a%20b/</D:href><D:propstat><D:prop>
            <D:resourcetype><D:collection/></D:resourcetype></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>
            <D:response><D:href>http://h:1/root/f+%25</D:href><D:propstat><D:prop><D:resourcetype/>
            <D:getcontentlength>5</D:getcontentlength><D:getetag>"e"</D:getetag>
            <D:getlastmodified>Thu, 01 Jan 1970 00:00:02 GMT</D:getlastmodified></D:prop></D:propstat></D:response></D:multistatus>"#;
        let found = read(document).unwrap();
        assert_eq!(
            found[0],
            (b"/root/a b".to_vec(), Entry::new(*b"a b", Kind::Folder))
        );
        let (path, entry) = &found[1];
        assert_eq!(
            (path.as_slice(), entry.name.as_slice()),
            (&b"/root/f+%"[..], &b"f+%"[..])
        );
        assert_eq!((entry.size, entry.modified), (5, Some(2_000_000_000)));
        assert_eq!(entry.version.as_deref(), Some(&b"e"[..]));
    }

    #[test]
    fn other_documents_are_not_empty_folders() {
        assert!(read(b"<multistatus></multistatus>").unwrap().is_empty());
        assert!(read(b"<html><body>Login please</body></html>").is_err());
        let forbidden = b"<multistatus><response><href>/x/</href><status>HTTP/1.1 403 Forbidden</status></response></multistatus>";
        assert!(read(forbidden).unwrap_err().contains("403"));
    }
}

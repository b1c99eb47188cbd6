//! XML responses, parsed as a stream of elements.

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;

/// Calls `visitor` for every element that ends, with the names down to it (without namespaces) and
/// its text.
///
/// # Errors
/// When the document is not XML.
pub(crate) fn visit(
    document: &[u8],
    mut visitor: impl FnMut(&[String], &str),
) -> std::result::Result<(), String> {
    visit_flagged(document, "", |path, text, _| visitor(path, text))
}

/// Visits elements like [`visit`], and passes whether the element has this attribute with the value
/// `true`.
///
/// # Errors
/// When the document is not XML.
pub(crate) fn visit_flagged(
    document: &[u8],
    attribute: &str,
    mut visitor: impl FnMut(&[String], &str, bool),
) -> std::result::Result<(), String> {
    let document = std::str::from_utf8(document).map_err(|_| "the response is not UTF-8")?;
    let fail = |error: &dyn std::fmt::Display| format!("the response is not XML: {error}");
    let mut reader = Reader::from_str(document);
    let mut path: Vec<String> = Vec::new();
    let mut text = String::new();
    let mut flagged = false;
    loop {
        match reader.read_event().map_err(|e| fail(&e))? {
            Event::Start(start) => {
                path.push(start.local_name().as_ref().to_owned());
                text.clear();
                let mark = start.try_get_attribute(attribute).ok().flatten();
                flagged = mark.is_some_and(|mark| mark.value == "true");
            }
            Event::Empty(empty) => {
                path.push(empty.local_name().as_ref().to_owned());
                visitor(&path, "", false);
                path.pop();
                text.clear();
            }
            Event::End(_) => {
                visitor(&path, &text, flagged);
                path.pop();
                text.clear();
                flagged = false;
            }
            Event::Text(more) => text.push_str(&more.xml10_content()),
            Event::CData(more) => text.push_str(&more.xml10_content()),
            Event::GeneralRef(named) => match named.resolve_char_ref().map_err(|e| fail(&e))? {
                Some(char) => text.push(char),
                None => {
                    let name = named.xml10_content();
                    let known = resolve_predefined_entity(&name);
                    text.push_str(known.ok_or_else(|| fail(&format!("unknown entity &{name};")))?);
                }
            },
            Event::Eof if path.is_empty() => return Ok(()),
            Event::Eof => return Err(fail(&"it is truncated")),
            _ => {}
        }
    }
}

/// Returns whether a document ends with its root element. Does not check the rest.
pub(crate) fn is_complete(document: &[u8]) -> bool {
    let text = document.trim_ascii();
    let Some(end) = text.strip_suffix(b">") else {
        return false;
    };
    let mut opened = text.split(|&byte| byte == b'<').skip(1);
    let Some(root) = opened.find(|tag| !tag.starts_with(b"?") && !tag.starts_with(b"!")) else {
        return false;
    };
    let stop = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'>' | b'/');
    let name = root.split(stop).next().unwrap_or_default();
    let closed = end
        .strip_suffix(name)
        .is_some_and(|rest| rest.ends_with(b"</"));
    closed || (end.ends_with(b"/") && end.iter().filter(|&&byte| byte == b'<').count() <= 2)
}

/// Returns the text of the first element of this name, at any depth.
pub(crate) fn find(document: &[u8], name: &str) -> Option<String> {
    let mut found = None;
    let read = visit(document, |path, text| {
        if found.is_none() && path.last().is_some_and(|last| last == name) {
            found = Some(text.to_owned());
        }
    });
    read.ok().and(found)
}

/// Escapes text for a document.
pub(crate) fn escape(text: &str) -> String {
    quick_xml::escape::escape(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_visited_with_their_text() {
        let mut seen = Vec::new();
        let document =
            b"<a xmlns='x'><b>1 &amp; &#x9;2</b><n:c xmlns:n='y'/><b><![CDATA[<3]]></b></a>";
        visit(document, |path, text| {
            seen.push((path.join("/"), text.to_owned()));
        })
        .unwrap();
        let seen: Vec<_> = seen.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
        assert_eq!(seen[..3], [("a/b", "1 & \t2"), ("a/c", ""), ("a/b", "<3")]);
        assert_eq!(find(document, "b").as_deref(), Some("1 & \t2"));
    }

    #[test]
    fn a_truncated_document_is_detected_without_parsing() {
        let document = b"<?xml version='1.0'?>\n<a x='1'><b>1</b></a>\n";
        assert!(is_complete(document));
        assert!(is_complete(b"<a/>"));
        let end = document.trim_ascii_end().len();
        for at in 0..end {
            assert!(!is_complete(&document[..at]), "cut at {at}");
        }
    }

    #[test]
    fn a_truncated_document_is_an_error() {
        assert!(visit(b"<a><b>1</b>", |_, _| {}).is_err());
        assert!(visit(b"<a>&who;</a>", |_, _| {}).is_err());
        assert!(visit(b"<a></b>", |_, _| {}).is_err());
    }
}

//! Listing a folder: the keys below a prefix, up to the next slash.

use super::bucket::Bucket;
use crate::backend::{Cursor, Listing, Page};
use crate::cloud::dress::version;
use crate::cloud::held::{Frames, Held, frame, place};
use crate::cloud::{Call, percent, xml};
use crate::error::{ErrorKind, Result};
use crate::{BoxFuture, Entry, Folder, Kind};
use http::Method;
use std::cmp::Ordering;
use std::sync::Arc;

/// What one page of the far side holds.
#[derive(Default)]
struct Answer {
    /// Keys and common prefixes, below the prefix that was asked for, in order.
    items: Vec<Entry>,
    token: Option<String>,
}

pub(super) struct S3Listing {
    bucket: Arc<Bucket>,
    path: Vec<u8>,
    prefix: Vec<u8>,
    is_root: bool,
    token: Option<String>,
    progress: Progress,
    begun: bool,
    ended: bool,
    /// Pages without anything in them, one after the other.
    empty: u32,
}

/// More of these than any far side needs to pass over what was deleted.
const EMPTY_PAGES: u32 = 1000;

/// How far a listing is.
#[derive(Default, Debug, PartialEq, Eq)]
struct Progress {
    /// The last name that came, with its slash if it was a folder.
    after: Vec<u8>,
    held: Held,
}

impl S3Listing {
    pub(super) fn new(bucket: Arc<Bucket>, folder: &Folder, from: Option<&Cursor>) -> S3Listing {
        let progress = from.and_then(|cursor| Progress::read(cursor));
        S3Listing {
            path: folder.as_bytes().to_vec(),
            prefix: bucket.prefix(folder),
            is_root: folder.is_root(),
            bucket,
            token: None,
            begun: progress.is_some(),
            progress: progress.unwrap_or_default(),
            ended: false,
            empty: 0,
        }
    }

    async fn fetch(&self) -> Result<Answer> {
        let call = self.call();
        let whole = self.bucket.fetch(&call).await?;
        parse(&whole.body, &self.prefix).map_err(|words| call.wrong(ErrorKind::Temporary, words))
    }

    fn call(&self) -> Call {
        let call = list_call(&self.bucket, &self.path, &self.prefix).query("delimiter", "/");
        let call = match &self.bucket.page {
            Some(page) => call.query("max-keys", page),
            None => call,
        };
        match &self.token {
            Some(token) => call.query("continuation-token", token),
            // A name is good for ever; a token may be forgotten.
            None if !self.progress.after.is_empty() => {
                let after = [self.prefix.as_slice(), &self.progress.after].concat();
                call.query("start-after", &String::from_utf8_lossy(&after))
            }
            None => call,
        }
    }
}

/// A call for keys that begin with a prefix.
pub(super) fn list_call(bucket: &Bucket, path: &[u8], prefix: &[u8]) -> Call {
    bucket
        .call("list", "list", path, Method::GET)
        .query("list-type", "2")
        .query("encoding-type", "url")
        .query("prefix", &String::from_utf8_lossy(prefix))
        .document()
}

impl Listing for S3Listing {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Page>>> {
        Box::pin(async {
            if self.ended {
                return Ok(None);
            }
            if std::str::from_utf8(&self.prefix).is_err() {
                let words = "keys are UTF-8, and this name is not";
                return Err(self.call().wrong(ErrorKind::NotFound, words));
            }
            let answer = self.fetch().await?;
            let is_all = answer.token.is_none();
            if !self.begun && !self.is_root && is_all && answer.items.is_empty() {
                let words = "no key begins with this";
                return Err(self.call().wrong(ErrorKind::NotFound, words));
            }
            self.begun |= !answer.items.is_empty();
            self.empty = match answer.items.is_empty() {
                true => self.empty + 1,
                false => 0,
            };
            if self.empty > EMPTY_PAGES {
                let words = format!("the listing does not go on: {EMPTY_PAGES} pages are empty");
                return Err(self.call().wrong(ErrorKind::Other, words));
            }
            let mut entries = Vec::with_capacity(answer.items.len());
            for item in answer.items {
                let taken = self.progress.take(item, &mut entries);
                taken.map_err(|words| self.call().wrong(ErrorKind::Other, &words))?;
            }
            if self.token.is_some() && self.token == answer.token {
                let words = "the listing does not go on: it names the same place again";
                return Err(self.call().wrong(ErrorKind::Other, words));
            }
            self.token = answer.token;
            self.ended = self.token.is_none();
            let cursor = match self.ended {
                true => {
                    self.progress.held.release(&mut entries);
                    None
                }
                false => Some(self.progress.write()),
            };
            Ok(Some(Page { entries, cursor }))
        })
    }
}

impl Progress {
    /// Takes the next item; hands on what nothing can change any more.
    fn take(&mut self, item: Entry, entries: &mut Vec<Entry>) -> std::result::Result<(), String> {
        let place = place(&item);
        // A listing that goes on after a folder's name may begin with that folder again. What comes earlier still would
        // be lost to whoever goes on from here: such a listing cannot be used.
        match place.cmp(&self.after) {
            _ if self.after.is_empty() => {}
            Ordering::Less => return Err(disordered(&place, &self.after)),
            Ordering::Equal => return Ok(()),
            Ordering::Greater => {}
        }
        self.held.take(item, entries);
        self.after = place;
        Ok(())
    }

    fn write(&self) -> Cursor {
        let mut frames = Frames::default();
        frames.put(&self.after);
        self.held.write(&mut frames);
        frames.finish()
    }

    fn read(mut cursor: &[u8]) -> Option<Progress> {
        let after = frame(&mut cursor)?.to_vec();
        let held = Held::read(&mut cursor)?;
        Some(Progress { after, held })
    }
}

fn disordered(place: &[u8], after: &[u8]) -> String {
    let (place, after) = (place.escape_ascii(), after.escape_ascii());
    format!("the listing is in no order: `{place}` comes after `{after}`")
}

/// Reads the bytes as a page and as a cursor.
pub(crate) fn try_to_list(bytes: &[u8], prefix: &[u8]) {
    if let Ok(answer) = parse(bytes, prefix) {
        let mut progress = Progress::default();
        let mut entries = Vec::new();
        let mut items = answer.items.into_iter();
        let _ = items.try_for_each(|item| progress.take(item, &mut entries));
        let again = Progress::read(&progress.write()).expect("what was written is read");
        assert_eq!(again.after, progress.after);
    }
    let _ = Progress::read(bytes);
}

fn parse(document: &[u8], prefix: &[u8]) -> std::result::Result<Answer, String> {
    let mut answer = Answer::default();
    let mut encoded = false;
    let mut truncated = None;
    let mut root = String::new();
    let (mut key, mut size, mut etag) = (Vec::new(), 0, Vec::new());
    let mut items: Vec<(Vec<u8>, Entry)> = Vec::new();
    xml::each(document, |path, text| match path {
        [_, name] if name == "EncodingType" => encoded = text == "url",
        [_, name] if name == "IsTruncated" => truncated = Some(text == "true"),
        [_, name] if name == "NextContinuationToken" => answer.token = Some(text.to_owned()),
        [_, contents, name] if contents == "Contents" => match name.as_str() {
            "Key" => key = text.as_bytes().to_vec(),
            "Size" => size = text.parse().unwrap_or(0),
            "ETag" => etag = version(text),
            _ => {}
        },
        [_, contents] if contents == "Contents" => {
            let entry = Entry {
                size,
                version: (!etag.is_empty()).then(|| std::mem::take(&mut etag)),
                ..Entry::new(Vec::new(), Kind::File)
            };
            items.push((std::mem::take(&mut key), entry));
        }
        [_, common, name] if common == "CommonPrefixes" && name == "Prefix" => {
            items.push((text.into(), Entry::new(Vec::new(), Kind::Folder)));
        }
        [name] => root.clone_from(name),
        _ => {}
    })?;
    // Anything else, an error or the page of some proxy, must not pass for an empty folder.
    let Some(truncated) = truncated.filter(|_| root == "ListBucketResult") else {
        return Err(format!("the answer is no listing: it is `{root}`"));
    };
    for (key, mut entry) in items {
        let key = if encoded {
            percent::decode_form(&key)
        } else {
            key
        };
        let Some(name) = key.strip_prefix(prefix) else {
            return Err(format!("`{}` was not asked for", key.escape_ascii()));
        };
        let is_folder = entry.kind == Kind::Folder;
        let name = if is_folder {
            name.strip_suffix(b"/").unwrap_or(name)
        } else {
            name
        };
        entry.name = name.to_vec();
        answer.items.push(entry);
    }
    answer.items.sort_by_cached_key(place);
    if truncated != answer.token.is_some() {
        return Err("the listing is cut off without a word where it goes on".to_owned());
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(pages: &[&[&str]]) -> Vec<String> {
        let mut progress = Progress::default();
        let mut entries = Vec::new();
        for page in pages {
            for item in *page {
                let entry = match item.strip_suffix('/') {
                    Some(folder) => Entry::new(folder, Kind::Folder),
                    None => Entry::new(*item, Kind::File),
                };
                progress.take(entry, &mut entries).unwrap();
            }
            // As if another process went on.
            progress = Progress::read(&progress.write()).unwrap();
        }
        progress.held.release(&mut entries);
        let show = |entry: &Entry| {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            format!(
                "{}{name}",
                if entry.kind == Kind::Folder {
                    "d:"
                } else {
                    "f:"
                }
            )
        };
        let mut shown: Vec<String> = entries.iter().map(show).collect();
        shown.sort();
        shown
    }

    #[test]
    fn a_file_beside_a_folder_of_its_name_is_told_apart() {
        let one: &[&str] = &["a", "a!", "a!b", "a-", "a/", "a0", "b"];
        let told = ["d:a", "f:a!", "f:a!b", "f:a-", "f:a/", "f:a0", "f:b"];
        assert_eq!(run(&[one]), told);
        // Every cut gives the same.
        for at in 1..one.len() {
            assert_eq!(run(&[&one[..at], &one[at..]]), told, "cut at {at}");
        }
    }

    #[test]
    fn a_folder_that_comes_again_after_a_cursor_is_listed_once() {
        assert_eq!(run(&[&["a/"], &["a/", "b"]]), ["d:a", "f:b"]);
    }

    #[test]
    fn the_marker_of_the_folder_has_no_name() {
        assert_eq!(run(&[&["", "/", "x"]]), ["d:", "f:/", "f:x"]);
        assert_eq!(run(&[&["", "x"]]), ["f:", "f:x"]);
    }

    #[test]
    fn pages_are_read_with_their_encoding() {
        let page =
            b"<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>
            <NextContinuationToken>t</NextContinuationToken>
            <Contents><Key>p/a+b%2Bc%0A</Key><Size>5</Size><ETag>&quot;e&quot;</ETag></Contents>
            <CommonPrefixes><Prefix>p//</Prefix></CommonPrefixes></ListBucketResult>";
        let answer = parse(page, b"p/").unwrap();
        assert_eq!(answer.token.as_deref(), Some("t"));
        assert_eq!(answer.items[0], Entry::new(*b"", Kind::Folder));
        assert_eq!(answer.items[1].name, b"a b+c\n");
        assert_eq!(
            (answer.items[1].size, answer.items[1].version.as_deref()),
            (5, Some(&b"e"[..]))
        );
        let cut = b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>";
        assert!(parse(cut, b"").is_err());
    }

    #[test]
    fn what_is_no_listing_is_not_an_empty_one() {
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
    fn a_listing_out_of_order_is_refused() {
        let mut progress = Progress::default();
        let mut take = |name: &[u8]| {
            let entry = Entry::new(name.to_vec(), Kind::File);
            progress.take(entry, &mut Vec::new())
        };
        take(b"y").unwrap();
        take(b"y").unwrap();
        assert!(take(b"a").unwrap_err().contains("no order"));
    }

    #[test]
    fn damaged_pages_and_cursors_never_panic() {
        let page =
            b"<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>
            <Contents><Key>p/a%2Bc</Key><Size>5</Size><ETag>&quot;e&quot;</ETag></Contents>
            <CommonPrefixes><Prefix>p/x/</Prefix></CommonPrefixes></ListBucketResult>";
        let mut progress = Progress::default();
        let taken = progress.take(Entry::new(*b"a", Kind::File), &mut Vec::new());
        taken.unwrap();
        let cursor = progress.write();
        for at in 0..page.len() {
            for bit in 0..8 {
                let mut damaged = page.to_vec();
                damaged[at] ^= 1 << bit;
                let _ = parse(&damaged, b"p/");
                let _ = parse(&damaged[..at], b"p/");
                if at < cursor.len() {
                    let mut damaged = cursor.clone();
                    damaged[at] ^= 1 << bit;
                    let _ = Progress::read(&damaged);
                }
            }
        }
    }
}

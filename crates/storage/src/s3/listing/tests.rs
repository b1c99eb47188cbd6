//! Listings of a fake server that records its requests.

use super::*;
use crate::Kind;
use crate::backend::Backend;
use crate::cloud::percent;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// A request for a page: the name it starts after, and the maximum number of keys.
type ListRequest = (String, usize);

struct FakeServer {
    bucket: Arc<Bucket>,
    requests: Arc<Mutex<Vec<ListRequest>>>,
    served: AbortHandle,
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.served.abort();
    }
}

/// How a server treats a delimiter other than a slash.
#[derive(Clone, Copy, Debug, PartialEq)]
enum DelimiterBehaviour {
    AsAsked,
    BySlashes,
    /// Keys in folders are missing.
    NotAtAll,
    NameRule,
}

impl FakeServer {
    /// Starts a server with these keys. One that is not `honest` ignores `start-after`.
    async fn new(keys: BTreeSet<String>, page: usize, honest: bool) -> FakeServer {
        let setting = format!("below=true&page={page}");
        FakeServer::with(keys, &setting, (honest, DelimiterBehaviour::AsAsked)).await
    }

    async fn with(
        keys: BTreeSet<String>,
        settings: &str,
        behaviour: (bool, DelimiterBehaviour),
    ) -> FakeServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (keys, requests) = (Arc::new(keys), Arc::<Mutex<Vec<ListRequest>>>::default());
        let log = requests.clone();
        let served = tokio::spawn(async move {
            let mut all = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                all.spawn(serve(stream, keys.clone(), log.clone(), behaviour));
            }
        });
        let location = format!("s3://b?anonymous&endpoint=http://{address}&{settings}");
        let nothing: crate::cloud::Environment = Arc::new(|_| None);
        FakeServer {
            bucket: Arc::new(Bucket::open(location.as_bytes(), &nothing).unwrap()),
            requests,
            served: served.abort_handle(),
        }
    }

    fn list(&self, from: Option<&Cursor>) -> S3Listing {
        S3Listing::new(self.bucket.clone(), &Folder::root(), from)
    }

    fn requests(&self) -> Vec<ListRequest> {
        std::mem::take(&mut self.requests.lock())
    }
}

async fn serve(
    mut stream: TcpStream,
    keys: Arc<BTreeSet<String>>,
    requests: Arc<Mutex<Vec<ListRequest>>>,
    (honest, grouping): (bool, DelimiterBehaviour),
) {
    let mut request = Vec::new();
    loop {
        let mut bytes = [0; 4096];
        while !request.windows(4).any(|end| end == b"\r\n\r\n") {
            match stream.read(&mut bytes).await {
                Ok(count) if count > 0 => request.extend_from_slice(&bytes[..count]),
                _ => return,
            }
        }
        let line = String::from_utf8_lossy(&request).into_owned();
        request.clear();
        let query = line.split(['?', ' ']).nth(2).unwrap_or_default();
        let value = |name: &str| {
            let pair = query.split('&').find_map(|pair| pair.strip_prefix(name));
            let decoded = percent::decode_form(pair?.strip_prefix('=')?.as_bytes());
            String::from_utf8(decoded).ok()
        };
        let token = value("continuation-token");
        let after = token.or_else(|| value("start-after").filter(|_| honest));
        let after = after.unwrap_or_default();
        let most = value("max-keys")
            .and_then(|text| text.parse().ok())
            .unwrap();
        requests.lock().push((after.clone(), most));
        let prefix = value("prefix").unwrap_or_default();
        let delimiter = value("delimiter").unwrap_or_default();
        let is_other = !matches!(&*delimiter, "" | "/");
        let is_there = |key: &&str| {
            !(is_other && grouping == DelimiterBehaviour::NotAtAll && key.contains('/'))
        };
        let below: BTreeSet<String> = keys
            .iter()
            .filter_map(|key| key.strip_prefix(&prefix))
            .filter(is_there)
            .map(str::to_owned)
            .collect();
        let after = after.strip_prefix(&prefix).unwrap_or(&after);
        let delimiter = match grouping {
            DelimiterBehaviour::BySlashes if is_other => "/",
            _ => &delimiter,
        };
        let body = answer(&below, (&prefix, delimiter), after, most);
        let status = match is_other && grouping == DelimiterBehaviour::NameRule {
            true => "501 Not Implemented",
            false => "200 OK",
        };
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        if stream.write_all((head + &body).as_bytes()).await.is_err() {
            return;
        }
    }
}

fn answer(
    keys: &BTreeSet<String>,
    (prefix, delimiter): (&str, &str),
    after: &str,
    most: usize,
) -> String {
    let mut names: Vec<String> = Vec::new();
    let is_new = |key: &&String| after.is_empty() || key.as_str() > after;
    for key in keys.iter().filter(is_new) {
        let cut = key.find(delimiter).filter(|_| !delimiter.is_empty());
        let cut = cut.map_or(key.len(), |at| at + delimiter.len());
        let name = key[..cut].to_owned();
        if names.last() != Some(&name) && (name != after || name.is_empty()) {
            names.push(name);
        }
        if names.len() > most {
            break;
        }
    }
    let more = names.len() > most;
    names.truncate(most);
    let token = names.last().filter(|_| more);
    let token =
        token.map(|last| format!("<NextContinuationToken>{prefix}{last}</NextContinuationToken>"));
    let items = names.iter().map(
        |name| match !delimiter.is_empty() && name.ends_with(delimiter) {
            true => format!("<CommonPrefixes><Prefix>{prefix}{name}</Prefix></CommonPrefixes>"),
            false => format!("<Contents><Key>{prefix}{name}</Key><Size>1</Size></Contents>"),
        },
    );
    let (items, token) = (items.collect::<String>(), token.unwrap_or_default());
    format!("<ListBucketResult><IsTruncated>{more}</IsTruncated>{token}{items}</ListBucketResult>")
}

/// Key sets of several kinds: numbers, hashes, one crowded prefix, dates in folders, a file next to
/// a folder among others.
fn kinds() -> Vec<(&'static str, BTreeSet<String>)> {
    let hash = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
    let crowded = (0..1500).map(|n| format!("crowd-{n:06}.jpg"));
    let lonely = (0..40).map(|n| format!("{:x}", hash(n)));
    let mut beside: BTreeSet<String> = (0..1200).map(|n| format!("key-{n:09}")).collect();
    let awkward = [
        "key",
        "key/x",
        "key-000000500",
        "key-000000500/y",
        "key.",
        "other",
    ];
    beside.extend(awkward.map(str::to_owned));
    vec![
        (
            "numbers",
            (0..2000).map(|n| format!("key-{n:012}")).collect(),
        ),
        (
            "hashes",
            (0..2000).map(|n| format!("{:016x}", hash(n))).collect(),
        ),
        ("crowded", crowded.chain(lonely).collect()),
        (
            "dates",
            (0..900)
                .map(|n| format!("2024-{:02}-{:02}-{n}/{n}", n % 12, n % 28))
                .collect(),
        ),
        ("beside", beside),
    ]
}

fn display(entry: &Entry) -> String {
    let name = String::from_utf8(entry.name.clone()).unwrap();
    match entry.kind {
        Kind::Folder => format!("folder {name}"),
        _ => format!("file {name}"),
    }
}

/// Returns the expected entries of a listing.
fn wanted(keys: &BTreeSet<String>) -> BTreeSet<String> {
    let folder = |key: &String| key.split_once('/').map(|(folder, _)| folder.to_owned());
    let folders: BTreeSet<String> = keys.iter().filter_map(folder).collect();
    let files = keys.iter().filter(|key| !key.contains('/'));
    let file = |key: &String| match folders.contains(key) {
        true => format!("file {key}/"),
        false => format!("file {key}"),
    };
    let files: BTreeSet<String> = files.map(file).collect();
    folders
        .iter()
        .map(|name| format!("folder {name}"))
        .chain(files)
        .collect()
}

const PAGE: usize = 10;

#[tokio::test]
async fn a_large_folder_is_listed_in_parallel_ranges_with_few_extra_requests() {
    for (kind, keys) in kinds() {
        let wanted = wanted(&keys);
        let server = FakeServer::new(keys, PAGE, true).await;
        let mut listing = server.list(None);
        let (mut found, mut widest) = (BTreeSet::new(), 0);
        while let Some(page) = listing.page().await.unwrap() {
            assert!(
                page.entries.len() <= 2 * PAGE,
                "{kind}: a page is not larger than two"
            );
            for entry in &page.entries {
                assert!(found.insert(display(entry)), "{kind}: {entry:?} came twice");
            }
            widest = widest.max(listing.running.len());
        }
        assert_eq!(found, wanted, "{kind}");
        assert!(widest >= MAX_PARALLEL - 1, "{kind}: {widest} at once");
        let (needed, requests) = (wanted.len().div_ceil(PAGE), server.requests().len());
        // A split costs a page that goes beyond it, and one with nothing behind it another.
        let most = needed + 2 * FREE_CUTS as usize + needed / 4;
        assert!(
            requests <= most,
            "{kind}: {requests} requests for {needed} pages"
        );
    }
}

#[tokio::test]
async fn a_resumed_listing_never_requests_a_page_again() {
    for (kind, keys) in kinds() {
        let wanted = wanted(&keys);
        let server = FakeServer::new(keys, PAGE, true).await;
        let (mut found, mut cursor) = (BTreeSet::new(), None::<Cursor>);
        for life in 1.. {
            let known = cursor
                .as_deref()
                .and_then(NameRanges::read)
                .unwrap_or_default();
            let mut listing = server.list(cursor.as_ref());
            // Each run is longer than the one before, and ends with pages in flight.
            for _ in 0..life {
                let Some(page) = listing.page().await.unwrap() else {
                    break;
                };
                for entry in &page.entries {
                    assert!(found.insert(display(entry)), "{kind}: {entry:?} came twice");
                }
                cursor = page.cursor;
            }
            let is_complete = listing.ended;
            drop(listing);
            for (after, most) in server.requests() {
                let again = known.all.iter().find(|range| {
                    let reached = match range.done {
                        true => range.end.as_ref(),
                        false => Some(&range.after),
                    };
                    let is_known = reached.is_none_or(|reached| after.as_bytes() < &**reached);
                    most == PAGE
                        && is_known
                        && after.as_bytes() >= &*range.start
                        && !range.after.is_empty()
                });
                assert!(
                    again.is_none(),
                    "{kind}: asked after {after:?} again: {again:?}"
                );
            }
            if is_complete {
                break;
            }
        }
        assert_eq!(found, wanted, "{kind}");
    }
}

#[tokio::test]
async fn a_server_that_ignores_start_after_is_listed_page_by_page() {
    let (_, keys) = kinds().swap_remove(0);
    let needed = keys.len().div_ceil(PAGE);
    let server = FakeServer::new(keys, PAGE, false).await;
    let mut listing = server.list(None);
    let mut found = 0;
    while let Some(page) = listing.page().await.unwrap() {
        found += page.entries.len();
    }
    assert_eq!(found, 2000);
    assert_eq!(server.requests().len(), needed + 1);
}

/// Returns all entries of a tree by path. Each folder is listed once.
async fn walk(s3: &dyn Backend) -> BTreeSet<String> {
    let (mut found, mut folders) = (BTreeSet::new(), vec![Folder::root()]);
    while let Some(folder) = folders.pop() {
        let mut listing = s3.list(&folder, None).await.unwrap();
        while let Some(page) = listing.next().await.unwrap() {
            for entry in page.entries {
                let [above, name] = [folder.as_bytes(), &entry.name].map(<[u8]>::escape_ascii);
                let entry_line = format!("{:?} {name} in {above}", entry.kind);
                assert!(found.insert(entry_line), "{entry:?} came twice");
                if entry.kind == Kind::Folder {
                    folders.push(folder.child(&entry.name));
                }
            }
        }
    }
    found
}

/// Keys of a tree with small folders, and some awkward ones.
fn tree() -> BTreeSet<String> {
    let awkward = [
        "a/x",
        "a/x!",
        "a/x!/y",
        "a/x-",
        "a/x/",
        "a/x/1",
        "a/x/2",
        "a/x//deep",
        "a/x//deep/er",
        "a/x///deepest",
        "a//",
        "a/x0",
        "b",
        "b/",
        "b/.",
        "b/../c",
        "c/d",
        "c/d/e/f/g/h",
        "c/d/e/f/g",
        "one/two/three/four",
    ];
    let mut keys: BTreeSet<String> = awkward.map(str::to_owned).into();
    let small = |n: usize| format!("tree/{}/{}/file-{n}", n % 4, n % 20);
    keys.extend((0..200).map(small));
    keys
}

#[tokio::test]
async fn a_walk_of_small_folders_gets_many_per_request() {
    let keys = tree();
    for page in [2, 3, 7, 50, 1000] {
        let server = FakeServer::new(keys.clone(), page, true).await;
        let s3 = crate::S3::new(server.bucket.clone());
        let plain = walk(&s3).await;
        let many = server.requests().len();
        let walked = s3.for_walk().unwrap();
        assert_eq!(walk(&*walked).await, plain, "in pages of {page}");
        let few = server.requests().len();
        assert!(
            few <= many,
            "in pages of {page}: {few} requests, {many} without"
        );
        assert!(page < 1000 || few < 10, "{few} requests");
        let again = walk(&*walked).await;
        assert_eq!(again, plain, "a cached folder is used once");
        assert!(page < 1000 || server.requests().len() == few);
    }
}

#[tokio::test]
async fn prefix_listings_are_probed_and_never_trusted() {
    for (page, grouping) in [2, 7, 50, 1000].into_iter().flat_map(|page| {
        use DelimiterBehaviour::{AsAsked, BySlashes, NameRule, NotAtAll};
        [AsAsked, BySlashes, NotAtAll, NameRule].map(|grouping| (page, grouping))
    }) {
        let settings = format!("page={page}");
        let server = FakeServer::with(tree(), &settings, (true, grouping)).await;
        let s3 = crate::S3::new(server.bucket.clone());
        let plain = walk(&s3).await;
        let many = server.requests().len();
        let walked = s3.for_walk().unwrap();
        let message = format!("{grouping:?}, in pages of {page}");
        assert_eq!(walk(&*walked).await, plain, "{message}");
        // One folder per depth is requested twice.
        let few = server.requests().len();
        assert!(few <= many + 6, "{message}: {few} requests, {many} without");
        if page == 1000 && grouping == DelimiterBehaviour::AsAsked {
            assert!(few < many / 2, "{message}: {few} requests, {many} without");
        }
    }
}

#[tokio::test]
async fn cached_folders_stay_within_the_limit() {
    let keys = (0..80_000).map(|n| format!("{:02}/{:04}/{n}", n % 100, n % 1600));
    let server = FakeServer::new(keys.collect(), 1000, true).await;
    let s3 = crate::S3::new(server.bucket.clone()).for_walk().unwrap();
    for folder in 0..100 {
        let folder = Folder::root().child(format!("{folder:02}").as_bytes());
        s3.list(&folder, None).await.unwrap().next().await.unwrap();
    }
    let requests = server.requests().len();
    assert_eq!(requests, 100);
    let s3: &crate::S3 = s3.as_any().downcast_ref().unwrap();
    let kept = s3.cached_entries();
    assert!((40_000..=65_536).contains(&kept), "{kept} entries are kept");
}

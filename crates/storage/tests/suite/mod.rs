//! The suite: what a caller of the trait may rely on.

use bytes::Bytes;
use headworks_storage::{
    Backend, CopyItem, Entry, ErrorKind, Folder, Kind, Precondition, Upload, UploadPlan,
};
use std::collections::BTreeSet;

/// Returns every entry with its folder, each folder before its contents.
pub(crate) async fn walk(backend: &dyn Backend) -> Vec<(Folder, Entry)> {
    let mut found = Vec::new();
    let mut folders = vec![Folder::root()];
    while let Some(folder) = folders.pop() {
        for entry in list(backend, &folder).await {
            if entry.kind == Kind::Folder {
                folders.push(folder.child(&entry.name));
            }
            found.push((folder.clone(), entry));
        }
    }
    found
}

/// Returns whether an entry is not the marker of its own folder, as object stores have it.
fn is_inside(entry: &Entry) -> bool {
    !(entry.name.is_empty() && entry.kind == Kind::File && entry.size == 0)
}

pub(crate) async fn list(backend: &dyn Backend, folder: &Folder) -> Vec<Entry> {
    let mut listing = backend
        .list(folder, None)
        .await
        .expect("the folder can be listed");
    let mut entries = Vec::new();
    while let Some(page) = listing.next().await.expect("a page") {
        entries.extend(page.entries.into_iter().filter(is_inside));
    }
    entries
}

pub(crate) async fn read(
    backend: &dyn Backend,
    folder: &Folder,
    name: &[u8],
    from: u64,
    length: u64,
) -> Vec<u8> {
    let mut chunks = backend
        .read(folder, name, from, length)
        .await
        .expect("the file can be read");
    let mut bytes = Vec::new();
    while let Some(chunk) = chunks.next().await.expect("bytes") {
        assert!(!chunk.is_empty(), "an empty chunk was returned");
        bytes.extend_from_slice(&chunk);
    }
    bytes
}

fn plan(temp: &[u8], size: usize, resume: Option<Vec<u8>>) -> UploadPlan {
    UploadPlan {
        temp: temp.to_vec(),
        size: size as u64,
        resume,
        ..UploadPlan::default()
    }
}

pub(crate) async fn write(
    backend: &dyn Backend,
    folder: &Folder,
    like: &Entry,
    bytes: &[u8],
) -> Entry {
    let mut upload = backend
        .upload(folder, &like.name, plan(b".temp", bytes.len(), None))
        .await
        .unwrap();
    for chunk in bytes.chunks(64 * 1024) {
        upload.write(Bytes::copy_from_slice(chunk)).await.unwrap();
    }
    upload.finish(like.clone(), Vec::new()).await.unwrap()
}

/// Listing, stat and reading agree.
pub(crate) async fn reading(backend: &dyn Backend) {
    let everything = walk(backend).await;
    assert!(
        everything.len() > 20,
        "{} entries are too few",
        everything.len()
    );
    let mut paths = BTreeSet::new();
    for (folder, entry) in &everything {
        assert!(paths.insert(folder.join(&entry.name)), "listed twice");
        let stat = backend
            .stat(folder, Some(&entry.name))
            .await
            .expect("a listed entry exists");
        assert_eq!((stat.kind, stat.size), (entry.kind, entry.size));
        if entry.kind == Kind::File {
            if backend.capabilities().listed_times {
                assert_eq!(stat.modified, entry.modified);
            }
            ranges(backend, folder, entry).await;
        }
    }
    let odd = everything
        .iter()
        .any(|(_, e)| std::str::from_utf8(&e.name).is_err());
    assert_ne!(odd, backend.capabilities().unicode_names);
    missing(backend).await;
    cursors(backend, &everything).await;
}

async fn ranges(backend: &dyn Backend, folder: &Folder, entry: &Entry) {
    let whole = read(backend, folder, &entry.name, 0, u64::MAX).await;
    assert_eq!(whole.len() as u64, entry.size);
    let middle = whole.len() / 3;
    let part = read(backend, folder, &entry.name, middle as u64, 1000).await;
    assert_eq!(part, whole[middle..whole.len().min(middle + 1000)]);
    assert!(
        read(backend, folder, &entry.name, entry.size, 10)
            .await
            .is_empty()
    );
}

async fn missing(backend: &dyn Backend) {
    let (root, nowhere) = (Folder::root(), Folder::root().child(b"no such folder"));
    let kinds = [
        backend.stat(&root, Some(b"no such file")).await.err(),
        backend.read(&root, b"no such file", 0, 1).await.err(),
        match backend.list(&nowhere, None).await {
            Ok(mut listing) => listing.next().await.err(),
            Err(error) => Some(error),
        },
    ];
    for error in kinds {
        let error = error.expect("a missing entry is an error");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.to_string().contains("no such"), "{error}");
    }
}

/// A listing that is resumed at a cursor continues exactly there.
async fn cursors(backend: &dyn Backend, everything: &[(Folder, Entry)]) {
    if !backend.capabilities().resumable_listing {
        return;
    }
    let mut resumed = 0;
    let folders = everything
        .iter()
        .filter(|(_, entry)| entry.kind == Kind::Folder);
    for (parent, entry) in folders {
        let folder = parent.child(&entry.name);
        let mut listing = backend.list(&folder, None).await.unwrap();
        let mut names: Vec<Vec<u8>> = Vec::new();
        while let Some(page) = listing.next().await.unwrap() {
            let entries = page.entries.into_iter().filter(is_inside);
            names.extend(entries.map(|entry| entry.name));
            let Some(cursor) = page.cursor else { continue };
            listing = backend.list(&folder, Some(&cursor)).await.unwrap();
            resumed += 1;
        }
        let whole = list(backend, &folder)
            .await
            .into_iter()
            .map(|entry| entry.name);
        assert_eq!(names, whole.collect::<Vec<_>>());
    }
    assert!(resumed > 0, "no folder had two pages");
}

const MODIFIED: i64 = 1_600_000_000_123_456_789;

/// Names that a server cannot store, whatever its protocol says.
pub(crate) type UnsupportedName = fn(&[u8]) -> bool;

/// Files are complete or absent, and have their attributes; names are kept to the byte.
pub(crate) async fn writing(backend: &dyn Backend, is_unsupported: UnsupportedName) {
    backend.make_folder(&Folder::root()).await.unwrap();
    backend.writable().await.unwrap();
    names(backend, is_unsupported).await;
    whole_or_not_at_all(backend).await;
    incomplete_upload(backend).await;
    resumed(backend).await;
    moved(backend).await;
    backend.sync().await.unwrap();
}

/// Returns a time with the precision of the backend.
fn kept(backend: &dyn Backend, modified: i64) -> Option<i64> {
    let precision = backend.capabilities().modified?;
    let precision = i64::try_from(precision.as_nanos()).expect("it is short");
    Some(modified / precision * precision)
}

async fn names(backend: &dyn Backend, is_unsupported: UnsupportedName) {
    let folder = Folder::root().child(b"names");
    backend.make_folder(&folder).await.unwrap();
    backend
        .make_folder(&folder)
        .await
        .expect("making an existing folder succeeds");
    let long = [b'x'; 255];
    let awkward: [&[u8]; 9] = [
        "caf\u{e9}".as_bytes(),
        "cafe\u{301}".as_bytes(),
        b"Case",
        b"case",
        b"trailing ",
        b" leading",
        b"\xff\xfe\xc3(",
        b"new\nline\x1b",
        &long,
    ];
    let capabilities = backend.capabilities();
    let awkward: Vec<&[u8]> = awkward
        .into_iter()
        .filter(|name| capabilities.name_problem(name).is_none() && !is_unsupported(name))
        .collect();
    assert!(awkward.len() >= 6, "too many names are refused");
    for name in &awkward {
        let mut like = Entry::new(*name, Kind::File);
        like.modified = Some(MODIFIED);
        let made = write(backend, &folder, &like, name).await;
        assert_eq!(made.size, name.len() as u64);
        if capabilities.modified.is_some() {
            assert_eq!(made.modified, kept(backend, MODIFIED));
        }
    }
    let listed: BTreeSet<Vec<u8>> = list(backend, &folder)
        .await
        .into_iter()
        .map(|e| e.name)
        .collect();
    assert_eq!(listed, awkward.iter().map(|name| name.to_vec()).collect());
    for name in &awkward {
        assert_eq!(read(backend, &folder, name, 0, u64::MAX).await, *name);
        let stat = backend.stat(&folder, Some(name)).await.unwrap();
        if capabilities.modified.is_some() {
            assert_eq!(stat.modified, kept(backend, MODIFIED));
        }
    }
    if capabilities.posix_names {
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
            assert!(capabilities.name_problem(name).is_some());
        }
    }
}

async fn whole_or_not_at_all(backend: &dyn Backend) {
    let folder = Folder::root().child(b"whole");
    backend.make_folder(&folder).await.unwrap();
    let like = Entry::new(*b"file", Kind::File);
    write(backend, &folder, &like, b"first").await;
    let mut upload = backend
        .upload(&folder, b"file", plan(b".t", 6, None))
        .await
        .unwrap();
    upload.write(Bytes::from_static(b"second")).await.unwrap();
    assert_eq!(
        read(backend, &folder, b"file", 0, 99).await,
        b"first",
        "visible before it was finished"
    );
    upload.finish(like.clone(), Vec::new()).await.unwrap();
    assert_eq!(read(backend, &folder, b"file", 0, 99).await, b"second");
    let mut upload = backend
        .upload(&folder, b"file", plan(b".t", 5, None))
        .await
        .unwrap();
    upload.write(Bytes::from_static(b"third")).await.unwrap();
    upload.abort().await.unwrap();
    assert_eq!(read(backend, &folder, b"file", 0, 99).await, b"second");
    assert_eq!(
        list(backend, &folder).await.len(),
        1,
        "an aborted upload leaves nothing"
    );
}

/// An upload of another size than announced is refused, and the existing file stays.
async fn incomplete_upload(backend: &dyn Backend) {
    let folder = Folder::root().child(b"incomplete");
    backend.make_folder(&folder).await.unwrap();
    let like = Entry::new(*b"file", Kind::File);
    write(backend, &folder, &like, b"the good copy").await;
    // Small enough to be buffered, larger than that, and in parts.
    for (announced, came) in [
        (10, 5),
        (10, 0),
        (10, 11),
        (300 << 10, 200 << 10),
        (LARGE, 9 << 20),
    ] {
        let upload = backend.upload(&folder, b"file", plan(b".t", announced, None));
        let mut upload = upload.await.unwrap();
        let mut refused = None;
        for chunk in vec![b'x'; came].chunks(1 << 20) {
            let written = upload.write(Bytes::copy_from_slice(chunk)).await;
            refused = refused.or(written.err());
        }
        let finished = upload.finish(like.clone(), Vec::new()).await;
        assert!(
            refused.is_some() || finished.is_err(),
            "{came} of {announced} bytes were accepted"
        );
        assert_eq!(
            read(backend, &folder, b"file", 0, 99).await,
            b"the good copy",
            "{came} of {announced} bytes replaced the file"
        );
    }
    assert_eq!(list(backend, &folder).await.len(), 1, "something is left");
}

/// Large enough for two parts and a rest, whatever the part size.
const LARGE: usize = 17 << 20;

async fn resumed(backend: &dyn Backend) {
    if !backend.capabilities().resumable_upload {
        return;
    }
    let folder = Folder::root().child(b"resumed");
    backend.make_folder(&folder).await.unwrap();
    let bytes: Vec<u8> = (0..LARGE).map(|at| (at / 7 % 251) as u8).collect();
    let mut upload = backend
        .upload(&folder, b"big", plan(b".t", LARGE, None))
        .await
        .unwrap();
    let cut = LARGE * 2 / 3;
    for chunk in bytes[..cut].chunks(1 << 20) {
        upload.write(Bytes::copy_from_slice(chunk)).await.unwrap();
    }
    let resume = upload
        .checkpoint(u64::MAX)
        .await
        .unwrap()
        .expect("the backend declares resumable uploads");
    upload.write(Bytes::from_static(b"lost")).await.unwrap();
    drop(upload);
    let missing = backend.stat(&folder, Some(b"big")).await.unwrap_err();
    assert_eq!(
        missing.kind(),
        ErrorKind::NotFound,
        "visible before it was finished"
    );
    let mut upload = backend
        .upload(&folder, b"big", plan(b".t", LARGE, Some(resume.clone())))
        .await
        .unwrap();
    let kept = upload.offset() as usize;
    assert!(kept > 0 && kept <= cut, "{kept} of {cut} bytes were kept");
    for chunk in bytes[kept..].chunks(1 << 20) {
        upload.write(Bytes::copy_from_slice(chunk)).await.unwrap();
    }
    let made = upload
        .finish(Entry::new(*b"big", Kind::File), Vec::new())
        .await
        .unwrap();
    assert_eq!(made.size, LARGE as u64);
    assert!(read(backend, &folder, b"big", 0, u64::MAX).await == bytes);
    let part = read(backend, &folder, b"big", 9 << 20, 1000).await;
    assert_eq!(part, bytes[9 << 20..(9 << 20) + 1000]);
    let upload = backend
        .upload(&folder, b"big", plan(b".t", LARGE, Some(resume)))
        .await
        .unwrap();
    assert_eq!(upload.offset(), 0, "nothing is left to resume");
    Upload::abort(upload).await.unwrap();
}

async fn moved(backend: &dyn Backend) {
    let (here, there) = (
        Folder::root().child(b"here"),
        Folder::root().child(b"there"),
    );
    backend.make_folder(&here).await.unwrap();
    backend.make_folder(&there).await.unwrap();
    write(backend, &here, &Entry::new(*b"a", Kind::File), b"a").await;
    write(backend, &there, &Entry::new(*b"a", Kind::File), b"other").await;
    let refused = backend
        .rename(&here, b"a", (&there, b"a"))
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Exists);
    backend.rename(&here, b"a", (&there, b"b")).await.unwrap();
    assert_eq!(read(backend, &there, b"b", 0, 9).await, b"a");
    let capabilities = backend.capabilities();
    if capabilities.symlinks {
        let mut entry = Entry::new(*b"link", Kind::Symlink);
        entry.target = Some(b"no\xffwhere".to_vec());
        let item = CopyItem {
            entry,
            temp: b".t".to_vec(),
            precondition: Precondition::Any,
        };
        let made = backend.make_node(&there, &item).await.unwrap();
        assert_eq!(made.target, item.entry.target);
    }
    if capabilities.hard_links {
        for _ in 0..2 {
            let linked = backend
                .hard_link(
                    (&there, b"a"),
                    &here,
                    b"again",
                    b".t",
                    &Precondition::Absent,
                )
                .await
                .unwrap();
            assert_eq!(
                linked.inode,
                backend.stat(&there, Some(b"a")).await.unwrap().inode
            );
        }
        assert_eq!(list(backend, &here).await.len(), 1);
    }
    backend.remove(&Folder::root(), b"there").await.unwrap();
    let gone = backend.stat(&there, None).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
}

/// Fills a backend with the tree of `spec`, except names that it cannot represent.
pub(crate) async fn fill(backend: &dyn Backend, spec: &str, is_unsupported: UnsupportedName) {
    let synth = headworks_storage::Synth::parse(spec).expect("a good description");
    let capabilities = backend.capabilities();
    for (folder, entry) in walk(&synth).await {
        let mut names = folder.names().chain([entry.name.as_slice()]);
        if names.any(|name| capabilities.name_problem(name).is_some() || is_unsupported(name)) {
            continue;
        }
        match entry.kind {
            Kind::Folder => {
                let child = folder.child(&entry.name);
                backend.make_folder(&child).await.unwrap();
            }
            _ => {
                let bytes = read(&synth, &folder, &entry.name, 0, entry.size).await;
                write(backend, &folder, &entry, &bytes).await;
            }
        }
    }
}

/// Only the entry that the caller has listed is replaced. `names` are those of files that do not
/// exist.
pub(crate) async fn overwriting(backend: &dyn Backend, names: &[&str]) {
    let root = Folder::root();
    backend.make_folder(&root).await.unwrap();
    for name in names {
        overwriting_one(backend, &root, name.as_bytes()).await;
    }
    let entries = list(backend, &root).await;
    assert_eq!(entries.len(), names.len(), "left behind: {entries:?}");
}

async fn overwriting_one(backend: &dyn Backend, root: &Folder, name: &[u8]) {
    const SECOND: i64 = 1_000_000_000;
    // Every write has a time of its own: some servers tell versions apart by seconds.
    let like = |second: i64| Entry {
        modified: Some((1_600_000_000 + second) * SECOND),
        ..Entry::new(name, Kind::File)
    };
    let upload = async |precondition: Precondition, bytes: &'static [u8], like: Entry| {
        let plan = UploadPlan {
            precondition,
            ..plan(b".temp", bytes.len(), None)
        };
        let mut upload = backend.upload(root, name, plan).await?;
        upload.write(bytes.into()).await?;
        upload.finish(like, Vec::new()).await
    };
    let listed = async || {
        let stat = backend.stat(root, Some(name)).await.unwrap();
        match stat.etag() {
            Some(version) => Precondition::Version(version.clone()),
            None => Precondition::Unchanged(stat.into()),
        }
    };
    let content = async || read(backend, root, name, 0, 99).await;
    let shown = String::from_utf8_lossy(name);
    let made = upload(Precondition::Absent, b"first", like(1)).await;
    assert_eq!(made.unwrap().size, 5, "{shown}");
    // Written again by a run that died before it was recorded.
    upload(Precondition::Absent, b"first", like(1))
        .await
        .unwrap();
    let refused = upload(Precondition::Absent, b"ours!", like(2)).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Changed, "{shown}");
    assert_eq!(content().await, b"first", "{shown}");
    let before = listed().await;
    upload(Precondition::Any, b"another program's", like(3))
        .await
        .unwrap();
    let refused = upload(before.clone(), b"ours", like(4)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Changed, "{shown}: {refused}");
    assert!(refused.to_string().contains("another program"), "{refused}");
    assert_eq!(content().await, b"another program's", "{shown}");
    if backend.capabilities().posix {
        let other = like(5);
        let set = backend.set_attributes(root, Some(name), &other, Vec::new(), &before);
        assert_eq!(set.await.unwrap_err().kind(), ErrorKind::Changed, "{shown}");
    }
    upload(listed().await, b"ours", like(6)).await.unwrap();
    assert_eq!(content().await, b"ours", "{shown}");
    // A file that was removed since protects nothing.
    let gone = listed().await;
    backend.remove(root, name).await.unwrap();
    upload(gone, b"ours again", like(7)).await.unwrap();
    assert_eq!(content().await, b"ours again", "{shown}");
}

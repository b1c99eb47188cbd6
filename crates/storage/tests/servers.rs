//! The suite against real servers and emulators. `tests/cloud/run` starts them and sets their
//! addresses; a missing one fails the test.

mod suite;

use headworks_storage::{
    Azure, Backend, CopyItem, Entry, ErrorKind, Folder, Gcs, Kind, Posix, Precondition, S3, Sftp,
    UploadPlan, WebDav,
};
use std::collections::BTreeSet;

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run tests/cloud/run"))
}

/// Creates a bucket for one test.
async fn bucket(server: &str, name: &str, settings: &str) -> S3 {
    let endpoint = variable(server);
    let location = format!("s3://{name}/some/prefix?endpoint={endpoint}{settings}");
    let s3 = S3::open(location.as_bytes()).expect("a good location");
    s3.make_folder(&Folder::root()).await.expect("a bucket");
    s3
}

const TREE: &str = "seed=8&depth=3&dirs=4&files=8&size=0-300k&names=all";

#[tokio::test]
async fn moto_conforms_when_reading() {
    let s3 = bucket("MOTO", "suite-read", "&page=3").await;
    suite::fill(&s3, TREE, |_| false).await;
    suite::reading(&s3).await;
}

#[tokio::test]
async fn moto_conforms_when_writing() {
    let s3 = bucket("MOTO", "suite-write", "").await;
    suite::writing(&s3, |_| false).await;
}

#[tokio::test]
async fn s3s_conforms_when_reading() {
    let s3 = bucket("S3S", "suite-read", "").await;
    suite::fill(&s3, "seed=5&depth=3&dirs=1-3&files=2-9&size=0-300k", |_| {
        false
    })
    .await;
    suite::walk(&s3).await;
}

/// Keys that no directory could hold next to each other.
const KEYS: [&str; 23] = [
    "a",
    "a!",
    "a-",
    "a/",
    "a//",
    "a//b",
    "a/b",
    "a/./c",
    "a0",
    ".",
    "..",
    " ",
    " lead",
    "trail ",
    "tail /x",
    "plus+percent%41",
    "q?x=1&y#z",
    "new\nline",
    "/",
    "/x",
    "\u{e9}",
    "e\u{301}",
    "\u{10ffff}",
];

#[tokio::test]
async fn keys_are_kept_to_the_byte() {
    keys(&bucket("MOTO", "keys", "&page=2").await, &KEYS).await;
}

/// Writes keys, and checks that they are found unchanged.
async fn keys(backend: &dyn Backend, keys: &[&str]) {
    for key in keys {
        let cut = key.rfind('/').map_or(0, |at| at + 1);
        let folder = Folder::from_bytes(key[..cut].into());
        let like = Entry::new(&key.as_bytes()[cut..], Kind::File);
        suite::write(backend, &folder, &like, format!("<{key}>").as_bytes()).await;
    }
    let mut found = BTreeSet::new();
    for (folder, entry) in suite::walk(backend).await {
        if entry.kind == Kind::Folder {
            continue;
        }
        let bytes = suite::read(backend, &folder, &entry.name, 0, u64::MAX).await;
        let stat = backend.stat(&folder, Some(&entry.name)).await.unwrap();
        assert_eq!((stat.kind, stat.size), (Kind::File, bytes.len() as u64));
        let name = entry.name.strip_suffix(b"/").unwrap_or(&entry.name);
        let key = String::from_utf8(folder.join(name)).unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), format!("<{key}>"));
        assert!(found.insert(key.clone()), "{key} was listed twice");
    }
    assert_eq!(found, keys.iter().map(|key| (*key).to_owned()).collect());
}

#[tokio::test]
async fn a_conditional_write_overwrites_nothing_else() {
    conditions(&bucket("MOTO", "conditions", "").await).await;
}

async fn conditions(backend: &dyn Backend) {
    let root = Folder::root();
    let mut like = Entry::new(*b"x", Kind::File);
    like.modified = Some(1_600_000_000_000_000_000);
    let first = suite::write(backend, &root, &like, b"theirs").await;
    let write = async |precondition: Precondition, bytes: &'static [u8], modified: i64| {
        let plan = UploadPlan {
            size: bytes.len() as u64,
            precondition,
            ..UploadPlan::default()
        };
        let mut upload = backend.upload(&root, b"x", plan).await.unwrap();
        upload.write(bytes.into()).await.unwrap();
        let mut like = Entry::new(*b"x", Kind::File);
        like.modified = Some(modified);
        upload.finish(like, Vec::new()).await
    };
    let refused = write(Precondition::Absent, b"ours", 1).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Changed, "{refused}");
    assert!(refused.to_string().contains("another program"), "{refused}");
    assert_eq!(suite::read(backend, &root, b"x", 0, 99).await, b"theirs");
    // An identical object is not a conflict: a response may get lost.
    let again = write(Precondition::Absent, b"theirs", 1_600_000_000_000_000_000).await;
    assert_eq!(again.unwrap().version, first.version);
    let version = first.version.expect("an etag");
    write(Precondition::Version(version.clone()), b"ours", 1)
        .await
        .unwrap();
    let refused = write(Precondition::Version(version), b"late", 2)
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Changed);
    assert_eq!(suite::read(backend, &root, b"x", 0, 99).await, b"ours");
}

#[tokio::test]
async fn metadata_is_kept_and_calls_are_counted() {
    let s3 = bucket("MOTO", "metadata", "").await;
    metadata(&s3, "meta-colour").await;
    let counted: Vec<_> = s3.requests();
    assert_eq!(counted, [("head", 2), ("make bucket", 1), ("put", 1)]);
}

async fn metadata(backend: &dyn Backend, name: &str) {
    let root = Folder::root();
    let plan = UploadPlan::default();
    let upload = backend.upload(&root, b"page.html", plan).await.unwrap();
    let extended = vec![
        (name.as_bytes().to_vec(), b"red".to_vec()),
        (b"cache-control".to_vec(), b"no-store".to_vec()),
    ];
    let like = Entry::new(*b"page.html", Kind::File);
    upload.finish(like, extended.clone()).await.unwrap();
    let kept = backend.extended(&root, Some(b"page.html")).await.unwrap();
    for pair in &extended {
        assert!(kept.contains(pair), "{kept:?}");
    }
    let html = (
        b"content-type".to_vec(),
        b"text/html; charset=utf-8".to_vec(),
    );
    assert!(kept.contains(&html), "{kept:?}");
}

/// s3s verifies signatures; if a wrong key were accepted, the other tests would prove nothing.
#[tokio::test]
async fn s3s_refuses_a_wrong_key() {
    let endpoint = variable("S3S");
    let location = format!("s3://suite-read?endpoint={endpoint}&profile=wrong");
    let s3 = S3::open(location.as_bytes()).unwrap();
    let refused = s3.stat(&Folder::root(), None).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
}

async fn folder(name: &str) -> WebDav {
    let location = format!("webdav://{}/{name}", variable("DAV"));
    let dav = WebDav::open(location.as_bytes()).expect("a good location");
    dav.make_folder(&Folder::root()).await.expect("a folder");
    dav
}

#[tokio::test]
async fn webdav_conforms_when_reading() {
    let dav = folder("suite-read").await;
    suite::fill(&dav, TREE, |_| false).await;
    suite::reading(&dav).await;
}

#[tokio::test]
async fn webdav_conforms_when_writing() {
    suite::writing(&folder("suite-write").await, |_| false).await;
}

/// A name that servers cannot move a file to is written in place.
#[tokio::test]
async fn webdav_replaces_only_what_is_expected() {
    suite::overwriting(&folder("overwriting").await, &["file", "in#place"]).await;
}

async fn container(name: &str, settings: &str) -> Azure {
    let (account, endpoint) = (variable("AZURE_STORAGE_ACCOUNT"), variable("AZURITE"));
    let location = format!("azblob://{account}/{name}/some/prefix?endpoint={endpoint}{settings}");
    let azure = Azure::open(location.as_bytes()).expect("a good location");
    azure
        .make_folder(&Folder::root())
        .await
        .expect("a container");
    azure
}

#[tokio::test]
async fn azure_conforms_when_reading() {
    let azure = container("suite-read", "&page=3").await;
    suite::fill(&azure, TREE, |_| false).await;
    suite::reading(&azure).await;
}

#[tokio::test]
async fn azure_conforms_when_writing() {
    suite::writing(&container("suite-write", "").await, |_| false).await;
}

#[tokio::test]
async fn names_of_blobs_are_kept_to_the_byte() {
    let azure = container("keys", "&page=2").await;
    let name_problem = azure.capabilities().name_rule.expect("it refuses some");
    let (bad, good): (Vec<&str>, Vec<&str>) = KEYS
        .iter()
        .partition(|key| name_problem(key.as_bytes()).is_some());
    assert_eq!(bad, ["a/./c", ".", "..", "new\nline"]);
    keys(&azure, &good).await;
    for key in bad.iter().chain(&["back\\slash", "dot./x"]) {
        let plan = UploadPlan::default();
        let upload = azure.upload(&Folder::root(), key.as_bytes(), plan).await;
        let upload = upload.expect("nothing was sent yet");
        let refused = upload.finish(Entry::new(*key, Kind::File), Vec::new());
        assert_eq!(refused.await.unwrap_err().kind(), ErrorKind::BadName);
    }
}

#[tokio::test]
async fn a_blob_is_overwritten_only_as_expected() {
    conditions(&container("conditions", "").await).await;
}

/// A name that is not an identifier is allowed elsewhere, and must survive.
#[tokio::test]
async fn metadata_of_blobs_is_kept_and_calls_are_counted() {
    let azure = container("metadata", "").await;
    metadata(&azure, "meta-the-colour").await;
    let counted: Vec<_> = azure.requests();
    let expected = [("head", 1), ("list", 1), ("make container", 1), ("put", 1)];
    assert_eq!(counted, expected);
}

/// Empty blobs with which other programs mark a folder.
#[tokio::test]
async fn a_marker_blob_is_listed_as_a_folder() {
    let azure = container("stubs", "&page=2").await;
    let stub = vec![(b"meta-hdi_isfolder".to_vec(), b"true".to_vec())];
    let root = Folder::root();
    for name in ["empty", "full"] {
        let upload = azure.upload(&root, name.as_bytes(), UploadPlan::default());
        let like = Entry::new(name, Kind::File);
        let finished = upload.await.unwrap().finish(like, stub.clone()).await;
        finished.unwrap();
    }
    let file = Entry::new(*b"file", Kind::File);
    suite::write(&azure, &root.child(b"full"), &file, b"x").await;
    for name in ["full!", "full-"] {
        suite::write(&azure, &root, &Entry::new(name, Kind::File), b"x").await;
    }
    let mut listed: Vec<_> = suite::list(&azure, &root)
        .await
        .into_iter()
        .map(|entry| (String::from_utf8(entry.name).unwrap(), entry.kind))
        .collect();
    listed.sort_by(|a, b| a.0.cmp(&b.0));
    let listed: Vec<_> = listed
        .iter()
        .map(|(name, kind)| (name.as_str(), *kind))
        .collect();
    let (folder, file) = (Kind::Folder, Kind::File);
    let wanted = [
        ("empty", folder),
        ("full", folder),
        ("full!", file),
        ("full-", file),
    ];
    assert_eq!(listed, wanted);
    assert!(suite::list(&azure, &root.child(b"empty")).await.is_empty());
    let stat = azure.stat(&root, Some(b"empty")).await.unwrap();
    assert_eq!(stat.kind, Kind::Folder);
}

/// Azurite verifies signatures.
#[tokio::test]
async fn azure_refuses_anonymous_access() {
    let (account, endpoint) = (variable("AZURE_STORAGE_ACCOUNT"), variable("AZURITE"));
    container("refused", "").await;
    let location = format!("azblob://{account}/refused?endpoint={endpoint}&anonymous");
    let azure = Azure::open(location.as_bytes()).unwrap();
    let refused = azure.stat(&Folder::root(), None).await.unwrap_err();
    assert!(
        matches!(refused.kind(), ErrorKind::Denied | ErrorKind::NotFound),
        "{refused}"
    );
}

async fn google(name: &str, settings: &str) -> Gcs {
    let endpoint = variable("STORAGE_EMULATOR_HOST");
    let location = format!("gs://{name}/some/prefix?endpoint={endpoint}{settings}");
    let gcs = Gcs::open(location.as_bytes()).expect("a good location");
    gcs.make_folder(&Folder::root()).await.expect("a bucket");
    gcs
}

#[tokio::test]
async fn google_conforms_when_reading() {
    let gcs = google("suite-read", "&page=3").await;
    // The emulator handles one request at a time.
    let few = "seed=8&depth=2&dirs=4&files=8&size=0-300k&names=all";
    suite::fill(&gcs, few, |_| false).await;
    suite::reading(&gcs).await;
}

#[tokio::test]
async fn google_conforms_when_writing() {
    suite::writing(&google("suite-write", "").await, |_| false).await;
}

#[tokio::test]
async fn names_at_google_are_kept_to_the_byte() {
    let gcs = google("keys", "&page=2").await;
    let good: Vec<&str> = KEYS.into_iter().filter(|key| !key.contains('\n')).collect();
    keys(&gcs, &good).await;
    assert!(gcs.capabilities().name_problem(b"new\nline").is_some());
    let location = "gs://keys?anonymous".to_owned();
    let root = Gcs::open(location.as_bytes()).expect("a good location");
    let plan = UploadPlan::default();
    let upload = root.upload(&Folder::root(), b"..", plan).await.unwrap();
    let refused = upload.finish(Entry::new(*b"..", Kind::File), Vec::new());
    assert_eq!(refused.await.unwrap_err().kind(), ErrorKind::BadName);
}

#[tokio::test]
async fn an_object_at_google_is_overwritten_only_as_expected() {
    conditions(&google("conditions", "").await).await;
}

#[tokio::test]
async fn metadata_at_google_is_kept_and_calls_are_counted() {
    let gcs = google("metadata", "").await;
    metadata(&gcs, "meta-the-colour").await;
    let counted: Vec<_> = gcs.requests();
    let expected = [("head", 1), ("list", 1), ("make bucket", 1), ("put", 1)];
    assert_eq!(counted, expected);
}

/// A folder for one test, below one that `tests/cloud/run` made.
fn sftp(name: &str) -> Sftp {
    let location = format!("sftp://{}{}/{name}", variable("SFTP"), variable("WORK"));
    Sftp::open(location.as_bytes()).expect("a good location")
}

#[tokio::test]
async fn sftp_conforms_when_reading() {
    let sftp = sftp("suite-read");
    sftp.make_folder(&Folder::root()).await.unwrap();
    suite::fill(
        &sftp,
        "seed=8&depth=2&dirs=3&files=8&size=0-300k&names=all",
        |_| false,
    )
    .await;
    suite::reading(&sftp).await;
}

#[tokio::test]
async fn sftp_conforms_when_writing() {
    suite::writing(&sftp("suite/made/by/it"), |_| false).await;
}

#[tokio::test]
async fn sftp_replaces_only_what_is_expected() {
    let sftp = sftp("overwriting");
    suite::overwriting(&sftp, &["file", "another"]).await;
    let root = Folder::root();
    assert!(sftp.clock().await.is_some());
    assert_eq!(suite::list(&sftp, &root).await.len(), 2);
    let link = |target: &str, precondition| {
        let mut entry = Entry::new(*b"link", Kind::Symlink);
        entry.target = Some(target.as_bytes().to_vec());
        CopyItem {
            entry,
            temp: b".t".to_vec(),
            precondition,
        }
    };
    // One that leads nowhere is overwritten by a rename that looks at its target.
    sftp.make_node(&root, &link("nowhere", Precondition::Absent))
        .await
        .unwrap();
    let other = link("elsewhere", Precondition::Absent);
    let refused = sftp.make_node(&root, &other).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Changed);
    let kept = sftp.stat(&root, Some(b"link")).await.unwrap();
    assert_eq!(kept.target.as_deref(), Some(&b"nowhere"[..]));
    let listed = Precondition::Unchanged(kept.into());
    sftp.make_node(&root, &link("elsewhere", listed))
        .await
        .unwrap();
    assert_eq!(suite::list(&sftp, &root).await.len(), 3);
}

/// Attributes that a POSIX server keeps beyond the suite.
#[tokio::test]
async fn sftp_keeps_permissions_and_times_and_follows_no_symlink() {
    let sftp = sftp("suite-posix");
    let root = Folder::root();
    sftp.make_folder(&root).await.unwrap();
    let posix = Posix {
        mode: 0o100_640,
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        device: 0,
    };
    let mut like = Entry::new(*b"file", Kind::File);
    like.modified = Some(1_500_000_000_900_000_000);
    like.posix = Some(posix);
    let made = suite::write(&sftp, &root, &like, b"bytes").await;
    assert_eq!(made.posix, like.posix);
    assert_eq!(made.modified, Some(1_500_000_000_000_000_000));
    like.posix = Some(Posix {
        mode: 0o100_444,
        ..posix
    });
    let settled = sftp
        .set_attributes(&root, Some(b"file"), &like, Vec::new(), &Precondition::Any)
        .await;
    assert_eq!(settled.unwrap().posix, like.posix);
    assert!(sftp.space().await.unwrap().is_some_and(|s| s.bytes > 0));
    let mut link = Entry::new(*b"link", Kind::Symlink);
    link.target = Some(b"../suite-posix".to_vec());
    link.modified = Some(1_400_000_000_000_000_000);
    let item = headworks_storage::CopyItem {
        entry: link.clone(),
        temp: b".t".to_vec(),
        precondition: Precondition::Any,
    };
    let made = sftp.make_node(&root, &item).await.unwrap();
    assert_eq!((made.target, made.modified), (link.target, link.modified));
    let inside = root.child(b"link");
    let mut listing = sftp.list(&inside, None).await.unwrap();
    let refused = listing.next().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WrongKind, "{refused}");
    let listed = suite::list(&sftp, &root).await;
    assert_eq!(listed.len(), 2, "{listed:?}");
    sftp.sync().await.unwrap();
}

/// An unknown host and a rejected key are refused with advice, and only one login is attempted.
#[tokio::test]
async fn sftp_refuses_strangers() {
    for (config, words) in [
        ("ssh_config_stranger", "SFTP_KEY or SFTP_PASSWORD"),
        ("ssh_config_unknown", "compare its fingerprint"),
        ("ssh_config_changed", "ssh-keygen -R"),
    ] {
        let program = std::env::current_exe().unwrap();
        let output = std::process::Command::new(program)
            .args(["--exact", "sftp_as_a_stranger", "--nocapture"])
            .env("SFTP_CONFIG", format!("{}/{config}", variable("SFTP_HOME")))
            .env("STRANGER", "yes")
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(stderr.contains(words), "{config}: {stderr}");
        assert!(stderr.contains("connect: 1"), "{stderr}");
    }
}

/// Run by [`sftp_refuses_strangers`] with another environment; on its own it finds no folder.
#[tokio::test]
async fn sftp_as_a_stranger() {
    let sftp = sftp("nowhere");
    for _ in 0..3 {
        let error = sftp.stat(&Folder::root(), None).await.unwrap_err();
        let wanted = match std::env::var_os("STRANGER") {
            Some(_) => ErrorKind::Denied,
            None => ErrorKind::NotFound,
        };
        assert_eq!(error.kind(), wanted, "{error}");
        eprintln!("{error}");
    }
    let counted = sftp.requests();
    let connects = counted.iter().find(|(kind, _)| *kind == "connect");
    eprintln!("connect: {}", connects.unwrap().1);
}

//! The conformance suite. The reading half runs against all backends, the writing half against
//! those that can write.

mod suite;

use headworks_storage::{Backend, Entry, Folder, Kind, Local, Synth};
use std::path::Path;

#[tokio::test]
async fn synth_conforms_when_reading() {
    let spec = "seed=5&depth=3&dirs=1-3&files=2-9&size=0-300k&names=all&page=3";
    let synth = Synth::parse(spec).expect("a good description");
    suite::reading(&synth).await;
}

#[tokio::test]
async fn local_conforms_when_reading() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let local = Local::new(dir.path());
    suite::fill(
        &local,
        "seed=5&depth=3&dirs=1-3&files=2-9&size=0-300k&names=all",
        |_| false,
    )
    .await;
    suite::reading(&local).await;
}

#[tokio::test]
async fn local_conforms_when_writing() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    suite::writing(&Local::new(&dir.path().join("made/by/the/suite")), |_| {
        false
    })
    .await;
}

/// The table in `docs/migrate.md` matches the declared capabilities.
#[test]
fn the_documented_capabilities_are_declared() {
    let documentation = include_str!("../../../docs/migrate.md");
    let locations = [
        ("directory", "/tmp"),
        ("S3", "s3://b?anonymous"),
        ("Azure", "azblob://a/c?anonymous"),
        ("Google", "gs://b?anonymous"),
        ("SFTP", "sftp://h/p"),
        ("WebDAV", "webdav://h/p"),
    ];
    for (name, location) in locations {
        let can = headworks_storage::open(location.as_ref())
            .expect("a good location")
            .capabilities();
        let times = can
            .modified
            .map_or("none".to_owned(), |kept| match kept.as_secs() {
                0 => format!("{} ns", kept.as_nanos()),
                seconds => format!("{seconds} s"),
            });
        let words = [
            can.listed_times,
            can.metadata,
            can.resumable_listing,
            can.resumable_upload,
        ]
        .map(|is_so| if is_so { "yes" } else { "no" });
        let row = format!("| {name} | {times} | {} |", words.join(" | "));
        assert!(documentation.contains(&row), "docs/migrate.md lacks: {row}");
    }
}

#[tokio::test]
async fn local_works_beyond_path_max() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let local = Local::new(dir.path());
    deep(&local, 40).await;
    let left = std::fs::read_dir(dir.path()).expect("it is there").count();
    assert_eq!(left, 0, "the deep tree is removed");
}

#[tokio::test]
async fn local_follows_no_symlink_on_the_way() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let root = dir.path().join("root");
    std::fs::create_dir_all(&root).unwrap();
    std::fs::create_dir(dir.path().join("outside")).unwrap();
    std::fs::write(dir.path().join("outside/secret"), "x").unwrap();
    std::os::unix::fs::symlink(Path::new("../outside"), root.join("link")).unwrap();
    let local = Local::new(&root);
    let link = Folder::root().child(b"link");
    let refused = local.stat(&link, Some(b"secret")).await.unwrap_err();
    assert_eq!(refused.kind(), headworks_storage::ErrorKind::WrongKind);
    let up = Folder::root().child(b"..").child(b"outside");
    let refused = local.stat(&up, Some(b"secret")).await.unwrap_err();
    assert_eq!(refused.kind(), headworks_storage::ErrorKind::BadName);
}

/// Makes and removes a path of `levels` names of 255 bytes.
async fn deep(backend: &dyn Backend, levels: usize) {
    let mut folder = Folder::root();
    for level in 0..levels {
        folder = folder.child(&[b'a' + (level % 26) as u8; 255]);
        backend.make_folder(&folder).await.unwrap();
    }
    let like = Entry::new(*b"bottom", Kind::File);
    suite::write(backend, &folder, &like, b"deep").await;
    assert_eq!(suite::list(backend, &folder).await[0].name, b"bottom");
    assert_eq!(
        suite::read(backend, &folder, b"bottom", 0, 9).await,
        b"deep"
    );
    backend.remove(&Folder::root(), &[b'a'; 255]).await.unwrap();
}

#[tokio::test]
async fn local_replaces_only_what_is_expected() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    suite::overwriting(&Local::new(dir.path()), &["one", "two"]).await;
}

//! What every backend must do. The reading half runs against all of them, the writing half against those that can.

mod suite;

use headworks_storage::{Backend, Local, Synth};
use std::path::Path;

#[tokio::test]
async fn synth_reads_as_it_must() {
    let spec = "seed=5&depth=3&dirs=1-3&files=2-9&size=0-300k&names=all&page=3";
    let synth = Synth::parse(spec).expect("a good description");
    suite::reading(&synth).await;
}

#[tokio::test]
async fn local_reads_as_it_must() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let local = Local::new(place.path());
    fill_from_synth(&local).await;
    suite::reading(&local).await;
}

#[tokio::test]
async fn local_writes_as_it_must() {
    let place = tempfile::tempdir().expect("a temporary folder");
    suite::writing(&Local::new(&place.path().join("made/by/the/suite"))).await;
}

#[tokio::test]
async fn local_works_beyond_path_max() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let local = Local::new(place.path());
    suite::deep(&local, 40).await;
    let left = std::fs::read_dir(place.path())
        .expect("it is there")
        .count();
    assert_eq!(left, 0, "what was removed deep down is gone");
}

#[tokio::test]
async fn local_follows_no_symlink_on_the_way() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let root = place.path().join("root");
    std::fs::create_dir_all(&root).unwrap();
    std::fs::create_dir(place.path().join("outside")).unwrap();
    std::fs::write(place.path().join("outside/secret"), "x").unwrap();
    std::os::unix::fs::symlink(Path::new("../outside"), root.join("link")).unwrap();
    let local = Local::new(&root);
    let link = headworks_storage::Folder::root().child(b"link");
    let refused = local.stat(&link, Some(b"secret")).await.unwrap_err();
    assert_eq!(refused.kind(), headworks_storage::ErrorKind::WrongKind);
    let up = headworks_storage::Folder::root()
        .child(b"..")
        .child(b"outside");
    let refused = local.stat(&up, Some(b"secret")).await.unwrap_err();
    assert_eq!(refused.kind(), headworks_storage::ErrorKind::BadName);
}

async fn fill_from_synth(local: &Local) {
    let spec = "seed=5&depth=3&dirs=1-3&files=2-9&size=0-300k&names=all";
    let synth = Synth::parse(spec).expect("a good description");
    for (folder, entry) in suite::walk(&synth).await {
        match entry.kind {
            headworks_storage::Kind::Folder => {
                local.make_folder(&folder.child(&entry.name)).await.unwrap();
            }
            _ => {
                let bytes = suite::read(&synth, &folder, &entry.name, 0, entry.size).await;
                suite::write(local, &folder, &entry, &bytes).await;
            }
        }
    }
}

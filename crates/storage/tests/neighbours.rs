//! Sibling folders of a disk that are listed on one thread, with the parent's descriptor cached.

use headworks_storage::{Backend, Folder, Local, on_this_thread};
use std::path::Path;

/// Returns the names in a folder, listed on this thread; `None` if it does not exist.
fn names(runtime: &tokio::runtime::Runtime, local: &Local, path: &[u8]) -> Option<Vec<Vec<u8>>> {
    let folder = Folder::from_bytes(path.to_vec());
    runtime.block_on(async {
        let mut pages = local.list(&folder, None).await.ok()?;
        let page = pages.next().await.ok()??;
        Some(page.entries.into_iter().map(|entry| entry.name).collect())
    })
}

fn make(root: &Path, file: &str) {
    let path = root.join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, "").unwrap();
}

/// The cached parent is only a shortcut: if it does not lead to a folder, the full path is tried.
#[test]
fn a_replaced_parent_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    make(root, "a/x/1");
    make(root, "b/x/2");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let (local, other) = (Local::new(root), Local::new(&root.join("b")));
    on_this_thread(|| {
        let list = |path: &[u8]| names(&runtime, &local, path);
        assert_eq!(list(b"a/x"), Some(vec![b"1".to_vec()]));
        assert_eq!(list(b"b/x"), Some(vec![b"2".to_vec()]));
        assert_eq!(list(b"a/x"), Some(vec![b"1".to_vec()]));
        assert_eq!(list(b"a/none"), None);
        std::fs::remove_dir_all(root.join("a")).unwrap();
        make(root, "a/y/3");
        assert_eq!(list(b"a/y"), Some(vec![b"3".to_vec()]));
        assert_eq!(list(b"a/x"), None);
        // Another root with the same path.
        make(root, "b/a/y/4");
        assert_eq!(names(&runtime, &other, b"a/y"), Some(vec![b"4".to_vec()]));
    });
    std::fs::rename(root.join("a"), root.join("c")).unwrap();
    make(root, "a/y/5");
    on_this_thread(|| {
        let again = names(&runtime, &local, b"a/y");
        assert_eq!(
            again,
            Some(vec![b"5".to_vec()]),
            "the cache is empty after the scope"
        );
    });
}

#[test]
fn no_symlink_is_followed_from_the_cached_parent() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), "a/x/1");
    std::os::unix::fs::symlink("x", dir.path().join("a/link")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let local = Local::new(dir.path());
    on_this_thread(|| {
        assert!(names(&runtime, &local, b"a/x").is_some());
        assert_eq!(names(&runtime, &local, b"a/link"), None);
        assert_eq!(names(&runtime, &local, b"a/.."), None);
    });
}

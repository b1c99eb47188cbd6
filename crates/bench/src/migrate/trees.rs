//! The working folder, and the trees.

use std::path::{Path, PathBuf};

/// A working folder, removed when it is dropped.
pub(super) struct WorkDir(PathBuf);

impl WorkDir {
    pub(super) fn new(above: &Path) -> WorkDir {
        let path = above.join(format!("headworks-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the bench can write to its working folder");
        WorkDir(path)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Moves a tree of many files aside. Removing it would slow down the next contender: some
    /// filesystems search for inodes that were not freed recently, one by one.
    pub(super) fn move_aside(&self, name: &str) {
        let aside = self.path("aside");
        std::fs::create_dir_all(&aside).expect("room for the trees");
        let count = std::fs::read_dir(&aside).map_or(0, Iterator::count);
        let _ = std::fs::rename(self.path(name), aside.join(count.to_string()));
    }

    /// Removes a tree, or a state file with its companion files.
    pub(super) fn remove(&self, name: &str) {
        let _ = std::fs::remove_dir_all(self.path(name));
        for end in ["", "-wal", "-shm", "-lock"] {
            let _ = std::fs::remove_file(self.path(&format!("{name}{end}")));
        }
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Describes the filesystem of a path.
pub(super) fn filesystem(path: &Path) -> String {
    let path = path.canonicalize().unwrap_or_default();
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let lines = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (device, at, kind) = (fields.next()?, fields.next()?, fields.next()?);
        path.starts_with(at).then_some((at.len(), device, kind))
    });
    match lines.max_by_key(|(depth, ..)| *depth) {
        Some((_, device, kind)) => format!("filesystem {kind} on {device}"),
        None => "filesystem unknown".into(),
    }
}

/// Makes files of up to 4 KiB, about ten per folder, in folders three levels deep.
pub(super) fn small(root: &Path, files: usize, folders: usize) {
    let each = files.div_ceil(folders.max(1));
    let mut left = files;
    for folder in 0..folders {
        let path = root.join(format!(
            "{}/{}/folder-{folder}",
            folder % 20,
            folder / 20 % 25
        ));
        std::fs::create_dir_all(&path).expect("room for the trees");
        for file in 0..each.min(left) {
            let size = (folder * 31 + file * 977) % 4096;
            let bytes = vec![b'a' + (file % 26) as u8; size];
            std::fs::write(path.join(format!("file-{file}.txt")), bytes)
                .expect("room for the trees");
        }
        left -= each.min(left);
    }
}

/// Makes one file of this size, in which no two blocks are equal.
pub(super) fn one(root: &Path, bytes: u64) {
    use std::io::Write;
    std::fs::create_dir_all(root).expect("room for the trees");
    let mut file = std::fs::File::create(root.join("one")).expect("room");
    let mut left = bytes;
    let mut block = 0_u64;
    while left > 0 {
        let some: Vec<u8> = (0..1 << 17)
            .flat_map(|arg: u64| ((arg * 0x9e37_79b9) ^ (block << 32)).to_le_bytes())
            .take(usize::try_from(left).unwrap_or(usize::MAX))
            .collect();
        file.write_all(&some).expect("room");
        left -= some.len() as u64;
        block += 1;
    }
}

/// Makes files of 256 MiB without holes.
pub(super) fn large(root: &Path, count: usize) {
    use std::io::Write;
    std::fs::create_dir_all(root).expect("room for the trees");
    for number in 0..count {
        let mut file = std::fs::File::create(root.join(format!("large-{number}"))).expect("room");
        for block in 0..256_u32 {
            let bytes: Vec<u8> = (0..1 << 18)
                .flat_map(|arg: u32| (arg ^ block).to_le_bytes())
                .collect();
            file.write_all(&bytes).expect("room");
        }
    }
}

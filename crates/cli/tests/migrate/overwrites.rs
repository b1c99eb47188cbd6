//! Entries of the destination that another program made or changed after the plan are kept.

use super::support::TestDir;

/// Sizes for every way between two disks.
const SIZES: [(&str, usize); 3] = [("small", 10), ("medium", 300 << 10), ("large", 9 << 20)];

fn read(dir: &TestDir, path: &str) -> String {
    std::fs::read_to_string(dir.path(path)).unwrap()
}

/// Makes a source with a file of each size that the destination lacks, and one that differs there.
fn plan(dir: &TestDir) {
    for side in ["src", "dst"] {
        std::fs::create_dir_all(dir.path(side)).unwrap();
    }
    for (name, size) in SIZES {
        for kind in ["new", "old"] {
            let path = dir.path("src").join(format!("{kind}-{name}"));
            std::fs::write(path, vec![b's'; size]).unwrap();
        }
        std::fs::write(dir.path("dst").join(format!("old-{name}")), "before").unwrap();
    }
    for kind in ["new", "old"] {
        let path = dir.path("src").join(format!("{kind}-link"));
        std::os::unix::fs::symlink("of the source", path).unwrap();
    }
    std::os::unix::fs::symlink("before", dir.path("dst/old-link")).unwrap();
    std::fs::write(dir.path("src/free"), "nobody else wants this").unwrap();
    dir.expect(0, &["plan", "src", "dst"]);
}

#[test]
fn a_file_made_or_changed_since_the_plan_is_kept() {
    for flags in [&[][..], &["--checksum"]] {
        let dir = TestDir::new();
        plan(&dir);
        for (name, _) in SIZES {
            for kind in ["new", "old"] {
                let path = dir.path("dst").join(format!("{kind}-{name}"));
                std::fs::write(path, "of another program").unwrap();
            }
        }
        std::os::unix::fs::symlink("of another program", dir.path("dst/new-link")).unwrap();
        std::fs::remove_file(dir.path("dst/old-link")).unwrap();
        std::os::unix::fs::symlink("of another program", dir.path("dst/old-link")).unwrap();
        let printed = dir.expect(3, &[&["copy"][..], flags].concat());
        for (name, _) in SIZES {
            for kind in ["new", "old"] {
                let there = read(&dir, &format!("dst/{kind}-{name}"));
                assert_eq!(
                    there, "of another program",
                    "{kind}-{name} {flags:?}: {printed}"
                );
            }
        }
        for kind in ["new", "old"] {
            let link = std::fs::read_link(dir.path(&format!("dst/{kind}-link"))).unwrap();
            assert_eq!(
                link.to_str(),
                Some("of another program"),
                "{kind} {flags:?}"
            );
        }
        assert_eq!(read(&dir, "dst/free"), "nobody else wants this");
        assert!(
            printed.contains("changed                          8"),
            "{printed}"
        );
        dir.expect_clean("dst");
        // The next pass has listed the new entries.
        dir.expect(0, &["run", "src", "dst"]);
        dir.compare_trees("src", "dst");
    }
}

#[test]
fn a_file_removed_since_the_plan_is_copied() {
    for flags in [&[][..], &["--checksum"]] {
        let dir = TestDir::new();
        plan(&dir);
        std::fs::remove_dir_all(dir.path("dst")).unwrap();
        std::fs::create_dir(dir.path("dst")).unwrap();
        dir.expect(0, &[&["copy"][..], flags].concat());
        dir.compare_trees("src", "dst");
    }
}

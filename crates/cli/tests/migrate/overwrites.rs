//! Entries of the destination that somebody else made or changed after the plan are left alone.

use super::support::Place;

/// Sizes that take every way between two disks.
const SIZES: [(&str, usize); 3] = [("small", 10), ("medium", 300 << 10), ("large", 9 << 20)];

fn read(place: &Place, path: &str) -> String {
    std::fs::read_to_string(place.path(path)).unwrap()
}

/// A source with a file of each size that the destination lacks, and one that it has otherwise.
fn plan(place: &Place) {
    for side in ["src", "dst"] {
        std::fs::create_dir_all(place.path(side)).unwrap();
    }
    for (name, size) in SIZES {
        for kind in ["new", "old"] {
            let path = place.path("src").join(format!("{kind}-{name}"));
            std::fs::write(path, vec![b's'; size]).unwrap();
        }
        std::fs::write(place.path("dst").join(format!("old-{name}")), "before").unwrap();
    }
    for kind in ["new", "old"] {
        let path = place.path("src").join(format!("{kind}-link"));
        std::os::unix::fs::symlink("of the source", path).unwrap();
    }
    std::os::unix::fs::symlink("before", place.path("dst/old-link")).unwrap();
    std::fs::write(place.path("src/free"), "nobody else wants this").unwrap();
    place.expect(0, &["plan", "src", "dst"]);
}

#[test]
fn a_file_that_was_made_or_changed_since_the_plan_is_left_alone() {
    for flags in [&[][..], &["--checksum"]] {
        let place = Place::new();
        plan(&place);
        for (name, _) in SIZES {
            for kind in ["new", "old"] {
                let path = place.path("dst").join(format!("{kind}-{name}"));
                std::fs::write(path, "of somebody else").unwrap();
            }
        }
        std::os::unix::fs::symlink("of somebody else", place.path("dst/new-link")).unwrap();
        std::fs::remove_file(place.path("dst/old-link")).unwrap();
        std::os::unix::fs::symlink("of somebody else", place.path("dst/old-link")).unwrap();
        let told = place.expect(3, &[&["copy"][..], flags].concat());
        for (name, _) in SIZES {
            for kind in ["new", "old"] {
                let there = read(&place, &format!("dst/{kind}-{name}"));
                assert_eq!(there, "of somebody else", "{kind}-{name} {flags:?}: {told}");
            }
        }
        for kind in ["new", "old"] {
            let link = std::fs::read_link(place.path(&format!("dst/{kind}-link"))).unwrap();
            assert_eq!(link.to_str(), Some("of somebody else"), "{kind} {flags:?}");
        }
        assert_eq!(read(&place, "dst/free"), "nobody else wants this");
        assert!(
            told.contains("changed                          8"),
            "{told}"
        );
        place.expect_clean("dst");
        // The next pass has seen it.
        place.expect(0, &["run", "src", "dst"]);
        place.judge("src", "dst");
    }
}

#[test]
fn a_file_that_went_since_the_plan_is_copied() {
    for flags in [&[][..], &["--checksum"]] {
        let place = Place::new();
        plan(&place);
        std::fs::remove_dir_all(place.path("dst")).unwrap();
        std::fs::create_dir(place.path("dst")).unwrap();
        place.expect(0, &[&["copy"][..], flags].concat());
        place.judge("src", "dst");
    }
}

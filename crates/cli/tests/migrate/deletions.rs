//! `--delete`: how much goes, what never does, and that nothing goes before its replacement is
//! there.

use super::support::{Faulty, Mount, Place, is_full};

const PERMANENT: [&str; 4] = ["run", "src", "dst", "--delete=permanent"];

fn write(place: &Place, path: &str, text: &str) {
    let path = place.path(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Runs a permanent deletion with a limit, and expects that it is refused and nothing is gone.
fn expect_refused(place: &Place, limit: u32, delete: &str) {
    let limit_flag = format!("--max-delete={limit}");
    let before = place.tree("dst");
    let told = place.expect(1, &["run", "src", "dst", delete, &limit_flag]);
    assert!(
        told.contains(&format!("more than the limit of {limit}")),
        "{told}"
    );
    assert_eq!(place.tree("dst"), before);
}

#[test]
fn a_folder_counts_with_all_that_is_in_it() {
    let place = Place::new();
    write(&place, "src/same", "x");
    for at in 0..200 {
        write(&place, &format!("dst/extra/{}/{at}", at % 7), "x");
    }
    // The folder, seven in it, and the files.
    for delete in ["--delete=permanent", "--delete=quarantine"] {
        expect_refused(&place, 1, delete);
        expect_refused(&place, 207, delete);
    }
    let told = place.expect(0, &[&PERMANENT[..], &["--max-delete=208"]].concat());
    assert!(
        told.contains("\n208 entries of the destination were deleted\n"),
        "{told}"
    );
    place.judge("src", "dst");
    place.expect_clean("dst");
}

#[test]
fn what_stands_in_the_way_counts_with_all_that_is_in_it() {
    let place = Place::new();
    write(&place, "src/file", "a file now");
    write(&place, "src/folder/in", "a folder now");
    std::os::unix::fs::symlink("file", place.path("src/link")).unwrap();
    for at in 0..50 {
        write(&place, &format!("dst/file/{at}"), "x");
    }
    write(&place, "dst/folder", "a file before");
    write(&place, "dst/link", "a file before");
    for delete in ["--delete=permanent", "--delete=quarantine"] {
        expect_refused(&place, 0, delete);
        expect_refused(&place, 52, delete);
    }
    let told = place.expect(0, &[&PERMANENT[..], &["--max-delete=53"]].concat());
    assert!(
        told.contains("\n53 entries of the destination were deleted\n"),
        "{told}"
    );
    place.judge("src", "dst");
    place.expect_clean("dst");
}

#[test]
fn nothing_goes_before_its_replacement_is_complete() {
    let place = Place::new();
    write(&place, "src/short-file", "a file that ends early");
    write(&place, "src/folder/short-in", "another one");
    write(&place, "src/folder/whole", "this one does not");
    let _mount = Faulty::over(&place, "src", "faulty");
    for delete in ["--delete=permanent", "--delete=quarantine"] {
        place.forget();
        write(&place, "dst/short-file/precious", "x");
        write(&place, "dst/folder", "precious too");
        let words = ["run", "faulty", "dst", delete, "--max-delete=9"];
        let told = place.expect(3, &[&words[..], &["--attempts=2"]].concat());
        assert!(place.path("dst/short-file/precious").exists(), "{told}");
        assert!(place.path("dst/folder/whole").exists(), "{told}");
        let kept = place.path("dst/.headworks-quarantine/pass-1/folder");
        assert_eq!(std::fs::read_to_string(kept).unwrap(), "precious too");
        assert_eq!(place.leftovers("dst").len(), 1, "{:?}", place.tree("dst"));
    }
}

#[test]
fn a_dry_run_says_what_would_go_and_touches_nothing() {
    let place = Place::new();
    write(&place, "src/file", "a file now");
    write(&place, "dst/file/below", "a folder before");
    write(&place, "dst/extra/one", "x");
    write(&place, "dst/extra/two", "x");
    write(&place, "dst/more", "x");
    let before = place.tree("dst");
    for (delete, verb) in [
        ("--delete=permanent", "delete"),
        ("--delete=quarantine", "move to quarantine"),
    ] {
        let words = ["run", "src", "dst", delete, "--max-delete=99", "--dry-run"];
        let told = place.expect(0, &words);
        for line in ["extra (3 entries)", "file (2 entries)", "more (1 entries)"] {
            assert!(told.contains(&format!("would {verb}: {line}\n")), "{told}");
        }
        assert!(
            told.contains(&format!("would {verb} 6 entries\n")),
            "{told}"
        );
    }
    assert_eq!(place.tree("dst"), before);
}

/// A source that is not mounted looks like this.
#[test]
fn an_empty_source_deletes_nothing_unless_that_is_allowed() {
    let place = Place::new();
    std::fs::create_dir(place.path("src")).unwrap();
    write(&place, "dst/precious", "x");
    for delete in ["--delete=permanent", "--delete=quarantine"] {
        let words = ["run", "src", "dst", delete, "--max-delete=9"];
        let told = place.expect(1, &words);
        assert!(told.contains("--allow-empty-source"), "{told}");
        assert!(place.path("dst/precious").exists());
    }
    // With nothing to delete there is nothing to be careful about.
    std::fs::create_dir(place.path("empty")).unwrap();
    let words = ["run", "src", "empty", "--delete=quarantine"];
    let output = place.command_of("other.db", &words).output().unwrap();
    assert!(output.status.success());
    let allowed = ["--max-delete=9", "--allow-empty-source"];
    place.expect(0, &[&PERMANENT[..], &allowed].concat());
    assert!(!place.path("dst/precious").exists());
}

/// One entry that cannot go must not keep every later run from its end.
#[test]
fn what_cannot_be_deleted_is_a_failure_of_its_own() {
    let place = Place::new();
    write(&place, "src/same", "x");
    write(&place, "dst/other", "x");
    let _mount = Mount::tmpfs(place.path("dst/busy"), "1m");
    let words = [&PERMANENT[..], &["--max-delete=9", "--attempts=2"]].concat();
    for _ in 0..2 {
        let told = place.expect(3, &words);
        assert!(told.contains("cannot remove `busy/`"), "{told}");
        assert!(!place.path("dst/other").exists(), "{told}");
        assert!(place.path("dst/same").exists(), "{told}");
    }
}

/// The names that are still there, of these.
fn left<'n>(place: &Place, names: &[&'n str]) -> Vec<&'n str> {
    let is_there = |name: &&&str| place.path("dst").join(name).symlink_metadata().is_ok();
    names.iter().filter(is_there).copied().collect()
}

/// Some that the pattern `*.keep` excludes, on both sides and at the destination only, and some
/// not.
fn make_excluded(place: &Place) {
    write(place, "src/same", "x");
    write(place, "src/both.keep", "of the source");
    write(place, "src/folder.keep/in", "x");
    write(place, "dst/both.keep", "of the destination");
    write(place, "dst/folder.keep/other", "x");
    write(place, "dst/only.keep", "x");
    write(place, "dst/extra/deep/in.keep", "x");
    write(place, "dst/extra/deep/goes", "x");
    write(place, "dst/extra/more/goes", "x");
    write(place, "dst/goes", "x");
}

const EXCLUDED: [&str; 9] = [
    "same",
    "both.keep",
    "folder.keep/other",
    "only.keep",
    "extra/deep/in.keep",
    "extra/deep/goes",
    "extra/more",
    "extra/more/goes",
    "goes",
];

#[test]
fn what_filters_exclude_is_protected() {
    for delete in ["--delete=permanent", "--delete=quarantine"] {
        let place = Place::new();
        make_excluded(&place);
        let words = ["run", "src", "dst", delete, "--exclude=*.keep"];
        // extra/deep/goes, extra/more with what is in it, and goes.
        let told = place.expect(0, &[&words[..], &["--max-delete=4"]].concat());
        assert_eq!(left(&place, &EXCLUDED), EXCLUDED[..5], "{told}");
        assert!(
            told.contains("\n4 entries of the destination were"),
            "{told}"
        );
        let kept = std::fs::read_to_string(place.path("dst/both.keep")).unwrap();
        assert_eq!(kept, "of the destination");
    }
}

#[test]
fn what_filters_exclude_goes_if_that_is_asked_for() {
    let place = Place::new();
    make_excluded(&place);
    let words = [&PERMANENT[..], &["--exclude=*.keep", "--max-delete=99"]].concat();
    place.expect(0, &[&words[..], &["--delete-excluded"]].concat());
    assert_eq!(left(&place, &EXCLUDED), ["same"]);
    let told = place.expect(2, &["run", "src", "dst", "--delete-excluded"]);
    assert!(told.contains("--delete=permanent"), "{told}");
}

#[test]
fn other_filters_and_rules_of_a_review_protect_as_well() {
    let place = Place::new();
    write(&place, "src/a.jpg", "x");
    for name in ["b.jpg", "c.txt", "d/e.txt", "f/g.jpg", "large.jpg", "h.jpg"] {
        let text = if name == "large.jpg" {
            "x".repeat(5000)
        } else {
            "x".to_owned()
        };
        write(&place, &format!("dst/{name}"), &text);
    }
    let filters = ["--include=*.jpg", "--max-size=1k"];
    place.expect(0, &[&["plan", "src", "dst"][..], &filters].concat());
    place.expect(0, &["review", "--exclude", "h.*"]);
    place.expect(0, &["copy", "--delete=permanent", "--max-delete=3"]);
    let names = [
        "a.jpg",
        "c.txt",
        "d/e.txt",
        "large.jpg",
        "h.jpg",
        "b.jpg",
        "f",
    ];
    assert_eq!(left(&place, &names), names[..5]);
}

/// A folder with something protected in it cannot be replaced by a file.
#[test]
fn what_filters_exclude_is_not_replaced_with_the_folder_that_it_is_in() {
    let place = Place::new();
    write(&place, "src/name", "a file now");
    write(&place, "dst/name/in.keep", "x");
    write(&place, "dst/name/other", "x");
    let words = [&PERMANENT[..], &["--exclude=*.keep", "--max-delete=99"]].concat();
    let told = place.expect(4, &words);
    assert!(told.contains("type_conflict"), "{told}");
    assert!(place.path("dst/name/in.keep").exists() && place.path("dst/name/other").exists());
    place.expect_clean("dst");
    place.expect(0, &[&words[..], &["--delete-excluded"]].concat());
    assert_eq!(
        std::fs::read_to_string(place.path("dst/name")).unwrap(),
        "a file now"
    );
}

#[test]
fn killed_at_every_deletion_it_ends_and_counts_each_once() {
    let place = Place::new();
    write(&place, "src/file", "a file now");
    write(&place, "src/folder/in/deep", "a folder now");
    std::os::unix::fs::symlink("file", place.path("src/link")).unwrap();
    let some = if is_full() { 1 } else { 3 };
    for (point, step) in [
        ("after-put-away", 1),
        ("before-commit", some),
        ("after-commit", some),
    ] {
        for time in (1..).step_by(step) {
            place.forget();
            write(&place, "dst/file/one", "x");
            write(&place, "dst/file/two", "x");
            write(&place, "dst/folder", "a file before");
            write(&place, "dst/link", "a file before");
            write(&place, "dst/extra/one", "x");
            write(&place, "dst/more", "x");
            let words = [&PERMANENT[..], &["--max-delete=8"]].concat();
            let mut command = place.command(&words);
            command.env("HEADWORKS_FAILPOINT", format!("{point}:{time}"));
            if place.expect_end_of(command).status.code().is_some() {
                assert!(time > 4, "{point} was passed {time} times");
                break;
            }
            if place.stage() == "done" {
                continue;
            }
            let told = place.expect(0, &words);
            let counted = "\n8 entries of the destination were deleted\n";
            assert!(told.contains(counted), "{point}:{time}: {told}");
            place.judge("src", "dst");
            place.expect_clean("dst");
        }
    }
}

//! Entries that `run` and `verify` look at, according to the calls that the storages recorded.

use crate::support::{Faulty, TestDir, text};

/// Runs a command and returns what it looked up at the destination, without the root.
fn lookups(dir: &TestDir, args: &[&str]) -> Vec<String> {
    let _ = std::fs::remove_file(dir.path("trace"));
    let output = dir
        .command(args)
        .env("HEADWORKS_TRACE", dir.path("trace"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let calls = dir.calls().into_iter();
    let looked = calls.filter_map(|call| Some(call.strip_prefix("destination stat ")?.to_owned()));
    let mut looked: Vec<String> = looked.filter(|path| !path.is_empty()).collect();
    looked.sort();
    looked
}

#[test]
fn a_run_verifies_only_what_it_copied() {
    let dir = TestDir::new();
    for folder in ["src/a", "src/b/c"] {
        std::fs::create_dir_all(dir.path(folder)).unwrap();
        for name in 0..10 {
            std::fs::write(dir.path(folder).join(name.to_string()), "bytes").unwrap();
        }
    }
    let run = ["run", "src", "dst"];
    let all = lookups(&dir, &run).len();
    assert!(all > 20, "{all}");
    assert_eq!(lookups(&dir, &run), Vec::<String>::new());
    std::fs::write(dir.path("src/new"), "bytes").unwrap();
    assert!(lookups(&dir, &run).contains(&"new".to_owned()));
    assert!(lookups(&dir, &run).is_empty());
    // A verification by itself looks at everything.
    assert!(lookups(&dir, &["verify"]).len() >= all);
}

#[test]
fn a_run_finds_what_vanished_after_the_copy() {
    let dir = TestDir::new();
    std::fs::create_dir(dir.path("src")).unwrap();
    for name in ["a", "b"] {
        std::fs::write(dir.path("src").join(name), name).unwrap();
    }
    dir.expect(0, &["run", "src", "dst"]);
    std::fs::remove_file(dir.path("dst/a")).unwrap();
    let printed = dir.expect(4, &["verify"]);
    assert!(printed.contains("a: missing"), "{printed}");
}

/// A file with other bytes has the size and the time that a plan expects, so the copy of the last
/// pass is taken up again. Everything else that differs is found as well.
#[test]
fn a_run_after_a_verification_repairs_all_that_differs() {
    let dir = TestDir::new();
    std::fs::create_dir_all(dir.path("src/in a/folder")).unwrap();
    for name in ["in a/folder/damaged", "grown", "same"] {
        std::fs::write(dir.path("src").join(name), "the bytes of a file").unwrap();
    }
    dir.expect(0, &["run", "src", "dst"]);
    // A second pass, so that nothing of the first one is left to do.
    dir.expect(0, &["run", "src", "dst"]);
    let damaged = dir.path("dst/in a/folder/damaged");
    let time = std::fs::metadata(&damaged).unwrap().modified().unwrap();
    std::fs::write(&damaged, "the bytes of a FILE").unwrap();
    let file = std::fs::File::options().write(true).open(&damaged).unwrap();
    file.set_modified(time).unwrap();
    std::fs::write(dir.path("dst/grown"), "the bytes of a file and more").unwrap();
    std::fs::write(dir.path("dst/extra"), "only here").unwrap();

    let printed = dir.expect(4, &["verify", "--hash"]);
    assert!(printed.contains("damaged: different (hash)"), "{printed}");
    assert!(printed.contains("grown: different (size)"), "{printed}");
    // A file that cannot be copied yet is not forgotten.
    let immutable = |flag: &str| {
        let set = std::process::Command::new("chattr")
            .args([flag.as_ref(), damaged.as_os_str()])
            .status();
        assert!(set.is_ok_and(|set| set.success()), "chattr {flag}");
    };
    immutable("+i");
    dir.expect(3, &["run", "src", "dst"]);
    dir.expect(3, &["run", "src", "dst"]);
    immutable("-i");
    let delete = ["--delete=permanent", "--max-delete=1"];
    dir.expect(0, &[&["run", "src", "dst"], &delete[..]].concat());
    for name in ["in a/folder/damaged", "grown", "same"] {
        let copied = std::fs::read_to_string(dir.path("dst").join(name)).unwrap();
        assert_eq!(copied, "the bytes of a file", "{name}");
    }
    assert!(!dir.path("dst/extra").exists(), "it was to be deleted");
    dir.expect(0, &["verify", "--hash"]);
}

/// The copy has the folder from before, so nothing differs as far as can be seen.
#[test]
fn a_folder_that_could_not_be_listed_is_not_verified() {
    let dir = TestDir::new();
    for folder in ["src/fine", "src/broken folder"] {
        std::fs::create_dir_all(dir.path(folder)).unwrap();
        std::fs::write(dir.path(folder).join("file"), "bytes").unwrap();
    }
    dir.expect(0, &["run", "src", "dst"]);
    dir.expect(0, &["verify"]);
    dir.remove_state();
    let _mount = Faulty::over(&dir, "src", "faulty");
    dir.expect(3, &["plan", "faulty", "dst", "--attempts", "1"]);
    let printed = dir.expect(4, &["verify"]);
    let unlisted = "1 folders of the source could not be listed";
    assert!(printed.contains(unlisted), "{printed}");
    // After a retry the plan is unfinished.
    dir.expect(0, &["retry"]);
    assert_eq!(dir.stage(), "planning");
    let refused = dir.expect(2, &["verify"]);
    assert!(refused.contains("the plan is not finished"), "{refused}");
}

#[test]
fn a_change_of_extended_attributes_alone_is_found() {
    let dir = TestDir::new();
    std::fs::create_dir_all(dir.path("src/folder")).unwrap();
    for name in ["src/a", "src/b", "src/folder/c"] {
        std::fs::write(dir.path(name), "bytes").unwrap();
    }
    let set = |path: &str, value: &str| {
        let script =
            "import os, sys; os.setxattr(sys.argv[1], 'user.colour', sys.argv[2].encode())";
        dir.python(script, &[path, value]);
    };
    set("src/a", "red");
    set("src/folder", "green");
    dir.expect(0, &["run", "src", "dst"]);
    dir.expect(0, &["verify"]);
    set("src/a", "blue");
    set("dst/b", "of another program");
    let printed = dir.expect(4, &["verify"]);
    assert!(printed.contains("different (xattrs): 2"), "{printed}");
    // A job that does not preserve them does not compare them either.
    dir.expect(
        0,
        &[
            "run",
            "src",
            "dst",
            "--preserve=mode,owner,times,acls,links",
        ],
    );
    dir.expect(0, &["verify"]);
}

//! Destinations that can do less than the source.

use super::limited_fs::{Limits, mount};
use super::support::{Mount, TestDir};
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::Duration;

fn tree(dir: &TestDir) {
    std::fs::create_dir_all(dir.path("src/folder")).unwrap();
    for name in ["one", "two", "folder/three"] {
        let path = dir.path("src").join(name);
        std::fs::write(&path, name).unwrap();
        std::os::unix::fs::chown(&path, Some(1234), Some(1234)).unwrap();
    }
}

#[test]
fn coarse_times_do_not_mean_endless_copying() {
    for granularity in [100, 1_000_000_000, 2_000_000_000] {
        let dir = TestDir::new();
        tree(&dir);
        let granularity = Duration::from_nanos(granularity);
        let limits = Limits {
            granularity,
            ..Limits::NONE
        };
        let _mounted = mount(&dir.path("dst"), limits);
        dir.expect(0, &["run", "src", "dst"]);
        let again = dir.expect(0, &["run", "src", "dst"]);
        assert!(!again.contains("copied"), "{granularity:?}: {again}");
    }
}

#[test]
fn files_arrive_where_nobody_can_give_them_away() {
    let dir = TestDir::new();
    tree(&dir);
    let limits = Limits {
        can_chown: false,
        can_chmod: false,
        has_xattrs: false,
        ..Limits::NONE
    };
    let _mounted = mount(&dir.path("dst"), limits);
    let printed = dir.expect(0, &["run", "src", "dst"]);
    for name in ["one", "two", "folder/three"] {
        let copied = dir.path("dst").join(name);
        assert_eq!(std::fs::read_to_string(&copied).unwrap(), name);
        assert_eq!(std::fs::metadata(&copied).unwrap().uid(), 0);
    }
    let lost = "the destination does not keep: owners, permissions, extended attributes";
    assert!(printed.contains(lost), "{printed}");
    let again = dir.expect(0, &["run", "src", "dst"]);
    assert!(!again.contains("copied"), "{again}");
}

fn folding() -> Limits {
    Limits {
        folds_case: true,
        ..Limits::NONE
    }
}

fn write(dir: &TestDir, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = dir.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

fn read(dir: &TestDir, path: &str) -> String {
    std::fs::read_to_string(dir.path(path)).unwrap()
}

#[test]
fn names_that_the_destination_cannot_tell_apart_are_conflicts() {
    let dir = TestDir::new();
    let files = [
        ("src/README", "one file"),
        ("src/readme", "another!"),
        ("src/Folder/a", "in one"),
        ("src/folder/a", "in two"),
    ];
    write(&dir, &files);
    // The same time as well: nothing but the bytes tells the files apart.
    let time = std::fs::metadata(dir.path("src/README"))
        .unwrap()
        .modified();
    let mut options = std::fs::File::options();
    let file = options.append(true).open(dir.path("src/readme"));
    file.unwrap().set_modified(time.unwrap()).unwrap();
    // rsync loses two files, and says nothing.
    let _other = mount(&dir.path("rsync"), folding());
    let mut rsync = Command::new("rsync");
    let rsync = rsync.arg("-a").arg(dir.path("src/")).arg(dir.path("rsync"));
    assert!(rsync.status().unwrap().success());
    assert_eq!(std::fs::read_dir(dir.path("rsync")).unwrap().count(), 2);
    let _mounted = mount(&dir.path("dst"), folding());
    let plan = dir.expect(0, &["plan", "src", "dst"]);
    assert!(
        plan.contains("name_conflict                    2"),
        "{plan}"
    );
    dir.expect(4, &["run", "src", "dst"]);
    assert_eq!(read(&dir, "dst/README"), "one file");
    assert_eq!(read(&dir, "dst/Folder/a"), "in one");
    assert_eq!(std::fs::read_dir(dir.path("dst")).unwrap().count(), 2);
    let explained = dir.expect(0, &["explain", "readme"]);
    assert!(explained.contains("name_conflict"), "{explained}");
    // Another pass finds the same, and so does `--delete`.
    dir.expect(
        4,
        &[
            "run",
            "src",
            "dst",
            "--delete",
            "permanent",
            "--max-delete",
            "9",
        ],
    );
    assert_eq!(read(&dir, "dst/README"), "one file");
    assert_eq!(read(&dir, "dst/Folder/a"), "in one");
}

#[test]
fn a_file_in_another_spelling_is_neither_missing_nor_extra() {
    let dir = TestDir::new();
    write(
        &dir,
        &[("src/README", "newer text"), ("src/Docs/Guide", "g")],
    );
    let _mounted = mount(&dir.path("dst"), folding());
    write(&dir, &[("dst/readme", "old"), ("dst/docs/extra", "e")]);
    let plan = dir.expect(0, &["plan", "src", "dst"]);
    assert!(
        plan.contains("different (size)                 1"),
        "{plan}"
    );
    dir.expect(
        0,
        &[
            "run",
            "src",
            "dst",
            "--delete",
            "permanent",
            "--max-delete",
            "9",
        ],
    );
    assert_eq!(read(&dir, "dst/README"), "newer text");
    assert_eq!(read(&dir, "dst/Docs/Guide"), "g");
    assert!(!dir.path("dst/Docs/extra").exists());
    let again = dir.expect(
        0,
        &[
            "run",
            "src",
            "dst",
            "--delete",
            "permanent",
            "--max-delete",
            "9",
        ],
    );
    assert!(!again.contains("copied"), "{again}");
}

#[test]
fn links_become_what_the_destination_has() {
    let dir = TestDir::new();
    write(&dir, &[("src/file", "text")]);
    std::fs::hard_link(dir.path("src/file"), dir.path("src/link")).unwrap();
    std::os::unix::fs::symlink("file", dir.path("src/symlink")).unwrap();
    let limits = Limits {
        has_symlinks: false,
        has_hard_links: false,
        ..Limits::NONE
    };
    let _mounted = mount(&dir.path("dst"), limits);
    let printed = dir.expect(4, &["run", "src", "dst"]);
    assert!(
        printed.contains("unsupported                      1"),
        "{printed}"
    );
    assert_eq!(read(&dir, "dst/link"), "text");
    assert_eq!(read(&dir, "dst/file"), "text");
}

#[test]
fn the_free_space_is_checked_and_the_check_can_be_overruled() {
    let dir = TestDir::new();
    std::fs::create_dir(dir.path("src")).unwrap();
    let sparse = std::fs::File::create(dir.path("src/sparse")).unwrap();
    sparse.set_len(1 << 20).unwrap();
    let small = Limits {
        free: 64 << 10,
        ..Limits::NONE
    };
    let _mounted = mount(&dir.path("mnt"), small);
    // The destination does not exist yet.
    let refused = dir.expect(1, &["run", "src", "mnt/dst"]);
    let reason = "1048576 bytes are to be copied but only 65536 are free";
    assert!(refused.contains(reason), "{refused}");
    assert!(refused.contains("--ignore-free-space"), "{refused}");
    assert!(!dir.path("mnt/dst").exists());
    dir.expect(0, &["run", "src", "mnt/dst", "--ignore-free-space"]);
    assert_eq!(
        std::fs::metadata(dir.path("mnt/dst/sparse")).unwrap().len(),
        1 << 20
    );
}

#[test]
fn what_fits_is_not_refused() {
    let dir = TestDir::new();
    write(&dir, &[("src/file", &"x".repeat(40 << 10))]);
    std::fs::hard_link(dir.path("src/file"), dir.path("src/link")).unwrap();
    let small = Limits {
        free: 64 << 10,
        ..Limits::NONE
    };
    let _small = mount(&dir.path("small"), small);
    dir.expect(0, &["run", "src", "small/dst"]);
    let untold = Limits {
        free: 0,
        ..Limits::NONE
    };
    let _untold = mount(&dir.path("untold"), untold);
    let again = dir.command_with_state("other.db", &["run", "src", "untold/dst"]);
    let output = dir.expect_end_of(again);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        super::support::text(&output)
    );
}

#[test]
fn names_are_matched_in_folders_of_many_pages() {
    let dir = TestDir::new();
    let names: Vec<String> = (0..3000).map(|n| format!("src/File{n}")).collect();
    let mut files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x")).collect();
    files.extend([("src/file7", "another"), ("src/FILE2999", "another")]);
    write(&dir, &files);
    let _mounted = mount(&dir.path("dst"), folding());
    write(&dir, &[("dst/fILE1500", "old text"), ("dst/extra", "e")]);
    let args = [
        "run",
        "src",
        "dst",
        "--delete",
        "permanent",
        "--max-delete",
        "1",
    ];
    let printed = dir.expect(4, &args);
    assert!(
        printed.contains("name_conflict                    2"),
        "{printed}"
    );
    assert_eq!(std::fs::read_dir(dir.path("dst")).unwrap().count(), 3000);
    assert_eq!(read(&dir, "dst/File1500"), "x");
    assert!(!dir.path("dst/extra").exists());
}

#[test]
fn an_excluded_file_is_protected_in_every_spelling() {
    let dir = TestDir::new();
    write(&dir, &[("src/README", "source"), ("src/other", "o")]);
    let _mounted = mount(&dir.path("dst"), folding());
    write(&dir, &[("dst/readme", "kept")]);
    let args = [
        "run",
        "src",
        "dst",
        "--exclude",
        "README",
        "--delete",
        "permanent",
        "--max-delete",
        "5",
    ];
    dir.expect(0, &args);
    assert_eq!(read(&dir, "dst/readme"), "kept");
}

/// A rule of `review` takes effect after the names were compared.
#[test]
fn a_file_that_is_taken_in_again_does_not_share_its_name() {
    let dir = TestDir::new();
    write(
        &dir,
        &[("src/README", "one file"), ("src/readme", "another")],
    );
    let _mounted = mount(&dir.path("dst"), folding());
    dir.expect(0, &["plan", "src", "dst", "--exclude", "README"]);
    dir.expect(0, &["review", "--include", "README"]);
    let printed = dir.expect(4, &["copy"]);
    assert!(
        printed.contains("name_conflict                    1"),
        "{printed}"
    );
    assert_eq!(std::fs::read_dir(dir.path("dst")).unwrap().count(), 1);
    assert_eq!(read(&dir, "dst/readme"), "another");
    dir.expect(4, &["verify"]);
}

/// Other attributes are neither written nor compared, and the next pass finds nothing to do.
#[test]
fn only_the_attributes_that_are_asked_for_are_copied() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    const SET: &str = "
import os
os.chmod('src/file', 0o604)
os.chown('src/file', 1234, 4321)
os.setxattr('src/file', 'user.note', b'text')
os.setxattr('src/file', 'system.posix_acl_access', bytes.fromhex(
    '0200000001000600ffffffff02000400d2040000040000000000000010000600ffffffff20000400ffffffff'.replace(
    '040000000000000010000600', '04000000ffffffff10000600')))
os.utime('src/file', (10**9, 10**9))
";
    const LIST: &str = "
import os, sys
print(*sorted(os.listxattr(sys.argv[1])))
";
    for (preserve, mode, owner, modified, xattrs, links) in [
        ("none", 0o644, 0, false, "", 1),
        ("times,links", 0o644, 0, true, "", 2),
        ("times,xattrs", 0o644, 0, true, "user.note", 1),
        (
            "times,mode,acls",
            0o664,
            0,
            true,
            "system.posix_acl_access",
            1,
        ),
        ("times,owner", 0o644, 1234, true, "", 1),
        (
            "all",
            0o664,
            1234,
            true,
            "system.posix_acl_access user.note",
            2,
        ),
    ] {
        let dir = TestDir::new();
        write(&dir, &[("src/file", "text"), ("src/folder/in", "in")]);
        std::fs::hard_link(dir.path("src/file"), dir.path("src/link")).unwrap();
        dir.python(SET, &[]);
        let flag = format!("--preserve={preserve}");
        for checksum in [false, true] {
            dir.reset();
            let mut args = vec!["run", "src", "dst", flag.as_str()];
            args.extend(checksum.then_some("--checksum"));
            let printed = dir.expect(0, &args);
            let file = std::fs::metadata(dir.path("dst/file")).unwrap();
            let found = (file.permissions().mode() & 0o777, file.uid(), file.nlink());
            assert_eq!(found, (mode, owner, links), "{preserve}: {printed}");
            assert_eq!(file.mtime() == 1_000_000_000, modified, "{preserve}");
            assert_eq!(dir.python(LIST, &["dst/file"]).trim(), xattrs, "{preserve}");
            // The job remembers, and finds nothing to do.
            let printed = dir.expect(0, &["run", "src", "dst", "--dry-run"]);
            assert!(
                printed.contains("would copy 0 entries"),
                "{preserve}: {printed}"
            );
            dir.expect(0, &["verify"]);
        }
    }
    let dir = TestDir::new();
    let refused = dir.expect(2, &["plan", "src", "dst", "--preserve=colour"]);
    assert!(refused.contains("mode, owner, times, xattrs"), "{refused}");
    write(&dir, &[("src/file", "text")]);
    let bucket = "s3://b?anonymous&endpoint=http://127.0.0.1:1";
    let refused = dir.expect(2, &["plan", "src", bucket, "--preserve=times"]);
    assert!(
        refused.contains("a destination that is a directory"),
        "{refused}"
    );
}

fn set_xattr(dir: &TestDir, path: &str, name: &str, size: usize) {
    let script = "import os, sys; os.setxattr(sys.argv[1], sys.argv[2], b'x' * int(sys.argv[3]))";
    let path = dir.path(path);
    let path = path.to_str().unwrap();
    dir.python(script, &[path, name, &size.to_string()]);
    let script = "import os, sys; print(len(os.getxattr(sys.argv[1], sys.argv[2])))";
    let set = dir.python(script, &[path, name]);
    assert_eq!(set.trim(), size.to_string(), "{name}");
}

/// ext4 keeps an attribute of at most a block, and says that the disk is full.
#[test]
fn an_attribute_that_is_too_large_costs_neither_the_file_nor_the_run() {
    let dir = TestDir::new();
    let _source = mount(&dir.path("src"), Limits::NONE);
    write(
        &dir,
        &[("src/a", "first"), ("src/big", "bytes"), ("src/z", "last")],
    );
    set_xattr(&dir, "src/big", "user.big", 12_000);
    set_xattr(&dir, "src/big", "user.small", 5);
    let image = dir.path("image");
    std::fs::File::create(&image)
        .unwrap()
        .set_len(64 << 20)
        .unwrap();
    let mut mkfs = Command::new("mkfs.ext4");
    assert!(
        mkfs.args(["-q", "-F"])
            .arg(&image)
            .status()
            .unwrap()
            .success()
    );
    let _mounted = Mount::image(&image, dir.path("mnt"));
    let printed = dir.expect(0, &["run", "src", "mnt/dst"]);
    for (name, text) in [("a", "first"), ("big", "bytes"), ("z", "last")] {
        assert_eq!(read(&dir, &format!("mnt/dst/{name}")), text, "{printed}");
    }
    assert!(
        printed.contains("copied, lost: `big`: xattr user.big\n"),
        "{printed}"
    );
    assert!(
        printed.contains("1 entries were copied without"),
        "{printed}"
    );
    let report = dir.expect(0, &["report", "--csv"]);
    assert!(
        report.contains("big,copy,LostAttributes,1,xattr user.big,"),
        "{report}"
    );
    // A reported loss is not a difference.
    dir.expect(0, &["verify"]);
}

#[test]
fn attributes_that_the_destination_refuses_cost_no_file() {
    for (refused, errno) in [
        ("user.foreign", libc::EOPNOTSUPP),
        ("user.foreign", libc::EINVAL),
    ] {
        let dir = TestDir::new();
        write(
            &dir,
            &[("src/file", "bytes"), ("src/large", &"x".repeat(9 << 20))],
        );
        for path in ["src/file", "src/large"] {
            set_xattr(&dir, path, "user.foreign", 3);
            set_xattr(&dir, path, "user.known", 3);
        }
        let limits = Limits {
            refused_xattr: Some((refused, errno)),
            ..Limits::NONE
        };
        let _mounted = mount(&dir.path("dst"), limits);
        let printed = dir.expect(0, &["run", "src", "dst"]);
        for name in ["file", "large"] {
            assert_eq!(
                read(&dir, &format!("dst/{name}")),
                read(&dir, &format!("src/{name}"))
            );
            let lost = format!("copied, lost: `{name}`: xattr user.foreign\n");
            assert!(printed.contains(&lost), "{printed}");
        }
        dir.expect(0, &["verify"]);
    }
}

#[test]
fn an_owner_without_a_number_there_costs_no_file() {
    let dir = TestDir::new();
    tree(&dir);
    std::os::unix::fs::chown(dir.path("src/one"), Some(65_534), None).unwrap();
    let limits = Limits {
        unmapped_owner: Some(65_534),
        ..Limits::NONE
    };
    let _mounted = mount(&dir.path("dst"), limits);
    let printed = dir.expect(0, &["run", "src", "dst"]);
    assert_eq!(read(&dir, "dst/one"), "one");
    assert!(
        printed.contains("copied, lost: `one`: owner\n"),
        "{printed}"
    );
    assert_eq!(std::fs::metadata(dir.path("dst/two")).unwrap().uid(), 1234);
    dir.expect(0, &["verify"]);
}

/// Gives files the same time as well: nothing but the bytes tells them apart.
fn same_time(dir: &TestDir, paths: &[&str]) {
    for path in paths {
        let file = std::fs::File::options().append(true).open(dir.path(path));
        let time = std::time::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
        file.unwrap().set_modified(time).unwrap();
    }
}

#[test]
fn letters_that_fold_to_several_are_the_same_name() {
    let dir = TestDir::new();
    write(
        &dir,
        &[("src/STRASSE", "one file"), ("src/stra\u{df}e", "another!")],
    );
    same_time(&dir, &["src/STRASSE", "src/stra\u{df}e"]);
    let limits = Limits {
        folds_fully: true,
        ..folding()
    };
    let _mounted = mount(&dir.path("dst"), limits);
    let printed = dir.expect(4, &["run", "src", "dst"]);
    assert!(
        printed.contains("name_conflict                    1"),
        "{printed}"
    );
    assert_eq!(read(&dir, "dst/STRASSE"), "one file");
}

/// The destination ignores a letter that is a letter for us.
#[test]
fn a_file_is_not_our_own_if_it_has_another_spelling() {
    let dir = TestDir::new();
    write(
        &dir,
        &[
            ("src/soft\u{ad}hyphen", "one file"),
            ("src/softhyphen", "another!"),
        ],
    );
    same_time(&dir, &["src/soft\u{ad}hyphen", "src/softhyphen"]);
    let limits = Limits {
        folds_fully: true,
        ..folding()
    };
    let _mounted = mount(&dir.path("dst"), limits);
    let printed = dir.expect(3, &["run", "src", "dst"]);
    let names = std::fs::read_dir(dir.path("dst")).unwrap();
    let names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names.len(), 1, "{names:?}: {printed}");
    // The file has the bytes of the source's file of exactly this name.
    let both = ["src", "dst"].map(|side| read(&dir, &format!("{side}/{}", names[0])));
    assert_eq!(both[0], both[1], "{printed}");
    dir.expect_clean("dst");
}

#[test]
fn names_that_differ_in_normalisation_are_conflicts() {
    let dir = TestDir::new();
    write(
        &dir,
        &[
            ("src/caf\u{e9}", "composed"),
            ("src/cafe\u{301}", "separate"),
        ],
    );
    same_time(&dir, &["src/caf\u{e9}", "src/cafe\u{301}"]);
    let limits = Limits {
        folds_unicode: true,
        ..Limits::NONE
    };
    let _mounted = mount(&dir.path("dst"), limits);
    let plan = dir.expect(0, &["plan", "src", "dst"]);
    assert!(
        plan.contains("name_conflict                    1"),
        "{plan}"
    );
    let notice = "names that differ in Unicode normalisation only";
    assert!(plan.contains(notice), "{plan}");
    dir.expect(4, &["run", "src", "dst"]);
    assert_eq!(std::fs::read_dir(dir.path("dst")).unwrap().count(), 1);
}

#[test]
fn names_that_are_too_long_there_are_in_the_plan() {
    let dir = TestDir::new();
    let long = format!("src/{}", "n".repeat(144));
    let fits = format!("src/{}", "n".repeat(143));
    write(&dir, &[(&long, "long"), (&fits, "fits")]);
    let limits = Limits {
        longest_name: 143,
        ..Limits::NONE
    };
    let _mounted = mount(&dir.path("dst"), limits);
    let plan = dir.expect(0, &["plan", "src", "dst"]);
    assert!(
        plan.contains("name_conflict                    1"),
        "{plan}"
    );
    dir.expect(4, &["run", "src", "dst"]);
    assert_eq!(read(&dir, &fits.replace("src", "dst")), "fits");
}

#[test]
fn owners_are_mapped_in_the_copy_and_in_the_comparison() {
    let dir = TestDir::new();
    tree(&dir);
    std::os::unix::fs::chown(dir.path("src/two"), Some(77), Some(88)).unwrap();
    std::os::unix::fs::symlink("one", dir.path("src/link")).unwrap();
    std::os::unix::fs::lchown(dir.path("src/link"), Some(1234), Some(5)).unwrap();
    let map = ["--map-owner", "1234:2000", "--map-group", "1234:3000"];
    let plan = dir.expect(0, &[&["plan", "src", "dst"], &map[..]].concat());
    let notice = "at the destination, user 1234 becomes 2000, group 1234 becomes 3000";
    assert!(plan.contains(notice), "{plan}");
    for flags in [&[][..], &["--checksum"]] {
        dir.reset();
        dir.expect(0, &[&["run", "src", "dst"], &map[..], flags].concat());
        let owner = |name: &str| {
            let entry = std::fs::symlink_metadata(dir.path("dst").join(name)).unwrap();
            (entry.uid(), entry.gid())
        };
        assert_eq!(owner("one"), (2000, 3000), "{flags:?}");
        assert_eq!(owner("folder/three"), (2000, 3000), "{flags:?}");
        assert_eq!(owner("two"), (77, 88), "{flags:?}");
        assert_eq!(owner("link"), (2000, 5), "{flags:?}");
        dir.expect(0, &["verify"]);
        let again = dir.expect(0, &["run", "src", "dst"]);
        assert!(!again.contains("copied "), "{again}");
    }
    // Without a map, a plan finds the owners to be others.
    dir.remove_state();
    let plan = dir.expect(0, &["plan", "src", "dst"]);
    assert!(
        plan.contains("different (metadata)             3"),
        "{plan}"
    );
    dir.expect(2, &["plan", "src", "dst", "--map-owner", "me:you"]);
}

/// Returns a command that finds `folding_sftp.py` when it starts `ssh`.
fn with_folding_sftp(dir: &TestDir, args: &[&str]) -> Command {
    use std::os::unix::fs::PermissionsExt;
    let server = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/migrate/folding_sftp.py");
    let program = dir.path("bin/ssh");
    let script = format!("#!/bin/sh\nexec python3 {server} \"$@\"\n");
    std::fs::create_dir_all(dir.path("bin")).unwrap();
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let others = std::env::var("PATH").unwrap_or_default();
    let mut command = dir.command(args);
    command.env("PATH", format!("{}:{others}", dir.path("bin").display()));
    command
}

/// An SFTP server tells whole seconds, so files of one size look the same.
#[test]
fn a_file_of_a_server_is_not_our_own_if_it_has_another_spelling() {
    let dir = TestDir::new();
    write(&dir, &[("src/README", "one"), ("src/readme", "two")]);
    let at = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for name in ["src/README", "src/readme"] {
        let file = std::fs::File::options().write(true).open(dir.path(name));
        file.unwrap().set_modified(at).unwrap();
    }
    let url = format!("sftp://tester@localhost{}", dir.path("dst").display());
    let output = with_folding_sftp(&dir, &["run", "src", &url]).output();
    let output = output.unwrap();
    let printed = super::support::text(&output);
    assert_eq!(output.status.code(), Some(3), "{printed}");
    let found = dir.tree("dst");
    assert_eq!(found.len(), 1, "{found:?}: {printed}");
    let name = found[0].file_name().unwrap().to_str().unwrap();
    let source = read(&dir, &format!("src/{name}"));
    assert_eq!(read(&dir, &format!("dst/{name}")), source, "{printed}");
}

/// A run that died before it recorded its file finds it again.
#[test]
fn a_file_of_a_server_is_our_own_after_a_kill() {
    let dir = TestDir::new();
    write(&dir, &[("src/README", "one")]);
    let url = format!("sftp://tester@localhost{}", dir.path("dst").display());
    let mut command = with_folding_sftp(&dir, &["run", "src", &url]);
    command.env("HEADWORKS_FAILPOINT", "after-upload-rename:1");
    let killed = dir.expect_end_of(command);
    assert_eq!(killed.status.code(), None);
    assert_eq!(read(&dir, "dst/README"), "one");
    let output = dir.expect_end_of(with_folding_sftp(&dir, &["run", "src", &url]));
    let printed = super::support::text(&output);
    assert_eq!(output.status.code(), Some(0), "{printed}");
}

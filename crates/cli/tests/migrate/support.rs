//! A temporary folder to migrate in, the binary, and the independent checker.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub(crate) struct TestDir {
    folder: tempfile::TempDir,
}

pub(crate) fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}

impl TestDir {
    pub(crate) fn new() -> TestDir {
        let folder = tempfile::tempdir().expect("a temporary folder");
        TestDir { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.command_with_state("job.db", args)
    }

    /// Returns a command with another state file.
    pub(crate) fn command_with_state(&self, state: &str, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headworks"));
        command.arg("migrate").args(args).args(["--state", state]);
        command.current_dir(self.folder.path());
        command
            .env_remove("HEADWORKS_FAILPOINT")
            .env_remove("HEADWORKS_TRACE");
        command
    }

    /// Starts the binary next to the test.
    pub(crate) fn start(&self, args: &[&str]) -> Child {
        self.command(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs")
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the binary runs")
    }

    /// Runs the binary and expects that it ends: one that waits for itself fails the test.
    pub(crate) fn expect_end(&self, args: &[&str]) -> Output {
        self.expect_end_of(self.command(args))
    }

    pub(crate) fn expect_end_of(&self, mut command: Command) -> Output {
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("the binary runs");
        let began = Instant::now();
        while child.try_wait().expect("it can be waited for").is_none() {
            if began.elapsed() > TIMEOUT {
                let _ = child.kill();
                let output = child.wait_with_output().expect("it was killed");
                panic!("it never ends: {command:?}: {}", text(&output));
            }
            std::thread::yield_now();
        }
        child.wait_with_output().expect("it has ended")
    }

    /// Runs the binary and expects an exit code.
    pub(crate) fn expect(&self, code: i32, args: &[&str]) -> String {
        let output = self.run(args);
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {printed}");
        printed
    }

    /// Runs the binary and expects that it repeats no call whose result is durable, according to
    /// the recorded calls.
    pub(crate) fn expect_no_repeats(&self, args: &[&str]) -> Output {
        let done = self.durable();
        let trace = self.path("trace");
        let _ = std::fs::remove_file(&trace);
        let mut command = self.command(args);
        command.env("HEADWORKS_TRACE", &trace);
        let output = self.expect_end_of(command);
        let again: Vec<String> = self
            .calls()
            .into_iter()
            .filter(|call| done.contains(call))
            .collect();
        assert!(again.is_empty(), "asked for again: {again:?}");
        output
    }

    /// Returns the calls to the backends, as recorded by them.
    pub(crate) fn calls(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.path("trace")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// Returns the calls that need not be repeated according to the state file: listed folders and
    /// copied files.
    pub(crate) fn durable(&self) -> HashSet<String> {
        self.durable_in("job.db")
    }

    /// The same of another state file.
    pub(crate) fn durable_in(&self, state: &str) -> HashSet<String> {
        if !self.path(state).exists() {
            return HashSet::new();
        }
        let printed = self.python(DURABLE, &[state]);
        printed.lines().map(str::to_owned).collect()
    }

    /// Returns a value from another state file as text; `0` while the file, the table or the row
    /// does not exist.
    pub(crate) fn query_text(&self, state: &str, query: &str) -> String {
        self.python(NUMBER, &[query, state]).trim().to_owned()
    }

    /// Returns a number from the state file; 0 while it does not exist.
    pub(crate) fn query_number(&self, query: &str) -> i64 {
        self.python(NUMBER, &[query]).trim().parse().unwrap_or(0)
    }

    /// Returns the stage of the job.
    pub(crate) fn stage(&self) -> String {
        let printed = self.python(NUMBER, &["SELECT value FROM meta WHERE key = 'stage'"]);
        printed.trim().to_owned()
    }

    pub(crate) fn python(&self, script: &str, args: &[&str]) -> String {
        let mut python = Command::new("python3");
        let output = python
            .args(["-c", script])
            .args(args)
            .current_dir(self.folder.path())
            .output()
            .expect("python3 is there");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Checks that the state file is intact and the destination has no temporary files.
    pub(crate) fn expect_clean(&self, destination: &str) {
        assert_eq!(self.leftovers(destination), Vec::<PathBuf>::new());
        assert_eq!(
            self.python(NUMBER, &["PRAGMA integrity_check"]).trim(),
            "ok"
        );
    }

    /// Returns every entry with its status and class, sorted by path.
    pub(crate) fn entries(&self) -> Vec<String> {
        let listed = self.expect(0, &["review", "--csv"]);
        let mut lines: Vec<String> = listed.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }

    pub(crate) fn compare_trees(&self, one: &str, other: &str) {
        let output = script("compare.py", &["compare", one, other], self.folder.path());
        let printed: String = text(&output).chars().take(3000).collect();
        assert!(output.status.success(), "{printed}");
    }

    pub(crate) fn make_corner_cases(&self, name: &str) {
        let output = script("compare.py", &["make", name], self.folder.path());
        assert!(output.status.success(), "{}", text(&output));
    }

    /// Returns every path below a folder, sorted.
    pub(crate) fn tree(&self, name: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut folders = vec![self.path(name)];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    folders.push(entry.path());
                }
                found.push(entry.path());
            }
        }
        found.sort();
        found
    }

    /// Returns the temporary files at the destination.
    pub(crate) fn leftovers(&self, name: &str) -> Vec<PathBuf> {
        let mut left = Vec::new();
        let mut folders = vec![self.path(name)];
        while let Some(folder) = folders.pop() {
            let Ok(entries) = std::fs::read_dir(folder) else {
                continue;
            };
            for entry in entries.flatten() {
                if entry
                    .file_name()
                    .to_string_lossy()
                    .starts_with(".headworks-")
                {
                    left.push(entry.path());
                } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    folders.push(entry.path());
                }
            }
        }
        left
    }

    /// Removes the destination and the state.
    pub(crate) fn reset(&self) {
        let _ = std::fs::remove_dir_all(self.path("dst"));
        self.remove_state();
    }

    pub(crate) fn remove_state(&self) {
        for file in ["job.db", "job.db-wal", "job.db-shm", "job.db-lock", "trace"] {
            let _ = std::fs::remove_file(self.path(file));
        }
    }

    /// Makes a tree of ordinary files.
    pub(crate) fn make_tree(&self, name: &str, folders: usize, files: usize) {
        for folder in 0..folders {
            let path = self.path(name).join(format!("f{}/g{folder}", folder % 7));
            std::fs::create_dir_all(&path).unwrap();
            for file in 0..files {
                std::fs::write(
                    path.join(format!("file-{file}")),
                    vec![b'x'; folder * 31 + file],
                )
                .unwrap();
            }
        }
    }
}

const DURABLE: &str = "
import sqlite3, sys
db = sqlite3.connect('file:%s?mode=ro' % sys.argv[1], uri=True)
esc = lambda b: b.decode('latin1')
folder = {i: p for i, p in db.execute('SELECT id, path FROM folder')}
known = 'SELECT path, src, iif(dst = 0, coalesce(ahead, 0), dst) FROM folder'
for path, src, dst in db.execute(known):
    if src == 1: print('source list ' + esc(path))
    if dst == 1: print('destination list ' + esc(path))
for parent, name in db.execute('SELECT parent, name FROM destination WHERE copied > 0 AND kind = 1'):
    for call in 'destination copy', 'destination write', 'destination write-on', 'source read':
        print(call + ' ' + esc(folder[parent]) + esc(name))
";

const NUMBER: &str = "
import sqlite3, sys
path = sys.argv[2] if len(sys.argv) > 2 else 'job.db'
try: print(sqlite3.connect('file:%s?mode=ro' % path, uri=True, timeout=30).execute(sys.argv[1]).fetchone()[0])
except (sqlite3.OperationalError, TypeError): print(0)
";

/// Timeout of a condition that holds quickly unless it never does. Long, because the machine may be
/// busy; only a failing test waits for it.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Waits for a condition; fails with its description.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < TIMEOUT, "never: {what}");
        std::thread::yield_now();
    }
}

/// Returns whether the full form of the tests was requested.
pub(crate) fn is_full() -> bool {
    std::env::var_os("HEADWORKS_FULL").is_some()
}

/// A filesystem, mounted until it is dropped.
pub(crate) struct Mount {
    at: PathBuf,
    image: Option<PathBuf>,
}

impl Mount {
    /// Mounts a tmpfs of this size.
    pub(crate) fn tmpfs(at: PathBuf, size: &str) -> Mount {
        std::fs::create_dir_all(&at).unwrap();
        let option = format!("size={size}");
        mount(&["-t", "tmpfs", "-o", &option, "tmpfs"], &at);
        Mount { at, image: None }
    }

    /// Mounts an image file.
    pub(crate) fn image(image: &Path, at: PathBuf) -> Mount {
        std::fs::create_dir_all(&at).unwrap();
        mount(&["-o", "loop", image.to_str().unwrap()], &at);
        let image = Some(image.to_owned());
        Mount { at, image }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.at).status();
        // The loop device is released some time later. A mount that reused it before that would
        // see what it has cached of a filesystem that failed, instead of the image.
        if let Some(image) = &self.image {
            until("the loop device is released", || {
                let bound = Command::new("losetup").arg("-j").arg(image).output();
                bound.is_ok_and(|bound| bound.stdout.is_empty())
            });
        }
    }
}

/// A directory seen through a faulty filesystem (`faulty.py`), until it is dropped.
pub(crate) struct Faulty {
    at: PathBuf,
    server: Child,
}

impl Faulty {
    pub(crate) fn over(dir: &TestDir, backing: &str, at: &str) -> Faulty {
        let path = dir.path(at);
        std::fs::create_dir_all(&path).unwrap();
        let is_mounted = |path: &Path| {
            let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
            mounts.contains(&format!(" {} ", path.display()))
        };
        let mut server = script_command("faulty.py", &[backing, at], &dir.path(""))
            .spawn()
            .expect("python3 is there");
        until("it is mounted", || {
            let ended = server.try_wait().expect("it can be waited for");
            assert!(ended.is_none(), "tests mount FUSE, and must run as root");
            is_mounted(&path)
        });
        Faulty { at: path, server }
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
        let _ = self.server.wait();
    }
}

pub(crate) fn mount(args: &[&str], at: &Path) {
    let status = Command::new("mount").args(args).arg(at).status();
    let mounted = status.is_ok_and(|status| status.success());
    assert!(
        mounted,
        "tests mount small filesystems, and must run as root"
    );
}

/// Runs one of the scripts in this folder.
pub(crate) fn script(name: &str, args: &[&str], at: &Path) -> Output {
    let mut python = script_command(name, args, at);
    python.output().expect("python3 is there")
}

fn script_command(name: &str, args: &[&str], at: &Path) -> Command {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/migrate");
    let mut python = Command::new("python3");
    python.arg(scripts.join(name)).args(args).current_dir(at);
    python
}

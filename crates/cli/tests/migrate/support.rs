//! A place to migrate in, the binary, and the judge.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub(crate) struct Place {
    dir: tempfile::TempDir,
}

pub(crate) fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}

impl Place {
    pub(crate) fn new() -> Place {
        let dir = tempfile::tempdir().expect("a temporary folder");
        Place { dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        self.command_of("job.db", words)
    }

    /// The same with a state file of that name.
    pub(crate) fn command_of(&self, state: &str, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headworks"));
        command.arg("migrate").args(words).args(["--state", state]);
        command.current_dir(self.dir.path());
        command
            .env_remove("HEADWORKS_FAILPOINT")
            .env_remove("HEADWORKS_TRACE");
        command
    }

    /// Starts it, and lets it run beside the test.
    pub(crate) fn start(&self, words: &[&str]) -> Child {
        self.command(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs")
    }

    pub(crate) fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("the binary runs")
    }

    /// Runs it and expects that it ends: a command that waits for itself fails the test.
    pub(crate) fn expect_end(&self, words: &[&str]) -> Output {
        self.expect_end_of(self.command(words))
    }

    pub(crate) fn expect_end_of(&self, mut command: Command) -> Output {
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("the binary runs");
        let began = Instant::now();
        while child.try_wait().expect("it can be waited for").is_none() {
            if began.elapsed() > PATIENCE {
                let _ = child.kill();
                let output = child.wait_with_output().expect("it was killed");
                panic!("it never ends: {command:?}: {}", text(&output));
            }
            std::thread::yield_now();
        }
        child.wait_with_output().expect("it has ended")
    }

    /// Runs it and expects this exit code.
    pub(crate) fn expect(&self, code: i32, words: &[&str]) -> String {
        let output = self.run(words);
        let told = text(&output);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {told}");
        told
    }

    /// Runs it and expects that it asks for nothing that is durable already, as told by whoever was
    /// asked.
    pub(crate) fn expect_no_repeats(&self, words: &[&str]) -> Output {
        let done = self.durable();
        let trace = self.path("trace");
        let _ = std::fs::remove_file(&trace);
        let mut command = self.command(words);
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

    /// What the backends were asked for, as written down where the calls arrive.
    pub(crate) fn calls(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.path("trace")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// Calls that need not be made again: folders that are listed, files that are done, by the
    /// state file.
    pub(crate) fn durable(&self) -> HashSet<String> {
        if !self.path("job.db").exists() {
            return HashSet::new();
        }
        let told = self.python(DURABLE, &[]);
        told.lines().map(str::to_owned).collect()
    }

    /// One number from the state file; 0 while there is none.
    pub(crate) fn number(&self, query: &str) -> i64 {
        self.python(NUMBER, &[query]).trim().parse().unwrap_or(0)
    }

    /// The stage that the job is in.
    pub(crate) fn stage(&self) -> String {
        let told = self.python(NUMBER, &["SELECT value FROM meta WHERE key = 'stage'"]);
        told.trim().to_owned()
    }

    pub(crate) fn python(&self, script: &str, words: &[&str]) -> String {
        let mut python = Command::new("python3");
        let output = python
            .args(["-c", script])
            .args(words)
            .current_dir(self.dir.path())
            .output()
            .expect("python3 is there");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The state file is sound, and nothing of ours is left at the destination.
    pub(crate) fn expect_clean(&self, destination: &str) {
        assert_eq!(self.leftovers(destination), Vec::<PathBuf>::new());
        assert_eq!(
            self.python(NUMBER, &["PRAGMA integrity_check"]).trim(),
            "ok"
        );
    }

    /// Every entry with its status and class, in the order of paths.
    pub(crate) fn nodes(&self) -> Vec<String> {
        let listed = self.expect(0, &["review", "--csv"]);
        let mut lines: Vec<String> = listed.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }

    pub(crate) fn judge(&self, one: &str, other: &str) {
        let output = script("judge.py", &["compare", one, other], self.dir.path());
        let told: String = text(&output).chars().take(3000).collect();
        assert!(output.status.success(), "{told}");
    }

    pub(crate) fn make_corner(&self, name: &str) {
        let output = script("judge.py", &["make", name], self.dir.path());
        assert!(output.status.success(), "{}", text(&output));
    }

    /// Every path below a folder, in order.
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

    /// What is at the destination of ours, and should not be.
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

    /// Back to the source alone: no destination, no state.
    pub(crate) fn forget(&self) {
        let _ = std::fs::remove_dir_all(self.path("dst"));
        self.forget_state();
    }

    pub(crate) fn forget_state(&self) {
        for file in ["job.db", "job.db-wal", "job.db-shm", "job.db-lock", "trace"] {
            let _ = std::fs::remove_file(self.path(file));
        }
    }

    /// A tree of ordinary files.
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
import sqlite3
db = sqlite3.connect('file:job.db?mode=ro', uri=True)
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
try: print(sqlite3.connect('file:job.db?mode=ro', uri=True, timeout=30).execute(sys.argv[1]).fetchone()[0])
except (sqlite3.OperationalError, TypeError): print(0)
";

/// How long something may take that takes no time unless it never comes. Long, because the machine
/// may be busy with something else; only a test that fails waits for it.
const PATIENCE: Duration = Duration::from_secs(300);

/// Waits until something is so; says what, if it does not come to be.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        std::thread::yield_now();
    }
}

/// Whether the long form of the tests was asked for.
pub(crate) fn is_full() -> bool {
    std::env::var_os("HEADWORKS_FULL").is_some()
}

/// A filesystem that is there as long as this is.
pub(crate) struct Mount(PathBuf);

impl Mount {
    /// A tmpfs of that size.
    pub(crate) fn tmpfs(at: PathBuf, size: &str) -> Mount {
        std::fs::create_dir_all(&at).unwrap();
        let option = format!("size={size}");
        mount(&["-t", "tmpfs", "-o", &option, "tmpfs"], &at);
        Mount(at)
    }

    /// What is in an image file.
    pub(crate) fn image(image: &Path, at: PathBuf) -> Mount {
        std::fs::create_dir_all(&at).unwrap();
        mount(&["-o", "loop", image.to_str().unwrap()], &at);
        Mount(at)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// A directory as a filesystem shows it that lies (`faulty.py`), as long as this is there.
pub(crate) struct Faulty {
    at: PathBuf,
    server: Child,
}

impl Faulty {
    pub(crate) fn over(place: &Place, backing: &str, at: &str) -> Faulty {
        let path = place.path(at);
        std::fs::create_dir_all(&path).unwrap();
        let is_mounted = |path: &Path| {
            let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
            mounts.contains(&format!(" {} ", path.display()))
        };
        let mut server = script_command("faulty.py", &[backing, at], &place.path(""))
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

pub(crate) fn mount(words: &[&str], at: &Path) {
    let status = Command::new("mount").args(words).arg(at).status();
    let mounted = status.is_ok_and(|status| status.success());
    assert!(
        mounted,
        "tests mount small filesystems, and must run as root"
    );
}

/// Runs one of the scripts beside this file.
pub(crate) fn script(name: &str, words: &[&str], at: &Path) -> Output {
    let mut python = script_command(name, words, at);
    python.output().expect("python3 is there")
}

fn script_command(name: &str, words: &[&str], at: &Path) -> Command {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/migrate");
    let mut python = Command::new("python3");
    python.arg(scripts.join(name)).args(words).current_dir(at);
    python
}

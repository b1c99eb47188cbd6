//! A place to migrate in, the binary, and the judge.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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
        let mut command = Command::new(env!("CARGO_BIN_EXE_headworks"));
        command
            .arg("migrate")
            .args(words)
            .args(["--state", "job.db"]);
        command.current_dir(self.dir.path());
        command
            .env_remove("HEADWORKS_FAILPOINT")
            .env_remove("HEADWORKS_TRACE");
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("the binary runs")
    }

    /// Runs it and expects this exit code.
    pub(crate) fn expect(&self, code: i32, words: &[&str]) -> String {
        let output = self.run(words);
        let told = text(&output);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {told}");
        told
    }

    /// Every entry with its status and class, in the order of paths.
    pub(crate) fn nodes(&self) -> Vec<String> {
        let listed = self.expect(0, &["review", "--csv"]);
        let mut lines: Vec<String> = listed.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }

    pub(crate) fn judge(&self, one: &str, other: &str) {
        let output = judge(&["compare", one, other], self.dir.path());
        let told: String = text(&output).chars().take(3000).collect();
        assert!(output.status.success(), "{told}");
    }

    pub(crate) fn make_corner(&self, name: &str) {
        let output = judge(&["make", name], self.dir.path());
        assert!(output.status.success(), "{}", text(&output));
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

fn judge(words: &[&str], at: &Path) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/migrate/judge.py");
    let mut python = Command::new("python3");
    python
        .arg(script)
        .args(words)
        .current_dir(at)
        .output()
        .expect("python3 is there")
}

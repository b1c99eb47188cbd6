//! A PostgreSQL server.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use super::certificates::Certificates;
use super::process::{self, Process};
use crate::postgres::Postgres;
use crate::secrets::Secrets;

const PASSWORD: &str = "only for tests";

/// A PostgreSQL server of one test, with the user `fleet` and the empty database `fleet`.
#[derive(Debug)]
pub struct PostgresServer {
    // Dropped in this order: the process ends before its folder goes.
    process: Process,
    folder: TempDir,
    port: u16,
}

impl PostgresServer {
    /// Makes a cluster and starts it.
    ///
    /// # Panics
    /// When PostgreSQL is missing or does not start.
    #[must_use]
    pub fn start() -> PostgresServer {
        let folder = process::folder();
        init(&folder.path().join("data"), folder.path());
        let (port, process) = launch(folder.path());
        let server = PostgresServer {
            folder,
            port,
            process,
        };
        server.psql("postgres", "CREATE DATABASE fleet OWNER fleet");
        server
    }

    /// Starts a server that accepts TLS connections only.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start_with_tls(certificates: &Certificates) -> PostgresServer {
        let mut server = PostgresServer::start();
        let data = server.data();
        process::write(&data.join("server.crt"), &certificates.certificate);
        process::write(&data.join("server.key"), &certificates.key);
        process::write(
            &data.join("pg_hba.conf"),
            "local all all trust\nhostssl all all all scram-sha-256\n",
        );
        server.configure("ssl = on");
        server.restart();
        server
    }

    /// Makes a standby of this server and starts it.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start_standby(&self) -> PostgresServer {
        let folder = process::folder();
        let data = folder.path().join("data");
        let mut backup = tool("pg_basebackup");
        backup
            .args([
                "--write-recovery-conf",
                "--wal-method=stream",
                "--checkpoint=fast",
                "--no-sync",
            ])
            .arg("--pgdata")
            .arg(&data)
            .args(["--host", "127.0.0.1", "--port", &self.port.to_string()])
            .args(["--username", "fleet"])
            .env("PGPASSWORD", PASSWORD);
        run(&mut backup);
        let (port, process) = launch(folder.path());
        PostgresServer {
            folder,
            port,
            process,
        }
    }

    /// Makes a standby the primary.
    ///
    /// # Panics
    /// When that fails.
    pub fn promote(&self) {
        self.psql("postgres", "SELECT pg_promote()");
    }

    /// Ends the server as a crash would, without saving anything.
    pub fn crash(&mut self) {
        self.process.signal(Signal::QUIT);
        self.process.wait();
    }

    /// Starts the server again on the same port.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_again(&mut self) {
        self.process.wait();
        match launch_on(self.folder.path(), self.port) {
            Some(process) => self.process = process,
            None => panic!("PostgreSQL does not start again: {}", self.log()),
        }
    }

    /// Ends the server in order and starts it again.
    pub fn restart(&mut self) {
        self.process.signal(Signal::INT);
        self.start_again();
    }

    /// Stops the server without ending it: it accepts connections and answers nothing.
    pub fn pause(&self) {
        for pid in self.processes() {
            signal(pid, Signal::STOP);
        }
    }

    /// Lets a paused server go on.
    pub fn unpause(&self) {
        for pid in self.processes() {
            signal(pid, Signal::CONT);
        }
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of the database `fleet`.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_at(self.port)
    }

    /// The URL of the database behind another port, such as a pooler's.
    #[must_use]
    pub fn url_at(&self, port: u16) -> String {
        format!("postgres://fleet@127.0.0.1:{port}/fleet")
    }

    /// The password, as the environment would have it.
    #[must_use]
    pub fn secrets() -> Secrets {
        Secrets::from_variables(|name| (name == "PGPASSWORD").then(|| PASSWORD.to_owned()))
    }

    /// A client of the database `fleet`.
    ///
    /// # Panics
    /// Never: the URL is valid.
    #[must_use]
    pub fn client(&self) -> Postgres {
        PostgresServer::client_of(&self.url())
    }

    /// A client of a URL, with the password of the tests.
    ///
    /// # Panics
    /// When the URL is not valid.
    #[must_use]
    pub fn client_of(url: &str) -> Postgres {
        let url = url.parse().expect("the URL is valid");
        Postgres::new(url, PostgresServer::secrets()).expect("the URL can be used")
    }

    /// Runs SQL as the owner of the server, and returns what psql prints.
    ///
    /// # Panics
    /// When it fails.
    pub fn psql(&self, database: &str, sql: &str) -> String {
        let mut psql = process::command(&process::program(&["psql"], &bin(), "postgresql"));
        psql.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"])
            .args(["--set", "ON_ERROR_STOP=1", "--username", "fleet"])
            .arg("--host")
            .arg(self.folder.path())
            .args([
                "--port",
                &self.port.to_string(),
                "--dbname",
                database,
                "--command",
                sql,
            ]);
        run(&mut psql).trim().to_owned()
    }

    /// Writes a backup of the database `fleet`, as the documentation says.
    ///
    /// # Panics
    /// When it fails.
    #[must_use]
    pub fn dump(&self) -> String {
        let mut dump = tool("pg_dump");
        dump.args(["--no-unlogged-table-data", "--username", "fleet", "--host"])
            .arg(self.folder.path())
            .args(["--port", &self.port.to_string(), "fleet"]);
        run(&mut dump)
    }

    /// Restores a backup into the database `fleet`, which must be empty.
    ///
    /// # Panics
    /// When it fails.
    pub fn restore(&self, backup: &str) {
        let file = self.folder.path().join("backup.sql");
        process::write(&file, backup);
        let mut psql = process::command(&process::program(&["psql"], &bin(), "postgresql"));
        psql.args(["--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1"])
            .args(["--username", "fleet", "--dbname", "fleet", "--host"])
            .arg(self.folder.path())
            .args(["--port", &self.port.to_string(), "--file"])
            .arg(&file);
        run(&mut psql);
    }

    /// Adds a line to the configuration, for the next start.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn configure(&self, line: &str) {
        let path = self.data().join("postgresql.conf");
        let before = std::fs::read_to_string(&path).expect("the cluster has a configuration");
        process::write(&path, &format!("{before}\n{line}\n"));
    }

    /// The password of the user `fleet`.
    #[must_use]
    pub fn password() -> &'static str {
        PASSWORD
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// The postmaster and its children.
    fn processes(&self) -> Vec<i32> {
        let postmaster = std::fs::read_to_string(self.data().join("postmaster.pid"));
        let postmaster = postmaster
            .ok()
            .and_then(|text| text.lines().next()?.parse().ok());
        let Some(postmaster): Option<i32> = postmaster else {
            return Vec::new();
        };
        let children = format!("/proc/{postmaster}/task/{postmaster}/children");
        let children = std::fs::read_to_string(children).unwrap_or_default();
        let children = children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok());
        std::iter::once(postmaster).chain(children).collect()
    }
}

fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.unpause();
    }
}

/// The folders with PostgreSQL's programs, the newest version first.
fn bin() -> Vec<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    let mut found: Vec<PathBuf> = versions
        .flatten()
        .map(|version| version.path().join("bin"))
        .collect();
    found.sort();
    found.reverse();
    found
}

fn tool(name: &str) -> Command {
    process::command(&process::program(&[name], &bin(), "postgresql"))
}

fn init(data: &Path, folder: &Path) {
    let password = folder.join("password");
    process::write(&password, PASSWORD);
    let mut init = tool("initdb");
    init.args([
        "--no-sync",
        "--auth-local=trust",
        "--auth-host=scram-sha-256",
    ])
    .args(["--username=fleet", "--encoding=UTF8", "--locale=C"])
    .arg("--pwfile")
    .arg(&password)
    .arg("--pgdata")
    .arg(data);
    run(&mut init);
}

/// Starts a server on some port. A port can be taken by another process in between.
fn launch(folder: &Path) -> (u16, Process) {
    for _ in 0..10 {
        let port = process::free_port();
        if let Some(process) = launch_on(folder, port) {
            return (port, process);
        }
    }
    let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
    panic!("PostgreSQL does not start: {log}")
}

fn launch_on(folder: &Path, port: u16) -> Option<Process> {
    let log = folder.join("log");
    let output = std::fs::File::create(&log).expect("the temporary folder is writable");
    let mut postgres = tool("postgres");
    postgres
        .arg("-D")
        .arg(folder.join("data"))
        .arg("-k")
        .arg(folder)
        .args(["-p", &port.to_string(), "-h", "127.0.0.1"])
        // Small, because many run at once. `fsync` is off: the tests crash processes, not machines.
        .args([
            "-c",
            "shared_buffers=16MB",
            "-c",
            "fsync=off",
            "-c",
            "max_wal_size=64MB",
        ])
        .stdout(Stdio::null())
        .stderr(output);
    // QUIT is an immediate shutdown: the postmaster ends all its children.
    let mut process = Process::spawn(&mut postgres, Signal::QUIT);
    let ready = tool_path("pg_isready");
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(60) {
        if process.has_ended() {
            return None;
        }
        let state = Command::new(&ready)
            .args(["-q", "-h"])
            .arg(folder)
            .args(["-p", &port.to_string()])
            .status();
        if state.is_ok_and(|state| state.success()) {
            return Some(process);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}

fn tool_path(name: &str) -> PathBuf {
    process::program(&[name], &bin(), "postgresql")
}

fn run(command: &mut Command) -> String {
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed: {stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

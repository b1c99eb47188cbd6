//! PgBouncer in transaction mode, in front of a PostgreSQL server.

use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use super::postgres::PostgresServer;
use super::process::{self, Process};

/// A PgBouncer of one test. It shares very few server connections, so that transactions of one
/// client meet the sessions of others.
#[derive(Debug)]
pub struct PgBouncer {
    // Dropped in this order: the process ends before its folder goes.
    process: Process,
    folder: TempDir,
    port: u16,
}

impl PgBouncer {
    /// Starts it in front of `server`.
    ///
    /// # Panics
    /// When PgBouncer is missing or does not start.
    #[must_use]
    pub fn start(server: &PostgresServer) -> PgBouncer {
        let program = process::program(&["pgbouncer"], &[], "pgbouncer");
        for _ in 0..10 {
            let folder = process::folder();
            let port = process::free_port();
            PgBouncer::write_configuration(&folder, port, server.port());
            let output = std::fs::File::create(folder.path().join("log"))
                .expect("the temporary folder is writable");
            let mut command = process::command(&program);
            command
                .arg(folder.path().join("pgbouncer.ini"))
                .stdout(Stdio::null())
                .stderr(output);
            let mut process = Process::spawn(&mut command, Signal::TERM);
            if listens(&mut process, port) {
                return PgBouncer {
                    folder,
                    port,
                    process,
                };
            }
        }
        panic!("PgBouncer does not start")
    }

    /// Sends new server connections to another server, as after a failover. Clients stay connected.
    ///
    /// # Panics
    /// When the configuration cannot be written.
    pub fn switch_to(&self, server: &PostgresServer) {
        PgBouncer::write_configuration(&self.folder, self.port, server.port());
        self.process.signal(Signal::HUP);
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    fn write_configuration(folder: &TempDir, port: u16, server: u16) {
        let users = folder.path().join("users.txt");
        process::write(
            &users,
            &format!("\"fleet\" \"{}\"\n", PostgresServer::password()),
        );
        let configuration = format!(
            "[databases]\nfleet = host=127.0.0.1 port={server} dbname=fleet\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = scram-sha-256\nauth_file = {}\npool_mode = transaction\n\
             default_pool_size = 2\nserver_login_retry = 1\n",
            users.display()
        );
        process::write(&folder.path().join("pgbouncer.ini"), &configuration);
    }
}

/// Waits until the port accepts connections.
pub(super) fn listens(process: &mut Process, port: u16) -> bool {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(60) && !process.has_ended() {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

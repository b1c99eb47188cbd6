//! A Valkey or Redis server.

use std::process::Stdio;

use rustix::process::Signal;
use tempfile::TempDir;

use super::certificates::Certificates;
use super::pgbouncer::listens;
use super::process::{self, Process};
use crate::secrets::Secrets;

const PASSWORD: &str = "only for tests";

/// A Valkey server of one test, or Redis where Valkey is not installed. It saves nothing, so that
/// a restart empties it.
#[derive(Debug)]
pub struct ValkeyServer {
    // Dropped in this order: the process ends before its folder goes.
    process: Process,
    folder: TempDir,
    port: u16,
    tls: bool,
}

impl ValkeyServer {
    /// Starts a server.
    ///
    /// # Panics
    /// When neither Valkey nor Redis is installed, or it does not start.
    #[must_use]
    pub fn start() -> ValkeyServer {
        ValkeyServer::start_on_some_port(None)
    }

    /// Starts a server that accepts TLS connections only.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start_with_tls(certificates: &Certificates) -> ValkeyServer {
        ValkeyServer::start_on_some_port(Some(certificates))
    }

    fn start_on_some_port(certificates: Option<&Certificates>) -> ValkeyServer {
        for _ in 0..10 {
            let folder = process::folder();
            if let Some(certificates) = certificates {
                let write = |name, content| process::write(&folder.path().join(name), content);
                write("server.crt", &certificates.certificate);
                write("server.key", &certificates.key);
            }
            let port = process::free_port();
            if let Some(process) = launch(&folder, port, certificates.is_some()) {
                return ValkeyServer {
                    folder,
                    port,
                    tls: certificates.is_some(),
                    process,
                };
            }
        }
        panic!("Valkey does not start")
    }

    /// Ends the server and starts an empty one on the same port.
    ///
    /// # Panics
    /// When it does not start.
    pub fn crash_and_start(&mut self) {
        self.process.signal(Signal::KILL);
        self.process.wait();
        match launch(&self.folder, self.port, self.tls) {
            Some(process) => self.process = process,
            None => panic!("Valkey does not start again"),
        }
    }

    /// Stops the server without ending it.
    pub fn pause(&self) {
        self.process.signal(Signal::STOP);
    }

    /// Lets a paused server go on.
    pub fn unpause(&self) {
        self.process.signal(Signal::CONT);
    }

    /// The URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("valkey://127.0.0.1:{}/0", self.port)
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The password, as the environment would have it.
    #[must_use]
    pub fn secrets() -> Secrets {
        Secrets::from_variables(|name| (name == "VALKEYCLI_AUTH").then(|| PASSWORD.to_owned()))
    }
}

fn launch(folder: &TempDir, port: u16, tls: bool) -> Option<Process> {
    let names = ["valkey-server", "redis-server"];
    let mut command = process::command(&process::program(&names, &[], "redis-server"));
    let port_text = port.to_string();
    command
        .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .args(["--requirepass", PASSWORD, "--dir"])
        .arg(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if tls {
        command
            .args([
                "--port",
                "0",
                "--tls-port",
                &port_text,
                "--tls-auth-clients",
                "no",
            ])
            .arg("--tls-cert-file")
            .arg(folder.path().join("server.crt"))
            .arg("--tls-key-file")
            .arg(folder.path().join("server.key"));
    } else {
        command.args(["--port", &port_text]);
    }
    let mut process = Process::spawn(&mut command, Signal::KILL);
    listens(&mut process, port).then_some(process)
}

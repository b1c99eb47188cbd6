//! A contender as a child process: its address, CPU time and memory.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time for a process to start or to become idle.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Process {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    /// Starts a process that prints its address.
    pub(crate) fn spawn_announcing(command: &mut Command) -> Process {
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("the command can be started");
        let stdout = child.stdout.take().expect("it is piped");
        let mut line = String::new();
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("it says where it listens");
        let address = line.trim().parse().expect("an address");
        Process { child, address }
    }

    /// Starts a process that prints nothing. Waits until `ready` reports that it listens on
    /// `address`.
    pub(crate) fn spawn_at(
        command: &mut Command,
        address: SocketAddr,
        ready: impl Fn(SocketAddr) -> bool,
    ) -> Process {
        let child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the command can be started");
        let process = Process { child, address };
        let start = Instant::now();
        while !ready(address) {
            assert!(start.elapsed() < PATIENCE, "nobody listens at {address}");
            std::thread::sleep(Duration::from_millis(50));
        }
        process
    }

    /// Whether connections to `address` are accepted.
    pub(crate) fn takes_connections(address: SocketAddr) -> bool {
        TcpStream::connect(address).is_ok()
    }

    /// A free port.
    pub(crate) fn free() -> SocketAddr {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        free.expect("a free port")
    }

    fn proc(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).unwrap_or_default()
    }

    /// CPU time of all its threads so far, in nanoseconds. `schedstat` counts nanoseconds, `stat`
    /// only ticks.
    pub(crate) fn cpu(&self) -> f64 {
        let folder = format!("/proc/{}/task", self.child.id());
        let threads = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let spent = threads.filter_map(|thread| {
            let schedstat = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
            schedstat.split_whitespace().next()?.parse::<f64>().ok()
        });
        spent.sum()
    }

    /// Waits until the process is idle.
    pub(crate) fn wait_until_idle(&self) {
        let (mut before, start) = (self.cpu(), Instant::now());
        while start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(300));
            let now = self.cpu();
            // Periodic timers may still run.
            if now - before < 1e6 {
                return;
            }
            before = now;
        }
        panic!("{} is always busy", self.address);
    }

    /// Resident memory, in bytes.
    pub(crate) fn resident(&self) -> f64 {
        let status = self.proc("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        kilobytes.unwrap_or(0.0) * 1024.0
    }
}

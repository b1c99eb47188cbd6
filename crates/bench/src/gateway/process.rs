//! A contender as a process: where it listens, what it spent, what it holds.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a process may take to begin.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Process {
    child: Child,
    pub(super) address: SocketAddr,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    /// This program in another role; it prints where it listens.
    pub(super) fn role(role: &str, upstream: Option<SocketAddr>) -> Process {
        let program = std::env::current_exe().expect("this program is a file");
        let mut command = Command::new(program);
        command
            .args(["gateway", "--role", role])
            .stdout(Stdio::piped());
        if let Some(upstream) = upstream {
            command.args(["--upstream", &upstream.to_string()]);
        }
        let mut child = command.spawn().expect("this program can be started");
        let stdout = child.stdout.take().expect("it is piped");
        let mut line = String::new();
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("it says where it listens");
        let address = line.trim().parse().expect("an address");
        Process { child, address }
    }

    /// vllm-router before the upstream.
    pub(super) fn router(command: &Path, upstream: SocketAddr) -> Process {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.expect("a free port");
        let metrics = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let child = Command::new(command)
            .args(["--host", "127.0.0.1", "--port", &address.port().to_string()])
            .args([
                "--prometheus-port",
                &metrics.expect("a free port").port().to_string(),
            ])
            .args([
                "--policy",
                "round_robin",
                "--worker-urls",
                &format!("http://{upstream}"),
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("vllm-router can be started");
        let process = Process { child, address };
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(start.elapsed() < PATIENCE, "vllm-router does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        process
    }

    fn proc(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).unwrap_or_default()
    }

    /// CPU time spent so far, in nanoseconds.
    pub(super) fn cpu(&self) -> f64 {
        let stat = self.proc("stat");
        // The name, in brackets, may hold spaces.
        let fields = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace();
        let ticks: f64 = fields
            .skip(11)
            .take(2)
            .filter_map(|ticks| ticks.parse::<f64>().ok())
            .sum();
        ticks * 1e9 / rustix::param::clock_ticks_per_second() as f64
    }

    /// Memory in use, in bytes.
    pub(super) fn resident(&self) -> f64 {
        let status = self.proc("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        kilobytes.unwrap_or(0.0) * 1024.0
    }

    /// Sockets that are open.
    pub(super) fn connections(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.child.id());
        std::fs::read_dir(folder).map_or(0, Iterator::count)
    }
}

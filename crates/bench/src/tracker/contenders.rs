//! The contenders, each in its own process.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use headworks_tracker_wire::udp;

use crate::process::Process;

/// The CPU of the measured contender.
pub(super) const CONTENDER: &str = "0";
/// The CPU of the load.
pub(super) const LOAD: &str = "1";
/// Both CPUs, for a measurement under realistic conditions.
pub(super) const BOTH: &str = "0,1";

/// Returns a command that is pinned to these CPUs.
pub(super) fn pinned(cpus: &str, program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", cpus]).arg(program);
    command
}

/// Starts this program in another role on these CPUs.
pub(super) fn role(cpus: &str, role: &str, settings: &str) -> Process {
    let program = std::env::current_exe().expect("the path of this program");
    let mut command = pinned(cpus, &program);
    command.args(["tracker", "--role", role, "--settings", settings]);
    Process::spawn_announcing(&mut command)
}

/// Starts our tracker with additional settings of its section.
pub(super) fn ours(settings: &str) -> Process {
    role(CONTENDER, "ours", settings)
}

/// Whether a command can be run. Prints how to install it if not.
pub(super) fn is_installed(command: &Path, how: &str) -> bool {
    let tried = Command::new(command)
        .arg("--help")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if tried.is_err() {
        eprintln!(
            "{} is not installed: run `{how}` and pass its path with its flag",
            command.display()
        );
    }
    tried.is_ok()
}

/// Starts one of aquatic's trackers with its default configuration and some changes.
pub(super) fn aquatic(command: &Path, changes: &[(&str, &str)], udp: bool) -> Process {
    let address = Process::free();
    let address_text = format!("\"{address}\"");
    let mut changes = changes.to_vec();
    changes.push(("address", &address_text));
    let file = configured(command, &changes);
    let mut pinned = pinned(CONTENDER, command);
    pinned.arg("-c").arg(&file);
    let ready = if udp {
        issues_connection_id
    } else {
        Process::takes_connections
    };
    Process::spawn_at(&mut pinned, address, ready)
}

/// Writes a program's default configuration with some changes to a file.
pub(super) fn configured(command: &Path, changes: &[(&str, &str)]) -> PathBuf {
    let printed = Command::new(command).arg("-p").output();
    let printed = printed.expect("the default configuration").stdout;
    let printed = String::from_utf8(printed).expect("UTF-8");
    let line = |line: &str| {
        let key = line.split('=').next().unwrap_or_default().trim();
        let change = changes.iter().find(|(changed, _)| *changed == key);
        change.map_or(line.to_owned(), |(_, value)| format!("{key} = {value}"))
    };
    let text: Vec<String> = printed.lines().map(line).collect();
    let name = command.file_name().unwrap_or_default().to_string_lossy();
    let file = format!("headworks-bench-{}-{name}.toml", std::process::id());
    let file = std::env::temp_dir().join(file);
    fs::write(&file, text.join("\n")).expect("a temporary file can be written");
    file
}

/// Whether a UDP tracker answers a connect request.
fn issues_connection_id(address: SocketAddr) -> bool {
    let answered = || -> std::io::Result<usize> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        let mut packet = Vec::new();
        udp::write_connect(1, &mut packet);
        socket.send_to(&packet, address)?;
        socket.recv(&mut [0; 64])
    };
    answered().is_ok()
}

//! The contenders, each a process of its own.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use headworks_tracker_wire::udp;

use crate::process::Process;

/// The CPU of whoever is measured, and that of the load.
pub(super) const CONTENDER: &str = "0";
pub(super) const LOAD: &str = "1";
/// Both, for what is to be measured as it would run.
pub(super) const BOTH: &str = "0,1";

/// A command that has only these CPUs.
pub(super) fn pinned(cpus: &str, program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", cpus]).arg(program);
    command
}

/// This program in another role, on these CPUs.
pub(super) fn role(cpus: &str, role: &str, settings: &str) -> Process {
    let program = std::env::current_exe().expect("this program is a file");
    let mut command = pinned(cpus, &program);
    command.args(["tracker", "--role", role, "--settings", settings]);
    Process::spawn_announcing(&mut command)
}

/// Our tracker with these settings of its section beside those of every comparison.
pub(super) fn ours(settings: &str) -> Process {
    role(CONTENDER, "ours", settings)
}

/// Whether a command can be run; says how to get it if it cannot.
pub(super) fn is_there(command: &Path, how: &str) -> bool {
    let tried = Command::new(command)
        .arg("--help")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if tried.is_err() {
        eprintln!(
            "{} is not there: `{how}`, and name it with its flag",
            command.display()
        );
    }
    tried.is_ok()
}

/// One of aquatic's trackers with its default configuration, but for `changes`.
pub(super) fn aquatic(command: &Path, changes: &[(&str, &str)], udp: bool) -> Process {
    let address = Process::free();
    let address_text = format!("\"{address}\"");
    let mut changes = changes.to_vec();
    changes.push(("address", &address_text));
    let file = configured(command, &changes);
    let mut pinned = pinned(CONTENDER, command);
    pinned.arg("-c").arg(&file);
    let ready = if udp {
        gives_an_id
    } else {
        Process::takes_connections
    };
    Process::spawn_at(&mut pinned, address, ready)
}

/// A file with the program's own default configuration, but for `changes`.
pub(super) fn configured(command: &Path, changes: &[(&str, &str)]) -> PathBuf {
    let printed = Command::new(command).arg("-p").output();
    let printed = printed.expect("it prints its configuration").stdout;
    let printed = String::from_utf8(printed).expect("it is text");
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

/// Whether somebody answers a connect there.
fn gives_an_id(address: SocketAddr) -> bool {
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

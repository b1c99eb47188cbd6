//! `headworks tracker` when the machine fails it: descriptors, disks and the network.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::Folder;

const TIMEOUT: Duration = Duration::from_secs(60);

/// A running tracker.
struct Tracker {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    http: String,
}

impl Tracker {
    /// Starts a command and waits until it listens over HTTP.
    fn start(mut command: Command) -> Tracker {
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::<Mutex<Vec<String>>>::default();
        let writer = log.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                writer.lock().unwrap().push(line);
            }
        });
        let mut tracker = Tracker {
            child,
            log,
            http: String::new(),
        };
        tracker.http = tracker.until("it listens", |tracker| {
            let log = tracker.log.lock().unwrap();
            let mut lines = log.iter();
            let line = lines.find_map(|line| line.strip_prefix("tracker: http://"))?;
            Some(line.split('/').next()?.to_owned())
        });
        tracker
    }

    fn until<T>(&self, what: &str, condition: impl Fn(&Tracker) -> Option<T>) -> T {
        let end = Instant::now() + TIMEOUT;
        loop {
            if let Some(value) = condition(self) {
                return value;
            }
            let log = self.log.lock().unwrap().join("\n");
            assert!(Instant::now() < end, "never: {what}\n{log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the number of lines in the log that contain a text.
    fn logged(&self, text: &str) -> usize {
        let log = self.log.lock().unwrap();
        log.iter().filter(|line| line.contains(text)).count()
    }

    /// Asks for a page on a connection of its own.
    fn ask(&self, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.http).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
        stream
    }

    /// Returns how often the announce threads gave up the CPU to wait.
    fn waits(&self) -> u64 {
        let tasks = format!("/proc/{}/task", self.child.id());
        let tasks = std::fs::read_dir(tasks).unwrap().map(Result::unwrap);
        let waits = tasks.filter_map(|task| {
            let status = std::fs::read_to_string(task.path().join("status")).ok()?;
            status.starts_with("Name:\tannounce").then_some(())?;
            let mut lines = status.lines();
            let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
            count.trim().parse::<u64>().ok()
        });
        waits.sum()
    }

    /// Sets the soft limit of open files.
    fn limit_files(&self, soft: usize) {
        let pid = self.child.id().to_string();
        let limit = format!("--nofile={soft}:4096");
        let set = Command::new("prlimit")
            .args(["--pid", &pid, &limit])
            .status();
        assert!(set.unwrap().success());
    }

    /// Asks it to stop and returns its exit code.
    fn stop(mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        let kill = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(kill.unwrap().success());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command of a tracker under limits of `prlimit`.
fn limited(folder: &Folder, limit: &str, more: &[&str]) -> Command {
    let mut command = Command::new("prlimit");
    command.arg(limit).arg(env!("CARGO_BIN_EXE_headworks"));
    let listen = [
        "-l",
        "127.0.0.1:0",
        "-u",
        "",
        "--admin-listen",
        "127.0.0.1:0",
    ];
    command.arg("tracker").args(listen).args(more);
    command.current_dir(folder.path()).env_clear();
    command
}

#[test]
fn connections_that_cannot_fit_name_the_number_that_does() {
    let folder = Folder::new();
    let more = ["--tracker-max-connections", "5000"];
    let output = limited(&folder, "--nofile=1024:1024", &more)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    let message =
        "`max_connections` needs 5276 open files, but the limit is 1024; lower it to at most 748";
    assert!(errors.contains(message), "{errors}");
    // That number works.
    let more = ["--tracker-max-connections", "748"];
    let tracker = Tracker::start(limited(&folder, "--nofile=1024:1024", &more));
    assert_eq!(tracker.stop(), Some(0));
}

#[test]
fn a_full_table_of_open_files_costs_nothing_and_heals() {
    let folder = Folder::new();
    let tracker = Tracker::start(limited(&folder, "--nofile=256:4096", &[]));
    let files = format!("/proc/{}/fd", tracker.child.id());
    let limits = format!("/proc/{}/limits", tracker.child.id());
    let limits = std::fs::read_to_string(limits).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().nth(3));
    assert_eq!(soft, Some("4096"), "the soft limit is raised");

    let open = std::fs::read_dir(files).unwrap().count();
    tracker.limit_files(open + 3);
    let streams: Vec<TcpStream> = (0..40).map(|_| tracker.ask("/healthz")).collect();
    tracker.until("the failure is logged", |tracker| {
        (tracker.logged("cannot accept connections") > 0).then_some(())
    });
    // A thread that spins would not wait at all, or wake thousands of times.
    let (waits, began) = (tracker.waits(), Instant::now());
    std::thread::sleep(Duration::from_secs(3));
    let waits = tracker.waits() - waits;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let most = (began.elapsed().as_secs_f64() * 2.0 + 4.0) * threads as f64;
    assert!(
        waits as f64 <= most,
        "{waits} times in {:?}",
        began.elapsed()
    );
    assert_eq!(tracker.logged("cannot accept connections"), 1, "not again");

    tracker.limit_files(4096);
    for mut stream in streams {
        let mut byte = [0];
        assert_eq!(
            stream.read(&mut byte).unwrap(),
            1,
            "each is served in the end"
        );
    }
    assert_eq!(tracker.stop(), Some(0));
}

#[test]
fn a_snapshot_folder_that_vanishes_is_no_success() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path().join("state")).unwrap();
    let mut command = folder.headworks(&["tracker", "-l", "127.0.0.1:0", "-u", ""]);
    command.args(["--tracker-snapshot-file", "state/snapshot"]);
    command.args(["--admin-listen", "127.0.0.1:0"]);
    let tracker = Tracker::start(command);
    std::fs::remove_dir_all(folder.path().join("state")).unwrap();
    let log = tracker.log.clone();
    assert_eq!(tracker.stop(), Some(3));
    let log = log.lock().unwrap().join("\n");
    assert!(log.contains("cannot write the snapshot"), "{log}");
}

#[test]
fn an_unwritable_snapshot_folder_stops_the_start() {
    let folder = Folder::new();
    let arguments = ["tracker", "-l", "127.0.0.1:0", "--tracker-snapshot-file"];
    // A folder that does not exist, and one that takes no files.
    for path in ["none/snapshot", "/proc/snapshot"] {
        let ended = folder.run(&[&arguments[..], &[path]].concat());
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(
            ended.stderr.contains("cannot use the snapshot"),
            "{ended:?}"
        );
        assert!(ended.stderr.contains("cannot be written"), "{ended:?}");
    }
}

/// Runs a script with namespaces of its own.
fn script(flags: &str, name: &str, more: &[&str]) {
    let folder = Folder::new();
    let script = format!("{}/tests/clients/{name}", env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("unshare")
        .args([flags, &script, env!("CARGO_BIN_EXE_headworks")])
        .arg(folder.path())
        .args(more)
        .output()
        .expect("util-linux is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {more:?}: {errors}");
}

#[test]
fn a_full_disk_keeps_the_last_snapshot_and_is_no_success() {
    script("-rm", "full_disk.sh", &[]);
}

#[test]
fn an_outage_of_the_own_link_is_found_and_healed() {
    script("-rnm", "outage.sh", &["near"]);
}

#[test]
fn an_outage_beyond_the_link_is_found_and_healed() {
    script("-rnm", "outage.sh", &["far"]);
}

/// Serves responses by path, until the test ends.
fn serve(pages: Vec<(&'static str, String)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            reader.read_line(&mut line).unwrap();
            let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
            while line.trim() != "" {
                line.clear();
                reader.read_line(&mut line).unwrap();
            }
            let page = pages.iter().find(|(name, _)| *name == path);
            let missing = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
            let response = page.map_or(missing, |(_, response)| response);
            let _ = stream.write_all(response.as_bytes());
        }
    });
    address
}

fn ok(body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}")
}

#[test]
fn check_takes_files_and_urls() {
    let folder = Folder::new();
    let mut command = folder.headworks(&["tracker", "-l", "127.0.0.1:0", "-u", "127.0.0.1:0"]);
    command.args(["--admin-listen", "127.0.0.1:0"]);
    let tracker = Tracker::start(command);
    let log = tracker.log.lock().unwrap().join("\n");
    let udp = log.split("udp://").nth(1).unwrap();
    let udp = udp.split_whitespace().next().unwrap();
    let plain = format!(
        "# good ones\nudp://{udp}/announce\n\nwss://w.example\nhttp://{}/announce\n",
        tracker.http
    );
    let yaml = format!("- uri: udp://{udp}/announce\n  name: mine\n");
    let json = format!("[\"udp://{udp}/announce\"]");
    folder.write("plain.txt", &plain);
    folder.write("list.yml", &yaml);
    folder.write("list.json", &json);
    let moved = "HTTP/1.1 302 Found\r\nLocation: /plain.txt\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let web = serve(vec![
        ("/plain.txt", ok(&plain)),
        ("/list.yml", ok(&yaml)),
        ("/moved", moved.to_owned()),
        ("/page.html", ok("<html>maintenance</html>")),
    ]);
    let at = |path: &str| format!("http://{web}/{path}");
    for (source, reachable) in [
        ("plain.txt".to_owned(), "2 of 2"),
        ("list.yml".to_owned(), "1 of 1"),
        ("list.json".to_owned(), "1 of 1"),
        (at("plain.txt"), "2 of 2"),
        (at("list.yml"), "1 of 1"),
        (at("moved"), "2 of 2"),
    ] {
        let ended = folder.run(&["tracker", "check", "-f", &source, "--timeout", "20"]);
        assert_eq!(ended.code, Some(0), "{source}: {ended}");
        let last = format!("{reachable} forwarders reachable\n");
        assert!(ended.stdout.ends_with(&last), "{source}: {ended}");
        let named = ended.stderr.contains("entry 4: forwarder `w.example`");
        assert_eq!(named, reachable == "2 of 2", "{source}: {ended}");
    }
    for (source, message) in [
        (
            "missing.txt".to_owned(),
            "cannot read the list of forwarders missing.txt",
        ),
        (at("missing.txt"), "status 404"),
        (at("page.html"), "neither YAML, JSON nor one URI per line"),
    ] {
        let ended = folder.run(&["tracker", "check", "-f", &source]);
        assert_eq!(ended.code, Some(1), "{source}: {ended}");
        assert!(ended.stderr.contains(message), "{source}: {ended}");
    }
    let json = folder.run(&["tracker", "check", "-f", &at("list.yml"), "--json"]);
    assert!(json.stdout.contains("\"name\": \"mine\""), "{json}");
}

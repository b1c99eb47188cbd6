//! Buckets: upload, download, and a plan without changes, compared with rclone and s5cmd at an
//! independent server (s3s-fs).

use super::contender::{Contender, Program, headworks, sync};
use super::trees::{self, WorkDir};
use super::{Options, run_in_turns};
use crate::process::Process;
use crate::report::Report;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The key of every contender. Not a secret: the server is a child of this process.
pub(super) const KEY: &str = "headworks-bench";

/// The options, the working folder and the server of a comparison.
struct BucketBench<'a> {
    options: &'a Options,
    dir: &'a WorkDir,
    server: SocketAddr,
}

pub(super) fn measure(options: &Options, server: &Path, dir: &WorkDir, report: &mut Report) {
    std::fs::create_dir_all(dir.path("buckets")).expect("room for the buckets");
    let address = free_address();
    let mut command = Command::new(server);
    command
        .args(["--host", "127.0.0.1", "--port", &address.port().to_string()])
        .args(["--access-key", KEY, "--secret-key", KEY])
        .arg(dir.path("buckets"))
        .env("RUST_LOG", "error");
    let process = Process::spawn_at(&mut command, address, Process::takes_connections);
    let bench = BucketBench {
        options,
        dir,
        server: process.address,
    };
    if options.s5cmd.is_none() {
        let note = "without s5cmd: name it with --s5cmd";
        report.notes.push(note.into());
    }
    if options.is_selected("small") || options.is_selected("plan") {
        trees::small(&dir.path("small"), options.objects, options.objects / 10);
    }
    if options.is_selected("small") {
        bench.upload_and_download("small", 0.7, report);
    }
    if options.is_selected("plan") {
        bench.plan(report);
    }
    if options.is_selected("large") {
        trees::one(&dir.path("one"), options.object_bytes);
        bench.upload_and_download("one", 1.0, report);
    }
}

fn free_address() -> SocketAddr {
    let taken = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    taken.local_addr().expect("it has an address")
}

impl BucketBench<'_> {
    fn upload_and_download(&self, what: &str, most: f64, report: &mut Report) {
        let args = match what {
            "one" => format!("one file of {} MB", self.options.object_bytes / 1_000_000),
            _ => format!("{} files", self.options.objects),
        };
        let (folder, bucket) = (self.dir.path(what), self.bucket());
        let clear = |name: &str| match what {
            "one" => self.dir.remove(name),
            _ => self.dir.move_aside(name),
        };
        // Including what the server recorded about earlier objects.
        let fresh = || {
            self.dir.remove("state");
            clear("buckets");
            std::fs::create_dir_all(self.dir.path("buckets/bench")).expect("room");
        };
        self.compare(
            &format!("{args} up"),
            (&folder, &bucket),
            most,
            report,
            fresh,
        );
        let down = self.dir.path("down");
        let fresh = || {
            self.dir.remove("state");
            clear("down");
        };
        self.compare(
            &format!("{args} down"),
            (&bucket, &down),
            most,
            report,
            fresh,
        );
        clear("down");
    }

    /// Copies with every contender, and compares us with the fastest of the others.
    fn compare(
        &self,
        what: &str,
        (from, to): (&Path, &Path),
        most: f64,
        report: &mut Report,
        fresh: impl Fn(),
    ) {
        let named = |name: &str| format!("{name}, {what}");
        let state = self.dir.path("state");
        let mut all = vec![Contender::new(
            &named("headworks run"),
            vec![headworks("run", from, to, &state)],
        )];
        if let Some(rclone) = &self.options.rclone {
            let settings = ["8", "32", "128"].map(|transfers| {
                let transfers = format!("--transfers={transfers}");
                let args = ["copy", "--config=/dev/null", &transfers].map(Path::new);
                let ends = [self.for_rclone(from), self.for_rclone(to)];
                Program::new(command_line(rclone, &args, &ends))
            });
            all.push(Contender::new(&named("rclone copy"), settings.into()));
        }
        if let Some(s5cmd) = &self.options.s5cmd {
            let settings = ["16", "64", "256"].map(|workers| {
                let endpoint = self.endpoint();
                let args = ["--endpoint-url", &endpoint, "--numworkers", workers, "cp"];
                let ends = [for_s5cmd(from, true), for_s5cmd(to, false)];
                Program::new(command_line(s5cmd, &args.map(Path::new), &ends))
            });
            all.push(Contender::new(&named("s5cmd cp"), settings.into()));
        }
        run_in_turns(
            self.options.rounds,
            &mut all,
            report,
            fresh,
            &self.dir.path(""),
        );
        bound_by_fastest(
            report,
            &named("headworks run"),
            most,
            &[named("rclone copy"), named("s5cmd cp")],
        );
    }

    /// Plans two equal trees, with the state file of the run that made them equal.
    fn plan(&self, report: &mut Report) {
        let (folder, bucket) = (self.dir.path("small"), self.bucket());
        let state = self.dir.path("state");
        self.dir.remove("state");
        self.dir.move_aside("buckets");
        std::fs::create_dir_all(self.dir.path("buckets/bench")).expect("room");
        headworks("run", &folder, &bucket, &state).run();
        sync(&self.dir.path(""));
        // Listings of this server have no etags, so the first plan requests the time of every
        // copied file.
        let plan = || headworks("plan", &folder, &bucket, &state);
        let first = Contender::new("headworks plan, the first after it", vec![plan()]);
        run_in_turns(1, &mut [first], report, || {}, &self.dir.path(""));
        let named = |name: &str| format!("{name}, nothing changed");
        let mut all = vec![Contender::new(&named("headworks plan"), vec![plan()])];
        if let Some(rclone) = &self.options.rclone {
            let settings = ["8", "32", "128"].map(|checkers| {
                let checkers = format!("--checkers={checkers}");
                let args = ["check", "--size-only", "--config=/dev/null", &checkers];
                let ends = [folder.clone(), self.for_rclone(&bucket)];
                Program::new(command_line(rclone, &args.map(Path::new), &ends))
            });
            all.push(Contender::new(
                &named("rclone check --size-only"),
                settings.into(),
            ));
        }
        if let Some(s5cmd) = &self.options.s5cmd {
            let settings = ["16", "64", "256"].map(|workers| {
                let endpoint = self.endpoint();
                let args = ["--endpoint-url", &endpoint, "--numworkers", workers];
                let args = [&args[..], &["sync", "--size-only"]].concat();
                let args: Vec<&Path> = args.into_iter().map(Path::new).collect();
                let ends = [for_s5cmd(&folder, false), for_s5cmd(&bucket, false)];
                Program::new(command_line(s5cmd, &args, &ends))
            });
            all.push(Contender::new(
                &named("s5cmd sync --size-only"),
                settings.into(),
            ));
        }
        run_in_turns(
            self.options.rounds,
            &mut all,
            report,
            || {},
            &self.dir.path(""),
        );
        let others = [
            named("rclone check --size-only"),
            named("s5cmd sync --size-only"),
        ];
        bound_by_fastest(report, &named("headworks plan"), 0.7, &others);
        self.dir.remove("state");
    }

    fn endpoint(&self) -> String {
        format!("http://{}", self.server)
    }

    /// Returns the bucket's URL for headworks.
    fn bucket(&self) -> PathBuf {
        format!("s3://bench?endpoint={}", self.endpoint()).into()
    }

    fn for_rclone(&self, location: &Path) -> PathBuf {
        match is_bucket(location) {
            true => {
                let endpoint = self.endpoint();
                format!(":s3,provider=Other,env_auth,endpoint='{endpoint}':bench").into()
            }
            false => location.to_owned(),
        }
    }
}

fn is_bucket(location: &Path) -> bool {
    location
        .as_os_str()
        .as_encoded_bytes()
        .starts_with(b"s3://")
}

/// Returns the argument of s5cmd for a folder or the bucket. A source bucket needs a wildcard.
fn for_s5cmd(location: &Path, is_source: bool) -> PathBuf {
    match (is_bucket(location), is_source) {
        (true, true) => "s3://bench/*".into(),
        (true, false) => "s3://bench/".into(),
        (false, _) => location.join(""),
    }
}

fn command_line(program: &Path, args: &[&Path], ends: &[PathBuf; 2]) -> Vec<PathBuf> {
    let args = [program].into_iter().chain(args.iter().copied());
    args.map(Path::to_owned)
        .chain(ends.iter().cloned())
        .collect()
}

/// Bounds a measurement by the fastest of the others, if there are any.
fn bound_by_fastest(report: &mut Report, name: &str, most: f64, others: &[String]) {
    let fastest = others
        .iter()
        .filter(|other| report.value(other).is_some())
        .min_by(|a, b| {
            let value = |name: &str| report.value(name).unwrap_or(f64::MAX);
            value(a).total_cmp(&value(b))
        });
    if let Some(fastest) = fastest {
        report.ratio(name, fastest, most);
    }
}

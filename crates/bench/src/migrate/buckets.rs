//! Buckets: up, down, and a plan of what did not change, beside rclone and s5cmd at a server of
//! other people (s3s-fs).

use super::contender::{Contender, Program, ours, sync};
use super::trees::{self, Place};
use super::{Options, race};
use crate::process::Process;
use crate::report::Report;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What every contender signs with. Of no worth: the server is a child of this process.
pub(super) const KEY: &str = "headworks-bench";

/// What the contenders are, and where the server is.
struct Field<'a> {
    options: &'a Options,
    place: &'a Place,
    server: SocketAddr,
}

pub(super) fn measure(options: &Options, server: &Path, place: &Place, report: &mut Report) {
    std::fs::create_dir_all(place.path("buckets")).expect("room for the buckets");
    let address = free_address();
    let mut command = Command::new(server);
    command
        .args(["--host", "127.0.0.1", "--port", &address.port().to_string()])
        .args(["--access-key", KEY, "--secret-key", KEY])
        .arg(place.path("buckets"))
        .env("RUST_LOG", "error");
    let process = Process::spawn_at(&mut command, address, Process::takes_connections);
    let field = Field {
        options,
        place,
        server: process.address,
    };
    if options.s5cmd.is_none() {
        let note = "without s5cmd: name it with --s5cmd";
        report.notes.push(note.into());
    }
    if options.wants("small") || options.wants("plan") {
        trees::small(&place.path("small"), options.objects, options.objects / 10);
    }
    if options.wants("small") {
        field.both_ways("small", 0.7, report);
    }
    if options.wants("plan") {
        field.plan(report);
    }
    if options.wants("large") {
        trees::one(&place.path("one"), options.object_bytes);
        field.both_ways("one", 1.0, report);
    }
}

fn free_address() -> SocketAddr {
    let taken = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    taken.local_addr().expect("it has an address")
}

impl Field<'_> {
    fn both_ways(&self, what: &str, most: f64, report: &mut Report) {
        let words = match what {
            "one" => format!("one file of {} MB", self.options.object_bytes / 1_000_000),
            _ => format!("{} files", self.options.objects),
        };
        let (folder, bucket) = (self.place.path(what), self.bucket());
        let clear = |name: &str| match what {
            "one" => self.place.forget(name),
            _ => self.place.put_aside(name),
        };
        // With what the server noted about objects that were there before, too.
        let fresh = || {
            self.place.forget("state");
            clear("buckets");
            std::fs::create_dir_all(self.place.path("buckets/bench")).expect("room");
        };
        self.race(
            &format!("{words} up"),
            (&folder, &bucket),
            most,
            report,
            fresh,
        );
        let down = self.place.path("down");
        let fresh = || {
            self.place.forget("state");
            clear("down");
        };
        self.race(
            &format!("{words} down"),
            (&bucket, &down),
            most,
            report,
            fresh,
        );
        clear("down");
    }

    /// Moves it with each, and holds us to the faster of the others.
    fn race(
        &self,
        what: &str,
        (from, to): (&Path, &Path),
        most: f64,
        report: &mut Report,
        fresh: impl Fn(),
    ) {
        let named = |name: &str| format!("{name}, {what}");
        let state = self.place.path("state");
        let mut all = vec![Contender::new(
            &named("headworks run"),
            vec![ours("run", from, to, &state)],
        )];
        if let Some(rclone) = &self.options.rclone {
            let settings = ["8", "32", "128"].map(|transfers| {
                let transfers = format!("--transfers={transfers}");
                let words = ["copy", "--config=/dev/null", &transfers].map(Path::new);
                let ends = [self.for_rclone(from), self.for_rclone(to)];
                Program::new(words_of(rclone, &words, &ends))
            });
            all.push(Contender::new(&named("rclone copy"), settings.into()));
        }
        if let Some(s5cmd) = &self.options.s5cmd {
            let settings = ["16", "64", "256"].map(|workers| {
                let endpoint = self.endpoint();
                let words = ["--endpoint-url", &endpoint, "--numworkers", workers, "cp"];
                let ends = [for_s5cmd(from, true), for_s5cmd(to, false)];
                Program::new(words_of(s5cmd, &words.map(Path::new), &ends))
            });
            all.push(Contender::new(&named("s5cmd cp"), settings.into()));
        }
        race(
            self.options.rounds,
            &mut all,
            report,
            fresh,
            &self.place.path(""),
        );
        faster(
            report,
            &named("headworks run"),
            most,
            &[named("rclone copy"), named("s5cmd cp")],
        );
    }

    /// Of two equal trees, with the state file of whoever made them so.
    fn plan(&self, report: &mut Report) {
        let (folder, bucket) = (self.place.path("small"), self.bucket());
        let state = self.place.path("state");
        self.place.forget("state");
        self.place.put_aside("buckets");
        std::fs::create_dir_all(self.place.path("buckets/bench")).expect("room");
        ours("run", &folder, &bucket, &state).run();
        sync(&self.place.path(""));
        // Listings of this server have no etags, so the first plan asks for the times of what was
        // copied, a request a file.
        let plan = || ours("plan", &folder, &bucket, &state);
        let first = Contender::new("headworks plan, the first after it", vec![plan()]);
        race(1, &mut [first], report, || {}, &self.place.path(""));
        let named = |name: &str| format!("{name}, nothing changed");
        let mut all = vec![Contender::new(&named("headworks plan"), vec![plan()])];
        if let Some(rclone) = &self.options.rclone {
            let settings = ["8", "32", "128"].map(|checkers| {
                let checkers = format!("--checkers={checkers}");
                let words = ["check", "--size-only", "--config=/dev/null", &checkers];
                let ends = [folder.clone(), self.for_rclone(&bucket)];
                Program::new(words_of(rclone, &words.map(Path::new), &ends))
            });
            all.push(Contender::new(
                &named("rclone check --size-only"),
                settings.into(),
            ));
        }
        if let Some(s5cmd) = &self.options.s5cmd {
            let settings = ["16", "64", "256"].map(|workers| {
                let endpoint = self.endpoint();
                let words = ["--endpoint-url", &endpoint, "--numworkers", workers];
                let words = [&words[..], &["sync", "--size-only"]].concat();
                let words: Vec<&Path> = words.into_iter().map(Path::new).collect();
                let ends = [for_s5cmd(&folder, false), for_s5cmd(&bucket, false)];
                Program::new(words_of(s5cmd, &words, &ends))
            });
            all.push(Contender::new(
                &named("s5cmd sync --size-only"),
                settings.into(),
            ));
        }
        race(
            self.options.rounds,
            &mut all,
            report,
            || {},
            &self.place.path(""),
        );
        let others = [
            named("rclone check --size-only"),
            named("s5cmd sync --size-only"),
        ];
        faster(report, &named("headworks plan"), 0.7, &others);
        self.place.forget("state");
    }

    fn endpoint(&self) -> String {
        format!("http://{}", self.server)
    }

    /// As we name it.
    fn bucket(&self) -> PathBuf {
        format!("s3://bench?endpoint={}", self.endpoint()).into()
    }

    fn for_rclone(&self, place: &Path) -> PathBuf {
        match is_bucket(place) {
            true => {
                let endpoint = self.endpoint();
                format!(":s3,provider=Other,env_auth,endpoint='{endpoint}':bench").into()
            }
            false => place.to_owned(),
        }
    }
}

fn is_bucket(place: &Path) -> bool {
    place.as_os_str().as_encoded_bytes().starts_with(b"s3://")
}

/// What is in a folder, or in the bucket; only where it comes from needs to be told.
fn for_s5cmd(place: &Path, is_source: bool) -> PathBuf {
    match (is_bucket(place), is_source) {
        (true, true) => "s3://bench/*".into(),
        (true, false) => "s3://bench/".into(),
        (false, _) => place.join(""),
    }
}

fn words_of(program: &Path, words: &[&Path], ends: &[PathBuf; 2]) -> Vec<PathBuf> {
    let words = [program].into_iter().chain(words.iter().copied());
    words
        .map(Path::to_owned)
        .chain(ends.iter().cloned())
        .collect()
}

/// Bounds a measurement by the fastest of others, if there are any.
fn faster(report: &mut Report, name: &str, most: f64, others: &[String]) {
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

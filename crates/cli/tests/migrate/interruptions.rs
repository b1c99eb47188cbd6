//! Random interruptions of plans and runs: the job finishes, the trees are identical, and no folder
//! that was durably listed is listed again.

use super::deep::make_chain;
use super::support::{Faulty, Mount, TestDir, is_full, mount, text};
use headworks_synth::Rng;
use std::collections::HashSet;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Interruptions in the normal suite, and in the full one.
const ALL: (u64, u64) = (20, 500);
/// Commands of a case that may be interrupted.
const STEPS: u64 = 4;

const STATE: &str = "state/job.db";

#[derive(Clone, Copy, Debug)]
enum Tree {
    Shallow,
    Deep,
    /// Deep on one side and wide on the other.
    Lopsided,
}

/// Points at which a process can be killed while it plans or copies.
const POINTS: [&str; 8] = [
    "before-commit",
    "after-commit",
    "before-sync",
    "after-mkdir",
    "temp-made",
    "before-rename",
    "after-batch",
    "after-settle",
];

struct Case {
    dir: TestDir,
    random: Rng,
    /// How long an uninterrupted run took.
    usual: Duration,
    interrupted: u64,
    failures: u64,
    _state: Mount,
}

impl Case {
    fn new(seed: u64) -> Case {
        let dir = TestDir::new();
        let mut random = Rng::new(seed);
        let tree = [Tree::Shallow, Tree::Deep, Tree::Lopsided][random.below(3) as usize];
        // Deep ones take long, so the normal suite has few of them.
        let is_deep = is_full() || random.below(4) == 0;
        let levels = if is_deep { 300 } else { 60 };
        match tree {
            Tree::Shallow => dir.make_tree("src", 60, 4),
            Tree::Deep => make_chain(&dir, "src", levels),
            Tree::Lopsided => {
                make_chain(&dir, "src", levels / 2);
                dir.make_tree("src/0000000000/wide", 40, 3);
                make_chain(&dir, "dst", levels / 4);
            }
        }
        // Fails through the faulty filesystem: one when it is read, one when it is listed.
        std::fs::write(dir.path("src/short-file"), vec![b's'; 5000]).unwrap();
        std::fs::create_dir_all(dir.path("src/broken-folder/below")).unwrap();
        std::fs::write(dir.path("src/broken-folder/below/file"), "below").unwrap();
        std::fs::create_dir(dir.path("view")).unwrap();
        let state = Mount::tmpfs(dir.path("state"), "64m");
        println!("seed {seed}: {tree:?}");
        let mut case = Case {
            dir,
            random,
            usual: Duration::ZERO,
            interrupted: 0,
            failures: 0,
            _state: state,
        };
        case.usual = case.time_of_a_run();
        case
    }

    /// Measures a run into another folder.
    fn time_of_a_run(&self) -> Duration {
        let began = Instant::now();
        let args = ["run", "src", "elsewhere"];
        let command = self.dir.command_with_state("elsewhere.db", &args);
        let output = self.dir.expect_end_of(command);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        std::fs::remove_dir_all(self.dir.path("elsewhere")).unwrap();
        began.elapsed()
    }

    fn stage(&self) -> String {
        let query = "SELECT value FROM meta WHERE key = 'stage'";
        self.dir.query_text(STATE, query)
    }

    fn args(&mut self) -> &'static [&'static str] {
        let may_plan = matches!(self.stage().as_str(), "planning" | "0");
        match may_plan && self.random.below(2) == 0 {
            true => &["plan", "view", "dst", "--attempts=1"],
            false => &["run", "view", "dst", "--attempts=1"],
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.dir.command_with_state(STATE, args);
        command.env("HEADWORKS_TRACE", self.dir.path("trace"));
        command
    }

    /// Runs something, and checks that it repeats nothing durable, unless it begins a pass.
    fn without_repeats(&mut self, run: impl FnOnce(&mut Case) -> Output) -> Output {
        let begins = !matches!(self.stage().as_str(), "planning" | "copying");
        let durable = match begins {
            true => HashSet::new(),
            false => self.dir.durable_in(STATE),
        };
        let _ = std::fs::remove_file(self.dir.path("trace"));
        let output = run(self);
        let calls = self.dir.calls();
        let again: Vec<&String> = calls
            .iter()
            .filter(|call| durable.contains(*call))
            .collect();
        assert!(again.is_empty(), "again: {again:?}: {}", text(&output));
        output
    }

    /// Interrupts a command in a random way.
    fn interrupt(&mut self) {
        let args = self.args();
        let way = self.random.below(4);
        let output = self.without_repeats(|case| match way {
            0 => case.kill(args),
            1 => case.signal(args, "-INT"),
            2 => case.signal(args, "-KILL"),
            _ => case.fill_the_disk(args),
        });
        let code = output.status.code();
        println!(
            "  {way}: {args:?} ended with {code:?} in `{}`",
            self.stage()
        );
        let expected = matches!(code, None | Some(0 | 1 | 3 | 130));
        assert!(expected, "{code:?}: {}", text(&output));
        if matches!(code, None | Some(1 | 130)) {
            self.interrupted += 1;
        }
        if code == Some(1) {
            assert!(text(&output).contains("full"), "{}", text(&output));
        }
    }

    fn kill(&mut self, args: &[&str]) -> Output {
        let point = POINTS[self.random.below(POINTS.len() as u64) as usize];
        let time = 1 + self.random.below(60);
        let mut command = self.command(args);
        command.env("HEADWORKS_FAILPOINT", format!("{point}:{time}"));
        self.dir.expect_end_of(command)
    }

    /// Sends a signal after a random time.
    fn signal(&mut self, args: &[&str], signal: &str) -> Output {
        let most = self.usual.as_millis() as u64 + 1;
        let after = Duration::from_millis(self.random.below(most));
        let mut command = self.command(args);
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = piped.spawn().expect("the binary runs");
        // Not a wait for a condition: the time of the interruption is random.
        std::thread::sleep(after);
        let id = child.id().to_string();
        let _ = Command::new("kill").args([signal, &id]).status();
        child.wait_with_output().expect("it ends")
    }

    fn fill_the_disk(&mut self, args: &[&str]) -> Output {
        let used = self.dir.python(USED, &[]).trim().parse::<u64>().unwrap();
        // A size of 0 would be no limit.
        let size = used + ((1 + self.random.below(80)) << 12);
        mount(
            &["-o", &format!("remount,size={size}")],
            &self.dir.path("state"),
        );
        let output = self.dir.expect_end_of(self.command(args));
        mount(&["-o", "remount,size=64m"], &self.dir.path("state"));
        output
    }

    /// Runs with a source of which some entries fail, and retries them.
    fn fail_and_retry(&mut self) {
        let output = {
            let _faulty = Faulty::over(&self.dir, "src", "view");
            self.without_repeats(|case| {
                let command = case.command(&["run", "view", "dst", "--attempts=1"]);
                case.dir.expect_end_of(command)
            })
        };
        let printed = text(&output);
        // Both may have been copied before.
        assert!(matches!(output.status.code(), Some(0 | 3)), "{printed}");
        self.failures += u64::from(output.status.code() == Some(3));
        let mut retry = self.dir.command_with_state(STATE, &["retry"]);
        let output = retry.output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
    }

    fn finish(&mut self) {
        let output = self.without_repeats(|case| {
            let command = case.command(&["run", "view", "dst"]);
            case.dir.expect_end_of(command)
        });
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        self.dir.compare_trees("src", "dst");
        assert!(self.dir.leftovers("dst").is_empty());
        assert_eq!(self.dir.query_text(STATE, "PRAGMA integrity_check"), "ok");
    }
}

/// Bytes of the state's disk that are in use.
const USED: &str = "
import os
s = os.statvfs('state')
print((s.f_blocks - s.f_bfree) * s.f_frsize)
";

/// The source as it is, at the path that the faulty filesystem has at other times.
struct Bound<'d>(&'d std::path::Path);

impl<'d> Bound<'d> {
    fn new(source: &str, at: &'d std::path::Path) -> Bound<'d> {
        mount(&["--bind", source], at);
        Bound(at)
    }
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn interrupted_at_random_it_finishes_and_repeats_nothing() {
    let all = if is_full() { ALL.1 } else { ALL.0 };
    // A failing case is repeated by its seed.
    let first = std::env::var("HEADWORKS_SEED").ok();
    let first = first.and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let (mut cases, mut interrupted, mut failures) = (0, 0, 0);
    while interrupted < all {
        let mut case = Case::new(first + cases);
        cases += 1;
        let (source, view) = (case.dir.path("src"), case.dir.path("view"));
        let failing = case.random.below(STEPS + 1);
        for step in 0..STEPS {
            if step == failing {
                case.fail_and_retry();
            }
            let _bound = Bound::new(source.to_str().unwrap(), &view);
            case.interrupt();
        }
        let _bound = Bound::new(source.to_str().unwrap(), &view);
        case.finish();
        interrupted += case.interrupted;
        failures += case.failures;
        println!("{interrupted} interruptions, {failures} failing runs in {cases} cases");
    }
    assert!(cases < all, "hardly any command was interrupted");
    assert!(failures >= cases / 8, "only {failures} failing runs");
}

//! End-to-end tests of `headworks config`.

mod support;

use insta::assert_snapshot;
use support::{Ended, Folder};

#[test]
fn init_writes_a_valid_file_with_the_defaults() {
    let folder = Folder::new();
    assert_snapshot!(folder.run(&["config", "init", "--output", "new.toml"]));
    assert_snapshot!(folder.run(&["config", "check", "new.toml"]));
    let values = |args: &[&str]| {
        let shown = folder.run(args).stdout;
        let mut shown: Vec<serde_json::Value> = serde_json::from_str(&shown).unwrap();
        for value in &mut shown {
            value.as_object_mut().unwrap().remove("origin");
        }
        shown
    };
    let written = values(&["--config", "new.toml", "config", "show", "--json"]);
    let mut without_file = values(&["config", "show", "--json"]);
    let mut open = without_file.iter_mut();
    let open = open.find(|value| value["key"] == "gateway.open").unwrap();
    assert_eq!(open["value"], true, "on loopback, without a file");
    open["value"] = false.into();
    assert_eq!(written, without_file);
}

#[test]
fn init_prints_to_stdout_and_never_overwrites() {
    let folder = Folder::new();
    folder.write("mine.toml", "# mine\n");
    let refused = folder.run(&["config", "init", "--output", "mine.toml"]);
    assert_snapshot!(refused);
    assert_snapshot!(folder.run(&["config", "init"]));
}

/// One line of the older file is refused on purpose: an empty `allow_clients` could mean everybody
/// or nobody. The message says what to do, and the rest of the file is as good as ever.
#[test]
fn a_file_of_an_older_version_is_read() {
    let folder = Folder::new();
    let older = include_str!("older/init-2026-11-16.toml");
    folder.write("older.toml", older);
    let refused = folder.run(&["config", "check", "older.toml"]);
    assert_snapshot!(refused);
    let ambiguous = "allow_clients = []\n";
    assert!(older.contains(ambiguous));
    folder.write("older.toml", &older.replace(ambiguous, ""));
    let ended = folder.run(&["config", "check", "older.toml"]);
    assert!(ended.to_string().starts_with("exit 0"), "{ended}");
    let shown = folder.run(&["--config", "older.toml", "config", "show"]);
    assert!(shown.stdout.contains("Europe/Berlin"), "{shown}");
}

#[test]
fn check_reports_every_problem_with_exit_code_2() {
    let folder = Folder::new();
    folder.write(
        "bad.toml",
        "[admin]\nlisten = '0.0.0.0:80'\ntoken = 7\ntrusted_proxies = ['10.0.0.0/99']\n\n\
         [log]\nlevle = 'debug'\nformat = 'xml'\n\n[outbond]\n\n[shutdown]\ngrace = 'soon'\n",
    );
    assert_snapshot!(folder.run(&["config", "check", "bad.toml"]));
}

#[test]
fn check_runs_the_checks_of_sections() {
    let folder = Folder::new();
    folder.write(
        "open.toml",
        "[admin]\nlisten = '0.0.0.0:80'\n[log]\nlevel = 'a=b=c'\n",
    );
    assert_snapshot!(folder.run(&["config", "check", "open.toml"]));
}

#[test]
fn check_names_a_file_that_is_not_there() {
    assert_snapshot!(Folder::new().run(&["config", "check", "none.toml"]));
}

#[test]
fn show_prints_origins_and_masks_secrets() {
    let folder = Folder::new();
    folder.write(
        "headworks.toml",
        "[admin]\ntoken = 'open sesame, please'\n[log]\nlevel = 'warn'\n",
    );
    let output = folder
        .headworks(&[
            "config",
            "show",
            "--shutdown-grace",
            "2m",
            "--set",
            "log.format=json",
        ])
        .env("HEADWORKS_LOG__LEVEL", "debug")
        .output();
    let ended = Ended::from(output.unwrap());
    assert!(!ended.to_string().contains("sesame"));
    assert_snapshot!(ended);
}

#[test]
fn files_are_found_in_order() {
    let folder = Folder::new();
    let level = |variables: &[(&str, &str)], args: &[&str]| {
        let mut command = folder.headworks(args);
        command
            .args(["config", "show", "--json"])
            .envs(variables.iter().copied());
        let shown: Vec<serde_json::Value> =
            serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
        let level = shown
            .into_iter()
            .find(|value| value["key"] == "log.level")
            .unwrap();
        format!(
            "{} from {}",
            level["value"].as_str().unwrap(),
            level["origin"].as_str().unwrap()
        )
    };
    let xdg = ("XDG_CONFIG_HOME", "xdg");
    assert_eq!(level(&[xdg], &[]), "info from default");
    folder.write("xdg/headworks/headworks.toml", "[log]\nlevel = 'error'\n");
    assert_eq!(
        level(&[xdg], &[]),
        "error from xdg/headworks/headworks.toml:2"
    );
    folder.write("headworks.toml", "[log]\nlevel = 'warn'\n");
    assert_eq!(level(&[xdg], &[]), "warn from headworks.toml:2");
    folder.write("named.toml", "[log]\nlevel = 'debug'\n");
    let named = ("HEADWORKS_CONFIG", "named.toml");
    assert_eq!(level(&[xdg, named], &[]), "debug from named.toml:2");
    folder.write("flag.toml", "[log]\nlevel = 'trace'\n");
    assert_eq!(
        level(&[xdg, named], &["--config", "flag.toml"]),
        "trace from flag.toml:2"
    );
}

#[test]
fn a_setting_without_a_value_is_refused() {
    assert_snapshot!(Folder::new().run(&["config", "show", "--set", "log.level"]));
}

#[test]
fn help_teaches() {
    let folder = Folder::new();
    assert_snapshot!("help", folder.run(&["--help"]));
    assert_snapshot!("help_up", folder.run(&["up", "--help"]));
}

#[test]
fn the_help_of_an_application_shows_its_own_settings_only() {
    let folder = Folder::new();
    for own in ["gateway", "tracker", "migrate"] {
        let help = folder.run(&[own, "--help"]);
        for other in ["gateway", "tracker", "migrate"] {
            let shown = help.stdout.contains(&format!("Configuration [{other}]"));
            // Migrations are configured by arguments; their section is about watching them.
            let expected = other == own && own != "migrate";
            assert_eq!(shown, expected, "{other} in the help of {own}");
            let flag = format!("      --{other}-");
            assert_eq!(help.stdout.contains(&flag), expected, "{other} in {own}");
        }
    }
    assert_snapshot!("help_gateway", folder.run(&["gateway", "-h"]));
    assert_snapshot!("help_tracker", folder.run(&["tracker", "-h"]));
    assert_snapshot!("help_migrate", folder.run(&["migrate", "-h"]));
}

#[test]
fn a_flood_of_problems_is_counted_and_a_closed_stderr_is_no_panic() {
    let folder = Folder::new();
    let junk: String = (0..500).map(|n| format!("[junk{n}]\n")).collect();
    folder.write("junk.toml", &junk);
    let ended = folder.run(&["config", "check", "junk.toml"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("and 400 more"), "{}", ended.stderr);
    let mut child = folder.headworks(&["config", "check", "junk.toml"]);
    let mut child = child.stderr(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(2));
}

#[test]
fn check_without_a_file_checks_the_one_that_would_be_used() {
    let folder = Folder::new();
    let nothing = folder.run(&["config", "check"]);
    assert_eq!(nothing.code, Some(2));
    assert!(
        nothing.stderr.contains("headworks config init"),
        "{}",
        nothing.stderr
    );
    folder.write("headworks.toml", "[log]\nlevle = 'debug'\n");
    let wrong = folder.run(&["config", "check"]);
    assert_eq!(wrong.code, Some(2));
    assert!(
        wrong.stderr.contains("headworks.toml:2"),
        "{}",
        wrong.stderr
    );
}

#[test]
fn endless_files_are_rejected() {
    let folder = Folder::new();
    let pipe = folder.path().join("pipe.toml");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo runs").success());
    let pipe = pipe.to_str().expect("a path in UTF-8");
    for (path, words) in [
        (pipe, "not a regular file"),
        ("/dev/zero", "not a regular file"),
        (".", "a directory"),
    ] {
        let ended = folder.run(&["config", "check", path]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(words), "{path}: {ended:?}");
    }
    let secret = format!("admin.token=file:{pipe}");
    let ended = folder.run(&["config", "show", "--set", &secret]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let ended = folder.run(&["sim", "/dev/zero"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("not a regular file"), "{ended:?}");
    let ended = folder.run(&["sim", "--trace", "/dev/zero"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("a line"), "{ended:?}");
}

#[test]
fn values_that_cannot_work_are_refused_before_the_start() {
    let folder = Folder::new();
    folder.write("empty.pem", "");
    for (args, words) in [
        (
            ["--log-level", "junk"],
            ["log.level", "`junk` is not a level"],
        ),
        (
            ["--admin-token", ""],
            ["admin.token", "the secret is empty"],
        ),
        (
            ["--outbound-ca-file", "none.pem"],
            ["outbound.ca_file", "No such file"],
        ),
        (
            ["--outbound-ca-file", "empty.pem"],
            ["outbound.ca_file", "the file has no certificates"],
        ),
        (
            ["--outbound-connect-timeout", "0s"],
            ["outbound.connect_timeout", "must not be zero"],
        ),
    ] {
        let ended = folder.run(&["up", "--admin-listen", "127.0.0.1:0", args[0], args[1]]);
        assert_eq!(ended.code, Some(2), "{args:?}: {ended:?}");
        for word in words {
            assert!(ended.stderr.contains(word), "{args:?}: {ended:?}");
        }
    }
}

#[test]
fn a_variable_that_is_not_unicode_is_named() {
    use std::os::unix::ffi::OsStrExt;
    let folder = Folder::new();
    let odd = std::ffi::OsStr::from_bytes(b"\xff");
    for name in ["HEADWORKS_LOG__LEVEL", "RUST_LOG"] {
        let output = folder
            .headworks(&["config", "show"])
            .env(name, odd)
            .output();
        let ended = Ended::from(output.expect("it runs"));
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(
            ended.stderr.contains(&format!(
                "env {name}: the value is not valid Unicode; set it to"
            )),
            "{ended:?}"
        );
    }
    let mut command = folder.headworks(&["config", "show"]);
    let ended = Ended::from(command.env("NONE_OF_OURS", odd).output().expect("it runs"));
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn invalid_rates_and_ports_are_rejected_everywhere() {
    let folder = Folder::new();
    for (rate, text) in [
        (
            "[[gateway.tenant]]\nname = 'a'\nmax_rps = inf\n",
            "a rate must be",
        ),
        (
            "[[gateway.tenant]]\nname = 'a'\nmax_tokens_per_sec = -5.0\n",
            "a rate must be",
        ),
        (
            "[[gateway.rule]]\nname = 'r'\nfrom = '08:00'\nto = '09:00'\nmax_rps = nan\n",
            "a rate must be",
        ),
        (
            "[tracker]\nrate_limit_initial_per_sec = inf\n",
            "a positive number",
        ),
        (
            "[[gateway.upstream]]\nname = 'u'\nurl = 'http://127.0.0.1:99999'\n",
            "the port is not",
        ),
        (
            "[[tracker.forwarders]]\nuri = 'http://127.0.0.1:99999/announce'\n",
            "the port of forwarder",
        ),
    ] {
        folder.write("rates.toml", rate);
        let ended = folder.run(&["config", "check", "rates.toml"]);
        assert_eq!(ended.code, Some(2), "{rate}: {ended:?}");
        assert!(ended.stderr.contains(text), "{rate}: {ended:?}");
    }
}

//! Keys of single sign-on and roles, which AWS's own tool exports and renews.

use crate::support::{TestDir, text};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

/// A stand-in for `aws`: notes its arguments, and prints the next keys. The first ones are about to
/// expire.
const AWS: &str = r#"#!/bin/sh
echo "$@" >>calls
count=$(wc -l <calls)
case $count in 1) expires=$(date -u -d '+4 minutes' +%FT%TZ) ;; *) expires=2099-01-01T00:00:00Z ;; esac
printf '{"Version": 1, "AccessKeyId": "id-%s", "SecretAccessKey": "secret-5e1f", "SessionToken": "t", "Expiration": "%s"}' \
  "$count" "$expires"
"#;

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn keys_that_the_tool_exports_are_renewed_during_a_run() {
    let dir = TestDir::new();
    std::fs::create_dir(dir.path("bin")).unwrap();
    std::fs::write(dir.path("bin/aws"), AWS).unwrap();
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir.path("bin/aws"), executable).unwrap();
    let profile = "[profile dev]\nsso_session = corp\nsso_account_id = 1\nsso_role_name = reader\n";
    std::fs::write(dir.path("config"), profile).unwrap();
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/migrate/exported_keys.py"
    );
    let mut server = Command::new("python3")
        .arg(script)
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 runs");
    let mut port = String::new();
    let output = server.stdout.as_mut().expect("it is piped");
    BufReader::new(output).read_line(&mut port).unwrap();
    let _server = Server(server);
    let port = port.trim();
    let url = format!("s3://bucket?profile=dev&endpoint=http://127.0.0.1:{port}");
    let path = std::env::var("PATH").unwrap();
    let mut command = dir.command(&["run", &url, "dst", "--transfers", "1"]);
    command
        .env("PATH", format!("{}:{path}", dir.path("bin").display()))
        .env("AWS_CONFIG_FILE", dir.path("config"))
        .env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
        .env_remove("AWS_ACCESS_KEY_ID")
        .env_remove("AWS_PROFILE");
    let output = dir.expect_end_of(command);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    assert!(!printed.contains("secret-5e1f"), "{printed}");
    for name in ["a", "h"] {
        let copied = std::fs::read_to_string(dir.path("dst").join(name)).unwrap();
        assert_eq!(copied, "bytes");
    }
    let calls = std::fs::read_to_string(dir.path("calls")).unwrap();
    let exported = "configure export-credentials --format process --profile dev";
    assert!(calls.lines().all(|call| call == exported), "{calls}");
    // Nine requests or more, of which each pair of keys serves three, and not one call each.
    let count = calls.lines().count();
    assert!((3..=6).contains(&count), "{calls}");
}

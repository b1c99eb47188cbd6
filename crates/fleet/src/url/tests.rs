use proptest::prelude::*;

use super::*;

fn shown(url: &str) -> String {
    match url.parse::<FleetUrl>() {
        Ok(url) => url.to_string(),
        Err(error) => format!("error: {error}"),
    }
}

#[test]
fn accepted_urls_are_shown_in_full() {
    for (url, expected) in [
        (
            "postgres://localhost/fleet",
            "postgres://localhost:5432/fleet?sslmode=disable",
        ),
        (
            "postgresql://u%20x@[::1]:5433/my%2Ddb?job=home-2",
            "postgres://u%20x@[::1]:5433/my-db?sslmode=disable&job=home-2",
        ),
        (
            "postgres://u@a.example,b.example:5433/db?sslrootcert=/etc/ca.pem",
            "postgres://u@a.example:5432,b.example:5433/db?sslmode=verify-full\
             &sslrootcert=/etc/ca.pem",
        ),
        (
            "postgres://127.0.0.1/db?sslmode=verify-full&sslrootcert=system",
            "postgres://127.0.0.1:5432/db?sslmode=verify-full",
        ),
        (
            "redis://127.0.0.1",
            "valkey://127.0.0.1:6379/0?prefix=headworks",
        ),
        (
            "rediss://cache@v.example:7000/3?prefix=blue",
            "valkeys://cache@v.example:7000/3?prefix=blue",
        ),
    ] {
        assert_eq!(shown(url), expected);
        assert_eq!(shown(expected), expected, "what is shown can be used again");
    }
}

#[test]
fn rejected_urls_name_the_way_out() {
    for (url, part) in [
        ("mysql://h/d", "expected `postgres://`"),
        ("h/d", "expected `postgres://`"),
        ("postgres:///d", "no usable host name"),
        ("postgres://h", "name one database"),
        ("postgres://h/a/b", "name one database"),
        ("postgres://h:0/d", "the port is not a number"),
        ("postgres://h:99999/d", "the port is not a number"),
        ("postgres://[::1/d", "`[` without `]`"),
        (
            "postgres://h/d?sslmode=require",
            "`sslmode` must be `verify-full`",
        ),
        ("postgres://h/d?sslmode=disable", "for this machine only"),
        (
            "postgres://localhost,h/d?sslmode=disable",
            "for this machine only",
        ),
        (
            "postgres://h/d?jbo=x",
            "unknown parameter `jbo`; known are `job`",
        ),
        ("postgres://h/d?job=a&job=b", "occurs twice"),
        ("postgres://h/d?job=A", "a job's name has"),
        ("postgres://h/d#x", "control characters or `#`"),
        ("postgres://u:p@h/d", "set PGPASSWORD, or name a file"),
        ("postgres://u:p/q?@h/d", "set PGPASSWORD, or name a file"),
        (
            "postgres://h/d?password=p",
            "set PGPASSWORD, or name a file",
        ),
        (
            "redis://:p@127.0.0.1",
            "set VALKEYCLI_AUTH or REDISCLI_AUTH",
        ),
        ("redis://v.example", "needs TLS: use `rediss://`"),
        ("valkey://127.0.0.1/x", "the database is a number"),
        ("valkey://127.0.0.1,127.0.0.2/0", "name one server"),
        ("valkey://127.0.0.1/0?prefix={a}", "`prefix` has 1 to 64"),
    ] {
        let shown = shown(url);
        assert!(
            shown.starts_with("error: ") && shown.contains(part),
            "{url}: {shown}"
        );
    }
}

proptest! {
    #[test]
    fn no_input_panics_and_no_secret_is_echoed(
        scheme in "(postgres|redis|rediss|valkey)://",
        rest in "[a-z0-9:@/?&=%\\[\\],#.é]{0,40}",
        secret in "[A-Z]{12}",
    ) {
        let _ = shown(&rest);
        let _ = shown(&format!("{scheme}{rest}"));
        let with = format!("{scheme}user:{secret}@host/{rest}");
        let parsed = with.parse::<FleetUrl>();
        prop_assert!(parsed.is_err());
        let told = format!("{parsed:?} {}", shown(&with));
        prop_assert!(!told.contains(&secret));
    }
}

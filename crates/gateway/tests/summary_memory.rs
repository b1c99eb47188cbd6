//! Memory that reading a request body takes. A process of its own, because it measures its peak.
#![cfg(target_os = "linux")]

use headworks_gateway::wire::read_summary;

/// Largest resident size of this process so far, in bytes.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn reading_a_body_of_31_megabytes_takes_at_most_its_size_again() {
    const SIZE: usize = 31 << 20;
    // The body is built in place, so that the peak before is the size of the body.
    let bodies: [(&str, &str, &str); 6] = [
        (r#"{"model":"m","stream":["#, "[],", "[]]}"),
        (r#"{"model":"m","max_tokens":["#, "1,", "1]}"),
        (
            r#"{"model":"m","messages":["#,
            "{\"content\":\"a\"},",
            "{}]}",
        ),
        (r#"{"model":"m","messages":[{"content":""#, "\\n", "\"}]}"),
        (r#"{"model":""#, "\\u0061", "\"}"),
        (r#"{"model":"m","metadata":{"a":["#, "{},", "{}]}}"),
    ];
    for (head, part, tail) in bodies {
        let mut body = String::with_capacity(SIZE + 100);
        body.push_str(head);
        while body.len() < SIZE {
            body.push_str(part);
        }
        body.push_str(tail);
        let before = peak();
        let read = read_summary(body.as_bytes());
        assert_eq!(read.is_ok(), !head.ends_with(r#""model":""#), "{head}");
        let taken = peak() - before;
        assert!(taken <= SIZE + (4 << 20), "{head}: {taken} bytes");
    }
}

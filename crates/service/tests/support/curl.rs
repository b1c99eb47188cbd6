//! curl as an independent client.

use std::process::Command;

/// The response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: String,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

/// Runs curl with `args`, bypassing any proxy.
pub(crate) fn curl(args: &[&str]) -> Response {
    let common = [
        "--silent",
        "--show-error",
        "--include",
        "--noproxy",
        "*",
        "--max-time",
        "20",
    ];
    let output = Command::new("curl")
        .args(common)
        .args(args)
        .output()
        .expect("curl is installed");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "curl {args:?}: {complaint}");
    let text = String::from_utf8(output.stdout).expect("answers are text");
    let (headers, body) = text.split_once("\r\n\r\n").expect("an answer has headers");
    let status = headers.split(' ').nth(1).and_then(|code| code.parse().ok());
    Response {
        status: status.expect("an answer has a status"),
        headers: headers.to_owned(),
        body: body.to_owned(),
    }
}

//! A minimal HTTP client and link extractor: one GET per connection, and the links of a page.

use std::fmt;
use std::io::{Error, ErrorKind, Result};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Maximum size of a response: a page may never end.
const MAX_RESPONSE: u64 = 1 << 20;

/// The address of a page. Only `http`, and the host includes its port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Url {
    /// Host and port.
    pub host: String,
    /// The path, from the first `/`.
    pub path: String,
}

impl Url {
    /// Resolves a link on a page; `None` if it does not lead to a web page.
    #[must_use]
    pub fn link(page: &Url, link: &str) -> Option<Url> {
        let link = link.split('#').next().unwrap_or_default();
        if let Some(rest) = link.strip_prefix("http://") {
            let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let (host, path) = (
                host.to_owned(),
                format!("/{}", path.trim_start_matches('/')),
            );
            return (!host.is_empty()).then_some(Url { host, path });
        }
        let host = page.host.clone();
        let path = link.to_owned();
        link.starts_with('/').then_some(Url { host, path })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.host, self.path)
    }
}

/// The response of a host.
#[derive(Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The requested pause, from `Retry-After`.
    pub retry_after: Option<Duration>,
    /// The page.
    pub body: String,
}

/// Fetches a page.
///
/// # Errors
/// When the host cannot be reached, or the response is not HTTP.
pub async fn fetch(url: &Url) -> Result<Response> {
    let mut stream = TcpStream::connect(&url.host).await?;
    let Url { host, path } = url;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(MAX_RESPONSE).read_to_end(&mut answer).await?;
    parse(&String::from_utf8_lossy(&answer)).ok_or_else(|| {
        let what = format!("the response of {host} is not HTTP");
        Error::new(ErrorKind::InvalidData, what)
    })
}

fn parse(answer: &str) -> Option<Response> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?;
    let retry_after = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("retry-after"))
        .and_then(|(_, seconds)| seconds.trim().parse().ok())
        .map(Duration::from_secs);
    Some(Response {
        status: status.parse().ok()?,
        retry_after,
        body: body.to_owned(),
    })
}

/// The links of a page, in order.
#[must_use]
pub fn links(page: &Url, body: &str) -> Vec<Url> {
    let ends = |link: &'_ str| link.find('"').map(|end| link[..end].to_owned());
    body.split("href=\"")
        .skip(1)
        .filter_map(ends)
        .filter_map(|link| Url::link(page, &link))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_and_made_whole() {
        let page = Url::link(
            &Url {
                host: String::new(),
                path: String::new(),
            },
            "http://a:1",
        )
        .unwrap();
        let body = r#"<a href="/x#top">x</a><a href="http://b:2/y">y</a><a href="mailto:c">c</a><a href="open"#;
        let found: Vec<_> = links(&page, body).iter().map(Url::to_string).collect();
        assert_eq!(found, ["http://a:1/x", "http://b:2/y"]);
    }

    #[test]
    fn an_answer_that_is_not_http_is_an_error_and_no_panic() {
        for bad in [
            "",
            "\r\n\r\n",
            "HTTP/1.1\r\n\r\n",
            "HTTP/1.1 20\r\n\r\n",
            "HTTP/1.1 abc\r\n\r\n",
            "HTTP/1.1 20é\r\n\r\n",
        ] {
            assert!(parse(bad).is_none(), "{bad:?}");
        }
        let answer = parse("HTTP/1.1 429 No\r\nretry-after: 7\r\n\r\nwait").unwrap();
        assert_eq!(answer.retry_after, Some(Duration::from_secs(7)));
        assert_eq!((answer.status, answer.body.as_str()), (429, "wait"));
    }
}

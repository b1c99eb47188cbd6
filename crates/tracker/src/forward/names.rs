//! Host names, looked up once in a while.

use super::AskError;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long a name's addresses are believed.
const FRESH: Duration = Duration::from_secs(300);

/// The addresses of hosts, as they were last looked up.
#[derive(Default)]
pub(crate) struct Names(Mutex<HashMap<(String, u16), LookedUp>>);

/// When, and what was found.
type LookedUp = (Instant, Vec<SocketAddr>);

impl Names {
    /// The addresses of a host. When looking up fails, older ones are better than none.
    pub(crate) async fn look_up(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, AskError> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let key = (host.to_owned(), port);
        let known = self.0.lock().get(&key).cloned();
        if let Some((at, addresses)) = &known
            && at.elapsed() < FRESH
        {
            return Ok(addresses.clone());
        }
        match tokio::net::lookup_host((host, port)).await {
            Ok(found) => {
                let addresses: Vec<SocketAddr> = found.collect();
                let entry = (Instant::now(), addresses.clone());
                self.0.lock().insert(key, entry);
                Ok(addresses)
            }
            Err(error) if is_unknown(&error) => Err(AskError::NoSuchHost),
            Err(error) => match known {
                Some((_, addresses)) => Ok(addresses),
                None => Err(AskError::Passing(format!("looking up the host: {error}"))),
            },
        }
    }
}

/// Whether the host does not exist, as against nobody being there to say so. The system's resolver tells the two apart
/// in words only.
pub(crate) fn is_unknown(error: &io::Error) -> bool {
    let text = error.to_string();
    [
        "Name or service not known",
        "No address associated",
        "nodename nor servname",
        "Name does not resolve",
    ]
    .iter()
    .any(|words| text.contains(words))
}

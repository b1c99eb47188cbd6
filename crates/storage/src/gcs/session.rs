//! A resumable upload session: bytes are sent in order, and the service reports how many it has.

use super::bucket::{Bucket, with_precondition};
use super::object::Resource;
use crate::backend::Precondition;
use crate::cloud::{Call, FullResponse, SegmentedBytes, header_text};
use crate::error::{ErrorKind, Result};
use http::Method;

/// The service keeps a multiple of this of an unfinished upload.
const CHUNK_GRANULARITY: u64 = 256 << 10;

/// A session.
#[derive(Clone, Debug)]
pub(super) struct Session {
    /// Its id. Anyone who knows it can continue this upload, and nothing else.
    id: String,
    size: u64,
}

/// The progress of an upload.
pub(super) enum SessionProgress {
    /// The service has this many bytes.
    At(u64),
    Done(Box<Resource>),
}

impl Session {
    /// Starts a session. The resource describes the object.
    pub(super) async fn begin(
        bucket: &Bucket,
        key: &[u8],
        resource: &Resource,
        size: u64,
        precondition: &Precondition,
    ) -> Result<Session> {
        let call = bucket.upload_call("begin upload", key, "resumable")?;
        let call = with_precondition(call, precondition)
            .query("name", &resource.name)
            .header("content-type", "application/json")
            .header("x-upload-content-length", &size.to_string())
            .body(SegmentedBytes::from(resource.json()));
        let response = bucket.fetch(&call).await?;
        let location = header_text(&response.headers, "location").unwrap_or_default();
        let query = location.split_once('?').map_or("", |(_, query)| query);
        let id = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("upload_id="));
        match id {
            Some(id) => {
                let id = crate::cloud::percent::decode_form(id.as_bytes());
                let id = String::from_utf8_lossy(&id).into_owned();
                Ok(Session { id, size })
            }
            None => Err(call.failure(ErrorKind::Temporary, "the response contains no upload id")),
        }
    }

    /// Encodes the resume token: the size and time of the source, and the id. The session of a
    /// source that has changed since is not resumed.
    pub(super) fn write(&self, modified: Option<i64>) -> Vec<u8> {
        let of = fingerprint(self.size, modified);
        [of.as_bytes(), b" ", self.id.as_bytes()].concat()
    }

    pub(super) fn read(resume: &[u8], size: u64, modified: Option<i64>) -> Option<Session> {
        let (of, id) = std::str::from_utf8(resume).ok()?.split_once(' ')?;
        (of == fingerprint(size, modified)).then(|| Session {
            id: id.to_owned(),
            size,
        })
    }

    /// Decodes a resume token without checking the source, to abort the session.
    pub(super) fn from_token(resume: &[u8]) -> Option<Session> {
        let (_, id) = std::str::from_utf8(resume).ok()?.split_once(' ')?;
        let id = id.to_owned();
        Some(Session { id, size: 0 })
    }

    fn call(&self, bucket: &Bucket, kind: &'static str, key: &[u8]) -> Result<Call> {
        let mut call = bucket.upload_call(kind, key, "resumable")?;
        call.method = Method::PUT;
        Ok(call.query("upload_id", &self.id))
    }

    /// Returns the progress; `None` if the session does not exist any more.
    pub(super) async fn status(
        &self,
        bucket: &Bucket,
        key: &[u8],
    ) -> Result<Option<SessionProgress>> {
        let call = self.call(bucket, "look at upload", key)?;
        let call = call.header("content-range", &format!("bytes */{}", self.size));
        match bucket.fetch(&call).await {
            Ok(response) => progress(&call, &response).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends bytes at `at`, and continues after a fault where the service is. Fails with `NotFound`
    /// if the session expired.
    pub(super) async fn send(
        &self,
        bucket: &Bucket,
        key: &[u8],
        mut at: u64,
        mut piece: SegmentedBytes,
    ) -> Result<SessionProgress> {
        let end = at + piece.len();
        let mut attempt = 0;
        loop {
            let call = self.call(bucket, "put chunk", key)?;
            let range = format!("bytes {at}-{}/{}", end - 1, self.size);
            let call = call.header("content-range", &range).body(piece.clone());
            let sent = match bucket.endpoint.read_once(bucket, &call).await {
                Ok(response) => progress(&call, &response).and_then(|progress| match progress {
                    SessionProgress::At(stored) if stored <= at => {
                        let message = "the service accepted none of the bytes";
                        Err(call.failure(ErrorKind::Temporary, message))
                    }
                    progress => Ok(progress),
                }),
                Err(error) => Err(error),
            };
            let stored = match sent {
                Ok(SessionProgress::Done(resource)) => return Ok(SessionProgress::Done(resource)),
                Ok(SessionProgress::At(stored)) => stored,
                Err(error) => {
                    attempt += 1;
                    bucket.endpoint.retries.wait_or_fail(attempt, error).await?;
                    match self.status(bucket, key).await? {
                        Some(SessionProgress::At(stored)) => stored,
                        Some(done) => return Ok(done),
                        None => {
                            let message = "the upload session expired";
                            return Err(call.failure(ErrorKind::NotFound, message));
                        }
                    }
                }
            };
            if stored >= end {
                return Ok(SessionProgress::At(stored));
            }
            if stored < at {
                let message = format!("the service has {stored} bytes, but had {at} before");
                return Err(call.failure(ErrorKind::Temporary, message));
            }
            piece = piece.skip_bytes(stored - at);
            at = stored;
        }
    }

    /// Aborts the session. If that fails, the service discards it after a week.
    pub(super) async fn abort(&self, bucket: &Bucket, key: &[u8]) -> Result<()> {
        let mut call = self.call(bucket, "abort upload", key)?;
        call.method = Method::DELETE;
        // The response is 499 on success. Others do not matter, because the upload is invisible.
        let _ = bucket.endpoint.read_once(bucket, &call).await;
        Ok(())
    }
}

fn fingerprint(size: u64, modified: Option<i64>) -> String {
    format!(
        "{size}:{}",
        modified.map_or(String::new(), |time| time.to_string())
    )
}

/// Parses a response: the object if it is complete, otherwise the number of bytes.
fn progress(call: &Call, response: &FullResponse) -> Result<SessionProgress> {
    if let Some(range) = header_text(&response.headers, "range") {
        let last = range
            .rsplit_once('-')
            .and_then(|(_, last)| last.parse::<u64>().ok());
        let stored = last.map_or(0, |last| last + 1);
        return Ok(SessionProgress::At(
            stored / CHUNK_GRANULARITY * CHUNK_GRANULARITY,
        ));
    }
    if response.body.is_empty() {
        return Ok(SessionProgress::At(0));
    }
    let resource = serde_json::from_slice(&response.body)
        .map_err(|error| call.failure(ErrorKind::Temporary, error.to_string()))?;
    Ok(SessionProgress::Done(Box::new(resource)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_of_another_source_is_not_resumed() {
        let session = Session {
            id: "an id with spaces".to_owned(),
            size: 10,
        };
        let resume = session.write(Some(5));
        let again = Session::read(&resume, 10, Some(5)).unwrap();
        assert_eq!(again.id, session.id);
        assert!(Session::read(&resume, 11, Some(5)).is_none());
        assert!(Session::read(&resume, 10, Some(6)).is_none());
        assert!(Session::read(&resume, 10, None).is_none());
    }
}

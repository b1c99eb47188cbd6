//! An upload that the far side keeps the beginning of: bytes go in order, and it says how many it
//! has.

use super::bucket::{Bucket, with_precondition};
use super::object::Resource;
use crate::backend::Precondition;
use crate::cloud::{Call, FullResponse, SegmentedBytes, header_text};
use crate::error::{ErrorKind, Result};
use http::Method;

/// What the far side keeps of an unfinished upload is a multiple of this.
const CHUNK_GRANULARITY: u64 = 256 << 10;

/// An upload that was begun.
#[derive(Clone, Debug)]
pub(super) struct Session {
    /// What tells it from others. Whoever knows it may go on with this upload, and nothing else.
    id: String,
    size: u64,
}

/// How far an upload is.
pub(super) enum SessionProgress {
    /// So many bytes are there.
    At(u64),
    Done(Box<Resource>),
}

impl Session {
    /// Begins one. The resource says what the object will be.
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
        let whole = bucket.fetch(&call).await?;
        let location = header_text(&whole.headers, "location").unwrap_or_default();
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
            None => Err(call.failure(ErrorKind::Temporary, "the answer names no upload")),
        }
    }

    /// How another process goes on: of what the bytes are, and the upload. Of a source that is no
    /// longer the same, none is gone on with.
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

    /// Whichever it is of, to be ended.
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

    /// How far it is; `None` if there is no such upload any more.
    pub(super) async fn status(
        &self,
        bucket: &Bucket,
        key: &[u8],
    ) -> Result<Option<SessionProgress>> {
        let call = self.call(bucket, "look at upload", key)?;
        let call = call.header("content-range", &format!("bytes */{}", self.size));
        match bucket.fetch(&call).await {
            Ok(whole) => progress(&call, &whole).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends what comes at `at`, and goes on after a fault where the far side is. An upload that is
    /// forgotten is not found.
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
                Ok(whole) => progress(&call, &whole).and_then(|progress| match progress {
                    SessionProgress::At(there) if there <= at => {
                        let message = "the far side took none of it";
                        Err(call.failure(ErrorKind::Temporary, message))
                    }
                    progress => Ok(progress),
                }),
                Err(error) => Err(error),
            };
            let there = match sent {
                Ok(SessionProgress::Done(resource)) => return Ok(SessionProgress::Done(resource)),
                Ok(SessionProgress::At(there)) => there,
                Err(error) => {
                    attempt += 1;
                    bucket.endpoint.retries.wait_or_fail(attempt, error).await?;
                    match self.status(bucket, key).await? {
                        Some(SessionProgress::At(there)) => there,
                        Some(done) => return Ok(done),
                        None => {
                            let message = "the far side has forgotten the upload";
                            return Err(call.failure(ErrorKind::NotFound, message));
                        }
                    }
                }
            };
            if there >= end {
                return Ok(SessionProgress::At(there));
            }
            if there < at {
                let message = format!("the far side has {there} bytes, and had {at} before");
                return Err(call.failure(ErrorKind::Temporary, message));
            }
            piece = piece.skip_bytes(there - at);
            at = there;
        }
    }

    /// Ends it; nothing is left. A far side that cannot forgets it after a week.
    pub(super) async fn abort(&self, bucket: &Bucket, key: &[u8]) -> Result<()> {
        let mut call = self.call(bucket, "abort upload", key)?;
        call.method = Method::DELETE;
        // Its answer is 499 when all went well, or whatever else: the upload is nothing that
        // anybody sees.
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

/// What an answer says: an object when it is whole, else how many bytes are there.
fn progress(call: &Call, whole: &FullResponse) -> Result<SessionProgress> {
    if let Some(range) = header_text(&whole.headers, "range") {
        let last = range
            .rsplit_once('-')
            .and_then(|(_, last)| last.parse::<u64>().ok());
        let there = last.map_or(0, |last| last + 1);
        return Ok(SessionProgress::At(
            there / CHUNK_GRANULARITY * CHUNK_GRANULARITY,
        ));
    }
    if whole.body.is_empty() {
        return Ok(SessionProgress::At(0));
    }
    let resource = serde_json::from_slice(&whole.body)
        .map_err(|error| call.failure(ErrorKind::Temporary, error.to_string()))?;
    Ok(SessionProgress::Done(Box::new(resource)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_source_is_not_gone_on_with() {
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

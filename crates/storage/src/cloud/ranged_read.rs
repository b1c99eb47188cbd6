//! Reading files over HTTP: whole or in ranges, resumed after interruptions, and verified.

use super::checksum::{Checksum, Verification};
use super::{StreamedResponse, header_text, next_bytes};
use crate::backend::{Chunks, Extended};
use crate::error::{Error, ErrorKind, Result};
use crate::{BoxFuture, Entry, Kind};
use bytes::Bytes;
use http::HeaderMap;
use std::sync::Arc;

/// Larger files are not read in one request.
pub(super) const MAX_SINGLE_READ: u64 = 8 << 20;
/// Maximum number of resumptions of a read.
const MAX_RESUMES: u32 = 8;

/// The message about bytes that were changed on their way.
const MISMATCH: &str = "the bytes do not match the checksum that the storage states";
const UNKNOWN_PARTS: &str =
    "the checksum of its parts does not match, and the storage did not state their sizes";

/// A remote file.
pub(crate) trait RangeSource: Send + Sync {
    /// Requests a range or the whole file, of a certain version if one is given.
    fn request_range<'a>(
        &'a self,
        range: Option<&'a str>,
        version: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<StreamedResponse>>;

    /// Returns the entry and the metadata from the headers of a response.
    fn info(&self, headers: &HeaderMap) -> (Entry, Extended);

    /// Returns the checksum of the whole file, if the headers state it. They may be those of a
    /// range.
    fn check(&self, _headers: &HeaderMap) -> Option<Checksum> {
        None
    }

    /// Asks for the checksum of a large file, if the headers of its ranges do not state it. `None`
    /// if the storage does not tell.
    fn ask_checksum<'a>(&'a self, _entry: &'a Entry) -> BoxFuture<'a, Option<Checksum>> {
        Box::pin(std::future::ready(None))
    }

    /// Returns whether all parts of a file but the last have this size, or `None` if the storage
    /// did not say. Asked if a checksum of its parts does not match.
    fn has_parts_of<'a>(&'a self, _entry: &'a Entry, _size: u64) -> BoxFuture<'a, Option<bool>> {
        Box::pin(std::future::ready(Some(true)))
    }

    fn failure(&self, kind: ErrorKind, message: &str) -> Error;
}

/// Compares a file that was read to its end with its checksum.
pub(super) async fn verify<R: RangeSource>(
    file: &R,
    entry: &Entry,
    verification: &mut Verification,
) -> Result<()> {
    let Some(other) = verification.finish() else {
        return Ok(());
    };
    let are_even = match other.part_size() {
        Some(size) => file.has_parts_of(entry, size).await,
        None => Some(true),
    };
    match are_even {
        // A checksum of parts of different sizes cannot be computed again.
        Some(false) => Ok(()),
        Some(true) => Err(file.failure(ErrorKind::Corrupt, MISMATCH)),
        // No answer is no reason to accept bytes that do not match.
        None => Err(file.failure(ErrorKind::Temporary, UNKNOWN_PARTS)),
    }
}

/// A file being read.
pub(crate) struct RangedRead<R> {
    file: Arc<R>,
    pub(super) found: Entry,
    pub(super) extended: Extended,
    response: Option<StreamedResponse>,
    at: u64,
    end: u64,
    /// Ends with the file.
    is_last: bool,
    pub(super) verification: Verification,
    resumes: u32,
}

impl<R: RangeSource> RangedRead<R> {
    pub(crate) async fn open(file: Arc<R>, offset: u64, length: u64) -> Result<RangedRead<R>> {
        let is_single = offset == 0 && (length <= MAX_SINGLE_READ || length == u64::MAX);
        RangedRead::begin(file, (offset, length), is_single, None).await
    }

    /// Opens a range, of a certain version if one is given.
    pub(super) async fn open_at(
        file: Arc<R>,
        offset: u64,
        length: u64,
        version: Option<&[u8]>,
    ) -> Result<RangedRead<R>> {
        RangedRead::begin(file, (offset, length), false, version).await
    }

    async fn begin(
        file: Arc<R>,
        (offset, length): (u64, u64),
        is_single: bool,
        version: Option<&[u8]>,
    ) -> Result<RangedRead<R>> {
        let mut reading = RangedRead {
            file,
            found: Entry::new(Vec::new(), Kind::File),
            extended: Extended::new(),
            response: None,
            at: offset,
            end: offset.saturating_add(length),
            is_last: false,
            verification: Verification::default(),
            resumes: 0,
        };
        if offset > 0 && length == 0 {
            return Ok(reading);
        }
        let response = match reading.request(!is_single, version).await {
            Ok(response) => response,
            Err(error) if error.cause().starts_with("416") => return Ok(reading),
            Err(error) => return Err(error),
        };
        (reading.found, reading.extended) = reading.file.info(&response.headers);
        reading.end = reading.end.min(reading.found.size);
        reading.is_last = reading.end == reading.found.size;
        let stated = reading.file.check(&response.headers);
        reading.verification = Verification::new(stated, offset);
        reading.response = Some(response);
        Ok(reading)
    }

    async fn request(&self, ranged: bool, version: Option<&[u8]>) -> Result<StreamedResponse> {
        let range = match self.end {
            u64::MAX => format!("bytes={}-", self.at),
            end => format!("bytes={}-{}", self.at, end.saturating_sub(1)),
        };
        let response = self
            .file
            .request_range(ranged.then_some(range.as_str()), version)
            .await?;
        let range = header_text(&response.headers, "content-range");
        let begins = range.and_then(|range| {
            range
                .strip_prefix("bytes ")?
                .split('-')
                .next()?
                .parse()
                .ok()
        });
        match ranged && begins != Some(self.at) {
            false => Ok(response),
            true => {
                let message = "the server does not support range requests";
                Err(self.file.failure(ErrorKind::Unsupported, message))
            }
        }
    }

    async fn resume(&mut self, message: &str) -> Result<()> {
        self.resumes += 1;
        if self.resumes > MAX_RESUMES {
            return Err(self.file.failure(ErrorKind::Temporary, message));
        }
        self.response = None;
        self.response = Some(self.request(true, self.found.version.as_deref()).await?);
        Ok(())
    }

    pub(super) async fn bytes(&mut self) -> Result<Option<Bytes>> {
        loop {
            let left = self.end.saturating_sub(self.at);
            let Some(response) = self.response.as_mut().filter(|_| left > 0) else {
                return self.finish().await;
            };
            let message = match next_bytes(&mut response.body).await {
                Ok(Some(mut bytes)) => {
                    bytes.truncate(usize::try_from(left).unwrap_or(usize::MAX));
                    self.at += bytes.len() as u64;
                    self.verification.update(&bytes);
                    return Ok(Some(bytes));
                }
                Ok(None) => "the response ended early".to_owned(),
                Err(message) => message,
            };
            self.resume(&message).await?;
        }
    }

    async fn finish(&mut self) -> Result<Option<Bytes>> {
        self.response = None;
        if self.is_last {
            verify(&*self.file, &self.found, &mut self.verification).await?;
        }
        Ok(None)
    }
}

impl<R: RangeSource> Chunks for RangedRead<R> {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>>> {
        Box::pin(self.bytes())
    }

    fn info(&self) -> Option<(&Entry, &Extended)> {
        Some((&self.found, &self.extended))
    }

    fn is_checked(&self) -> bool {
        self.verification.is_verified()
    }

    fn checksum_state(&self) -> Option<Vec<u8>> {
        self.verification.state()
    }

    fn resume_checksum(&mut self, state: &[u8]) {
        self.verification.resume(state);
    }
}

//! Files being read over HTTP: whole or in ranges, gone on with when an answer breaks off, and
//! checked.

use super::{Answer, next, text};
use crate::backend::{Chunks, Extended};
use crate::error::{Error, ErrorKind, Result};
use crate::{BoxFuture, Entry, Kind};
use bytes::Bytes;
use http::HeaderMap;
use md5::Md5;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Larger files are not read from their beginning to their end in one call.
pub(super) const WHOLE: u64 = 8 << 20;
/// How often a read that breaks off goes on where it was.
const RESUMES: u32 = 8;

/// A file at a far side.
pub(crate) trait Ranges: Send + Sync {
    /// Asks for a range, or all of it; if a version is given, only of that.
    fn ask<'a>(
        &'a self,
        range: Option<&'a str>,
        version: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Answer>>;

    /// What an answer says of it.
    fn found(&self, headers: &HeaderMap) -> (Entry, Extended);

    /// What the bytes of an answer with all of it must come to.
    fn check(&self, _headers: &HeaderMap) -> Option<Check> {
        None
    }

    fn wrong(&self, kind: ErrorKind, words: &str) -> Error;
}

/// What the bytes of a file must come to.
pub(crate) enum Check {
    Sha256(Sha256, Vec<u8>),
    Md5(Md5, Vec<u8>),
}

impl Check {
    pub(crate) fn sha256(wanted: Vec<u8>) -> Check {
        Check::Sha256(Sha256::new(), wanted)
    }

    /// From its digits.
    pub(crate) fn md5(wanted: &[u8]) -> Check {
        Check::Md5(Md5::new(), wanted.to_ascii_lowercase())
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Check::Sha256(hasher, _) => hasher.update(bytes),
            Check::Md5(hasher, _) => hasher.update(bytes),
        }
    }

    fn agrees(self) -> bool {
        match self {
            Check::Sha256(hasher, wanted) => hasher.finalize().as_slice() == wanted,
            Check::Md5(hasher, wanted) => super::hex(&hasher.finalize()).as_bytes() == wanted,
        }
    }
}

/// A file being read.
pub(crate) struct Reading<R> {
    file: Arc<R>,
    pub(super) found: Entry,
    pub(super) extended: Extended,
    answer: Option<Answer>,
    at: u64,
    end: u64,
    check: Option<Check>,
    resumes: u32,
}

impl<R: Ranges> Reading<R> {
    pub(crate) async fn open(file: Arc<R>, offset: u64, length: u64) -> Result<Reading<R>> {
        let whole = offset == 0 && (length <= WHOLE || length == u64::MAX);
        Reading::begin(file, (offset, length), whole, None).await
    }

    /// Only a piece of it; if a version is given, only of that.
    pub(super) async fn open_at(
        file: Arc<R>,
        offset: u64,
        length: u64,
        version: Option<&[u8]>,
    ) -> Result<Reading<R>> {
        Reading::begin(file, (offset, length), false, version).await
    }

    async fn begin(
        file: Arc<R>,
        (offset, length): (u64, u64),
        whole: bool,
        version: Option<&[u8]>,
    ) -> Result<Reading<R>> {
        let mut reading = Reading {
            file,
            found: Entry::new(Vec::new(), Kind::File),
            extended: Extended::new(),
            answer: None,
            at: offset,
            end: offset.saturating_add(length),
            check: None,
            resumes: 0,
        };
        if offset > 0 && length == 0 {
            return Ok(reading);
        }
        let answer = match reading.ask(!whole, version).await {
            Ok(answer) => answer,
            Err(error) if error.cause().starts_with("416") => return Ok(reading),
            Err(error) => return Err(error),
        };
        (reading.found, reading.extended) = reading.file.found(&answer.headers);
        reading.end = reading.end.min(reading.found.size);
        if whole && reading.end == reading.found.size {
            reading.check = reading.file.check(&answer.headers);
        }
        reading.answer = Some(answer);
        Ok(reading)
    }

    async fn ask(&self, ranged: bool, version: Option<&[u8]>) -> Result<Answer> {
        let range = match self.end {
            u64::MAX => format!("bytes={}-", self.at),
            end => format!("bytes={}-{}", self.at, end.saturating_sub(1)),
        };
        let answer = self
            .file
            .ask(ranged.then_some(range.as_str()), version)
            .await?;
        let range = text(&answer.headers, "content-range");
        let begins = range.and_then(|range| {
            range
                .strip_prefix("bytes ")?
                .split('-')
                .next()?
                .parse()
                .ok()
        });
        match ranged && begins != Some(self.at) {
            false => Ok(answer),
            true => {
                let words = "the far side does not read ranges";
                Err(self.file.wrong(ErrorKind::Unsupported, words))
            }
        }
    }

    async fn go_on(&mut self, words: &str) -> Result<()> {
        self.resumes += 1;
        if self.resumes > RESUMES {
            return Err(self.file.wrong(ErrorKind::Temporary, words));
        }
        self.answer = None;
        self.answer = Some(self.ask(true, self.found.version.as_deref()).await?);
        Ok(())
    }

    pub(super) async fn bytes(&mut self) -> Result<Option<Bytes>> {
        loop {
            let left = self.end.saturating_sub(self.at);
            let Some(answer) = self.answer.as_mut().filter(|_| left > 0) else {
                return self.ended();
            };
            let words = match next(&mut answer.body).await {
                Ok(Some(mut bytes)) => {
                    bytes.truncate(usize::try_from(left).unwrap_or(usize::MAX));
                    self.at += bytes.len() as u64;
                    if let Some(check) = &mut self.check {
                        check.update(&bytes);
                    }
                    return Ok(Some(bytes));
                }
                Ok(None) => "it ended early".to_owned(),
                Err(words) => words,
            };
            self.go_on(&words).await?;
        }
    }

    fn ended(&mut self) -> Result<Option<Bytes>> {
        self.answer = None;
        match self.check.take().is_none_or(Check::agrees) {
            true => Ok(None),
            false => {
                let words = "the bytes do not match their checksum";
                Err(self.file.wrong(ErrorKind::Temporary, words))
            }
        }
    }
}

impl<R: Ranges> Chunks for Reading<R> {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>>> {
        Box::pin(self.bytes())
    }

    fn found(&self) -> Option<(&Entry, &Extended)> {
        Some((&self.found, &self.extended))
    }
}

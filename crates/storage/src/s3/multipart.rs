//! A multipart upload.

use super::bucket::Bucket;
use super::sign::sha256;
use crate::cloud::object_headers::version;
use crate::cloud::{Call, SegmentedBytes, percent, xml};
use crate::error::{ErrorKind, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::Method;
use md5::{Digest, Md5};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A part that was uploaded.
#[derive(Clone, Debug, Default)]
pub(super) struct UploadedPart {
    pub(super) etag: String,
    pub(super) sha256: Option<String>,
    pub(super) size: u64,
}

impl UploadedPart {
    /// Returns whether the part has these bytes.
    pub(super) fn matches(&self, piece: &SegmentedBytes) -> bool {
        if self.size != piece.len() {
            return false;
        }
        match &self.sha256 {
            Some(base64) => *base64 == BASE64_STANDARD.encode(sha256(piece)),
            None => {
                let mut hasher = Md5::new();
                piece.iter().for_each(|bytes| hasher.update(bytes));
                self.etag == hex::encode(hasher.finalize())
            }
        }
    }
}

/// An upload in parts.
pub(super) struct Multipart {
    pub(super) id: String,
    /// The uploaded parts.
    pub(super) uploaded: BTreeMap<u32, UploadedPart>,
}

impl Multipart {
    /// Starts an upload. `call` describes the object.
    pub(super) async fn begin(bucket: &Bucket, key: &[u8], call: Call) -> Result<Multipart> {
        let mut call = call.query("uploads", "").expect_xml();
        if bucket.checksums {
            call = call.header("x-amz-checksum-algorithm", "SHA256");
        }
        let mut lost = false;
        let begun = bucket
            .endpoint
            .fetch_observed(bucket, &call, |_| lost = true)
            .await;
        let id = begun
            .as_ref()
            .ok()
            .and_then(|response| xml::find(&response.body, "UploadId"));
        if lost || (begun.is_ok() && id.is_none()) {
            // A request whose response was lost may have started an upload with an unknown id.
            abort_others(bucket, key, id.as_deref()).await?;
        }
        begun?;
        let uploaded = BTreeMap::new();
        match id {
            Some(id) => Ok(Multipart { id, uploaded }),
            None => Err(call.failure(ErrorKind::Temporary, "the response contains no upload id")),
        }
    }

    /// Resumes an upload; `None` if it does not exist any more.
    pub(super) async fn resume(bucket: &Bucket, key: &[u8], id: &str) -> Result<Option<Multipart>> {
        let mut uploaded = BTreeMap::new();
        let mut after: Option<u32> = None;
        loop {
            let mut call = bucket
                .object_call("list parts", "resume", key, Method::GET)?
                .query("uploadId", id)
                .expect_xml();
            if let Some(after) = after {
                call = call.query("part-number-marker", &after.to_string());
            }
            let response = match bucket.fetch(&call).await {
                Ok(response) => response,
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            };
            let (parts, more) = parse(&response.body)
                .map_err(|message| call.failure(ErrorKind::Temporary, message))?;
            after = parts.keys().last().copied();
            uploaded.extend(parts);
            if !more || after.is_none() {
                let id = id.to_owned();
                return Ok(Some(Multipart { id, uploaded }));
            }
        }
    }

    pub(super) fn part_call(&self, bucket: &Bucket, key: &[u8], number: u32) -> Result<Call> {
        let call = bucket.object_call("put part", "write", key, Method::PUT)?;
        Ok(call
            .query("partNumber", &number.to_string())
            .query("uploadId", &self.id))
    }

    /// Returns the call that completes the upload with the parts up to `last`.
    pub(super) fn complete_call(&self, bucket: &Bucket, key: &[u8], last: u32) -> Result<Call> {
        let call = bucket.object_call("complete upload", "write", key, Method::POST)?;
        let mut body = String::from(
            "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">",
        );
        for (number, sent) in self.uploaded.range(..=last) {
            let _ = write!(
                body,
                "<Part><PartNumber>{number}</PartNumber><ETag>&quot;{}&quot;</ETag>",
                xml::escape(&sent.etag)
            );
            if let Some(sha256) = &sent.sha256 {
                let _ = write!(body, "<ChecksumSHA256>{sha256}</ChecksumSHA256>");
            }
            body.push_str("</Part>");
        }
        body.push_str("</CompleteMultipartUpload>");
        let call = call
            .query("uploadId", &self.id)
            .body(SegmentedBytes::from(body));
        Ok(call.expect_xml())
    }

    pub(super) async fn abort(&self, bucket: &Bucket, key: &[u8]) -> Result<()> {
        abort(bucket, key, &self.id).await
    }
}

pub(super) async fn abort(bucket: &Bucket, key: &[u8], id: &str) -> Result<()> {
    let call = bucket
        .object_call("abort upload", "clean up", key, Method::DELETE)?
        .query("uploadId", id);
    match bucket.fetch(&call).await {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        aborted => aborted.map(drop),
    }
}

/// Aborts all uploads to a key but one.
pub(super) async fn abort_others(bucket: &Bucket, key: &[u8], but: Option<&str>) -> Result<()> {
    let call = bucket
        .call("list uploads", "look for uploads of", key, Method::GET)
        .query("uploads", "")
        .query("encoding-type", "url")
        .query("prefix", &String::from_utf8_lossy(key))
        .expect_xml();
    let response = match bucket.fetch(&call).await {
        // A service that cannot list uploads keeps them.
        Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(()),
        listed => listed?,
    };
    let mut uploads = Vec::new();
    let (mut at, mut id, mut encoded) = (Vec::new(), String::new(), false);
    let read = xml::visit(&response.body, |path, text| match path {
        [_, name] if name == "EncodingType" => encoded = text == "url",
        [_, upload, name] if upload == "Upload" && name == "Key" => at = text.as_bytes().to_vec(),
        [_, upload, name] if upload == "Upload" && name == "UploadId" => text.clone_into(&mut id),
        [_, upload] if upload == "Upload" => {
            uploads.push((std::mem::take(&mut at), std::mem::take(&mut id)));
        }
        _ => {}
    });
    read.map_err(|message| call.failure(ErrorKind::Temporary, message))?;
    for (at, id) in uploads {
        let at = if encoded {
            percent::decode_form(&at)
        } else {
            at
        };
        if at == key && but != Some(id.as_str()) {
            abort(bucket, key, &id).await?;
        }
    }
    Ok(())
}

fn parse(document: &[u8]) -> std::result::Result<(BTreeMap<u32, UploadedPart>, bool), String> {
    let mut parts = BTreeMap::new();
    let mut more = false;
    let (mut number, mut sent) = (0, UploadedPart::default());
    xml::visit(document, |path, text| match path {
        [_, name] if name == "IsTruncated" => more = text == "true",
        [_, part, name] if part == "Part" => match name.as_str() {
            "PartNumber" => number = text.parse().unwrap_or(0),
            "ETag" => sent.etag = String::from_utf8_lossy(&version(text)).into_owned(),
            "Size" => sent.size = text.parse().unwrap_or(0),
            "ChecksumSHA256" => sent.sha256 = Some(text.to_owned()),
            _ => {}
        },
        [_, part] if part == "Part" => drop(parts.insert(number, std::mem::take(&mut sent))),
        _ => {}
    })?;
    Ok((parts, more))
}

//! The uncommitted blocks of an upload.
//!
//! The client names the blocks. A name contains the upload, the position and a hash of the content,
//! so a resumed upload knows which blocks need not be sent again. Blocks are invisible until a
//! block list commits them. The service discards uncommitted blocks after a week; they cannot be
//! removed sooner.

use super::container::Container;
use crate::cloud::{Call, SegmentedBytes, xml};
use crate::error::{ErrorKind, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::Method;
use md5::{Digest, Md5};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Maximum number of blocks in memory, over all uploads.
pub(super) const MAX_BUFFERED: usize = 16;
/// Maximum number of blocks in a blob.
pub(super) const MAX_BLOCKS: u64 = 50_000;

/// The random id that the blocks of one upload have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UploadId([u8; 6]);

impl UploadId {
    pub(super) fn new() -> UploadId {
        let [upload_id @ .., _, _] = fastrand::u64(..).to_be_bytes();
        UploadId(upload_id)
    }

    /// Encodes the resume token: the id, and the size and time of the source. Blocks of a source
    /// that has changed since are not used.
    pub(super) fn write(self, size: u64, modified: Option<i64>) -> Vec<u8> {
        [&self.0[..], &fingerprint(size, modified)].concat()
    }

    pub(super) fn read(resume: &[u8], size: u64, modified: Option<i64>) -> Option<UploadId> {
        let (upload_id, of) = resume.split_first_chunk::<6>()?;
        (of == fingerprint(size, modified)).then_some(UploadId(*upload_id))
    }
}

fn fingerprint(size: u64, modified: Option<i64>) -> Vec<u8> {
    let time = modified.map(i64::to_be_bytes);
    [
        &size.to_be_bytes()[..],
        time.as_ref().map_or(&[], |time| &time[..]),
    ]
    .concat()
}

/// The name of a block, as long as rclone's: the service accepts only one length per blob, and
/// uncommitted blocks of rclone may exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockId([u8; 16]);

impl BlockId {
    pub(super) fn new(upload_id: UploadId, number: u32, md5: &[u8; 16]) -> BlockId {
        let mut id = [0; 16];
        id[..2].copy_from_slice(&(number as u16).to_be_bytes());
        id[2..8].copy_from_slice(&upload_id.0);
        id[8..].copy_from_slice(&md5[..8]);
        BlockId(id)
    }

    fn number_for(self, upload_id: UploadId) -> Option<u32> {
        let number = u16::from_be_bytes([self.0[0], self.0[1]]);
        (self.0[2..8] == upload_id.0).then_some(u32::from(number))
    }

    fn text(self) -> String {
        BASE64_STANDARD.encode(self.0)
    }
}

/// A block that was uploaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UploadedBlock {
    pub(super) id: BlockId,
    pub(super) size: u64,
}

pub(super) fn md5(piece: &SegmentedBytes) -> [u8; 16] {
    let mut hasher = Md5::new();
    piece.iter().for_each(|bytes| hasher.update(bytes));
    hasher.finalize().into()
}

/// Adds a body and its MD5, which the service verifies.
pub(super) fn with_checksum(call: Call, body: SegmentedBytes, md5: &[u8; 16]) -> Call {
    let call = call.header("content-md5", &BASE64_STANDARD.encode(md5));
    call.body(body)
}

pub(super) fn put_call(container: &Container, key: &[u8], id: BlockId) -> Result<Call> {
    let call = container.object_call("put block", "write", key, Method::PUT)?;
    Ok(call.query("comp", "block").query("blockid", &id.text()))
}

/// Returns the uploaded blocks of an upload, except numbers that two different blocks have.
pub(super) async fn uploaded_blocks(
    container: &Container,
    key: &[u8],
    upload_id: UploadId,
) -> Result<BTreeMap<u32, UploadedBlock>> {
    let call = container
        .object_call("list blocks", "resume", key, Method::GET)?
        .query("comp", "blocklist")
        .query("blocklisttype", "uncommitted")
        .expect_xml();
    let response = match container.fetch(&call).await {
        Ok(response) => response,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error),
    };
    parse(&response.body, upload_id).map_err(|message| call.failure(ErrorKind::Temporary, message))
}

fn parse(
    document: &[u8],
    upload_id: UploadId,
) -> std::result::Result<BTreeMap<u32, UploadedBlock>, String> {
    let mut uploaded: BTreeMap<u32, Option<UploadedBlock>> = BTreeMap::new();
    let (mut id, mut size) = (None, 0);
    let mut root = String::new();
    xml::visit(document, |path, text| match path {
        [_, list, block, name] if list == "UncommittedBlocks" && block == "Block" => {
            match name.as_str() {
                "Name" => id = BASE64_STANDARD.decode(text).ok(),
                "Size" => size = text.parse().unwrap_or(0),
                _ => {}
            }
        }
        [_, list, block] if list == "UncommittedBlocks" && block == "Block" => {
            let id = id.take().and_then(|id| id.try_into().ok()).map(BlockId);
            if let Some((id, number)) = id.and_then(|id| Some((id, id.number_for(upload_id)?))) {
                let sent = UploadedBlock { id, size };
                let same = uploaded.entry(number).or_insert_with(|| Some(sent.clone()));
                if same.as_ref() != Some(&sent) {
                    *same = None;
                }
            }
        }
        [name] => root.clone_from(name),
        _ => {}
    })?;
    match root == "BlockList" {
        true => Ok(uploaded
            .into_iter()
            .filter_map(|(number, sent)| Some((number, sent?)))
            .collect()),
        false => Err(format!("the response is not a block list but `{root}`")),
    }
}

/// Parses the bytes as a block list.
pub(crate) fn fuzz_block_list(bytes: &[u8]) {
    let _ = parse(bytes, UploadId(*b"marked"));
}

/// Returns the call that commits the blocks up to `last`.
pub(super) fn commit_call(
    container: &Container,
    key: &[u8],
    blocks: &BTreeMap<u32, UploadedBlock>,
    last: u32,
) -> Result<Call> {
    let mut body = String::from("<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>");
    for sent in blocks.range(..=last).map(|(_, sent)| sent) {
        // `Latest`, committed or not: a list whose response was lost can be sent again.
        let _ = write!(body, "<Latest>{}</Latest>", sent.id.text());
    }
    body.push_str("</BlockList>");
    let body = SegmentedBytes::from(body);
    let hash = md5(&body);
    let call = container.object_call("put block list", "write", key, Method::PUT)?;
    Ok(with_checksum(call.query("comp", "blocklist"), body, &hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(blocks: &[(BlockId, u64)]) -> String {
        let blocks: String = blocks
            .iter()
            .map(|(id, size)| {
                let id = id.text();
                format!("<Block><Name>{id}</Name><Size>{size}</Size></Block>")
            })
            .collect();
        format!(
            "<BlockList><CommittedBlocks/><UncommittedBlocks>{blocks}</UncommittedBlocks></BlockList>"
        )
    }

    #[test]
    fn only_blocks_of_this_upload_are_used() {
        let (own, other) = (UploadId(*b"oursss"), UploadId(*b"theirs"));
        let (one, two) = ([1; 16], [2; 16]);
        let text = list(&[
            (BlockId::new(own, 1, &one), 8),
            (BlockId::new(other, 2, &one), 8),
            (BlockId::new(own, 3, &one), 8),
            (BlockId::new(own, 3, &two), 8),
            (BlockId::new(own, 50_000, &two), 7),
        ]);
        let uploaded = parse(text.as_bytes(), own).unwrap();
        let numbers: Vec<u32> = uploaded.keys().copied().collect();
        assert_eq!(numbers, [1, 50_000], "block 3 is ambiguous");
        assert_eq!(uploaded[&1].id, BlockId::new(own, 1, &one));
        assert!(parse(b"<html/>", own).is_err());
    }

    #[test]
    fn an_upload_of_another_source_is_not_resumed() {
        let upload_id = UploadId::new();
        let resume = upload_id.write(10, Some(5));
        assert_eq!(UploadId::read(&resume, 10, Some(5)), Some(upload_id));
        assert_eq!(UploadId::read(&resume, 11, Some(5)), None);
        assert_eq!(UploadId::read(&resume, 10, Some(6)), None);
        assert_eq!(UploadId::read(&resume, 10, None), None);
        assert_eq!(UploadId::read(b"x", 10, None), None);
    }
}

//! Writing a file under a temporary name until it is complete.

use super::client::Client;
use crate::backend::{Extended, Upload, incomplete_upload};
use crate::cloud::{SegmentedBytes, streamed_body};
use crate::error::{ErrorKind, Result};
use crate::{BoxFuture, Entry};
use bytes::Bytes;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Files up to this size are buffered in memory, and sent again after a failure.
const MAX_SINGLE_PUT: u64 = 8 << 20;

pub(super) struct DavUpload {
    client: Arc<Client>,
    path: Vec<u8>,
    temp: Vec<u8>,
    name: Vec<u8>,
    size: u64,
    offset: u64,
    body: UploadBody,
}

enum UploadBody {
    Whole(SegmentedBytes),
    /// A larger file is streamed in one request, the only way that the protocol has.
    Streamed(Option<mpsc::Sender<Bytes>>, Option<JoinHandle<Result<()>>>),
}

/// Returns whether a server may move a file of this name elsewhere. Some servers (wsgidav) decode
/// the target of a move before they parse it. A file of such a name is written in place: it may be
/// visible incomplete, but no other file is overwritten.
fn breaks_move(name: &[u8]) -> bool {
    let odd = |byte: &u8| byte.is_ascii_control() || b"?#;%".contains(byte);
    name.iter().any(odd)
}

impl DavUpload {
    pub(super) fn new(
        client: Arc<Client>,
        path: Vec<u8>,
        temp: Vec<u8>,
        name: &[u8],
        size: u64,
    ) -> Self {
        let temp = if breaks_move(name) {
            path.clone()
        } else {
            temp
        };
        let body = match size <= MAX_SINGLE_PUT {
            true => UploadBody::Whole(SegmentedBytes::default()),
            false => {
                let (sender, body) = streamed_body(size);
                let call = client.call("put", "write", &temp, b"PUT");
                let client = client.clone();
                let sent = async move { client.endpoint.stream(&*client, &call, body).await };
                UploadBody::Streamed(Some(sender), Some(tokio::spawn(sent)))
            }
        };
        DavUpload {
            client,
            path,
            temp,
            name: name.to_vec(),
            size,
            offset: 0,
            body,
        }
    }

    async fn push(&mut self, bytes: Bytes) -> Result<()> {
        self.offset += bytes.len() as u64;
        match &mut self.body {
            UploadBody::Whole(pieces) => {
                pieces.push(bytes);
                Ok(())
            }
            UploadBody::Streamed(Some(sender), _) if sender.send(bytes).await.is_ok() => Ok(()),
            // The request has ended, and its result has the reason.
            UploadBody::Streamed(..) => self.finish_request().await,
        }
    }

    /// Waits for the end of the request.
    async fn finish_request(&mut self) -> Result<()> {
        let UploadBody::Streamed(sender, sent) = &mut self.body else {
            return Ok(());
        };
        *sender = None;
        match sent.take() {
            None => {
                let call = self.client.call("put", "write", &self.temp, b"PUT");
                Err(call.failure(ErrorKind::Temporary, "the request has ended"))
            }
            Some(sent) => match sent.await {
                Ok(ended) => ended,
                Err(failed) => std::panic::resume_unwind(failed.into_panic()),
            },
        }
    }

    async fn commit(&mut self) -> Result<Entry> {
        match std::mem::replace(&mut self.body, UploadBody::Whole(SegmentedBytes::default())) {
            UploadBody::Whole(pieces) => {
                let call = self
                    .client
                    .call("put", "write", &self.temp, b"PUT")
                    .body(pieces);
                self.client.fetch(&call).await?;
            }
            streamed @ UploadBody::Streamed(..) => {
                self.body = streamed;
                self.finish_request().await?;
            }
        }
        if self.temp != self.path {
            match self.client.rename(&self.temp, &self.path, true).await {
                // It was moved already, and the response was lost.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                moved => moved?,
            }
        }
        let entry = self.client.stat(&self.path, &self.name).await?;
        match entry.size == self.offset {
            true => Ok(Entry {
                modified: None,
                ..entry
            }),
            false => {
                let call = self.client.call("put", "write", &self.path, b"PUT");
                let message = format!("only {} of {} bytes arrived", entry.size, self.offset);
                Err(call.failure(ErrorKind::Temporary, message))
            }
        }
    }
}

impl Upload for DavUpload {
    fn offset(&self) -> u64 {
        self.offset
    }

    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.push(bytes))
    }

    fn checkpoint(&mut self, _end: u64) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn finish(
        mut self: Box<Self>,
        _like: Entry,
        _extended: Extended,
    ) -> BoxFuture<'static, Result<Entry>> {
        Box::pin(async move {
            if self.offset != self.size {
                let error = incomplete_upload(&self.path, self.offset, self.size);
                let _ = self.abort().await;
                return Err(error);
            }
            self.commit().await
        })
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            if let UploadBody::Streamed(sender, Some(sent)) = self.body {
                drop(sender);
                let _ = sent.await;
                // Without a temporary name this would remove the previous file.
                if self.temp != self.path {
                    return self.client.delete(&self.temp).await;
                }
            }
            Ok(())
        })
    }
}

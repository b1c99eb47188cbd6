//! Writing a file under a temporary name, which it keeps until it is whole.

use super::server::Server;
use crate::backend::{Extended, Upload, incomplete};
use crate::cloud::{Pieces, pipe};
use crate::error::{ErrorKind, Result};
use crate::{BoxFuture, Entry};
use bytes::Bytes;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Files up to this size are kept in memory, and sent again if that fails.
const WHOLE: u64 = 8 << 20;

pub(super) struct DavUpload {
    server: Arc<Server>,
    path: Vec<u8>,
    temp: Vec<u8>,
    name: Vec<u8>,
    size: u64,
    offset: u64,
    way: Way,
}

enum Way {
    Whole(Pieces),
    /// The protocol takes a file in one request only.
    Streamed(Option<mpsc::Sender<Bytes>>, Option<JoinHandle<Result<()>>>),
}

/// Some servers (wsgidav) decode where something is to be moved before they take it apart, and so
/// move it elsewhere. A file of such a name is written where it belongs at once: half of it may be
/// seen, but nothing else is overwritten.
fn is_moved_wrong(name: &[u8]) -> bool {
    let odd = |byte: &u8| byte.is_ascii_control() || b"?#;%".contains(byte);
    name.iter().any(odd)
}

impl DavUpload {
    pub(super) fn new(
        server: Arc<Server>,
        path: Vec<u8>,
        temp: Vec<u8>,
        name: &[u8],
        size: u64,
    ) -> Self {
        let temp = if is_moved_wrong(name) {
            path.clone()
        } else {
            temp
        };
        let way = match size <= WHOLE {
            true => Way::Whole(Pieces::default()),
            false => {
                let (sender, body) = pipe(size);
                let call = server.call("put", "write", &temp, b"PUT");
                let server = server.clone();
                let sent = async move { server.endpoint.stream(&*server, &call, body).await };
                Way::Streamed(Some(sender), Some(tokio::spawn(sent)))
            }
        };
        DavUpload {
            server,
            path,
            temp,
            name: name.to_vec(),
            size,
            offset: 0,
            way,
        }
    }

    async fn take(&mut self, bytes: Bytes) -> Result<()> {
        self.offset += bytes.len() as u64;
        match &mut self.way {
            Way::Whole(pieces) => {
                pieces.push(bytes);
                Ok(())
            }
            Way::Streamed(Some(sender), _) if sender.send(bytes).await.is_ok() => Ok(()),
            // Nobody takes them any more: the request has ended, and says why.
            Way::Streamed(..) => self.ended().await,
        }
    }

    /// Waits for the end of the request.
    async fn ended(&mut self) -> Result<()> {
        let Way::Streamed(sender, sent) = &mut self.way else {
            return Ok(());
        };
        *sender = None;
        match sent.take() {
            None => {
                let call = self.server.call("put", "write", &self.temp, b"PUT");
                Err(call.wrong(ErrorKind::Temporary, "the request has ended"))
            }
            Some(sent) => match sent.await {
                Ok(ended) => ended,
                Err(failed) => std::panic::resume_unwind(failed.into_panic()),
            },
        }
    }

    async fn name_it(&mut self) -> Result<Entry> {
        match std::mem::replace(&mut self.way, Way::Whole(Pieces::default())) {
            Way::Whole(pieces) => {
                let call = self
                    .server
                    .call("put", "write", &self.temp, b"PUT")
                    .body(pieces);
                self.server.fetch(&call).await?;
            }
            streamed @ Way::Streamed(..) => {
                self.way = streamed;
                self.ended().await?;
            }
        }
        if self.temp != self.path {
            match self.server.rename(&self.temp, &self.path, true).await {
                // It was moved already, and the answer got lost.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                moved => moved?,
            }
        }
        let entry = self.server.stat(&self.path, &self.name).await?;
        match entry.size == self.offset {
            true => Ok(Entry {
                modified: None,
                ..entry
            }),
            false => {
                let call = self.server.call("put", "write", &self.path, b"PUT");
                let words = format!("{} of {} bytes arrived", entry.size, self.offset);
                Err(call.wrong(ErrorKind::Temporary, words))
            }
        }
    }
}

impl Upload for DavUpload {
    fn offset(&self) -> u64 {
        self.offset
    }

    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.take(bytes))
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
                let error = incomplete(&self.path, self.offset, self.size);
                let _ = self.abort().await;
                return Err(error);
            }
            self.name_it().await
        })
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            if let Way::Streamed(sender, Some(sent)) = self.way {
                drop(sender);
                let _ = sent.await;
                // Without a temporary name this would remove what was there before.
                if self.temp != self.path {
                    return self.server.delete(&self.temp).await;
                }
            }
            Ok(())
        })
    }
}

//! Writing a file under a temporary name until it is complete.

use super::client::Client;
use super::hash_of;
use crate::backend::{Extended, Precondition, Upload, UploadPlan, incomplete_upload};
use crate::cloud::{Call, SegmentedBytes, streamed_body};
use crate::error::{ErrorKind, Result};
use crate::{BoxFuture, Entry};
use bytes::Bytes;
use sha2::{Digest, Sha256};
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
    precondition: Precondition,
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

/// The state of the final name before it is written.
enum Target {
    /// No entry has it, or it does not matter.
    Free,
    /// The expected file has it.
    Expected,
    /// Another file has it.
    Taken,
}

impl DavUpload {
    pub(super) async fn open(
        client: Arc<Client>,
        path: Vec<u8>,
        temp: Vec<u8>,
        name: &[u8],
        plan: UploadPlan,
    ) -> Result<Self> {
        let temp = if breaks_move(name) {
            path.clone()
        } else {
            temp
        };
        let mut upload = DavUpload {
            client,
            path,
            temp,
            name: name.to_vec(),
            size: plan.size,
            precondition: plan.precondition,
            offset: 0,
            body: UploadBody::Whole(SegmentedBytes::default()),
        };
        if upload.size > MAX_SINGLE_PUT {
            let (sender, body) = streamed_body(upload.size);
            let call = upload.put_call().await?;
            let client = upload.client.clone();
            let sent = async move { client.endpoint.stream(&*client, &call, body).await };
            upload.body = UploadBody::Streamed(Some(sender), Some(tokio::spawn(sent)));
        }
        Ok(upload)
    }

    fn is_in_place(&self) -> bool {
        self.temp == self.path
    }

    /// Returns the call that sends the bytes. Where they go into the final name at once, that has
    /// to be free, or be the expected file.
    async fn put_call(&self) -> Result<Call> {
        let call = self.client.call("put", "write", &self.temp, b"PUT");
        if !self.is_in_place() || self.precondition == Precondition::Any {
            return Ok(call);
        }
        match self.target().await? {
            Target::Free => Ok(call.header("if-none-match", "*")),
            Target::Expected => Ok(call),
            Target::Taken => Err(self.conflict()),
        }
    }

    fn conflict(&self) -> crate::Error {
        self.client
            .call("put", "write", &self.path, b"PUT")
            .conflict()
    }

    /// Looks at the entry that has the final name.
    async fn target(&self) -> Result<Target> {
        match self.client.stat(&self.path, &self.name).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Target::Free),
            Err(error) => Err(error),
            Ok(existing) if self.precondition.allows(&existing) => Ok(Target::Expected),
            Ok(_) => Ok(Target::Taken),
        }
    }

    /// Gives the complete file its name, in place of the expected one.
    async fn rename_into_place(&self) -> Result<()> {
        let overwrite = match self.precondition {
            Precondition::Any => true,
            // The request itself refuses to overwrite.
            Precondition::Absent => false,
            // No condition of the request that servers agree on is about the target.
            Precondition::Version(_) | Precondition::Unchanged(_) => match self.target().await? {
                Target::Free => false,
                Target::Expected => true,
                Target::Taken => return self.settle_conflict().await,
            },
        };
        match self.client.rename(&self.temp, &self.path, overwrite).await {
            // It was moved already, and the response was lost.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) if error.kind() == ErrorKind::Exists && !overwrite => {
                match self.client.stat(&self.temp, b"").await {
                    Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                    Err(error) => Err(error),
                    Ok(_) => self.settle_conflict().await,
                }
            }
            moved => moved,
        }
    }

    /// Decides about a file that has the final name and is not the expected one. With the same
    /// bytes it is our own, from a run that died before it was recorded; the protocol keeps no time
    /// that would tell. Any other stays.
    async fn settle_conflict(&self) -> Result<()> {
        let existing = self.client.stat(&self.path, &self.name).await?;
        let is_own = existing.size == self.size
            && hash_of(&self.client, &self.path, self.size).await?
                == hash_of(&self.client, &self.temp, self.size).await?;
        let _ = self.client.delete(&self.temp).await;
        match is_own {
            true => Ok(()),
            false => Err(self.conflict()),
        }
    }

    /// Sends the bytes of a small file.
    async fn put_whole(&self, pieces: SegmentedBytes) -> Result<()> {
        let mut hasher = Sha256::new();
        if self.is_in_place() {
            pieces.iter().for_each(|piece| hasher.update(piece));
        }
        let sent = match self.put_call().await {
            Ok(call) => {
                let sent = self.client.fetch(&call.body(pieces)).await;
                sent.map(drop)
            }
            Err(error) => Err(error),
        };
        match sent {
            // Our own earlier request may have been executed, with its response lost.
            Err(error) if error.kind() == ErrorKind::Changed && self.is_in_place() => {
                let there = hash_of(&self.client, &self.path, self.size).await;
                match there.is_ok_and(|there| there == hasher.finalize().as_slice()) {
                    true => Ok(()),
                    false => Err(self.conflict()),
                }
            }
            sent => sent,
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
            UploadBody::Whole(pieces) => self.put_whole(pieces).await?,
            streamed @ UploadBody::Streamed(..) => {
                self.body = streamed;
                self.finish_request().await?;
            }
        }
        if !self.is_in_place() {
            self.rename_into_place().await?;
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
            let is_in_place = self.is_in_place();
            if let UploadBody::Streamed(sender, Some(sent)) = self.body {
                drop(sender);
                let _ = sent.await;
                // Without a temporary name this would remove the previous file.
                if !is_in_place {
                    return self.client.delete(&self.temp).await;
                }
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::test_server::{Received, Reply, TestServer, variables};
    use crate::{Backend, Folder, Kind, WebDav};
    use parking_lot::Mutex;
    use std::collections::BTreeMap;

    /// A server that keeps files in memory, each with its number as etag.
    #[derive(Default)]
    struct Files {
        files: BTreeMap<String, (String, u32)>,
        written: u32,
        /// The response to the next move is lost after it was executed.
        loses_response: bool,
        /// A move looks at its target first.
        looks_at_target: bool,
    }

    impl Files {
        fn put(&mut self, path: &str, text: &str) {
            self.written += 1;
            let file = (text.to_owned(), self.written);
            self.files.insert(path.to_owned(), file);
        }

        fn respond(&mut self, request: &Received) -> Reply {
            let (method, path) = request.line.split_once(' ').expect("a request line");
            let empty = |status| (status, "", String::new());
            match method {
                "PUT" => {
                    let is_new = request.header("if-none-match") == "*";
                    if is_new && self.files.contains_key(path) {
                        return empty(412);
                    }
                    self.put(path, &request.body);
                    empty(201)
                }
                "MOVE" => {
                    let target = request.header("destination").splitn(4, '/').nth(3);
                    let target = format!("/{}", target.expect("a URL"));
                    let is_taken =
                        request.header("overwrite") == "F" && self.files.contains_key(&target);
                    if is_taken && (self.looks_at_target || self.files.contains_key(path)) {
                        return empty(412);
                    }
                    let Some(file) = self.files.remove(path) else {
                        return empty(404);
                    };
                    self.files.insert(target, file);
                    let is_lost = std::mem::take(&mut self.loses_response);
                    empty(if is_lost { 502 } else { 201 })
                }
                "PROPFIND" => match self.files.get(path) {
                    None => empty(404),
                    Some((text, number)) => {
                        let size = text.len();
                        let document = format!(
                            "<multistatus><response><href>{path}</href><propstat><prop><getetag>\"{number}\"</getetag><getcontentlength>{size}</getcontentlength></prop></propstat></response></multistatus>"
                        );
                        (207, "", document)
                    }
                },
                "GET" => match self.files.get(path) {
                    None => empty(404),
                    Some((text, _)) => (200, "", text.clone()),
                },
                _ => {
                    self.files.remove(path);
                    empty(204)
                }
            }
        }
    }

    struct Fixture {
        dav: WebDav,
        files: Arc<Mutex<Files>>,
        _server: TestServer,
    }

    impl Fixture {
        async fn new() -> Fixture {
            let files = Arc::<Mutex<Files>>::default();
            let shared = files.clone();
            let server = TestServer::start(move |request| shared.lock().respond(request)).await;
            let location = server.address.replace("http://", "webdav://") + "/root";
            let client = Client::open(location.as_bytes(), &variables(&[])).unwrap();
            let dav = WebDav {
                client: Arc::new(client),
            };
            Fixture {
                dav,
                files,
                _server: server,
            }
        }

        fn text(&self, path: &str) -> Option<String> {
            let files = self.files.lock();
            files.files.get(path).map(|(text, _)| text.clone())
        }

        /// Writes a file, and expects that no temporary file is left.
        async fn write(
            &self,
            name: &str,
            text: &'static str,
            precondition: Precondition,
        ) -> Result<Entry> {
            let plan = UploadPlan {
                temp: b".temp".to_vec(),
                size: text.len() as u64,
                precondition,
                ..UploadPlan::default()
            };
            let root = Folder::root();
            let mut upload = self.dav.upload(&root, name.as_bytes(), plan).await?;
            upload.write(Bytes::from_static(text.as_bytes())).await?;
            let like = Entry::new(name, Kind::File);
            let written = upload.finish(like, Extended::new()).await;
            assert_eq!(self.text("/root/.temp"), None, "{name}: {written:?}");
            written
        }
    }

    #[tokio::test]
    async fn another_programs_file_is_kept() {
        // The second name is written in place.
        for (name, path) in [("file", "/root/file"), ("in#place", "/root/in%23place")] {
            let server = Fixture::new().await;
            server.files.lock().put(path, "of another program");
            let refused = server.write(name, "ours", Precondition::Absent).await;
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Changed, "{name}");
            let known = Precondition::Version(b"1".to_vec());
            server.write(name, "ours", known.clone()).await.unwrap();
            assert_eq!(server.text(path).as_deref(), Some("ours"), "{name}");
            server.files.lock().put(path, "of another program");
            let refused = server.write(name, "newer", known).await;
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Changed, "{name}");
            let kept = server.text(path);
            assert_eq!(kept.as_deref(), Some("of another program"), "{name}");
        }
    }

    #[tokio::test]
    async fn a_move_whose_response_was_lost_is_no_conflict() {
        for looks_at_target in [false, true] {
            let server = Fixture::new().await;
            server.files.lock().looks_at_target = looks_at_target;
            server.files.lock().loses_response = true;
            let written = server.write("file", "ours", Precondition::Absent).await;
            assert_eq!(written.unwrap().size, 4);
            // A run that died before it was recorded writes the same bytes again.
            server
                .write("file", "ours", Precondition::Absent)
                .await
                .unwrap();
            let other = server.write("file", "four", Precondition::Absent).await;
            assert_eq!(other.unwrap_err().kind(), ErrorKind::Changed);
            assert_eq!(server.text("/root/file").as_deref(), Some("ours"));
        }
    }
}

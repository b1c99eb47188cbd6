//! One HTTP connection: reads requests, passes them to the handler and writes the responses in
//! order.

use super::handler::HttpHandler;
use super::request::{MAX_HEAD, Parsed, parse};
use super::response::{PLAIN_TEXT, Status, write_head};
use crate::clock::Seconds;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::time::Instant;

/// The length of responses at which no further request of a connection is handled until they are
/// sent. So a client that does not read what it asked for takes little memory.
const MAX_OUTPUT: usize = 256 * 1024;

/// An HTTP connection.
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) peer: IpAddr,
    /// Received bytes that are not handled yet: an incomplete request, or requests that wait.
    received: Vec<u8>,
    /// Bytes of responses that the socket has not accepted yet.
    unsent: Vec<u8>,
    /// Whether the connection closes once everything is sent.
    closing: bool,
    /// The time since which the next request waits for a page.
    waits_since: Option<Instant>,
    /// The readiness that is registered with epoll.
    pub(super) registered: Interest,
    /// The time at which the last request began or ended. A client that sends a byte now and then
    /// does not extend it.
    pub(super) last_active: Seconds,
}

/// The readiness that a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interest {
    /// Requests to read.
    Read,
    /// Room for unsent bytes.
    Write,
    /// A page that is being built.
    Page,
    /// None: the connection is to be closed.
    Close,
}

/// The buffers of one thread, shared by its connections.
pub(super) struct IoBuffers {
    input: Box<[u8; MAX_HEAD]>,
    output: Vec<u8>,
}

impl IoBuffers {
    pub(super) fn new() -> IoBuffers {
        IoBuffers {
            input: Box::new([0; MAX_HEAD]),
            output: Vec::with_capacity(64 * 1024),
        }
    }
}

impl Connection {
    pub(super) fn new(stream: TcpStream, peer: IpAddr, now: Seconds) -> Connection {
        Connection {
            stream,
            peer: peer.to_canonical(),
            received: Vec::new(),
            unsent: Vec::new(),
            closing: false,
            waits_since: None,
            registered: Interest::Read,
            last_active: now,
        }
    }

    /// Returns the number of bytes that wait for the client to read them.
    pub(super) fn unsent(&self) -> usize {
        self.unsent.len()
    }

    /// Reads from the socket and responds to every complete request.
    pub(super) fn read(
        &mut self,
        handler: &mut HttpHandler<'_>,
        buffers: &mut IoBuffers,
    ) -> Interest {
        let IoBuffers { input, output } = buffers;
        let length = match self.stream.read(&mut input[..]) {
            Ok(0) => return Interest::Close,
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return self.interest(),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Interest::Read,
            Err(_) => return Interest::Close,
        };
        if !self.received.is_empty() {
            self.received.extend_from_slice(&input[..length]);
            return self.advance(handler, output);
        }
        self.last_active = handler.now;
        output.clear();
        let used = self.handle_requests(&input[..length], handler, output);
        self.received.extend_from_slice(&input[used..length]);
        match self.send(output) {
            Interest::Read if output.len() >= MAX_OUTPUT => self.advance(handler, output),
            interest => interest,
        }
    }

    /// Writes unsent bytes, because the socket has room, and continues with received requests.
    pub(super) fn write(
        &mut self,
        handler: &mut HttpHandler<'_>,
        buffers: &mut IoBuffers,
    ) -> Interest {
        match write_some(&mut self.stream, &self.unsent) {
            Some(sent) => drop(self.unsent.drain(..sent)),
            None => return Interest::Close,
        }
        match self.interest() {
            Interest::Read => self.resume(handler, buffers),
            interest => interest,
        }
    }

    /// Continues with received requests.
    pub(super) fn resume(
        &mut self,
        handler: &mut HttpHandler<'_>,
        buffers: &mut IoBuffers,
    ) -> Interest {
        self.advance(handler, &mut buffers.output)
    }

    /// Handles received requests until none is complete, one must wait, or the client does not
    /// read.
    fn advance(&mut self, handler: &mut HttpHandler<'_>, output: &mut Vec<u8>) -> Interest {
        loop {
            output.clear();
            let mut received = std::mem::take(&mut self.received);
            let used = self.handle_requests(&received, handler, output);
            if used > 0 {
                self.last_active = handler.now;
                received.drain(..used);
            }
            if !received.is_empty() {
                self.received = received;
            }
            match self.send(output) {
                Interest::Read if output.len() >= MAX_OUTPUT => {}
                interest => return interest,
            }
        }
    }

    /// Handles the complete requests at the beginning of `bytes`, as far as they need not wait, and
    /// returns their length.
    fn handle_requests(
        &mut self,
        bytes: &[u8],
        handler: &mut HttpHandler<'_>,
        out: &mut Vec<u8>,
    ) -> usize {
        let mut used = 0;
        while !self.closing && used < bytes.len() && out.len() < MAX_OUTPUT {
            match parse(&bytes[used..]) {
                Parsed::Request(request, length) => {
                    if !handler.handle(self.peer, &request, &mut self.waits_since, out) {
                        break;
                    }
                    self.closing = !request.keep_alive;
                    used += length;
                }
                Parsed::Partial => break,
                Parsed::Invalid(status, message) => {
                    handler.counters.http_bad.add(1);
                    let status = Status::of(status, PLAIN_TEXT);
                    write_head(&status, message.len(), false, out);
                    out.extend_from_slice(message.as_bytes());
                    self.closing = true;
                }
            }
        }
        if self.closing { bytes.len() } else { used }
    }

    fn send(&mut self, output: &[u8]) -> Interest {
        if self.unsent.is_empty() {
            match write_some(&mut self.stream, output) {
                Some(sent) => self.unsent.extend_from_slice(&output[sent..]),
                None => return Interest::Close,
            }
        } else {
            self.unsent.extend_from_slice(output);
        }
        self.interest()
    }

    fn interest(&self) -> Interest {
        match (self.unsent.is_empty(), self.closing) {
            (false, _) => Interest::Write,
            (true, true) => Interest::Close,
            (true, false) if self.waits_since.is_some() => Interest::Page,
            (true, false) => Interest::Read,
        }
    }
}

/// Writes as much as the socket accepts; `None` if the connection is broken.
fn write_some(stream: &mut TcpStream, bytes: &[u8]) -> Option<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match stream.write(&bytes[sent..]) {
            Ok(0) => return None,
            Ok(more) => sent += more,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    Some(sent)
}

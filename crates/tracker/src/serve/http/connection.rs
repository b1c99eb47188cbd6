//! One HTTP connection: reads requests, passes them to the handler and writes the responses in
//! order.

use super::handler::HttpHandler;
use super::request::{MAX_HEAD, Parsed, parse};
use super::response::{PLAIN_TEXT, write_head};
use crate::clock::Seconds;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};

/// The most bytes that wait for a client to read them; beyond it the connection is closed.
const MAX_UNSENT: usize = 1 << 20;

/// An HTTP connection.
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    peer: IpAddr,
    /// The received part of an incomplete request.
    partial: Vec<u8>,
    /// Bytes of responses that the socket has not accepted yet.
    unsent: Vec<u8>,
    /// Whether the connection closes once everything is sent.
    closing: bool,
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
            partial: Vec::new(),
            unsent: Vec::new(),
            closing: false,
            last_active: now,
        }
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
        output.clear();
        if self.partial.is_empty() {
            self.last_active = handler.now;
            let used = self.handle_requests(&input[..length], handler, output);
            self.partial.extend_from_slice(&input[used..length]);
        } else {
            let mut partial = std::mem::take(&mut self.partial);
            partial.extend_from_slice(&input[..length]);
            let used = self.handle_requests(&partial, handler, output);
            if used > 0 {
                self.last_active = handler.now;
            }
            partial.drain(..used);
            self.partial = partial;
        }
        if self.partial.is_empty() {
            self.partial = Vec::new();
        }
        self.send(output)
    }

    /// Handles the complete requests at the beginning of `bytes` and returns their length.
    fn handle_requests(
        &mut self,
        bytes: &[u8],
        handler: &mut HttpHandler<'_>,
        out: &mut Vec<u8>,
    ) -> usize {
        let mut used = 0;
        while !self.closing && used < bytes.len() {
            match parse(&bytes[used..]) {
                Parsed::Request(request, length) => {
                    handler.handle(self.peer, &request, out);
                    self.closing = !request.keep_alive;
                    used += length;
                }
                Parsed::Partial => break,
                Parsed::Invalid(status, message) => {
                    handler.counters.http_bad.add(1);
                    write_head(status, PLAIN_TEXT, message.len(), false, out);
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
        if self.unsent.len() > MAX_UNSENT {
            return Interest::Close;
        }
        self.interest()
    }

    /// Writes unsent bytes, because the socket has room.
    pub(super) fn write(&mut self) -> Interest {
        match write_some(&mut self.stream, &self.unsent) {
            Some(sent) => {
                self.unsent.drain(..sent);
                self.interest()
            }
            None => Interest::Close,
        }
    }

    fn interest(&self) -> Interest {
        match (self.unsent.is_empty(), self.closing) {
            (false, _) => Interest::Write,
            (true, true) => Interest::Close,
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

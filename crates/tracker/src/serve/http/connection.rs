//! One connection: bytes in, requests in order, bytes out.

use super::{Desk, PLAIN, head};
use crate::serve::http::request::{MAX_HEAD, Parsed, parse};
use crate::swarm::Seconds;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};

/// Answers that may wait for a client that does not read; more, and the connection ends.
const MAX_UNSENT: usize = 1 << 20;

/// A connection.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    peer: IpAddr,
    /// The beginning of a request.
    partial: Vec<u8>,
    /// What the client has not taken yet.
    unsent: Vec<u8>,
    /// No more requests: it ends when everything is sent.
    closing: bool,
    /// When it last began a request or ended one: a byte now and then keeps nothing open.
    pub(crate) heard: Seconds,
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// For requests.
    Read,
    /// For the client to take what is unsent.
    Write,
    /// For nothing: it is over.
    End,
}

/// A thread's buffers for connections.
pub(crate) struct Buffers {
    input: Box<[u8; MAX_HEAD]>,
    output: Vec<u8>,
}

impl Buffers {
    pub(crate) fn new() -> Buffers {
        Buffers {
            input: Box::new([0; MAX_HEAD]),
            output: Vec::with_capacity(64 * 1024),
        }
    }
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, peer: IpAddr, now: Seconds) -> Connection {
        Connection {
            stream,
            peer: peer.to_canonical(),
            partial: Vec::new(),
            unsent: Vec::new(),
            closing: false,
            heard: now,
        }
    }

    /// Something can be read: answers every request that is there.
    pub(crate) fn read(&mut self, desk: &mut Desk<'_>, buffers: &mut Buffers) -> Turn {
        let Buffers { input, output } = buffers;
        let length = match self.stream.read(&mut input[..]) {
            Ok(0) => return Turn::End,
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return self.turn(),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Turn::Read,
            Err(_) => return Turn::End,
        };
        output.clear();
        if self.partial.is_empty() {
            self.heard = desk.now;
            let used = self.requests(&input[..length], desk, output);
            self.partial.extend_from_slice(&input[used..length]);
        } else {
            let mut partial = std::mem::take(&mut self.partial);
            partial.extend_from_slice(&input[..length]);
            let used = self.requests(&partial, desk, output);
            if used > 0 {
                self.heard = desk.now;
            }
            partial.drain(..used);
            self.partial = partial;
        }
        if self.partial.is_empty() {
            self.partial = Vec::new();
        }
        self.send(output)
    }

    /// Answers the requests at the beginning of `bytes`, and says how many bytes they were.
    fn requests(&mut self, bytes: &[u8], desk: &mut Desk<'_>, out: &mut Vec<u8>) -> usize {
        let mut used = 0;
        while !self.closing && used < bytes.len() {
            match parse(&bytes[used..]) {
                Parsed::Request(request, length) => {
                    desk.answer(self.peer, &request, out);
                    self.closing = !request.keep_alive;
                    used += length;
                }
                Parsed::Partial => break,
                Parsed::Bad(status, words) => {
                    desk.counters.http_bad.add(1);
                    head(status, PLAIN, words.len(), false, out);
                    out.extend_from_slice(words.as_bytes());
                    self.closing = true;
                }
            }
        }
        if self.closing { bytes.len() } else { used }
    }

    fn send(&mut self, output: &[u8]) -> Turn {
        if self.unsent.is_empty() {
            match write_some(&mut self.stream, output) {
                Some(sent) => self.unsent.extend_from_slice(&output[sent..]),
                None => return Turn::End,
            }
        } else {
            self.unsent.extend_from_slice(output);
        }
        if self.unsent.len() > MAX_UNSENT {
            return Turn::End;
        }
        self.turn()
    }

    /// The client takes more.
    pub(crate) fn write(&mut self) -> Turn {
        match write_some(&mut self.stream, &self.unsent) {
            Some(sent) => {
                self.unsent.drain(..sent);
                self.turn()
            }
            None => Turn::End,
        }
    }

    fn turn(&self) -> Turn {
        match (self.unsent.is_empty(), self.closing) {
            (false, _) => Turn::Write,
            (true, true) => Turn::End,
            (true, false) => Turn::Read,
        }
    }
}

/// Writes as much as the client takes now; `None` if it takes no more at all.
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

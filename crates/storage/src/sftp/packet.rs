//! Packets of SFTP version 3, as OpenSSH implements it: built and parsed by pure functions. Names
//! are bytes.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The protocol version; later ones are only drafts.
pub(super) const VERSION: u32 = 3;
/// Maximum length of a packet, four times that of OpenSSH.
const LONGEST: usize = 1 << 20;

pub(super) const READ: u32 = 1;
pub(super) const WRITE: u32 = 2;
pub(super) const CREATE: u32 = 8;
pub(super) const EXCLUSIVE: u32 = 32;

/// File attributes in a packet. Times are whole seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) size: Option<u64>,
    pub(super) owner: Option<(u32, u32)>,
    pub(super) mode: Option<u32>,
    pub(super) modified: Option<u32>,
}

/// A name in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) name: Bytes,
    pub(super) attributes: Attributes,
}

/// The status of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) code: u32,
    pub(super) message: String,
}

impl Status {
    pub(super) const OK: u32 = 0;
    pub(super) const END: u32 = 1;
    pub(super) const NO_SUCH_FILE: u32 = 2;
    pub(super) const DENIED: u32 = 3;
    pub(super) const FAILURE: u32 = 4;
    pub(super) const BAD_MESSAGE: u32 = 5;
    pub(super) const NO_CONNECTION: u32 = 6;
    pub(super) const LOST: u32 = 7;
    pub(super) const UNSUPPORTED: u32 = 8;
}

/// A reply of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Status(Status),
    Handle(Bytes),
    Data(Bytes),
    Names(Vec<Name>),
    Attributes(Attributes),
    Extended(Bytes),
}

/// A request without its id, which is assigned when it is sent.
pub(super) struct Packet {
    kind: u8,
    /// The kind as which it is counted.
    pub(super) label: &'static str,
    fields: BytesMut,
    data: Bytes,
}

impl Packet {
    fn new(kind: u8, label: &'static str) -> Packet {
        Packet {
            kind,
            label,
            fields: BytesMut::new(),
            data: Bytes::new(),
        }
    }

    fn text(mut self, bytes: &[u8]) -> Packet {
        self.fields.put_u32(bytes.len() as u32);
        self.fields.put_slice(bytes);
        self
    }

    fn number(mut self, number: u32) -> Packet {
        self.fields.put_u32(number);
        self
    }

    fn offset(mut self, offset: u64) -> Packet {
        self.fields.put_u64(offset);
        self
    }

    fn attributes(mut self, attributes: &Attributes) -> Packet {
        let Attributes {
            size,
            owner,
            mode,
            modified,
        } = attributes;
        let flag = |set: bool, bit: u32| if set { bit } else { 0 };
        let fields = &mut self.fields;
        fields.put_u32(
            flag(size.is_some(), 1)
                | flag(owner.is_some(), 2)
                | flag(mode.is_some(), 4)
                | flag(modified.is_some(), 8),
        );
        if let Some(size) = size {
            fields.put_u64(*size);
        }
        if let Some((user, group)) = owner {
            fields.put_u32(*user);
            fields.put_u32(*group);
        }
        if let Some(mode) = mode {
            fields.put_u32(*mode);
        }
        if let Some(modified) = modified {
            // The access time cannot be left unchanged.
            fields.put_u32(*modified);
            fields.put_u32(*modified);
        }
        self
    }

    pub(super) fn open(path: &[u8], flags: u32, mode: Option<u32>) -> Packet {
        let attributes = Attributes {
            mode,
            ..Attributes::default()
        };
        let packet = Packet::new(3, "open").text(path).number(flags);
        packet.attributes(&attributes)
    }

    pub(super) fn close(handle: &[u8]) -> Packet {
        Packet::new(4, "close").text(handle)
    }

    pub(super) fn read(handle: &[u8], offset: u64, length: u32) -> Packet {
        let packet = Packet::new(5, "read").text(handle);
        packet.offset(offset).number(length)
    }

    pub(super) fn write(handle: &[u8], offset: u64, data: &Bytes) -> Packet {
        let packet = Packet::new(6, "write").text(handle).offset(offset);
        Packet {
            data: data.clone(),
            ..packet.number(data.len() as u32)
        }
    }

    pub(super) fn lstat(path: &[u8]) -> Packet {
        Packet::new(7, "look").text(path)
    }

    pub(super) fn fstat(handle: &[u8]) -> Packet {
        Packet::new(8, "look").text(handle)
    }

    pub(super) fn setstat(path: &[u8], attributes: &Attributes) -> Packet {
        Packet::new(9, "set").text(path).attributes(attributes)
    }

    pub(super) fn fsetstat(handle: &[u8], attributes: &Attributes) -> Packet {
        Packet::new(10, "set").text(handle).attributes(attributes)
    }

    pub(super) fn open_folder(path: &[u8]) -> Packet {
        Packet::new(11, "list").text(path)
    }

    pub(super) fn read_folder(handle: &[u8]) -> Packet {
        Packet::new(12, "list").text(handle)
    }

    pub(super) fn remove(path: &[u8]) -> Packet {
        Packet::new(13, "remove").text(path)
    }

    pub(super) fn make_folder(path: &[u8], mode: u32) -> Packet {
        let attributes = Attributes {
            mode: Some(mode),
            ..Attributes::default()
        };
        let packet = Packet::new(14, "make folder").text(path);
        packet.attributes(&attributes)
    }

    pub(super) fn remove_folder(path: &[u8]) -> Packet {
        Packet::new(15, "remove").text(path)
    }

    /// Follows symlinks, unlike [`lstat`](Packet::lstat).
    pub(super) fn stat(path: &[u8]) -> Packet {
        Packet::new(17, "look").text(path)
    }

    /// Never replaces an entry, unlike [`replace`](Packet::replace).
    pub(super) fn rename(from: &[u8], to: &[u8]) -> Packet {
        Packet::new(18, "move").text(from).text(to)
    }

    pub(super) fn read_link(path: &[u8]) -> Packet {
        Packet::new(19, "read link").text(path)
    }

    /// The target comes first, as in OpenSSH and all that follow it; the specification says the
    /// reverse.
    pub(super) fn symlink(target: &[u8], path: &[u8]) -> Packet {
        Packet::new(20, "make link").text(target).text(path)
    }

    pub(super) fn replace(from: &[u8], to: &[u8]) -> Packet {
        let packet = Packet::new(200, "move").text(b"posix-rename@openssh.com");
        packet.text(from).text(to)
    }

    pub(super) fn sync(handle: &[u8]) -> Packet {
        let packet = Packet::new(200, "sync").text(b"fsync@openssh.com");
        packet.text(handle)
    }

    pub(super) fn space(path: &[u8]) -> Packet {
        let packet = Packet::new(200, "space").text(b"statvfs@openssh.com");
        packet.text(path)
    }

    pub(super) fn limits() -> Packet {
        Packet::new(200, "limits").text(b"limits@openssh.com")
    }

    /// Sets attributes of a symlink itself.
    pub(super) fn lsetstat(path: &[u8], attributes: &Attributes) -> Packet {
        let packet = Packet::new(200, "set").text(b"lsetstat@openssh.com");
        packet.text(path).attributes(attributes)
    }

    /// Encodes the request.
    pub(super) fn put(&self, id: u32, buffer: &mut BytesMut) {
        let length = 5 + self.fields.len() + self.data.len();
        buffer.reserve(4 + length);
        buffer.put_u32(length as u32);
        buffer.put_u8(self.kind);
        buffer.put_u32(id);
        buffer.put_slice(&self.fields);
        buffer.put_slice(&self.data);
    }
}

/// Returns the first packet of a connection.
pub(super) fn init_packet() -> [u8; 9] {
    let mut bytes = [0, 0, 0, 5, 1, 0, 0, 0, 0];
    bytes[5..].copy_from_slice(&VERSION.to_be_bytes());
    bytes
}

/// Splits the next packet off the received bytes; `None` if it is incomplete.
pub(super) fn split_packet(received: &mut BytesMut) -> Result<Option<Bytes>, String> {
    let Some(length) = received.first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*length) as usize;
    if length == 0 || length > LONGEST {
        // The output of a login script ends up here.
        return Err("the data is not SFTP: does a login script print something?".to_owned());
    }
    if received.len() < 4 + length {
        received.reserve(4 + length - received.len());
        return Ok(None);
    }
    received.advance(4);
    Ok(Some(received.split_to(length).freeze()))
}

type Read<T> = Result<T, bytes::TryGetError>;

fn text(fields: &mut Bytes) -> Read<Bytes> {
    let length = fields.try_get_u32()? as usize;
    if fields.len() < length {
        return Err(bytes::TryGetError {
            requested: length,
            available: fields.len(),
        });
    }
    Ok(fields.split_to(length))
}

fn attributes(fields: &mut Bytes) -> Read<Attributes> {
    let flags = fields.try_get_u32()?;
    let mut found = Attributes::default();
    if flags & 1 != 0 {
        found.size = Some(fields.try_get_u64()?);
    }
    if flags & 2 != 0 {
        found.owner = Some((fields.try_get_u32()?, fields.try_get_u32()?));
    }
    if flags & 4 != 0 {
        found.mode = Some(fields.try_get_u32()?);
    }
    if flags & 8 != 0 {
        let _accessed = fields.try_get_u32()?;
        found.modified = Some(fields.try_get_u32()?);
    }
    if flags & 0x8000_0000 != 0 {
        for _ in 0..fields.try_get_u32()? {
            text(fields)?;
            text(fields)?;
        }
    }
    Ok(found)
}

fn names(fields: &mut Bytes) -> Read<Vec<Name>> {
    let mut found = Vec::new();
    for _ in 0..fields.try_get_u32()? {
        let name = text(fields)?;
        let _for_people = text(fields)?;
        let attributes = attributes(fields)?;
        found.push(Name { name, attributes });
    }
    Ok(found)
}

fn status(fields: &mut Bytes) -> Read<Status> {
    let code = fields.try_get_u32()?;
    // Old servers send only the code.
    let message = text(fields).unwrap_or_default();
    let message = String::from_utf8_lossy(&message).into_owned();
    Ok(Status { code, message })
}

fn fields_of(packet: &mut Bytes) -> Read<Option<(u32, Reply)>> {
    let kind = packet.try_get_u8()?;
    let id = packet.try_get_u32()?;
    let reply = match kind {
        101 => Reply::Status(status(packet)?),
        102 => Reply::Handle(text(packet)?),
        103 => Reply::Data(text(packet)?),
        104 => Reply::Names(names(packet)?),
        105 => Reply::Attributes(attributes(packet)?),
        201 => Reply::Extended(std::mem::take(packet)),
        _ => return Ok(None),
    };
    Ok(Some((id, reply)))
}

/// Parses a reply, and the id of its request.
pub(super) fn reply(mut packet: Bytes) -> Result<(u32, Reply), String> {
    match fields_of(&mut packet) {
        Ok(Some(reply)) => Ok(reply),
        Ok(None) => Err("the server sent a packet that is not a reply".to_owned()),
        Err(_) => Err("the server sent a truncated packet".to_owned()),
    }
}

/// Protocol extensions of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extensions {
    pub(super) replace: bool,
    pub(super) sync: bool,
    pub(super) space: bool,
    pub(super) lsetstat: bool,
    pub(super) limits: bool,
}

/// Parses the reply to [`init_packet`].
pub(super) fn parse_version(mut packet: Bytes) -> Result<Extensions, String> {
    let kind = packet.try_get_u8().unwrap_or_default();
    let version = packet.try_get_u32().unwrap_or_default();
    if kind != 2 || version != VERSION {
        return Err(format!(
            "the server does not support SFTP version {VERSION}"
        ));
    }
    let mut extensions = Extensions::default();
    while let (Ok(name), Ok(_)) = (text(&mut packet), text(&mut packet)) {
        match name.as_ref() {
            b"posix-rename@openssh.com" => extensions.replace = true,
            b"fsync@openssh.com" => extensions.sync = true,
            b"statvfs@openssh.com" => extensions.space = true,
            b"lsetstat@openssh.com" => extensions.lsetstat = true,
            b"limits@openssh.com" => extensions.limits = true,
            _ => {}
        }
    }
    Ok(extensions)
}

/// Parses the maximum read and write of a reply to [`limits`](Packet::limits); 0 means no limit.
pub(super) fn parse_limits(mut body: Bytes) -> Option<(u64, u64)> {
    let _packet = body.try_get_u64().ok()?;
    Some((body.try_get_u64().ok()?, body.try_get_u64().ok()?))
}

/// Parses the free bytes and the free entries, if they are limited, of a reply to
/// [`space`](Packet::space).
pub(super) fn parse_space(mut body: Bytes) -> Option<(u64, Option<u64>)> {
    let mut fields = [0; 8];
    for field in &mut fields {
        *field = body.try_get_u64().ok()?;
    }
    let [_, fragment, _, _, available, entries, _, free] = fields;
    let bytes = available.saturating_mul(fragment);
    Some((bytes, (entries > 0).then_some(free)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(bytes: &[u8]) -> Bytes {
        Bytes::copy_from_slice(bytes)
    }

    #[test]
    fn requests_are_encoded_as_specified() {
        let mut buffer = BytesMut::new();
        Packet::write(b"h", 258, &Bytes::from_static(b"xy")).put(7, &mut buffer);
        let wanted = b"\0\0\0\x18\x06\0\0\0\x07\0\0\0\x01h\0\0\0\0\0\0\x01\x02\0\0\0\x02xy";
        assert_eq!(buffer.as_ref(), wanted);
        let attributes = Attributes {
            owner: Some((1, 2)),
            modified: Some(9),
            ..Attributes::default()
        };
        buffer.clear();
        Packet::setstat(b"\xff", &attributes).put(0, &mut buffer);
        let wanted = b"\0\0\0\x1e\x09\0\0\0\0\0\0\0\x01\xff\0\0\0\x0a\0\0\0\x01\0\0\0\x02\0\0\0\x09\0\0\0\x09";
        assert_eq!(buffer.as_ref(), wanted);
    }

    #[test]
    fn replies_are_read_and_names_are_bytes() {
        let listed = b"h\0\0\0\x05\0\0\0\x01\0\0\0\x02\xff\n\0\0\0\x01l\x80\0\0\x05\0\0\0\0\0\0\0\x03\0\0\x81\xa4\0\0\0\x01\0\0\0\0\0\0\0\0";
        let (id, Reply::Names(names)) = reply(packet(listed)).unwrap() else {
            panic!("no names");
        };
        assert_eq!((id, names.len()), (5, 1));
        assert_eq!(names[0].name.as_ref(), b"\xff\n");
        let attributes = names[0].attributes;
        assert_eq!(
            (attributes.size, attributes.mode),
            (Some(3), Some(0o100_644))
        );
        for cut in 0..listed.len() {
            assert!(reply(packet(&listed[..cut])).is_err(), "cut at {cut}");
        }
        let bare = reply(packet(b"e\0\0\0\x01\0\0\0\x04")).unwrap().1;
        assert!(matches!(bare, Reply::Status(Status { code: 4, .. })));
        assert!(reply(packet(b"\x03\0\0\0\x01")).is_err(), "a request");
    }

    #[test]
    fn packets_are_split_when_they_are_complete() {
        let mut received = BytesMut::from(&b"\0\0\0\x02ab\0\0\0\x01"[..]);
        assert_eq!(
            split_packet(&mut received).unwrap().unwrap().as_ref(),
            b"ab"
        );
        assert_eq!(split_packet(&mut received).unwrap(), None);
        received.put_u8(b'c');
        assert_eq!(split_packet(&mut received).unwrap().unwrap().as_ref(), b"c");
        let mut received = BytesMut::from(&b"Welcome to this host\n"[..]);
        assert!(
            split_packet(&mut received)
                .unwrap_err()
                .contains("login script")
        );
    }

    #[test]
    fn extensions_are_parsed() {
        let stderr = b"\x02\0\0\0\x03\0\0\0\x11fsync@openssh.com\0\0\0\x011\0\0\0\x01x\0\0\0\0";
        let extensions = parse_version(packet(stderr)).unwrap();
        assert!(extensions.sync && !extensions.replace);
        assert!(parse_version(packet(b"\x02\0\0\0\x06")).is_err());
    }
}

//! Scrape responses over HTTP (BEP 48).

use crate::bencode::{self, DecodeError, Limits, Value, Writer};
use crate::types::{Counts, InfoHash};

/// Appends a scrape response. `torrents` must be sorted by hash, because bencode dictionaries are.
pub fn write(torrents: impl IntoIterator<Item = (InfoHash, Counts)>, out: &mut Vec<u8>) {
    let mut writer = Writer::new(out);
    writer.begin_dict().bytes(b"files").begin_dict();
    for (hash, counts) in torrents {
        writer.bytes(&hash.0).begin_dict();
        writer.bytes(b"complete").int(i64::from(counts.complete));
        writer
            .bytes(b"downloaded")
            .int(i64::from(counts.downloaded));
        writer
            .bytes(b"incomplete")
            .int(i64::from(counts.incomplete))
            .end();
    }
    writer.end().end();
}

/// Parses a scrape response.
///
/// # Errors
/// When the bytes are not valid bencode.
pub fn parse(bytes: &[u8]) -> Result<Vec<(InfoHash, Counts)>, DecodeError> {
    let value = bencode::decode(bytes, Limits::default())?;
    let Some(Value::Dict(files)) = value.get("files") else {
        return Ok(Vec::new());
    };
    let torrent = |(hash, counts): &(&[u8], Value<'_>)| {
        let number = |key| counts.get(key).and_then(Value::number).unwrap_or(0);
        let number = |key| u32::try_from(number(key).max(0)).unwrap_or(u32::MAX);
        let counts = Counts {
            complete: number("complete"),
            incomplete: number("incomplete"),
            downloaded: number("downloaded"),
        };
        Some((InfoHash((*hash).try_into().ok()?), counts))
    };
    Ok(files.iter().filter_map(torrent).collect())
}

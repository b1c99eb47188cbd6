//! HTTP/1 as gateway and tracker read it.

use headworks_h1::{
    BadChunk, Chunks, Length, ResponseFraming, head_end, read_request_head, take_response_head,
};

/// Checks that a connection's requests and responses do not depend on how the bytes are split.
pub fn http1(data: &[u8]) {
    let Some((step, bytes)) = data.split_first() else {
        return;
    };
    let (step, whole) = (usize::from(*step).max(1), bytes.len().max(1));
    assert_eq!(requests_of(bytes, step), requests_of(bytes, whole));
    assert_eq!(answers_of(bytes, step), answers_of(bytes, whole));
}

/// Statuses and bodies of the responses in pieces of `step` bytes, up to the first malformed one.
fn answers_of(bytes: &[u8], step: usize) -> Vec<(u16, Vec<u8>)> {
    let (mut pieces, mut answers) = (bytes.chunks(step), Vec::new());
    let mut input = Default::default();
    loop {
        let reply = match take_response_head(&mut input) {
            Ok(Some(reply)) => reply,
            Ok(None) => match pieces.next() {
                Some(piece) => {
                    input.extend_from_slice(piece);
                    continue;
                }
                None => return answers,
            },
            Err(_) => return answers,
        };
        assert!(reply.status.as_u16() >= 200, "it is no interim answer");
        let (mut body, mut chunks) = (Default::default(), Chunks::new(u64::MAX));
        loop {
            let over = match reply.end {
                ResponseFraming::Chunked => chunks.read(&mut input, &mut body),
                ResponseFraming::Length(length) => {
                    let missing = (length - body.len() as u64) as usize;
                    body.unsplit(input.split_to(input.len().min(missing)));
                    Ok(body.len() as u64 == length)
                }
                ResponseFraming::Close => {
                    assert!(!reply.keep_alive, "its end is that of the connection");
                    return answers;
                }
            };
            match (over, pieces.next()) {
                (Ok(true), piece) => {
                    input.extend_from_slice(piece.unwrap_or_default());
                    break;
                }
                (Ok(false), Some(piece)) => input.extend_from_slice(piece),
                _ => return answers,
            }
        }
        answers.push((reply.status.as_u16(), body.to_vec()));
    }
}

/// Paths and bodies of the requests in pieces of `step` bytes, up to the first malformed one.
fn requests_of(bytes: &[u8], step: usize) -> Vec<(String, Vec<u8>)> {
    /// The longest body that is read.
    const MOST: u64 = 1000;
    let mut pieces = bytes.chunks(step);
    let (mut input, mut seen, mut requests) = (Vec::new(), 0, Vec::new());
    let mut more = |input: &mut Vec<u8>| pieces.next().map(|piece| input.extend_from_slice(piece));
    loop {
        let Some(end) = head_end(&input, seen) else {
            seen = input.len();
            match more(&mut input) {
                Some(()) => continue,
                None => return requests,
            }
        };
        let rest = input.split_off(end);
        let Ok(head) = read_request_head(&std::mem::replace(&mut input, rest).into()) else {
            return requests;
        };
        let said = |name: &str| head.headers.contains_key(name);
        assert!(!(said("content-length") && said("transfer-encoding")));
        let body;
        match head.length {
            Length::Known(length) => {
                while (input.len() as u64) < length.min(MOST) && more(&mut input).is_some() {}
                if (input.len() as u64) < length || length > MOST {
                    return requests;
                }
                let rest = input.split_off(length as usize);
                body = std::mem::replace(&mut input, rest);
            }
            Length::Chunked => {
                let (mut chunks, mut left, mut read) = (
                    Chunks::new(MOST),
                    input.as_slice().into(),
                    Default::default(),
                );
                loop {
                    match chunks.read(&mut left, &mut read) {
                        Ok(true) => break,
                        Err(BadChunk::Malformed | BadChunk::TooLarge) => return requests,
                        Ok(false) => {
                            input.clear();
                            if more(&mut input).is_none() {
                                return requests;
                            }
                            left.extend_from_slice(&input);
                        }
                    }
                }
                assert!(read.len() as u64 <= MOST);
                (input, body) = (left.to_vec(), read.to_vec());
            }
        }
        requests.push((head.uri.path().to_owned(), body));
        seen = 0;
    }
}

//! Media types by file extension.

/// Returns the media type for a key's extension.
pub(crate) fn for_key(key: &[u8]) -> &'static str {
    let name = key.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let extension = name.rsplit(|&byte| byte == b'.').next();
    let extension = extension.filter(|extension| extension.len() < name.len());
    match extension
        .unwrap_or_default()
        .to_ascii_lowercase()
        .as_slice()
    {
        b"html" | b"htm" => "text/html; charset=utf-8",
        b"css" => "text/css; charset=utf-8",
        b"txt" | b"log" | b"md" => "text/plain; charset=utf-8",
        b"csv" => "text/csv; charset=utf-8",
        b"js" | b"mjs" => "text/javascript; charset=utf-8",
        b"xml" => "text/xml; charset=utf-8",
        b"json" => "application/json",
        b"pdf" => "application/pdf",
        b"zip" => "application/zip",
        b"gz" | b"tgz" => "application/gzip",
        b"tar" => "application/x-tar",
        b"wasm" => "application/wasm",
        b"jpg" | b"jpeg" => "image/jpeg",
        b"png" => "image/png",
        b"gif" => "image/gif",
        b"webp" => "image/webp",
        b"svg" => "image/svg+xml",
        b"mp3" => "audio/mpeg",
        b"mp4" => "video/mp4",
        b"webm" => "video/webm",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn by_the_last_extension() {
        assert_eq!(
            super::for_key(b"a.b/index.HTML"),
            "text/html; charset=utf-8"
        );
        assert_eq!(super::for_key(b"x.tar.gz"), "application/gzip");
        assert_eq!(super::for_key(b"dir.png/json"), "application/octet-stream");
    }
}

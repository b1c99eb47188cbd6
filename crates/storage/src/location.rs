//! Opening a storage by its location.

use crate::cloud::url::redacted;
use crate::error::{Error, ErrorKind, Result};
use crate::registry::opener;
use crate::{Azure, Backend, Gcs, Local, S3, Sftp, Synth, WebDav};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Opens a storage by its path or URL: a path, `file:///path`, `s3://bucket/prefix`,
/// `azblob://account/container/prefix`, `gs://bucket/prefix`, `sftp://user@host/path`,
/// `webdavs://host/path` or `synth://?seed=1&depth=3…`, or a URL whose scheme was
/// [registered](crate::register).
///
/// ```
/// assert!(headworks_storage::open("synth://?seed=7&files=3".as_ref()).is_ok());
/// let refused = headworks_storage::open("s4://bucket".as_ref()).err().unwrap();
/// assert!(refused.to_string().contains("s3:, azblob:, gs:, sftp:, webdav: and synth:"));
/// let refused = headworks_storage::open("me@host:/data".as_ref()).err().unwrap();
/// assert!(refused.to_string().contains("sftp://user@host/path"));
/// ```
///
/// # Errors
/// When the scheme is unknown, or the rest is invalid.
pub fn open(location: &std::ffi::OsStr) -> Result<Arc<dyn Backend>> {
    let bytes = location.as_bytes();
    if let Some(settings) = bytes.strip_prefix(b"synth://") {
        let text = String::from_utf8_lossy(settings);
        let text = text.split_once('?').map_or("", |(_, settings)| settings);
        return Ok(Arc::new(Synth::parse(text)?));
    }
    if bytes.starts_with(b"s3://") {
        return Ok(Arc::new(S3::open(bytes)?));
    }
    if bytes.starts_with(b"azblob://") {
        return Ok(Arc::new(Azure::open(bytes)?));
    }
    if bytes.starts_with(b"gs://") {
        return Ok(Arc::new(Gcs::open(bytes)?));
    }
    if bytes.starts_with(b"sftp://") {
        return Ok(Arc::new(Sftp::open(bytes)?));
    }
    if bytes.starts_with(b"webdav://") || bytes.starts_with(b"webdavs://") {
        return Ok(Arc::new(WebDav::open(bytes)?));
    }
    if let Some(path) = bytes.strip_prefix(b"file:") {
        let path = path.strip_prefix(b"//").unwrap_or(path);
        return local(path, bytes);
    }
    if let Some(opener) = scheme(bytes).and_then(opener) {
        return opener(bytes);
    }
    match scheme(bytes) {
        Some(_) => {
            let message = "unknown storage; supported are paths, file:, s3:, azblob:, gs:, sftp:, webdav: and synth: (write ./ before a path that looks like a URL)";
            Err(Error::new(
                ErrorKind::Unsupported,
                "open",
                &redacted(bytes),
                message,
            ))
        }
        None if looks_like_a_host(bytes) => {
            let message = "this looks like the `host:path` of rsync and scp; write sftp://user@host/path for another machine, or ./ before a local path";
            Err(Error::new(ErrorKind::Unsupported, "open", bytes, message))
        }
        None => local(bytes, bytes),
    }
}

/// Returns whether a location looks like `me@host:/path`. As a path it would be copied into a
/// folder of that name.
fn looks_like_a_host(location: &[u8]) -> bool {
    let end = location.iter().position(|&byte| byte == b'/');
    let first = &location[..end.unwrap_or(location.len())];
    let path = Path::new(std::ffi::OsStr::from_bytes(location));
    first.contains(&b':') && path.symlink_metadata().is_err()
}

/// Returns the real path of a local directory, with symbolic links resolved; `None` for other
/// storages. A path that does not exist is resolved up to its nearest existing folder.
#[must_use]
pub fn local_path(location: &std::ffi::OsStr) -> Option<PathBuf> {
    let bytes = location.as_bytes();
    let path = match bytes.strip_prefix(b"file:") {
        Some(path) => path.strip_prefix(b"//").unwrap_or(path),
        None if scheme(bytes).is_some() => return None,
        None => bytes,
    };
    let path = std::path::absolute(Path::new(std::ffi::OsStr::from_bytes(path))).ok()?;
    let real = |known: &Path| {
        let rest = path.strip_prefix(known).ok()?;
        Some(known.canonicalize().ok()?.join(rest))
    };
    path.ancestors().find_map(real)
}

/// Returns the location of a folder on a server or of a prefix in a bucket, as a path that starts
/// with the server's name; `None` for directories and generated trees.
///
/// ```
/// let place = |location: &str| headworks_storage::remote_path(location.as_ref());
/// assert!(place("sftp://host/a/b").unwrap().starts_with(place("sftp://host/a/").unwrap()));
/// assert!(!place("sftp://host/ab").unwrap().starts_with(place("sftp://host/a").unwrap()));
/// assert_ne!(place("s3://bucket?endpoint=http://one"), place("s3://bucket?endpoint=http://two"));
/// assert!(place("/data").is_none());
/// ```
#[must_use]
pub fn remote_path(location: &std::ffi::OsStr) -> Option<PathBuf> {
    let text = location.to_str()?;
    let (scheme, rest) = text.split_once("://")?;
    if matches!(scheme, "file" | "synth") {
        return None;
    }
    let (address, settings) = rest.split_once('?').unwrap_or((rest, ""));
    let endpoint = settings
        .split('&')
        .find_map(|one| one.strip_prefix("endpoint="));
    let (host, path) = address.split_once('/').unwrap_or((address, ""));
    let server = format!("{scheme}://{}{host}", endpoint.unwrap_or_default());
    Some(Path::new(&server.replace('/', "|")).join(path))
}

fn local(path: &[u8], url: &[u8]) -> Result<Arc<dyn Backend>> {
    if path.is_empty() {
        return Err(Error::new(
            ErrorKind::NotFound,
            "open",
            url,
            "the path is empty",
        ));
    }
    let path = std::path::absolute(Path::new(std::ffi::OsStr::from_bytes(path)))
        .map_err(|e| Error::new(ErrorKind::Other, "open", url, e.to_string()))?;
    Ok(Arc::new(Local::new(&path)))
}

fn scheme(location: &[u8]) -> Option<&[u8]> {
    let colon = location.windows(3).position(|three| three == b"://")?;
    let scheme = &location[..colon];
    let is_word = !scheme.is_empty() && scheme.iter().all(u8::is_ascii_alphanumeric);
    is_word.then_some(scheme)
}

//! Storages that a program adds to the built-in ones.

use crate::Backend;
use crate::error::{Error, ErrorKind, Result};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

/// Opens a storage by the URL that a user wrote.
type Opener = Arc<dyn Fn(&[u8]) -> Result<Arc<dyn Backend>> + Send + Sync>;

/// Written when a program starts, and read whenever a location is opened.
static OPENERS: LazyLock<RwLock<HashMap<String, Opener>>> = LazyLock::new(RwLock::default);

/// Schemes that cannot be replaced.
const BUILT_IN: [&str; 8] = [
    "file", "s3", "azblob", "gs", "sftp", "webdav", "webdavs", "synth",
];

/// Adds a storage: from now on [`open`](crate::open) passes URLs with this scheme to `opener`, so
/// that a migration can use a [`Backend`] of the program's own, and resume it after a restart.
///
/// ```
/// use headworks_storage::{Synth, open, register};
/// use std::sync::Arc;
///
/// register("demo", |url| {
///     assert_eq!(url, b"demo://anything");
///     Ok(Arc::new(Synth::parse("seed=1&files=3")?))
/// })?;
/// assert!(open("demo://anything".as_ref()).is_ok());
/// assert!(register("s3", |_| unreachable!()).is_err()); // built in
/// # Ok::<(), headworks_storage::Error>(())
/// ```
///
/// # Errors
/// When the scheme is built in, has been registered already, or is not of letters and digits.
pub fn register(
    scheme: &str,
    opener: impl Fn(&[u8]) -> Result<Arc<dyn Backend>> + Send + Sync + 'static,
) -> Result<()> {
    let refused =
        |cause: &str| Error::new(ErrorKind::Unsupported, "register", scheme.as_bytes(), cause);
    if scheme.is_empty() || !scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(refused("a scheme has only letters and digits"));
    }
    if BUILT_IN.contains(&scheme) {
        return Err(refused("the scheme is built in"));
    }
    let mut openers = OPENERS.write().unwrap_or_else(PoisonError::into_inner);
    if openers.contains_key(scheme) {
        return Err(refused("the scheme is registered already"));
    }
    openers.insert(scheme.to_owned(), Arc::new(opener));
    Ok(())
}

/// Returns the opener of a registered scheme.
pub(crate) fn opener(scheme: &[u8]) -> Option<Opener> {
    let scheme = std::str::from_utf8(scheme).ok()?;
    let openers = OPENERS.read().unwrap_or_else(PoisonError::into_inner);
    openers.get(scheme).cloned()
}

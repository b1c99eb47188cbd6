//! Reading a whole request body.

use std::future::Future;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};

/// A request body that is being received.
pub(crate) trait Upload {
    /// Reads the whole body if it has at most `most` bytes.
    fn read_all(self, most: u64) -> impl Future<Output = Result<Bytes, UploadError>> + Send;
}

/// Reason why a body could not be read.
#[derive(Debug)]
pub(crate) enum UploadError {
    TooLarge,
    Broken(String),
}

impl UploadError {
    /// The client closed the connection.
    pub(crate) fn ended() -> UploadError {
        UploadError::Broken("the client closed the connection".to_owned())
    }
}

impl Upload for Incoming {
    async fn read_all(self, most: u64) -> Result<Bytes, UploadError> {
        // A body that announces too large a size is not read at all.
        if self.size_hint().lower() > most {
            return Err(UploadError::TooLarge);
        }
        let limited = Limited::new(self, usize::try_from(most).unwrap_or(usize::MAX));
        match limited.collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(UploadError::TooLarge),
            Err(error) => Err(UploadError::Broken(error.to_string())),
        }
    }
}

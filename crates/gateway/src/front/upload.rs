//! Reading a whole request body.

use std::future::Future;

use bytes::Bytes;
use headworks_h1::{BodyError, RequestBody, Transport};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};

/// A request body that is being received.
pub(crate) trait Upload {
    /// Reads the whole body if it has at most `most` bytes.
    fn read_all(self, most: u64) -> impl Future<Output = Result<Bytes, BodyError>> + Send;
}

impl<S: Transport> Upload for RequestBody<'_, S> {
    async fn read_all(self, most: u64) -> Result<Bytes, BodyError> {
        RequestBody::read_all(self, most).await
    }
}

impl Upload for Incoming {
    async fn read_all(self, most: u64) -> Result<Bytes, BodyError> {
        // A body that announces too large a size is not read at all.
        if self.size_hint().lower() > most {
            return Err(BodyError::TooLarge);
        }
        let limited = Limited::new(self, usize::try_from(most).unwrap_or(usize::MAX));
        match limited.collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(BodyError::TooLarge),
            Err(error) => Err(BodyError::Broken(error.to_string())),
        }
    }
}

//! A container of an account: how calls to it are addressed, signed and understood.

use super::account::{Account, Credentials};
use super::{blocks, sign};
use crate::BoxFuture;
use crate::cloud::clock::Clock;
use crate::cloud::object_store::ObjectStore;
use crate::cloud::url::Url;
use crate::cloud::{
    Call, Clients, Endpoint, Environment, FullResponse, Protocol, Recovery, Rejection, header_text,
    kind_of_status, percent, xml,
};
use crate::error::{Error, ErrorKind, Result};
use headworks_outbound::Settings;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Maximum number of concurrent calls, independent of the workers.
const MAX_CONCURRENT: usize = 64;
/// The version of the protocol.
const VERSION: &str = "2021-12-02";
/// Maximum number of characters in the name of a blob.
const MAX_NAME: usize = 1024;

const SETTINGS: [&str; 5] = ["at_once", "requests", "endpoint", "anonymous", "page"];

/// A container, or a prefix in it.
pub(crate) struct Container {
    pub(super) endpoint: Endpoint,
    account: Account,
    clock: Clock,
    pub(super) name: String,
    pub(super) prefix: Vec<u8>,
    pub(super) part_memory: Arc<Semaphore>,
    /// Names per page, if set; otherwise the service decides.
    pub(super) page: Option<String>,
}

impl Container {
    pub(super) fn open(location: &[u8], environment: &Environment) -> Result<Container> {
        let url = Url::parse(location)?;
        url.allow_only(&SETTINGS)?;
        let fail = |message: String| Error::new(ErrorKind::Other, "open", location, message);
        let cut = url.prefix.iter().position(|&byte| byte == b'/');
        let (name, prefix) = url.prefix.split_at(cut.map_or(0, |at| at + 1));
        let name = String::from_utf8_lossy(name.strip_suffix(b"/").unwrap_or(name)).into_owned();
        if name.is_empty() {
            let message = "the URL has no container; write azblob://account/container/prefix";
            return Err(fail(message.to_owned()));
        }
        if let Some(message) = name_problem(prefix) {
            return Err(fail(format!("invalid prefix: {message}")));
        }
        let anonymous = url.flag("anonymous")?.unwrap_or(false);
        let clients = Clients::new(Settings::default()).map_err(|e| fail(e.to_string()))?;
        let endpoint = url.get("endpoint");
        let account = Account::resolve(&url.host, endpoint, anonymous, environment, &clients)?;
        Ok(Container {
            endpoint: Endpoint::new(clients.proxied, url.limits(MAX_CONCURRENT)?),
            account,
            clock: Clock::default(),
            name,
            prefix: prefix.to_vec(),
            part_memory: Arc::new(Semaphore::new(blocks::MAX_BUFFERED)),
            page: url.get("page").map(str::to_owned),
        })
    }

    /// Returns whether the service can copy from the other container to this one.
    pub(super) fn can_copy_from(&self, other: &Container) -> bool {
        let (one, two) = (&self.account, &other.account);
        (&one.name, &one.origin, &one.base) == (&two.name, &two.origin, &two.base)
            && one.credentials == two.credentials
    }

    pub(super) fn longest_name(&self) -> usize {
        MAX_NAME.saturating_sub(self.prefix.len()).max(1)
    }

    /// Returns what the user should know about the storage.
    pub(super) fn notices(&self) -> Vec<String> {
        self.clock.notice().into_iter().collect()
    }

    fn target(&self, key: &[u8]) -> String {
        let (base, container) = (&self.account.base, percent::encode(self.name.as_bytes()));
        match key {
            b"" => format!("{base}/{container}"),
            key => format!("{base}/{container}/{}", percent::encode_path(key)),
        }
    }

    /// Returns the URL of a blob, for the service to copy from.
    pub(super) fn address(&self, key: &[u8]) -> String {
        let address = format!("{}{}", self.account.origin, self.target(key));
        match &self.account.credentials {
            Credentials::Sas(pairs) => {
                let encode = |text: &str| percent::encode(text.as_bytes());
                let pairs = pairs
                    .iter()
                    .map(|(n, v)| format!("{}={}", encode(n), encode(v)));
                format!("{address}?{}", pairs.collect::<Vec<_>>().join("&"))
            }
            _ => address,
        }
    }

    fn make_call(
        &self,
        labels: (&'static str, &'static str, &[u8]),
        method: Method,
        key: &[u8],
    ) -> Call {
        let mut call = Call::new(labels, method, &self.account.origin, self.target(key));
        if let Credentials::Sas(pairs) = &self.account.credentials {
            call.query.clone_from(pairs);
        }
        call
    }

    /// Returns a call to the container itself.
    pub(super) fn call(
        &self,
        kind: &'static str,
        operation: &'static str,
        path: &[u8],
        method: Method,
    ) -> Call {
        let call = self.make_call((kind, operation, path), method, b"");
        call.query("restype", "container")
    }

    /// Returns a call to a blob.
    pub(super) fn object_call(
        &self,
        kind: &'static str,
        operation: &'static str,
        key: &[u8],
        method: Method,
    ) -> Result<Call> {
        let shown = key.strip_prefix(self.prefix.as_slice()).unwrap_or(key);
        let call = self.make_call((kind, operation, shown), method, key);
        let fail = |message: &str| Err(call.failure(ErrorKind::BadName, message));
        // An empty name addresses the container, which must never be deleted by accident.
        if key.is_empty() {
            return fail("the name is empty");
        }
        let Ok(name) = std::str::from_utf8(key) else {
            return fail("the name is not UTF-8, as blob names must be");
        };
        if name.encode_utf16().count() > MAX_NAME {
            return fail("the name is longer than 1024 characters");
        }
        match name_problem(key) {
            Some(message) => fail(message),
            None => Ok(call),
        }
    }

    pub(super) async fn fetch(&self, call: &Call) -> Result<FullResponse> {
        self.endpoint.fetch(self, call).await
    }

    /// Creates the container, unless it exists.
    pub(super) async fn make(&self) -> Result<()> {
        match self.check().await {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            checked => return checked,
        }
        let name = self.name.as_bytes();
        let call = self.call("make container", "make the container", name, Method::PUT);
        match self.fetch(&call).await {
            Err(error) if error.kind() == ErrorKind::Exists => Ok(()),
            made => made.map(drop),
        }
    }
}

/// Returns why a name cannot be kept, if so: the service accepts such names and changes them.
pub(super) fn name_problem(name: &[u8]) -> Option<&'static str> {
    let mut parts = name.split(|&byte| byte == b'/');
    if parts.any(|part| part.ends_with(b".")) {
        return Some("the service removes a dot at the end of a name");
    }
    if name.contains(&b'\\') {
        return Some("the service converts a backslash to a slash");
    }
    let control = name.iter().any(u8::is_ascii_control);
    control.then_some("the name has a control character")
}

fn error_code(headers: &HeaderMap, body: &[u8]) -> String {
    let code = header_text(headers, "x-ms-error-code").map(str::to_owned);
    code.or_else(|| xml::find(body, "Code")).unwrap_or_default()
}

impl Protocol for Container {
    fn sign<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<HeaderMap>> {
        let mut headers = call.headers.clone();
        headers.insert("x-ms-version", HeaderValue::from_static(VERSION));
        let now = self.clock.now().strftime("%a, %d %b %Y %H:%M:%S GMT");
        if let Ok(now) = HeaderValue::from_str(&now.to_string()) {
            headers.insert("x-ms-date", now);
        }
        if call.method == Method::PUT {
            // Without a body hyper sends no length, which the service requires.
            headers.insert(http::header::CONTENT_LENGTH, call.body.len().into());
        }
        Box::pin(async move {
            match &self.account.credentials {
                Credentials::Key(key) => {
                    headers = sign::sign(&self.account.name, key, call, headers);
                }
                Credentials::Token(token) => {
                    headers.insert(AUTHORIZATION, token.clone());
                }
                Credentials::Renewed(tokens) => {
                    // Such a token opens every account of its owner.
                    if !self.account.is_confidential() {
                        let message = "an identity's token is not sent without TLS: use https, or the account's own key";
                        return Err(call.failure(ErrorKind::Denied, message));
                    }
                    headers.insert(AUTHORIZATION, tokens.token().await?);
                }
                Credentials::Anonymous | Credentials::Sas(_) => {}
            }
            Ok(headers)
        })
    }

    fn recover(&self, _call: &Call, signed: &HeaderMap, rejection: &Rejection<'_>) -> Recovery {
        match &self.account.credentials {
            Credentials::Renewed(tokens) if rejection.status == StatusCode::UNAUTHORIZED => {
                tokens.reject(signed.get(AUTHORIZATION))
            }
            // A time that differs by more than 15 minutes is refused like a wrong key.
            Credentials::Key(_)
                if error_code(rejection.headers, rejection.body) == "AuthenticationFailed"
                    && self.clock.correct(signed, rejection.headers) =>
            {
                Recovery::Repeat
            }
            _ => Recovery::Impossible,
        }
    }

    fn classify(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        body: &[u8],
    ) -> (ErrorKind, String) {
        let code = error_code(headers, body);
        let detail = xml::find(body, "Message").unwrap_or_default();
        // The following lines are request ids.
        let detail = detail.lines().next().unwrap_or_default();
        let mut message = format!("{status} {code} {detail}").trim().to_owned();
        let kind = match code.as_str() {
            "BlobNotFound" | "ContainerNotFound" | "ResourceNotFound" => ErrorKind::NotFound,
            "ContainerAlreadyExists" => ErrorKind::Exists,
            "BlobAlreadyExists"
            | "ConditionNotMet"
            | "TargetConditionNotMet"
            | "SourceConditionNotMet" => ErrorKind::Changed,
            "ServerBusy" | "IngressLimitExceeded" | "EgressLimitExceeded" => {
                match kind_of_status(status, headers) {
                    ErrorKind::Overload(after) => ErrorKind::Overload(after),
                    _ => ErrorKind::Overload(None),
                }
            }
            // The data was damaged in transit, or the operation is possible later.
            "Md5Mismatch"
            | "OperationTimedOut"
            | "InternalError"
            | "ContainerBeingDeleted"
            | "PendingCopyOperation"
            | "InvalidBlockList" => ErrorKind::Temporary,
            "InvalidResourceName" | "InvalidUri" | "OutOfRangeInput" => ErrorKind::BadName,
            "AuthenticationFailed" => {
                message.push_str(": check the key, and the clock of this machine");
                ErrorKind::Denied
            }
            // Other conflicts have 412 and 409 too, but mean that access is denied.
            code if code.starts_with("Lease") || code.starts_with("BlobImmutable") => {
                ErrorKind::Denied
            }
            "InvalidBlobOrBlock" => {
                message.push_str(": an unfinished upload of another program is in the way; finish it there, or wait a week until the service discards it");
                ErrorKind::Other
            }
            _ => kind_of_status(status, headers),
        };
        (kind, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::test_server::{Received, Reply, TestServer, ok, variables};

    #[tokio::test]
    async fn a_wrong_clock_is_corrected_and_said() {
        let storage = TestServer::start(|request: &Received| -> Reply {
            if request.header("x-ms-date").contains(" 2001 ") {
                return ok("<EnumerationResults></EnumerationResults>");
            }
            let headers =
                "x-ms-error-code: AuthenticationFailed\r\ndate: Thu, 01 Mar 2001 00:00:00 GMT\r\n";
            (403, headers, String::new())
        })
        .await;
        let location = format!("azblob://account/container/?endpoint={}", storage.address);
        let environment = variables(&[("AZURE_STORAGE_KEY", "c2VjcmV0")]);
        let container = Container::open(location.as_bytes(), &environment).unwrap();
        assert_eq!(container.notices(), [""; 0]);
        container.check().await.unwrap();
        container.check().await.unwrap();
        assert_eq!(storage.received().len(), 3, "only the first is repeated");
        let notice = container.notices().pop().unwrap();
        assert!(notice.contains("ahead of that of the service"), "{notice}");
    }

    #[tokio::test]
    async fn a_wrong_key_is_not_taken_for_a_wrong_clock() {
        let storage = TestServer::start(|_| {
            let headers = "x-ms-error-code: AuthenticationFailed\r\n";
            (403, headers, String::new())
        })
        .await;
        let location = format!("azblob://account/container/?endpoint={}", storage.address);
        let environment = variables(&[("AZURE_STORAGE_KEY", "c2VjcmV0")]);
        let container = Container::open(location.as_bytes(), &environment).unwrap();
        let refused = container.check().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Denied);
        assert_eq!(storage.received().len(), 1);
    }
}

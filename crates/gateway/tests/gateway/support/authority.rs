//! A certificate for `localhost`, and the file by which a gateway trusts it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio_rustls::TlsAcceptor;

/// A self-signed certificate. Its file is removed with it.
pub(crate) struct Authority {
    pub(crate) file: PathBuf,
    issued: rcgen::CertifiedKey<rcgen::KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (process, n) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let file = std::env::temp_dir().join(format!("headworks-gateway-{process}-{n}.pem"));
        std::fs::write(&file, issued.cert.pem()).unwrap();
        Authority { file, issued }
    }

    /// Speaks HTTP/1 over TLS.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let key = PrivateKeyDer::Pkcs8(self.issued.signing_key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![self.issued.cert.der().clone()], key)
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

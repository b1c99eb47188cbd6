//! Trusted root certificates.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::Error;

/// The system's root certificates. They are read once, because a program has several clients and
/// there are hundreds of certificates.
static SYSTEM: LazyLock<RootCertStore> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    for error in &system.errors {
        tracing::warn!(%error, "cannot read some system certificates");
    }
    roots.add_parsable_certificates(system.certs);
    roots
});

/// A TLS configuration that trusts the system's roots and those in `ca_file`.
pub(crate) fn client_config(ca_file: Option<&Path>) -> Result<ClientConfig, Error> {
    let mut roots = SYSTEM.clone();
    if let Some(path) = ca_file {
        roots.roots.extend(read(path)?.roots);
    }
    if roots.is_empty() {
        tracing::warn!("no trusted certificates found: HTTPS will fail; set `outbound.ca_file`");
    }
    // Named explicitly, so that no second crypto provider enters through a default feature.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

/// No list of certificates is larger.
const MAX_SIZE: u64 = 16 << 20;

/// Reads the certificates in the file at `path`: at least one, all of them usable.
///
/// # Errors
/// When the file has no certificate, or one that cannot be used.
pub fn read(path: &Path) -> Result<RootCertStore, Error> {
    let unusable = |cause: String| Error::Certificates {
        path: path.to_path_buf(),
        cause,
    };
    let mut roots = RootCertStore::empty();
    // A device without an end must not fill memory, and a pipe must not be waited for.
    let about = std::fs::metadata(path).map_err(|e| unusable(e.to_string()))?;
    if !about.is_file() || about.len() > MAX_SIZE {
        return Err(unusable("not a regular file of at most 16 MiB".to_owned()));
    }
    let content = std::fs::read(path).map_err(|e| unusable(e.to_string()))?;
    for certificate in CertificateDer::pem_slice_iter(&content) {
        let certificate = certificate.map_err(|e| unusable(e.to_string()))?;
        roots
            .add(certificate)
            .map_err(|e| unusable(e.to_string()))?;
    }
    if roots.is_empty() {
        return Err(unusable("the file has no certificates".to_owned()));
    }
    Ok(roots)
}

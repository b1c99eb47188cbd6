//! Whose certificates are believed.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::error::Error;

/// The system's roots, and those in `ca_file`.
pub(super) fn client_config(ca_file: Option<&Path>) -> Result<ClientConfig, Error> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    for error in &system.errors {
        tracing::warn!(%error, "some of the system's certificates cannot be read");
    }
    roots.add_parsable_certificates(system.certs);
    if let Some(path) = ca_file {
        add_file(&mut roots, path)?;
    }
    if roots.is_empty() {
        tracing::warn!("no trusted certificates found: HTTPS will fail; set `outbound.ca_file`");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

fn add_file(roots: &mut RootCertStore, path: &Path) -> Result<(), Error> {
    let unusable = |cause: String| Error::Certificates {
        path: path.to_path_buf(),
        cause,
    };
    let found = CertificateDer::pem_file_iter(path).map_err(|e| unusable(e.to_string()))?;
    let mut any = false;
    for certificate in found {
        let certificate = certificate.map_err(|e| unusable(e.to_string()))?;
        roots
            .add(certificate)
            .map_err(|e| unusable(e.to_string()))?;
        any = true;
    }
    if any {
        Ok(())
    } else {
        Err(unusable("there is none in it".to_owned()))
    }
}

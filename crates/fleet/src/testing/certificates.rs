//! A CA and a certificate for `localhost`.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// PEM texts of a CA, and of a server with a certificate of it.
#[derive(Debug)]
pub struct Certificates {
    /// The CA's certificate.
    pub ca: String,
    /// The server's certificate, for the given names.
    pub certificate: String,
    /// The server's private key.
    pub key: String,
}

impl Certificates {
    /// Makes a CA and a certificate for `names`.
    ///
    /// # Panics
    /// When that fails.
    #[must_use]
    pub fn new(names: &[&str]) -> Certificates {
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key can be generated");
        let ca = CertifiedIssuer::self_signed(ca, key).expect("a CA can be made");
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let server = CertificateParams::new(names).expect("the names are valid");
        let key = KeyPair::generate().expect("a key can be generated");
        let certificate = server.signed_by(&key, &ca).expect("the CA can sign");
        Certificates {
            ca: ca.pem(),
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }
}
